"""The engines, which store the rows.

An engine moves rows and knows no rules. A driver is imported only by its engine. Each engine has one
translator from its driver's errors to ours.
"""
