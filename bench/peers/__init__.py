"""What Holdfast is measured beside, each as its users run it and as durable as it can be told to be.

One file for each peer: how it is started, what its durability is. None of them serves through Holdfast.
"""
