"""Histories of concurrent clients under faults, and the checker that says whether they are linearizable."""
