"""The path of every command: admitted, grouped, committed, and announced to watchers.

Law: nothing here knows what a command means, and nothing here imports a handle or the store.
"""
