"""Recipes, common patterns over keys: locks, checkpoints, cursors, counters and flags.

Law: a recipe uses only the verbs of a handle and the store's time. So it works wherever the handle does:
embedded, on any engine, and over NATS.
"""
