"""The doors: they turn flags, files and messages into calls of a store, and results back.

Edges decide nothing. Only edges read configuration.
"""
