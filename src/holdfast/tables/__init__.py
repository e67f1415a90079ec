"""Tables: their commands, and pure functions on keys, schemas, conditions, updates, deadlines and indexes.

Nothing in this package reads, writes, waits or asks for the time. `holdfast.decide` combines these functions.
"""
