"""The doors: what turns flags, files and messages into calls of a store, and results back.

Law: edges decide nothing. Configuration is read here and nowhere else.
"""
