"""Conversion of errors to fields, and of fields to errors.

Only what a caller can act on is sent, never an exception's text. Every class with a code can be
converted back. Stored data is passed on unchanged and never decoded on its way out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from holdfast.errors import (
    ConditionFailed,
    HoldfastError,
    InternalError,
    Transient,
    VersionConflict,
    error_classes,
    peek,
)
from holdfast.model import Conflict, Item, ItemConflict
from holdfast.stored import SeenItem
from holdfast.wire.replies import entry_of_fields, item_fields, item_of_fields, seen_fields

ERRORS: Final[dict[str, type[HoldfastError]]] = {kind.code: kind for kind in error_classes()}
"""Every error by its code."""

NUMBERS: Final[dict[str, int]] = {
    "INVALID_JSON": 400,
    "MISSING_FIELD": 400,
    "INVALID_PLUGIN_NAME": 400,
    "VALIDATION_ERROR": 400,
    "PERMISSION_DENIED": 403,
    "INVALID_SUBJECT": 404,
    "KEY_NOT_FOUND": 404,
    "TABLE_NOT_FOUND": 404,
    "ITEM_NOT_FOUND": 404,
    "INDEX_NOT_FOUND": 404,
    "TIMEOUT": 408,
    "VERSION_CONFLICT": 409,
    "FENCED": 409,
    "TABLE_EXISTS": 409,
    "TTL_NOT_CONFIGURED": 409,
    "CONDITION_FAILED": 412,
    "VALUE_TOO_LARGE": 413,
    "TOO_EXPENSIVE": 422,
    "QUOTA_EXCEEDED": 422,
    "RATE_LIMITED": 429,
    "DATABASE_ERROR": 500,
    "INTERNAL_ERROR": 500,
    "UNSUPPORTED": 501,
    "BUSY": 503,
    "UNAVAILABLE": 503,
    "OUTCOME_UNKNOWN": 504,
    "STORAGE_FULL": 507,
}
"""The number of each code for clients of NATS services: the status of the corresponding HTTP response."""


def error_fields(error: HoldfastError) -> dict[str, Any]:
    """Convert an error to fields of the plugin dialect."""
    fields: dict[str, Any] = {
        "error_code": error.code,
        "message": error.message,
        "retryable": error.retryable,
    }
    if error.field is not None:
        fields["field"] = error.field
    if isinstance(error, Transient) and error.retry_after is not None:
        fields["retry_after"] = error.retry_after
    if isinstance(error, VersionConflict):
        fields |= _conflict_fields(error)
    if isinstance(error, ConditionFailed):
        fields |= _condition_fields(error)
    return fields


def error_of(fields: Mapping[str, Any]) -> HoldfastError:
    """Convert a reply in the plugin dialect to its error."""
    kind = ERRORS.get(str(fields.get("error_code", "")).upper(), InternalError)
    message = str(fields.get("message", "the service gave no reason"))
    if issubclass(kind, VersionConflict):
        return _conflict_of(kind, message, fields)
    if issubclass(kind, ConditionFailed):
        return kind(
            message,
            field=fields.get("field"),
            current=_item_of(fields.get("current")),
            conflicts=[
                ItemConflict(position=conflict["position"], current=_item_of(conflict["current"]))
                for conflict in fields.get("conflicts", ())
            ],
        )
    if issubclass(kind, Transient):
        return kind(message, field=fields.get("field"), retry_after=fields.get("retry_after"))
    return kind(message, field=fields.get("field"))


def _conflict_of(kind: type[VersionConflict], message: str, fields: Mapping[str, Any]) -> VersionConflict:
    current, reason = fields.get("current"), fields.get("reason")
    if current is not None and "key" not in current:
        return kind(message, item=_item_of(current), reason=reason)
    conflicts = [
        Conflict(
            key=conflict["key"],
            expected_version=conflict["expected_version"],
            current=entry_of_fields(conflict["current"]),
        )
        for conflict in fields.get("conflicts", ())
    ]
    return kind(message, current=entry_of_fields(current), conflicts=conflicts, reason=reason)


def _conflict_fields(error: VersionConflict) -> dict[str, Any]:
    """Return the fields of the current state: an entry or, in a table, an item, which is shown as such."""
    item = peek(error, "item")
    current = seen_fields(peek(error, "current")) if item is None else _seen_item(item)
    fields: dict[str, Any] = {"current": current}
    if error.reason is not None:
        fields["reason"] = error.reason
    if conflicts := peek(error, "conflicts"):
        fields["conflicts"] = [
            {
                "key": conflict.key,
                "expected_version": conflict.expected_version,
                "current": seen_fields(conflict.current),
            }
            for conflict in conflicts
        ]
    return fields


def _condition_fields(error: ConditionFailed) -> dict[str, Any]:
    fields: dict[str, Any] = {"current": _seen_item(peek(error, "current"))}
    if conflicts := peek(error, "conflicts"):
        fields["conflicts"] = [
            {"position": conflict.position, "current": _seen_item(conflict.current)} for conflict in conflicts
        ]
    return fields


def _seen_item(seen: Item | SeenItem | None) -> dict[str, Any] | None:
    """Convert an item that a conflict saw, without its attributes if it has none."""
    if seen is None:
        return None
    return item_fields(seen.stored if isinstance(seen, SeenItem) else seen)


def _item_of(fields: Mapping[str, Any] | None) -> Item | None:
    if fields is None:
        return None
    return item_of_fields(fields.get("item", msgspec.UNSET), fields["version"], fields["expires_at"])
