"""Entries, changes and pages as fields: exactly those that are promised, and back again."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.commands import GetMany, ReadChanges, Records, Rows
from holdfast.errors import DatabaseError, ValidationError
from holdfast.model import Entry, Parts, Semantics, Stats
from holdfast.replies import ChangesReply, GetManyReply
from holdfast.rows import Record, Row
from holdfast.stored import change_of, look_over
from holdfast.testing.exact import refusal
from holdfast.verbs.fields import Several
from holdfast.wire.reads import READS
from holdfast.wire.replies import (
    change_fields,
    entry_fields,
    entry_of_fields,
    ms_of,
    record_fields,
    record_of,
    row_fields,
    row_of,
    stats_fields,
    stored_fields,
)

EXAMPLES = settings(
    deadline=None, derandomize=True, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
AT = 1_700_000_000_123
AT_TEXT = "2023-11-14T22:13:20.123000Z"
PLAIN = Row(value='{"a":1.0}', size=9, version=3, created_at=AT, updated_at=AT, last_writer="trivia")
FULL = Row(
    value="null",
    size=4,
    version=4,
    created_at=AT,
    updated_at=AT,
    expires_at=AT,
    last_writer="bot:7",
    semantics='{"purpose":"lock","consumer_hints":["a"]}',
    request_id="r1",
    spec_ref="s",
)


def over(fields: Any) -> Any:
    """Fields as they arrive."""
    return json.loads(msgspec.json.encode(fields))


def test_a_get_of_a_plain_entry() -> None:
    """exists, value, version, expires_at, and of the envelope what is set."""
    assert over(row_fields("k", PLAIN)) == {
        "exists": True,
        "value": {"a": 1.0},
        "version": 3,
        "expires_at": None,
        "created_at": AT_TEXT,
        "updated_at": AT_TEXT,
        "last_writer": "trivia",
    }


def test_a_get_of_a_full_entry() -> None:
    """All of the envelope is shown where it is set; times are ISO 8601 in UTC."""
    assert over(row_fields("k", FULL)) == {
        "exists": True,
        "value": None,
        "version": 4,
        "expires_at": AT_TEXT,
        "created_at": AT_TEXT,
        "updated_at": AT_TEXT,
        "last_writer": "bot:7",
        "semantics": {"purpose": "lock", "consumer_hints": ["a"]},
        "request_id": "r1",
        "spec_ref": "s",
    }


@pytest.mark.parametrize("row", [PLAIN, FULL], ids=["plain", "full"])
def test_a_row_survives_the_wire(row: Row) -> None:
    """A row that was shown is the same again for a client; its value is passed on as it is stored."""
    assert isinstance(row_fields("k", row)["value"], msgspec.Raw)
    assert row_of(over(row_fields("k", row))) == row


def test_a_write_answers_version_and_deadline() -> None:
    """A write that leaves an entry answers version and deadline."""
    assert over(stored_fields(PLAIN)) == {"version": 3, "expires_at": None}
    assert over(stored_fields(FULL)) == {"version": 4, "expires_at": AT_TEXT}


@pytest.mark.parametrize(
    "text", ["{broken", "", "[1,]", "nul", "1 2", '"\x01"', "'a'", "NaN", "[" * 5_000 + "]" * 5_000]
)
def test_a_stored_value_that_is_no_json_is_never_sent(text: str) -> None:
    """A value that somebody wrote past Holdfast and that can't be read is DATABASE_ERROR, by its key."""
    broken = msgspec.structs.replace(PLAIN, value=text)
    for show in (look_over, row_fields):
        with refusal(DatabaseError, field="key", says="'my key'", about=text) as caught:
            show("my key", broken)
        assert "broken" not in caught.value.message


@pytest.mark.parametrize(
    "text", ["-" + "9" * 4_300, "1.0", "-0.0", '"\\u0000"', "[" * 64 + "]" * 64, '{"b":1,"a":2}']
)
def test_a_stored_value_is_sent_as_it_is(text: str) -> None:
    """Nothing of a value is rounded, reordered or respelled on its way out."""
    assert bytes(look_over("k", msgspec.structs.replace(PLAIN, value=text))) == text.encode()


