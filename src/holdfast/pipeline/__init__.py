"""The way of every command: admitted, grouped, committed, and told to those who watch.

Law: nothing here knows what a command means, and nothing here imports a handle or the store.
"""
