"""Recipes, common patterns over keys: locks, checkpoints, cursors, counters and flags.

A recipe uses only the verbs of a handle and the store's time. So it works wherever the handle does:
embedded, on any engine, and over NATS.
"""

from typing import TYPE_CHECKING

from holdfast.late import on_demand

if TYPE_CHECKING:
    from holdfast.handles.recipes import counter, flag, flags, lock, mirror, names, progress, retry

__all__ = ["counter", "flag", "flags", "lock", "mirror", "names", "progress", "retry"]

# These take 9 ms to import, and many programs use none of them.
__getattr__ = on_demand(__name__, {name: f"{__name__}.{name}" for name in __all__})
