"""Whole stores on the move: comparisons, backups and copies, between all engines."""
