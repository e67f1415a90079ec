"""Moves of whole stores: backups, restores, copies and comparisons, between any two engines.

This package reads and loads raw contents through `holdfast.engine.raw` and interprets no row. It knows no
engine and no door.
"""
