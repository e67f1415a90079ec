"""Requests of all doors of a service: their queues, turns, deadlines, logs and counts."""
