"""The doors: configuration, the command line, the running service."""
