"""Holdfast for programs that do not use asyncio: the same handles without `await`.

    import holdfast.sync

    with holdfast.sync.open("state.db") as store:
        kv = store.kv("trivia")
        kv.set("round", 1)

The classes are generated from the asynchronous ones, and one thread with one event loop serves all stores of the
process.
"""

from holdfast.sync.store import Store, open

__all__ = ["Store", "open"]
