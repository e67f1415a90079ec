"""Upkeep: it expires due entries, trims old records, and finishes interrupted work.

This package finds what is to be done and submits commands for it.
"""

from typing import TYPE_CHECKING

from holdfast.late import on_demand

if TYPE_CHECKING:
    from holdfast.upkeep.reaper import Reaper
    from holdfast.upkeep.tables import finish_indexes, keep_finishing

__all__ = ["Reaper", "finish_indexes", "keep_finishing"]

# These take 14 ms to import, and a process that only reads needs none of them.
__getattr__ = on_demand(
    __name__,
    {
        "Reaper": "holdfast.upkeep.reaper",
        "finish_indexes": "holdfast.upkeep.tables",
        "keep_finishing": "holdfast.upkeep.tables",
    },
)
