"""Every error goes over the wire and comes back as what it was."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.errors import (
    Busy,
    DatabaseError,
    HoldfastError,
    InternalError,
    Transient,
    VersionConflict,
    error_classes,
)
from holdfast.model import Conflict, Entry, Semantics
from holdfast.wire.dialects import PAYLOAD, PLUGIN, SEMANTIC
from holdfast.wire.errors import ERRORS, error_fields, error_of

AT = datetime(2026, 11, 3, 12, 30, 15, 250_000, tzinfo=UTC)
PROMISED = {
    *("INVALID_JSON", "MISSING_FIELD", "INVALID_SUBJECT", "INVALID_PLUGIN_NAME", "VALIDATION_ERROR"),
    *("VALUE_TOO_LARGE", "KEY_NOT_FOUND", "CONDITION_FAILED", "FENCED", "TABLE_NOT_FOUND", "TABLE_EXISTS"),
    *("ITEM_NOT_FOUND", "INDEX_NOT_FOUND", "TTL_NOT_CONFIGURED", "QUOTA_EXCEEDED", "PERMISSION_DENIED"),
    *("UNSUPPORTED", "VERSION_CONFLICT", "RATE_LIMITED", "BUSY", "TIMEOUT", "UNAVAILABLE", "STORAGE_FULL"),
    *("OUTCOME_UNKNOWN", "DATABASE_ERROR", "INTERNAL_ERROR", "TOO_EXPENSIVE"),
}
"""The codes that callers are promised."""
CLASSES = sorted(error_classes(), key=lambda kind: kind.code)


def entry(**fields: Any) -> Entry:
    """An entry with all of its envelope, but for what is said otherwise."""
    whole: dict[str, Any] = {
        "key": "k",
        "value": {"a_b": [1, {"cD": None}]},
        "version": 7,
        "created_at": AT,
        "updated_at": AT,
        "expires_at": AT,
        "last_writer": "bot:7",
        "semantics": Semantics(purpose="lock", producer="p", consumer_hints=("a", "b"), ttl_seconds=9),
        "request_id": "r1",
        "spec_ref": "spec#1",
    }
    return Entry(**whole | fields)


BARE = entry(value=None, expires_at=None, semantics=None, request_id=None, spec_ref=None)


def made(kind: type[HoldfastError]) -> list[HoldfastError]:
    """An error of a class in each of the forms that it can have."""
    if issubclass(kind, VersionConflict):
        conflicts = [
            Conflict(key="k", expected_version=3, current=entry()),
            Conflict(key="j", expected_version=1, current=None),
        ]
        return [
            kind("lost", current=None),
            kind("lost", current=entry()),
            kind("lost", current=BARE),
            kind("lost", current=BARE, reason="request_id_reused"),
            kind("lost", current=entry(), conflicts=conflicts),
        ]
    if issubclass(kind, Transient):
        return [kind("wait"), kind("wait", retry_after=0.25), kind("wait", field="key", retry_after=0.0)]
    return [kind("no"), kind("no é\n", field="semantics.purpose")]


def content(error: HoldfastError) -> dict[str, Any]:
    """All that an error carries."""
    return {"type": type(error), "args": error.args} | vars(error)


def test_every_code_has_its_class() -> None:
    """The table from codes to classes is total and one to one over every error of the library."""
    assert set(ERRORS) == {kind.code for kind in CLASSES}
    assert set(ERRORS) >= PROMISED
    assert len(ERRORS) == len(CLASSES)
    assert all(ERRORS[kind.code] is kind for kind in CLASSES)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.code)
def test_an_error_comes_back_as_it_was(kind: type[HoldfastError]) -> None:
    """Class, message, field, retry_after, current entry, conflicts and reason survive the plugin dialect."""
    for error in made(kind):
        reply = PLUGIN.answer(PLUGIN.refusal(error))
        assert reply["success"] is False
        assert content(error_of(reply)) == content(error)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.code)
def test_an_error_survives_the_semantic_dialect(kind: type[HoldfastError]) -> None:
    """The semantic dialect spells an error otherwise and loses nothing of it."""
    for error in made(kind):
        assert content(error_of(SEMANTIC.answer(SEMANTIC.refusal(error)))) == content(error)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.code)
def test_an_error_in_each_dialect(kind: type[HoldfastError]) -> None:
    """Plugin: flat, upper-case error_code; payload: nested error.code; semantic: errorCode in lower case."""
    error = made(kind)[0]
    plugin = json.loads(PLUGIN.refusal(error))
    assert plugin["success"] is False
    assert (plugin["error_code"], plugin["message"]) == (kind.code, error.message)
    assert plugin["retryable"] is kind.retryable
    payload = json.loads(PAYLOAD.refusal(error))
    assert set(payload) == {"success", "error"}
    assert payload["success"] is False
    assert (payload["error"]["code"], payload["error"]["message"]) == (kind.code, error.message)
    assert "error_code" not in payload["error"]
    semantic = json.loads(SEMANTIC.refusal(error))
    assert (semantic["errorCode"], semantic["message"]) == (kind.code.lower(), error.message)
    assert "error_code" not in semantic


def test_unset_members_of_an_error_are_not_sent() -> None:
    """An error without field or retry_after has neither in its reply."""
    assert error_fields(DatabaseError("broken")) == {
        "error_code": "DATABASE_ERROR",
        "message": "broken",
        "retryable": False,
    }
    assert error_fields(Busy("full", retry_after=0.5))["retry_after"] == 0.5


def test_a_conflict_shows_what_is_there() -> None:
    """VERSION_CONFLICT carries version, value, last_writer, purpose and expires_at of the current entry."""
    reply = json.loads(PLUGIN.refusal(VersionConflict("lost", current=entry())))
    current = reply["current"]
    assert current["version"] == 7
    assert current["value"] == {"a_b": [1, {"cD": None}]}
    assert (current["last_writer"], current["purpose"]) == ("bot:7", "lock")
    assert current["expires_at"] == "2026-11-03T12:30:15.250000Z"
    assert json.loads(PLUGIN.refusal(VersionConflict("lost")))["current"] is None


def test_names_within_a_value_are_left_alone_in_a_conflict() -> None:
    """The value of the current entry is the user's own, also in the dialect that renames fields."""
    error = VersionConflict("lost", current=entry(value={"snake_name": 1, "camelName": 2}))
    reply = json.loads(SEMANTIC.refusal(error))
    assert reply["current"]["value"] == {"snake_name": 1, "camelName": 2}
    assert reply["current"]["lastWriter"] == "bot:7"
    assert reply["current"]["semantics"]["consumerHints"] == ["a", "b"]


def test_an_unknown_code_is_an_internal_error() -> None:
    """A code that this version does not know is not guessed at."""
    found = error_of({"success": False, "error_code": "NEW_CODE", "message": "m"})
    assert (type(found), found.message) == (InternalError, "m")
    assert type(error_of({"success": False})) is InternalError
