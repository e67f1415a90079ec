"""Tables as pure functions: keys, schemas, paths, conditions, updates, deadlines, indexes.

Law: nothing in this package reads, writes, waits or asks for the time. `holdfast.decide` combines these
functions.
"""
