"""Operators' tools: the audit, dead letters, the trash, copies, and the contents of namespaces.

This package reads through the engine and writes by commands. Programs that use a store never need it.
"""

from typing import TYPE_CHECKING

from holdfast.late import on_demand

if TYPE_CHECKING:
    from holdfast.operators import audit, letters, rescues, store_stats, tokens, trash
    from holdfast.pipeline import audits

__all__ = ["audit", "audits", "letters", "rescues", "store_stats", "tokens", "trash"]

# These take 8 ms to import, and a program that uses keys needs none of them.
__getattr__ = on_demand(
    __name__,
    {name: f"{__name__}.{name}" for name in __all__} | {"audits": "holdfast.pipeline.audits"},
)
