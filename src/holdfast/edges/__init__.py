"""The doors: they turn flags, files and messages into calls of a store, and results back.

Law: edges decide nothing. Only edges read configuration.
"""
