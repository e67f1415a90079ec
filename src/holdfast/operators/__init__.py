"""Operators' tools: the audit, dead letters, the trash, copies, and the contents of namespaces.

This package reads through the engine and writes by commands. Programs that use a store never need it.
"""

from typing import TYPE_CHECKING

from holdfast.late import on_demand

if TYPE_CHECKING:
    from holdfast.operators.audit import Audit
    from holdfast.operators.letters import Letters
    from holdfast.operators.rescues import Rescues, rescue_at
    from holdfast.operators.store_stats import StoreStats, stats_of_all
    from holdfast.operators.tokens import Tokens
    from holdfast.operators.trash import trash_page, trash_query
    from holdfast.pipeline.audits import audits, bind_keys, heads, key_trouble, suspects

__all__ = [
    "Audit",
    "Letters",
    "Rescues",
    "StoreStats",
    "Tokens",
    "audits",
    "bind_keys",
    "heads",
    "key_trouble",
    "rescue_at",
    "stats_of_all",
    "suspects",
    "trash_page",
    "trash_query",
]

# These take 8 ms to import, and a program that uses keys needs none of them.
__getattr__ = on_demand(
    __name__,
    {
        "Audit": "holdfast.operators.audit",
        "Letters": "holdfast.operators.letters",
        "Rescues": "holdfast.operators.rescues",
        "StoreStats": "holdfast.operators.store_stats",
        "Tokens": "holdfast.operators.tokens",
        "audits": "holdfast.pipeline.audits",
        "bind_keys": "holdfast.pipeline.audits",
        "heads": "holdfast.pipeline.audits",
        "key_trouble": "holdfast.pipeline.audits",
        "rescue_at": "holdfast.operators.rescues",
        "stats_of_all": "holdfast.operators.store_stats",
        "suspects": "holdfast.pipeline.audits",
        "trash_page": "holdfast.operators.trash",
        "trash_query": "holdfast.operators.trash",
    },
)
