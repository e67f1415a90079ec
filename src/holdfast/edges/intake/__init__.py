"""Requests of all doors of a service: their queues, turns, deadlines, answers, logs and counts."""
