"""The path of every command: admitted, grouped, committed, and announced to watchers.

Nothing here knows what a command means, and nothing here imports a handle or the store.
"""
