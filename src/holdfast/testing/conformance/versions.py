"""Versions: overwriting, checks, conflicts, deletion.

Law: nothing here depends on time except the times of an entry; expiry has a file of its own.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import pytest

from holdfast.clock import moment
from holdfast.errors import KeyNotFound, ValidationError, VersionConflict
from holdfast.model import KEEP, Entry
from holdfast.testing.conformance.calls import conditional
from holdfast.testing.conformance.fixtures import Fixtures, Reopen, assert_empty
from holdfast.testing.exact import refusal

if TYPE_CHECKING:
    from holdfast.clock import ManualClock
    from holdfast.handles.kv import KV
    from holdfast.store import Store

NO_VERSION: Final[tuple[Any, ...]] = (-1, 2**63, True, 1.0, "1", b"1", [1])


class VersionRules(Fixtures):
    """The rules of versions and of conditional writes."""

    async def test_get_of_nothing(self, kv: KV) -> None:
        """A missing entry is None."""
        assert await kv.get("k") is None
        assert await kv.get_ttl("k") == 0

    async def test_every_change_has_a_greater_version(self, kv: KV) -> None:
        """Versions grow within the namespace with every change, whatever its verb and key."""
        versions = [(await kv.set("a", 1)).version, (await kv.set("b", 1)).version]
        versions.append((await kv.incr("a")).version)
        versions.append((await kv.set_ttl("a", 60)).version)
        versions.append((await kv.remove_ttl("a")).version)
        assert await kv.delete("a") is True
        versions.append((await kv.history("a"))[0].version)
        done = await kv.batch(writes=[{"key": "c", "value": 1}, {"key": "b", "incr": 1}])
        versions += [version for version in done.versions if version is not None]
        assert versions == [1, 2, 3, 4, 5, 6, 7, 8]
        assert (await kv.changes()).next == 8

    async def test_a_conflict_in_company(self, kv: KV, reopen: Reopen) -> None:
        """A conflict shows the whole entry, even if concurrent writers of it never read it."""
        await kv.set("other", 1)
        entry = await kv.set("k", {"a": [1, 2]})
        again = await reopen()
        if not again.capabilities.durable:
            await assert_empty(again)
            return
        kv = again.kv("trivia")
        calls = [kv.set("k", 0, expected_version=9), *(kv.set(key, 1) for key in ("k", "other", "k"))]
        conflict, *written = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(conflict, VersionConflict)
        assert conflict.current == entry
        assert [one.version for one in written if isinstance(one, Entry)] == [3, 4, 5]

    async def test_overwriting(self, kv: KV, clock: ManualClock) -> None:
        """A set replaces value, ttl, semantics and spec_ref; created_at stays."""
        began = clock.now()
        first = await kv.set(
            "k",
            1,
            ttl=60,
            semantics={"purpose": "config"},
            writer="agent:one",
            spec_ref="doc",
            request_id="r1",
        )
        assert (first.created_at, first.updated_at) == (moment(began), moment(began))
        assert first.expires_at == moment(began + 60_000)
        assert (first.last_writer, first.spec_ref, first.request_id) == ("agent:one", "doc", "r1")
        clock.advance(1)
        second = await kv.set("k", 2)
        assert second.value == 2
        assert second.version > first.version
        assert second.created_at == first.created_at
        assert second.updated_at == moment(began + 1000)
        assert (second.expires_at, second.semantics, second.spec_ref) == (None, None, None)
        assert second.last_writer == "embedded"
        assert second.request_id not in (None, "r1")
        assert await kv.get("k") == second

    async def test_each_write_without_an_id_gets_one(self, kv: KV) -> None:
        """A write without a request id gets one, which is always different."""
        made = [(await kv.set("k", number)).request_id for number in range(20)]
        assert None not in made
        assert len(set(made)) == 20

    async def test_keep_keeps_the_running_deadline(self, kv: KV, clock: ManualClock) -> None:
        """KEEP as ttl keeps the deadline; an entry without one gets none."""
        first = await kv.set("k", 1, ttl=60)
        clock.advance(10)
        second = await kv.set("k", 2, ttl=KEEP)
        assert second.expires_at == first.expires_at
        assert (await kv.set("forever", 1, ttl=KEEP)).expires_at is None
        assert (await kv.set("forever", 2, ttl=KEEP)).expires_at is None
        clock.advance(50)
        assert await kv.get("k") is None
        assert (await kv.set("k", 3, ttl=KEEP)).expires_at is None

    async def test_unconditional_writes(self, kv: KV) -> None:
        """Without an expected version, a write takes effect whatever is there."""
        assert (await kv.set("k", 1)).version == 1
        assert (await kv.set("k", 2, expected_version=None)).version == 2
        assert await kv.delete("k") is True

    async def test_zero_expects_nothing(self, kv: KV) -> None:
        """The expected version 0 means that the key must not exist."""
        entry = await kv.set("k", 1, expected_version=0)
        with refusal(VersionConflict, says="version 1") as caught:
            await kv.set("k", 2, expected_version=0)
        assert caught.value.current == entry
        assert await kv.delete("k") is True
        assert (await kv.set("k", 3, expected_version=0)).value == 3

    async def test_a_version_expects_exactly_itself(self, kv: KV) -> None:
        """With the expected version n, a write succeeds if and only if the entry has that version."""
        first = await kv.set("k", 1)
        second = await kv.set("k", 2, expected_version=first.version)
        for wrong in (first.version, second.version + 1, 2**63 - 1):
            with refusal(VersionConflict, says=str(wrong)) as caught:
                await kv.set("k", 3, expected_version=wrong)
            assert caught.value.current == second
            assert caught.value.reason is None
        assert await kv.get("k") == second

    async def test_every_verb_checks_the_version(self, kv: KV) -> None:
        """A conflict carries the whole current entry, whatever the verb."""
        await kv.set("k", 1)
        entry = await kv.set(
            "k", 5, ttl=60, semantics={"purpose": "cursor"}, writer="w", spec_ref="s", request_id="r"
        )
        for verb, call in conditional(kv, "k").items():
            for wrong in (0, entry.version - 1, entry.version + 1):
                with refusal(VersionConflict, about=verb) as caught:
                    await call(expected_version=wrong)
                assert caught.value.current == entry, verb
        assert await kv.get("k") == entry
        assert (await kv.changes(since=entry.version)).changes == []

    async def test_every_verb_expects_a_missing_key_in_vain(self, kv: KV) -> None:
        """An expected version of a missing key is a conflict whose `current` is None."""
        for verb, call in conditional(kv, "k").items():
            with refusal(VersionConflict, about=verb) as caught:
                await call(expected_version=3)
            assert caught.value.current is None, verb
        assert await kv.get("k") is None

    async def test_what_is_no_version(self, kv: KV) -> None:
        """An expected version is a whole number from 0 that fits 63 bits; no other value is converted."""
        for verb, call in conditional(kv, "k").items():
            for wrong in NO_VERSION:
                with refusal(ValidationError, field="expected_version", about=(verb, wrong)):
                    await call(expected_version=wrong)

    async def test_a_failed_check_writes_nothing(self, store: Store) -> None:
        """A refused write leaves nothing: no entry, no change, and no new namespace."""
        kv = store.kv("untouched")
        with pytest.raises(VersionConflict):
            await kv.set("k", 1, expected_version=7)
        with pytest.raises(KeyNotFound):
            await kv.set_ttl("k", 60)
        assert await store.namespaces() == []
        assert (await kv.changes()).next == 0
        assert (await kv.set("k", 1)).version == 1

    async def test_delete(self, kv: KV) -> None:
        """Delete is idempotent and returns whether there was an entry."""
        await kv.set("k", 1)
        assert await kv.delete("k") is True
        assert await kv.get("k") is None
        assert await kv.delete("k") is False
        assert await kv.delete("never") is False
        assert await kv.delete("never", expected_version=0) is False
        assert [change.op for change in (await kv.changes()).changes] == ["set", "deleted"]

    async def test_delete_of_a_version(self, kv: KV) -> None:
        """Delete with an expected version removes exactly that version."""
        first = await kv.set("k", 1)
        second = await kv.set("k", 2)
        with refusal(VersionConflict) as caught:
            await kv.delete("k", expected_version=first.version)
        assert caught.value.current == second
        assert await kv.delete("k", expected_version=second.version) is True
        with refusal(VersionConflict) as caught:
            await kv.delete("k", expected_version=second.version)
        assert caught.value.current is None

    async def test_a_key_that_comes_back_is_a_new_entry(self, kv: KV, clock: ManualClock) -> None:
        """After a deletion created_at starts again, and the old version matches nothing."""
        first = await kv.set("k", 1)
        await kv.delete("k")
        clock.advance(5)
        second = await kv.set("k", 1)
        assert second.version > first.version + 1
        assert second.created_at == moment(clock.now())
        with refusal(VersionConflict):
            await kv.set("k", 2, expected_version=first.version)

    async def test_versions_are_never_reused(self, kv: KV, clock: ManualClock, reopen: Reopen) -> None:
        """No version is used twice: not after deletion, not after expiry, not after reopening."""
        seen = [(await kv.set("a", 1)).version]
        await kv.delete("a")
        seen.append((await kv.set("a", 1, ttl=1)).version)
        clock.advance(2)
        seen.append((await kv.set("a", 1)).version)
        assert seen == [1, 3, 5]
        await kv.delete("a")
        again = await reopen()
        if not again.capabilities.durable:
            await assert_empty(again)
            return
        kv = again.kv("trivia")
        assert (await kv.set("a", 1)).version == 7
        with refusal(VersionConflict):
            await kv.set("a", 2, expected_version=seen[0])

    async def test_an_entry_is_the_same_after_opening_again(self, kv: KV, reopen: Reopen) -> None:
        """Every field of an entry is stored exactly."""
        entry = await kv.set(
            "k",
            {"a": [1, 1.0, True]},
            ttl=60,
            semantics={"purpose": "config", "producer": "p", "consumer_hints": ["é", "b"]},
            writer="agent:directive",
            spec_ref="docs/é.md#1",
            request_id="r-é",
        )
        await kv.set("plain", 1)
        plain = await kv.get("plain")
        again = await reopen()
        if not again.capabilities.durable:
            await assert_empty(again)
            return
        assert await again.kv("trivia").get("k") == entry
        assert await again.kv("trivia").get("plain") == plain
