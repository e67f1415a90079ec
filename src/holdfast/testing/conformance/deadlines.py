"""Timeouts: a write that cannot be performed in time is not performed, on every engine.

Law: a timeout is not part of the request's content, so `Timeout` is the only reply that it changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import ValidationError
from holdfast.testing.conformance.fixtures import Fixtures
from holdfast.testing.conformance.requests import prepare
from holdfast.testing.exact import refusal

if TYPE_CHECKING:
    from holdfast.handles.kv import KV
    from holdfast.handles.tables import Tables
    from holdfast.store import Store

BAD: tuple[Any, ...] = (0, -1, True, "1", float("nan"), float("inf"), 2**31)


class DeadlineRules(Fixtures):
    """The rules of timeouts."""

    async def test_every_verb_takes_a_timeout(self, kv: KV, store: Store) -> None:
        """A write that finishes in time is the same as without a timeout, also with fractions of a second."""
        for verb, call in (await prepare(kv)).items():
            before = (await store.stats("kv/trivia")).version
            await call(timeout=30.5)
            changes = not verb.endswith("of nothing")
            assert (await store.stats("kv/trivia")).version == before + changes, verb

    async def test_a_timeout_is_no_part_of_a_request(self, kv: KV, store: Store) -> None:
        """A request repeated with another timeout, or with none, is the same request."""
        for verb, call in (await prepare(kv)).items():
            first = await call(request_id=f"r {verb}", timeout=30)
            before = await store.stats("kv/trivia")
            assert await call(request_id=f"r {verb}", timeout=60) == first, verb
            assert await call(request_id=f"r {verb}") == first, verb
            assert await store.stats("kv/trivia") == before, verb

    async def test_timeouts_that_make_no_sense(self, kv: KV, tables: Tables) -> None:
        """A timeout is a positive number of seconds. Anything else is refused and writes nothing."""
        await tables.create_table("events", partition_key=("user", "string"))
        for timeout in BAD:
            with refusal(ValidationError, field="timeout", about=timeout):
                await kv.set("k", 1, timeout=timeout)
            with refusal(ValidationError, field="timeout", about=timeout):
                await tables.put_item("events", {"user": "a"}, timeout=timeout)
        assert await kv.get("k") is None
        assert await tables.get_item("events", "a") is None

    async def test_tables_take_a_timeout(self, tables: Tables) -> None:
        """Every write of items takes a timeout, and a transaction replays whatever its timeout."""
        await tables.create_table("events", partition_key=("user", "string"), timeout=30)
        await tables.put_item("events", {"user": "a"}, timeout=30)
        await tables.batch_write_item("events", [{"put": {"item": {"user": "b"}}}], timeout=30)
        writes = [{"put": {"table": "events", "item": {"user": "c"}}}]
        first = await tables.transact_write(writes, request_id="r", timeout=30)
        assert await tables.transact_write(writes, request_id="r", timeout=60) == first
        assert [item.value["user"] for item in (await tables.scan("events")).items] == ["a", "b", "c"]
