"""Holdfast: a key-value store for plugins, agents and services.

    async with holdfast.open("state.db") as store:
        kv = store.kv("trivia")
        await kv.set("game:42", {"turn": "alice"}, ttl=1800)

What is listed here does not change without a changelog entry. Names that few programs use are imported when
they are asked for, so that nobody else pays for them.
"""

import logging
from typing import TYPE_CHECKING

from holdfast.audit.results import AuditEntry, AuditPage, Compared, Discrepancy, Verdict
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
    TooExpensive,
    TtlNotConfigured,
    Unavailable,
    Unsupported,
    ValidationError,
    ValueTooLarge,
    VersionConflict,
)
from holdfast.handles.kv import KV
from holdfast.late import on_demand
from holdfast.model import (
    KEEP,
    BatchResult,
    Blob,
    BlobPage,
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
    Parts,
    Policy,
    Rescued,
    Semantics,
    SlowPage,
    SlowRequest,
    Stats,
    TrashEntry,
    TrashPage,
)
from holdfast.registry import open, register_engine
from holdfast.store import Store
from holdfast.tracing import record_spans, traced

if TYPE_CHECKING:
    from holdfast import sync
    from holdfast.handles.blobs import BlobReader, Blobs
    from holdfast.handles.recipes.names import request_id
    from holdfast.handles.tables import ReaperHandle, Tables
    from holdfast.tables.conditions import attr
    from holdfast.tables.updates import if_not_exists

__all__ = [
    "KEEP",
    "KV",
    "AuditEntry",
    "AuditPage",
    "BatchResult",
    "Blob",
    "BlobPage",
    "BlobReader",
    "Blobs",
    "Busy",
    "Change",
    "Changes",
    "Compared",
    "ConditionFailed",
    "Conflict",
    "DatabaseError",
    "Discrepancy",
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
    "Parts",
    "PermissionDenied",
    "Policy",
    "QuotaExceeded",
    "RateLimited",
    "ReaperHandle",
    "Rescued",
    "Semantics",
    "SlowPage",
    "SlowRequest",
    "Stats",
    "StorageFull",
    "Store",
    "TableExists",
    "TableNotFound",
    "Tables",
    "Timeout",
    "TooExpensive",
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
    "record_spans",
    "register_engine",
    "request_id",
    "sync",
    "traced",
]

__version__ = "0.1.0"

logging.getLogger("holdfast").addHandler(logging.NullHandler())

# Tables and recipes take 12 ms to import, and few programs use these names.
__getattr__ = on_demand(
    __name__,
    {
        "BlobReader": "holdfast.handles.blobs",
        "Blobs": "holdfast.handles.blobs",
        "ReaperHandle": "holdfast.handles.tables",
        "Tables": "holdfast.handles.tables",
        "attr": "holdfast.tables.conditions",
        "if_not_exists": "holdfast.tables.updates",
        "request_id": "holdfast.handles.recipes.names",
        "sync": "holdfast.sync",
    },
)
