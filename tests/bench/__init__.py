"""The measuring code under test: what it counts, compares and tells. Nothing here takes time."""