LETTERS = st.characters(exclude_categories=["Cs"])
"""All that UTF-8 has. Asked for no letters in particular, hypothesis works that out anew, for two seconds."""
ENTRIES = st.builds(
    Entry,
    key=st.text(LETTERS, min_size=1, max_size=5),
    value=st.none()
    | st.integers()
    | st.text(LETTERS)
    | st.lists(st.booleans())
    | st.dictionaries(st.text(LETTERS), st.none()),
    version=st.integers(0, 2**63 - 1),
    created_at=st.integers(0, AT).map(lambda ms: datetime.fromtimestamp(ms // 1000, UTC)),
    updated_at=st.just(datetime(2026, 1, 1, 1, 1, 1, 999_000, tzinfo=UTC)),
    expires_at=st.none() | st.just(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
    last_writer=st.text(LETTERS, max_size=5),
    semantics=st.none()
    | st.builds(Semantics, purpose=st.none() | st.just("lock"), consumer_hints=st.just(("a",))),
    request_id=st.none() | st.text(LETTERS, max_size=5),
    spec_ref=st.none() | st.text(LETTERS, max_size=5),
)


@EXAMPLES
@given(ENTRIES)
def test_an_entry_in_a_conflict_survives(entry: Entry) -> None:
    """The current entry of a conflict comes back whole."""
    assert entry_of_fields(over(entry_fields(entry))) == entry


def test_no_entry_in_a_conflict_survives() -> None:
    """`current` may be null."""
    assert entry_fields(None) is None
    assert entry_of_fields(None) is None


def record(**fields: Any) -> Record:
    """A record of the journal."""
    whole = {"namespace": "kv/p", "version": 5, "op": "set", "key": "k", "at": AT, "last_writer": "w"}
    return Record(**whole | fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "told",
    [
        record(),
        record(op="deleted", request_id="r", purpose="lock"),
        record(op="expired", lag_ms=0, expired_version=4),
        record(op="restored", last_writer=None),
    ],
    ids=lambda told: told.op,
)
def test_a_change_survives(told: Record) -> None:
    """A record of the journal comes back whole, and shows no value."""
    fields = over(change_fields(change_of(told)))
    assert record_of("kv/p", fields) == told
    assert "value" not in fields
    assert over(record_fields(told)) == fields  # an event says what `changes` says


def test_the_fields_of_a_change() -> None:
    """op, key, version, at, last_writer, request_id, purpose; lag_ms only where something expired."""
    assert over(change_fields(change_of(record()))) == {
        "op": "set",
        "key": "k",
        "version": 5,
        "at": AT_TEXT,
        "last_writer": "w",
        "request_id": None,
        "purpose": None,
    }
    expired = over(change_fields(change_of(record(op="expired", lag_ms=7, expired_version=4))))
    assert (expired["lag_ms"], expired["expired_version"]) == (7, 4)


async def test_one_of_several_entries_that_cannot_be_read() -> None:
    """Its error has its place among the replies to `get_many`, and so in what a client returns."""
    codec, command = READS[GetManyReply], GetMany(namespace="kv/p", keys=("a", "b", "c"))
    broken = msgspec.structs.replace(PLAIN, value="no JSON")
    several = Several(list(command.keys), {1: ValidationError("key must be text", field="keys")})
    shown = over(await codec.show(command, Rows([PLAIN, broken, None]), several))
    assert [member["success"] for member in shown["results"]] == [True, False, False, True]
    row, refused, error, nothing = codec.read(command, shown).rows
    assert (row.version, type(refused), type(error), nothing) == (3, ValidationError, DatabaseError, None)


async def test_a_page_of_changes_says_where_a_gap_ends() -> None:
    """`next`, `gap` and the bounds are always there, `oldest` only with a gap. A client reads the same."""
    codec, command = READS[ChangesReply], ReadChanges(namespace="kv/p", prefix="")
    bounds: dict[str, Any] = {"next": 5, "head": 5, "epoch": "e"}
    for page in (Records([record()], floor=0, **bounds), Records([], gap=True, floor=2, **bounds)):
        shown = await codec.show(command, page, None)
        assert set(shown) == {"changes", "next", "gap", "floor", "head", "epoch", *(["oldest"] * page.gap)}
        assert shown.get("oldest") == (3 if page.gap else None)
        assert codec.read(command, over(shown)) == page


def test_the_stats_of_a_namespace() -> None:
    """What a namespace holds is shown field by field."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    parts = Parts(entries=7, journal=5)
    stats = Stats(namespace="kv/p", keys=1, bytes=2, version=3, changed_at=at, kept_bytes=12, parts=parts)
    assert over(stats_fields(stats)) == {
        "namespace": "kv/p",
        "keys": 1,
        "bytes": 2,
        "version": 3,
        "changed_at": "2026-01-01T00:00:00Z",
        "kept_bytes": 12,
        "parts": {
            "entries": 7,
            "items": 0,
            "indexes": 0,
            "journal": 5,
            "trash": 0,
            "letters": 0,
            "requests": 0,
            "other": 0,
            "audit": 0,
            "blobs": 0,
        },
    }


@EXAMPLES
@given(st.integers(0, 253_402_300_799_999))
def test_a_time_keeps_its_milliseconds(ms: int) -> None:
    """Any stored time survives its text to the millisecond."""
    fields = over(row_fields("k", msgspec.structs.replace(PLAIN, created_at=ms)))
    assert ms_of(fields["created_at"]) == ms
