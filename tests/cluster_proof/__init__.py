"""The proof of the cluster: clients on every node, faults of every kind, and checkers of what clients saw."""
