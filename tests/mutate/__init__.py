"""Bugs planted in the library, one at a time, each of which a test must find: `./dev mutate`."""
