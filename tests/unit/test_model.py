"""What users hold: frozen values, and rows and records turned into them.

A row is written out field by field, so that none is forgotten or taken for another.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import holdfast
from holdfast.clock import milliseconds, moment
from holdfast.errors import DatabaseError
from holdfast.model import KEEP, Change, Entry, Page, Semantics
from holdfast.rows import Record, Row
from holdfast.stored import change_of, entry_of, semantics_of, value_of
from holdfast.testing.exact import refusal, same


def row(value: str | None, **fields: Any) -> Row:
    """A row with a value."""
    return Row(value=value, size=0, version=1, created_at=0, updated_at=0, **fields)


def test_entry_has_every_field_of_its_row() -> None:
    """Every field of the row is in the entry, times as aware UTC."""
    stored = Row(
        value='{"a":[1,1.0]}',
        size=13,
        version=7,
        created_at=1_000,
        updated_at=2_500,
        expires_at=3_001,
        last_writer="agent:a",
        semantics='{"purpose":"flag","consumer_hints":["x"]}',
        request_id="r",
        spec_ref="doc",
    )
    entry = entry_of("k", stored)
    assert entry == Entry(
        key="k",
        value={"a": [1, 1.0]},
        version=7,
        created_at=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        updated_at=datetime(1970, 1, 1, 0, 0, 2, 500_000, tzinfo=UTC),
        expires_at=datetime(1970, 1, 1, 0, 0, 3, 1_000, tzinfo=UTC),
        last_writer="agent:a",
        semantics=Semantics(purpose="flag", consumer_hints=("x",)),
        request_id="r",
        spec_ref="doc",
    )
    assert entry.created_at.tzinfo is UTC


def test_entry_of_a_foreign_row_has_defaults() -> None:
    """What is missing has a default, and an entry without a deadline has none."""
    entry = entry_of("k", row("1"))
    assert (entry.expires_at, entry.last_writer, entry.semantics) == (None, "", None)
    assert (entry.request_id, entry.spec_ref) == (None, None)


def test_change_has_every_field_of_its_record() -> None:
    """Every field of the record is in the change."""
    record = Record(
        namespace="kv/a",
        version=9,
        op="expired",
        key="k",
        at=5_000,
        last_writer="w",
        request_id="r",
        purpose="flag",
        lag_ms=3,
        expired_version=8,
    )
    assert change_of(record) == Change(
        op="expired",
        key="k",
        version=9,
        at=moment(5_000),
        last_writer="w",
        request_id="r",
        purpose="flag",
        lag_ms=3,
        expired_version=8,
    )


def test_legal_stored_values_are_read_exactly() -> None:
    """What the rules allow can be read, to the last digit."""
    for text in ("null", "true", "-0.0", '"\\u0000"', "[[], {}]", "9" * 4300, "-" + "9" * 4300):
        assert same(value_of("k", row(text)), json.loads(text))


def test_unreadable_stored_value_names_its_key() -> None:
    """A stored value that is no JSON is a database error that names the key."""
    longest = "-" + "9" * 4300
    for text in (
        *("", "{", "nul", "NaN", "Infinity", "[1e400]", '"\\ud800"', "'k'", "9" * 4301, longest + "9", None),
        *("[" * 100_000, "[" * 100_000 + longest, longest + "]", f"[{longest}, NaN]", f"[{longest}, 1e400]"),
    ):
        with refusal(DatabaseError, field="key", says="'the key'", about=text and text[:20]):
            value_of("the key", row(text))


def test_unreadable_semantics_count_as_none() -> None:
    """Semantics that somebody wrote past Holdfast in another form mean nothing, and harm nobody."""
    assert semantics_of(None) is None
    assert semantics_of('{"purpose":"flag"}') == Semantics(purpose="flag")
    for text in ("", "{", "[]", '{"purpose":5}', "null"):
        assert semantics_of(text) is None


def test_times_are_converted_to_the_millisecond() -> None:
    """Times go back and forth to the millisecond; a naive one is UTC."""
    for ms in (0, 1, 999, 1_700_000_000_123, 253_402_300_799_999):
        assert milliseconds(moment(ms)) == ms
    assert milliseconds(datetime(1970, 1, 1, 0, 0, 1)) == 1000  # noqa: DTZ001
    assert milliseconds(datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))) == 0


def test_pages_count_their_keys() -> None:
    """A page says how many keys it holds."""
    assert Page(keys=["a", "b"], truncated=False, cursor=None).count == 2


def test_keep_is_a_public_singleton() -> None:
    """KEEP is public, is itself only, and says what it is."""
    assert holdfast.KEEP is KEEP
    assert repr(KEEP) == "holdfast.KEEP"


def test_public_values_are_frozen() -> None:
    """Nobody can change an entry in place."""
    entry = entry_of("k", row("1"))
    with pytest.raises(AttributeError):
        entry.version = 5  # type: ignore[misc]
