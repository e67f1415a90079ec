"""Results of tools: structured content for programs, and the same as text for models.

Law: a refusal is data. It has the code and the fields that every door sends, and a sentence that says what to
do next. A lost race is an ordinary outcome, so it does not count as an error of the tool; everything else
that was refused does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from mcp_types import CallToolResult, TextContent

from holdfast.wire.errors import error_fields

if TYPE_CHECKING:
    from holdfast.edges.mcp.apart import Apart
    from holdfast.errors import HoldfastError

LOST_RACES: Final = frozenset({"VERSION_CONFLICT", "CONDITION_FAILED", "FENCED"})
"""Codes of outcomes that a caller meets when others write too."""

_CORRECT: Final = "Correct what the message names, and call the tool again."
_LATER: Final = "Nothing was written. Wait a moment, then call the tool again with the same arguments."
_GIVE_UP: Final = "Do not repeat the call. Tell your user what the message says."
NEXT: Final[dict[str, str]] = {
    "INVALID_JSON": _CORRECT,
    "MISSING_FIELD": _CORRECT,
    "INVALID_SUBJECT": _CORRECT,
    "INVALID_PLUGIN_NAME": _CORRECT,
    "VALIDATION_ERROR": _CORRECT,
    "VALUE_TOO_LARGE": "Store less under one key, or split the value over several keys.",
    "KEY_NOT_FOUND": "Create the key, or go on without it; it may have expired.",
    "CONDITION_FAILED": "Look at current, and decide again from it.",
    "FENCED": "Another caller has taken the lock since. Stop the work that it protects; acquire the lock "
    "again before you write.",
    "TABLE_NOT_FOUND": "Call table_list to see the tables that there are.",
    "TABLE_EXISTS": "Use the table that is there.",
    "ITEM_NOT_FOUND": "Go on without the item; it may have expired.",
    "INDEX_NOT_FOUND": "Call table_list to see the indexes that there are.",
    "TTL_NOT_CONFIGURED": _GIVE_UP,
    "QUOTA_EXCEEDED": "Delete what is no longer needed, or ask your user to raise the quota.",
    "PERMISSION_DENIED": _GIVE_UP,
    "UNSUPPORTED": _GIVE_UP,
    "TOO_EXPENSIVE": "Ask for less at a time: a narrower prefix or a smaller limit.",
    "VERSION_CONFLICT": "Another writer was faster. Decide again from current, then call the tool with its "
    "version as expected_version, or leave the entry as it is.",
    "RATE_LIMITED": _LATER,
    "BUSY": _LATER,
    "TIMEOUT": _LATER,
    "UNAVAILABLE": _LATER,
    "STORAGE_FULL": "Tell your user that the disk is full. Reading and deleting still work.",
    "OUTCOME_UNKNOWN": "It may have been written or not. Read the entry, or repeat the call if it had a "
    "request_id.",
    "DATABASE_ERROR": _GIVE_UP,
    "INTERNAL_ERROR": _GIVE_UP,
}
"""Advice for an agent, by error code."""
_REUSED: Final = "Another call has used this request_id. Call again with a new one."
_GONE: Final = (
    "The entry is gone. Call the tool with expected_version 0 to create it anew, or leave it; history says "
    "what happened to it."
)


def success(apart: Apart, fields: dict[str, Any]) -> CallToolResult:
    """Return the result of a call that was done."""
    return _result(apart, {"success": True, **fields}, error=False)


def refusal(apart: Apart, error: HoldfastError) -> CallToolResult:
    """Return the result of a call that was refused."""
    fields = {"success": False, **error_fields(error)}
    return _result(apart, {**fields, "next": _next(fields)}, error=error.code not in LOST_RACES)


def _next(fields: dict[str, Any]) -> str:
    if fields["error_code"] == "VERSION_CONFLICT":
        if "reason" in fields:
            return _REUSED
        if fields["current"] is None:
            return _GONE
    return NEXT[fields["error_code"]]


def _result(apart: Apart, fields: dict[str, Any], *, error: bool) -> CallToolResult:
    text, structured = apart.result(msgspec.json.encode(fields))
    return CallToolResult(content=[TextContent(text=text)], structured_content=structured, is_error=error)
