"""Upkeep: it expires due entries, trims old records, and finishes interrupted work.

Law: this package finds what is to be done and submits commands for it.
"""
