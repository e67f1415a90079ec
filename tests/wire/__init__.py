"""Messages as bytes: what is spelled how, and that nothing is lost on the way."""
