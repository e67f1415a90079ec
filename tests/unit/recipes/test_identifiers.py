"""Request ids and keys that are made of other identifiers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast import rules
from holdfast.errors import ValidationError, VersionConflict
from holdfast.testing.exact import refusal

if TYPE_CHECKING:
    from holdfast.handles.kv import KV

NOON = datetime(2031, 5, 4, 12, 0, tzinfo=UTC)
WORKFLOWS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=300)
TIMES = st.datetimes(timezones=st.just(UTC)) | st.integers(0, 2**63 - 1)


@given(WORKFLOWS, TIMES)
def test_a_request_id_is_legal(workflow: str, timestamp: datetime | int) -> None:
    """Whatever a workflow is called, its request id is one that every verb takes, and always the same."""
    made = holdfast.request_id(workflow, timestamp)
    assert rules.identity(made, field="request_id") == made
    assert holdfast.request_id(workflow, timestamp) == made


@given(st.tuples(WORKFLOWS, TIMES), st.tuples(WORKFLOWS, TIMES))
def test_different_attempts_have_different_ids(one: tuple[str, Any], two: tuple[str, Any]) -> None:
    """Two workflows, and two attempts of one, never share a request id."""
    assert (holdfast.request_id(*one) == holdfast.request_id(*two)) is (one == two)


def test_request_id_is_readable_and_sorts_by_time() -> None:
    """A request id is readable and sorts by time; a long name in it is replaced by a digest."""
    assert holdfast.request_id("nightly-sync", NOON) == "2031-05-04T12:00:00.000000Z nightly-sync"
    assert holdfast.request_id("nightly-sync", 7) == "7 nightly-sync"
    assert holdfast.request_id("x" * 300, 7) == "7 #c2f093e41879e412280bfcc0ed6533e4"


def test_one_instant_has_one_id() -> None:
    """The zone in which a time is told does not matter, and a naive one is UTC."""
    elsewhere = NOON.astimezone(timezone(timedelta(hours=5)))
    made = {holdfast.request_id("w", at) for at in (NOON, elsewhere, NOON.replace(tzinfo=None))}
    assert len(made) == 1


@pytest.mark.parametrize(
    ("workflow", "timestamp", "field"),
    [
        ("", 7, "workflow_id"),
        (5, 7, "workflow_id"),
        ("\ud800", 7, "workflow_id"),
        ("w", "now", "timestamp"),
        ("w", True, "timestamp"),
        ("w", 1.5, "timestamp"),
        ("w", None, "timestamp"),
        ("w", 2**63, "timestamp"),
    ],
)
def test_request_id_rejects_wrong_workflows_and_times(workflow: Any, timestamp: Any, field: str) -> None:
    """An illegal workflow id or timestamp is refused, and the error names the field."""
    with refusal(ValidationError, field=field):
        holdfast.request_id(workflow, timestamp)


async def test_a_digest_that_stands_for_something_else(kv: KV) -> None:
    """A mapping that somebody has changed is never taken for that of another identifier."""
    key = await kv.hashed_key("docs/", "x" * 300)
    [mapping] = (await kv.list("hashed/")).keys
    await kv.set(mapping, {"identifier": "other"})
    with refusal(VersionConflict, says=key.removeprefix("docs/")):
        await kv.hashed_key("docs/", "x" * 300)
    await kv.set(mapping, "unreadable")
    assert await kv.original_of(key) is None


async def test_two_who_make_the_same_key(kv: KV) -> None:
    """The mapping is written once, though two find it missing at the same time."""
    get = kv.get

    async def blind(key: str) -> None:
        await get(key)

    first = await kv.hashed_key("docs/", "x" * 300)
    kv.get = blind  # type: ignore[method-assign]
    assert await kv.hashed_key("docs/", "x" * 300) == first
    assert len((await kv.changes()).changes) == 1


async def test_a_prefix_that_leaves_no_room(kv: KV) -> None:
    """A key that would be illegal all the same is refused, and nothing is written for it."""
    with refusal(ValidationError, field="key"):
        await kv.hashed_key("x" * 230, "identifier")
    assert (await kv.list()).keys == []
