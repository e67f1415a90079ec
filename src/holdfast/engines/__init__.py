"""The engines, which store the rows.

Law: an engine moves rows and knows no rules. A driver is imported only by its engine. Each engine has one
translator from its driver's errors to ours.
"""
