"""Other projects' tests, run with our adapters: one module for each suite, as a plugin of pytest."""
