"""Holdfast: a key-value store for plugins, agents and services.

    async with holdfast.open("state.db") as store:
        kv = store.kv("trivia")
        await kv.set("game:42", {"turn": "alice"}, ttl=1800)

Law: public names only; what is listed here does not change without a changelog entry.
"""

import logging

from holdfast.errors import (
    Busy,
    ConditionFailed,
    DatabaseError,
    Escalated,
    Fenced,
    HoldfastError,
    IndexNotFound,
    InternalError,
    InvalidJson,
    InvalidPluginName,
    InvalidSubject,
    ItemNotFound,
    KeyNotFound,
    LockLost,
    MissingField,
    OutcomeUnknown,
    PermissionDenied,
    QuotaExceeded,
    RateLimited,
    StorageFull,
    TableExists,
    TableNotFound,
    Timeout,
    TtlNotConfigured,
    Unavailable,
    Unsupported,
    ValidationError,
    ValueTooLarge,
    VersionConflict,
)
from holdfast.kv import KV
from holdfast.model import (
    KEEP,
    AuditEntry,
    AuditPage,
    BatchResult,
    Change,
    Changes,
    Conflict,
    Entry,
    Item,
    ItemChange,
    ItemChanges,
    ItemConflict,
    ItemPage,
    Letter,
    LetterPage,
    Page,
    Policy,
    Semantics,
    Stats,
    TrashEntry,
    TrashPage,
    Verdict,
)
from holdfast.recipes.identifiers import request_id
from holdfast.registry import open
from holdfast.store import Store
from holdfast.table import ReaperHandle, Tables
from holdfast.tables.conditions import attr
from holdfast.tables.updates import if_not_exists

__all__ = [
    "KEEP",
    "KV",
    "AuditEntry",
    "AuditPage",
    "BatchResult",
    "Busy",
    "Change",
    "Changes",
    "ConditionFailed",
    "Conflict",
    "DatabaseError",
    "Entry",
    "Escalated",
    "Fenced",
    "HoldfastError",
    "IndexNotFound",
    "InternalError",
    "InvalidJson",
    "InvalidPluginName",
    "InvalidSubject",
    "Item",
    "ItemChange",
    "ItemChanges",
    "ItemConflict",
    "ItemNotFound",
    "ItemPage",
    "KeyNotFound",
    "Letter",
    "LetterPage",
    "LockLost",
    "MissingField",
    "OutcomeUnknown",
    "Page",
    "PermissionDenied",
    "Policy",
    "QuotaExceeded",
    "RateLimited",
    "ReaperHandle",
    "Semantics",
    "Stats",
    "StorageFull",
    "Store",
    "TableExists",
    "TableNotFound",
    "Tables",
    "Timeout",
    "TrashEntry",
    "TrashPage",
    "TtlNotConfigured",
    "Unavailable",
    "Unsupported",
    "ValidationError",
    "ValueTooLarge",
    "Verdict",
    "VersionConflict",
    "attr",
    "if_not_exists",
    "open",
    "request_id",
]

logging.getLogger("holdfast").addHandler(logging.NullHandler())
