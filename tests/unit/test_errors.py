"""The tree of errors: which there are, what each carries, and that a code never changes.

The codes are written out here once more, since they are public.
"""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import holdfast
from holdfast import errors
from holdfast.errors import (
    Defect,
    HoldfastError,
    OutcomeUnknown,
    Refused,
    Transient,
    VersionConflict,
    error_classes,
)
from holdfast.model import Conflict

REFUSED = {
    "InvalidJson": "INVALID_JSON",
    "MissingField": "MISSING_FIELD",
    "InvalidSubject": "INVALID_SUBJECT",
    "InvalidPluginName": "INVALID_PLUGIN_NAME",
    "ValidationError": "VALIDATION_ERROR",
    "ValueTooLarge": "VALUE_TOO_LARGE",
    "KeyNotFound": "KEY_NOT_FOUND",
    "ConditionFailed": "CONDITION_FAILED",
    "Fenced": "FENCED",
    "TableNotFound": "TABLE_NOT_FOUND",
    "TableExists": "TABLE_EXISTS",
    "ItemNotFound": "ITEM_NOT_FOUND",
    "IndexNotFound": "INDEX_NOT_FOUND",
    "TtlNotConfigured": "TTL_NOT_CONFIGURED",
    "QuotaExceeded": "QUOTA_EXCEEDED",
    "PermissionDenied": "PERMISSION_DENIED",
    "Unsupported": "UNSUPPORTED",
    "TooExpensive": "TOO_EXPENSIVE",
}
TRANSIENT = {
    "RateLimited": "RATE_LIMITED",
    "Busy": "BUSY",
    "Timeout": "TIMEOUT",
    "Unavailable": "UNAVAILABLE",
    "StorageFull": "STORAGE_FULL",
}
DEFECTS = {"DatabaseError": "DATABASE_ERROR", "InternalError": "INTERNAL_ERROR"}
ALONE = {"VersionConflict": "VERSION_CONFLICT", "OutcomeUnknown": "OUTCOME_UNKNOWN"}
CODES = REFUSED | TRANSIENT | DEFECTS | ALONE


def test_every_error_has_its_frozen_code() -> None:
    """There is one class per code, one code per class, and these are all."""
    assert {kind.__name__: kind.code for kind in error_classes()} == CODES
    assert len(set(CODES.values())) == len(CODES)


@pytest.mark.parametrize("name", CODES)
def test_every_error_can_be_caught_by_name(name: str) -> None:
    """Whatever Holdfast raises is a public name and a HoldfastError."""
    kind = getattr(holdfast, name)
    assert kind is getattr(errors, name)
    assert issubclass(kind, HoldfastError)


def test_the_outcomes_are_told_apart() -> None:
    """The branch of the tree says whether something was written and whether trying again helps."""
    branches: dict[type[HoldfastError], Any] = {Refused: REFUSED, Transient: TRANSIENT, Defect: DEFECTS}
    for branch, names in branches.items():
        members = {kind.__name__ for kind in error_classes() if issubclass(kind, branch)}
        assert members == set(names)
    for kind in error_classes():
        assert kind.retryable is issubclass(kind, Transient)
    assert not issubclass(VersionConflict, (Refused, Transient, Defect))
    assert not issubclass(OutcomeUnknown, (Refused, Transient, Defect))


def test_error_carries_message_and_field() -> None:
    """An error has a message for people, and the field that was at fault if there is one."""
    plain = errors.KeyNotFound("no such key")
    assert (str(plain), plain.message, plain.field) == ("no such key", "no such key", None)
    named = errors.ValidationError("ttl is wrong", field="ttl")
    assert named.field == "ttl"


def test_conflict_carries_current_entry_and_failed_checks() -> None:
    """A conflict has the current entry, every failed check, and the reason."""
    bare = VersionConflict("lost")
    assert (bare.current, bare.conflicts, bare.reason, bare.field) == (None, (), None, None)
    failed = Conflict(key="k", expected_version=3, current=None)
    full = VersionConflict("lost", conflicts=[failed], reason="request_id_reused")
    assert (full.conflicts, full.reason) == ((failed,), "request_id_reused")


def test_transient_error_carries_retry_after() -> None:
    """A transient error says when to try again, if that is known."""
    assert errors.Busy("later").retry_after is None
    later = errors.RateLimited("later", field="rate", retry_after=1.5)
    assert (later.retry_after, later.field) == (1.5, "rate")


def test_a_class_of_somebody_else_is_found_too() -> None:
    """The tables of the edges are total over every class that has a code of its own, and only those."""

    class Own(errors.Refused):
        code = "OWN"

    class Narrower(Own):
        pass

    try:
        assert Own in list(error_classes())
        assert Narrower not in list(error_classes())
    finally:
        del Own, Narrower
        import gc

        gc.collect()


def test_a_message_survives_copying() -> None:
    """An error can be handed from one process to another."""
    copied = pickle.loads(pickle.dumps(errors.KeyNotFound("no such key")))
    assert (type(copied), copied.message) == (errors.KeyNotFound, "no such key")
