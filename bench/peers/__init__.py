"""What Holdfast is measured beside, each as its users run it and as durable as it can be told to be.

Law: one file for each peer: how it is started, what its durability is. None of them serves through Holdfast.
"""
