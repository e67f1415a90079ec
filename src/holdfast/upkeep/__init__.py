"""Upkeep: it expires due entries, trims old records, and finishes interrupted work.

This package finds what is to be done and submits commands for it.
"""

from typing import TYPE_CHECKING

from holdfast.late import on_demand

if TYPE_CHECKING:
    from holdfast.upkeep import reaper, tables

__all__ = ["reaper", "tables"]

# These take 14 ms to import, and a process that only reads needs none of them.
__getattr__ = on_demand(__name__, {name: f"{__name__}.{name}" for name in __all__})
