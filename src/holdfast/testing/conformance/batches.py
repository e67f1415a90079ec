"""Several writes performed as one: batch.

Law: all or nothing. After each refusal, the tests check that nothing was written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from holdfast.clock import moment
from holdfast.errors import MissingField, ValidationError, ValueTooLarge, VersionConflict
from holdfast.model import KEEP, Conflict
from holdfast.testing.conformance.fixtures import Fixtures
from holdfast.testing.exact import present, refusal, same

if TYPE_CHECKING:
    from holdfast.clock import ManualClock
    from holdfast.errors import HoldfastError
    from holdfast.handles.kv import KV
    from holdfast.store import Store

ILLEGAL: Final[tuple[tuple[Any, type[HoldfastError], str], ...]] = (
    ([5], ValidationError, "writes"),
    (5, ValidationError, "writes"),
    ("text", ValidationError, "writes"),
    ({"key": "k", "value": 1}, ValidationError, "writes"),
    ([{}], ValidationError, "writes"),
    ([{"key": "k"}], ValidationError, "writes"),
    ([{"key": "k", "value": 1, "delete": True}], ValidationError, "writes"),
    ([{"key": "k", "value": 1, "incr": 1}], ValidationError, "writes"),
    ([{"key": "k", "incr": 1, "delete": True}], ValidationError, "writes"),
    ([{"key": "k", "value": 1, "expected_version": 1}], ValidationError, "writes"),
    ([{"key": "k", "delete": 1}], ValidationError, "delete"),
    ([{"key": "k", "delete": False}], ValidationError, "delete"),
    ([{"value": 1}], MissingField, "key"),
    ([{"delete": True}], MissingField, "key"),
    ([{"incr": 1}], MissingField, "key"),
    ([{"key": "", "value": 1}], ValidationError, "key"),
    ([{"key": "k", "value": float("nan")}], ValidationError, "value"),
    ([{"key": "k", "value": "x" * 65_536}], ValueTooLarge, "value"),
    ([{"key": "k", "value": 1, "ttl": 5, "ttl_seconds": 6}], ValidationError, "ttl"),
    ([{"key": "k", "value": 1, "ttl": 5, "keep_ttl": True}], ValidationError, "ttl"),
    ([{"key": "k", "value": 1, "keep_ttl": 1}], ValidationError, "keep_ttl"),
    ([{"guard": ""}], ValidationError, "guard"),
    ([{"guard": 5}], ValidationError, "guard"),
)
ILLEGAL_CHECKS: Final[tuple[tuple[Any, type[HoldfastError], str], ...]] = (
    (5, ValidationError, "checks"),
    ([5], ValidationError, "checks"),
    ([{}], MissingField, "key"),
    ([{"key": "k"}], MissingField, "version"),
    ([{"key": "", "version": 0}], ValidationError, "key"),
    ([{"key": "k", "version": -1}], ValidationError, "version"),
    ([{"key": "k", "version": True}], ValidationError, "version"),
    ([{"key": "k", "version": None}], ValidationError, "version"),
)


class BatchRules(Fixtures):
    """The rules of batch."""

    async def test_all_kinds_of_writes(self, kv: KV, clock: ManualClock) -> None:
        """Sets, increments and deletions take effect together, with their versions by position."""
        await kv.set("gone", 1)
        await kv.set("count", 5)
        done = await kv.batch(
            writes=[
                {"key": "a", "value": {"x": 1.0}, "ttl": 60, "semantics": {"purpose": "flag"}},
                {"key": "gone", "delete": True},
                {"key": "never", "delete": True},
                {"key": "count", "incr": 2},
                {"key": "fresh", "incr": 0.5, "ttl": 60},
                {"key": "null", "value": None},
            ],
            writer="agent",
            request_id="r",
            spec_ref="doc",
        )
        assert done.versions == [3, 4, None, 5, 6, 7]
        a = present(await kv.get("a"))
        assert same(a.value, {"x": 1.0})
        assert (a.version, a.last_writer, a.request_id, a.spec_ref) == (3, "agent", "r", "doc")
        assert a.expires_at == moment(clock.now() + 60_000)
        assert same(present(await kv.get("count")).value, 7)
        assert same(present(await kv.get("fresh")).value, 0.5)
        assert await kv.get_ttl("fresh") == 60
        assert (await kv.list()).keys == ["a", "count", "fresh", "null"]
        changes = (await kv.changes(2)).changes
        assert [(change.op, change.key) for change in changes] == [
            ("set", "a"),
            ("deleted", "gone"),
            ("set", "count"),
            ("set", "fresh"),
            ("set", "null"),
        ]
        assert {change.request_id for change in changes} == {"r"}

    async def test_writes_of_one_key_follow_each_other(self, kv: KV) -> None:
        """Writes take effect in their order, also on the same key."""
        done = await kv.batch(
            writes=[
                {"key": "n", "value": 1},
                {"key": "n", "incr": 1},
                {"key": "n", "delete": True},
                {"key": "n", "delete": True},
                {"key": "n", "incr": 10},
            ]
        )
        assert done.versions == [1, 2, 3, None, 4]
        assert present(await kv.get("n")).value == 10
        assert [change.op for change in await kv.history("n")] == ["set", "deleted", "set", "set"]

    async def test_an_empty_batch(self, kv: KV) -> None:
        """A batch without writes is valid and changes nothing; its checks still apply."""
        assert (await kv.batch(writes=[])).versions == []
        with refusal(VersionConflict):
            await kv.batch(checks=[{"key": "k", "version": 1}], writes=[])
        assert (await kv.changes()).next == 0

    async def test_checks_that_hold(self, kv: KV) -> None:
        """A check expects a version, or with 0 a missing key. Its key need not be written to."""
        entry = await kv.set("a", 1)
        checks = [{"key": "a", "version": entry.version}, {"key": "b", "version": 0}]
        done = await kv.batch(checks=checks, writes=[{"key": "b", "value": 1}])
        assert done.versions == [entry.version + 1]
        assert await kv.get("a") == entry

    async def test_every_failed_check_is_listed(self, kv: KV) -> None:
        """A conflict lists all checks that failed, in order, each with the current entry."""
        a, b = await kv.set("a", 1), await kv.set("b", 2, ttl=60)
        checks = [
            {"key": "a", "version": a.version},
            {"key": "b", "version": 0},
            {"key": "c", "version": 9},
            {"key": "d", "version": 0},
            {"key": "a", "version": 7},
        ]
        with refusal(VersionConflict, says="3 of 5") as caught:
            await kv.batch(checks=checks, writes=[{"key": "z", "value": 1}, {"key": "a", "delete": True}])
        assert list(caught.value.conflicts) == [
            Conflict(key="b", expected_version=0, current=b),
            Conflict(key="c", expected_version=9, current=None),
            Conflict(key="a", expected_version=7, current=a),
        ]
        assert caught.value.current == b
        assert (await kv.list()).keys == ["a", "b"]
        assert (await kv.changes()).next == 2

    async def test_checks_look_at_what_was_before(self, kv: KV) -> None:
        """Checks are evaluated before the first write of their batch."""
        await kv.batch(
            checks=[{"key": "k", "version": 0}], writes=[{"key": "k", "value": 1}, {"key": "k", "value": 2}]
        )
        with refusal(VersionConflict):
            await kv.batch(
                checks=[{"key": "k", "version": 0}],
                writes=[{"key": "k", "delete": True}, {"key": "k", "value": 3}],
            )
        assert present(await kv.get("k")).value == 2

    async def test_a_write_that_fails_undoes_all(self, kv: KV, store: Store) -> None:
        """When one write is refused, none takes effect: no entry, no change, no version."""
        text = await kv.set("text", "x")
        n = await kv.set("n", 1, ttl=60)
        before = await store.stats("kv/trivia")
        with refusal(ValidationError, field="value", says="'text'"):
            await kv.batch(
                writes=[
                    {"key": "new", "value": 1},
                    {"key": "n", "incr": 1},
                    {"key": "n", "delete": True},
                    {"guard": "lock"},
                    {"key": "text", "incr": 1},
                ]
            )
        assert await kv.get_many(["new", "n", "text"]) == [None, n, text]
        assert await store.stats("kv/trivia") == before
        assert (await kv.changes(n.version)).changes == []
        assert (await kv.set("next", 1)).version == n.version + 1

    async def test_deadlines_in_a_batch(self, kv: KV, clock: ManualClock) -> None:
        """A set in a batch takes ttl, ttl_seconds or keep_ttl as set does."""
        running = (await kv.set("keep", 1, ttl=60)).expires_at
        clock.advance(1)
        await kv.batch(
            writes=[
                {"key": "keep", "value": 2, "keep_ttl": True},
                {"key": "also", "value": 1, "ttl": KEEP, "keep_ttl": True},
                {"key": "ttl", "value": 1, "ttl": 10, "ttl_seconds": 10},
                {"key": "seconds", "value": 1, "ttl_seconds": 10},
                {"key": "no", "value": 1, "ttl": None, "keep_ttl": False},
            ]
        )
        assert present(await kv.get("keep")).expires_at == running
        assert [await kv.get_ttl(key) for key in ("also", "ttl", "seconds", "no")] == [None, 10, 10, None]

    async def test_illegal_writes(self, kv: KV) -> None:
        """A batch with an invalid part is refused as a whole, with the class and field of the fault."""
        for writes, kind, field in ILLEGAL:
            with refusal(kind, field=field, about=writes):
                await kv.batch(writes=writes)
        for checks, kind, field in ILLEGAL_CHECKS:
            with refusal(kind, field=field, about=checks):
                await kv.batch(checks=checks, writes=[{"key": "k", "value": 1}])
        assert await kv.get("k") is None

    async def test_a_thousand_writes(self, kv: KV) -> None:
        """A batch holds at most 1,000 writes and 1,000 checks."""
        writes = [{"key": f"{number:04}", "value": number} for number in range(1000)]
        checks = [{"key": f"{number:04}", "version": 0} for number in range(1000)]
        assert (await kv.batch(checks=checks, writes=writes)).versions == list(range(1, 1001))
        with refusal(ValidationError, field="writes", says="1001"):
            await kv.batch(writes=[*writes, {"key": "z", "value": 1}])
        with refusal(ValidationError, field="checks", says="1000"):
            await kv.batch(checks=[*checks, {"key": "z", "version": 0}], writes=[])
        assert len((await kv.list(limit=10_000)).keys) == 1000

    async def test_half_a_megabyte(self, kv: KV) -> None:
        """A batch holds at most 512 KB of keys and values."""
        large = "x" * (65_536 - 2 - 4)
        legal = [{"key": f"key{number}", "value": large} for number in range(8)]
        await kv.batch(writes=legal)
        with refusal(ValueTooLarge, says="524288"):
            await kv.batch(writes=[*legal[:7], {"key": "key78", "value": large}])
        assert (await kv.list()).keys == [f"key{number}" for number in range(8)]
