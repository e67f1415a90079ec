"""Recipes, common patterns over keys: locks, checkpoints, cursors, counters and flags.

A recipe uses only the verbs of a handle and the store's time. So it works wherever the handle does:
embedded, on any engine, and over NATS.
"""

from typing import TYPE_CHECKING

from holdfast.late import on_demand

if TYPE_CHECKING:
    from holdfast.handles.recipes.counter import Counter
    from holdfast.handles.recipes.flag import Flag
    from holdfast.handles.recipes.flags import Flags
    from holdfast.handles.recipes.lock import Lock
    from holdfast.handles.recipes.mirror import Mirror
    from holdfast.handles.recipes.names import hashed_key, original_of
    from holdfast.handles.recipes.progress import Progress
    from holdfast.handles.recipes.retry import Retry, update

__all__ = [
    "Counter",
    "Flag",
    "Flags",
    "Lock",
    "Mirror",
    "Progress",
    "Retry",
    "hashed_key",
    "original_of",
    "update",
]

# These take 9 ms to import, and many programs use none of them.
__getattr__ = on_demand(
    __name__,
    {
        "Counter": "holdfast.handles.recipes.counter",
        "Flag": "holdfast.handles.recipes.flag",
        "Flags": "holdfast.handles.recipes.flags",
        "Lock": "holdfast.handles.recipes.lock",
        "Mirror": "holdfast.handles.recipes.mirror",
        "Progress": "holdfast.handles.recipes.progress",
        "Retry": "holdfast.handles.recipes.retry",
        "hashed_key": "holdfast.handles.recipes.names",
        "original_of": "holdfast.handles.recipes.names",
        "update": "holdfast.handles.recipes.retry",
    },
)
