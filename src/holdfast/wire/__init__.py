"""Messages: bytes to fields to commands, results to fields to bytes.

Law: pure functions, no I/O. What a field means is known to `holdfast.verbs`; here is how it is spelled.
"""
