"""What a person does in the console, in a real browser."""
