"""Groups of several namespaces in one transaction: each command is answered as if it had been alone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import asyncpg
import msgspec
import pytest

import holdfast
from holdfast.engines.postgres import PostgresEngine, shared
from holdfast.errors import QuotaExceeded, Timeout, VersionConflict

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PLUGINS = 12


@pytest.fixture
async def store(pg_store_url: str) -> AsyncIterator[holdfast.Store]:
    """A store whose namespaces are known to it, so that they may share transactions."""
    async with holdfast.open(pg_store_url, reap=False) as store:
        await asyncio.gather(*(kv.set("first", 0) for kv in plugins(store)))
        yield store


@pytest.fixture
def carried(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """The number of namespaces in each shared transaction; None for one that was taken apart."""
    sizes: list[int | None] = []
    run = shared.SharedGroup.run

    async def noted(self: Any, *args: Any, **options: Any) -> Any:
        outcome = await run(self, *args, **options)
        sizes.append(None if outcome is None else len(self._names))
        return outcome

    monkeypatch.setattr(shared.SharedGroup, "run", noted)
    return sizes


def plugins(store: holdfast.Store) -> list[holdfast.KV]:
    """The handles of all plugins."""
    return [store.kv(f"plugin-{number}") for number in range(PLUGINS)]


async def test_plain_verbs_of_many_namespaces_take_effect_in_one_transaction(
    store: holdfast.Store, carried: list[int | None]
) -> None:
    """Sets, increments, deletions and deadlines of many namespaces take effect and are journalled."""
    handles = plugins(store)
    await asyncio.gather(*(kv.set("a", {"n": number}) for number, kv in enumerate(handles)))
    await asyncio.gather(*(kv.incr("n", number, request_id="r") for number, kv in enumerate(handles)))
    again = await asyncio.gather(*(kv.incr("n", n, request_id="r") for n, kv in enumerate(handles)))
    assert [entry.value for entry in again] == list(range(PLUGINS))
    await asyncio.gather(*(kv.set_ttl("a", 100) for kv in handles), *(kv.delete("first") for kv in handles))
    for number, kv in enumerate(handles):
        assert [change.op for change in (await kv.changes()).changes] == [
            "set",
            "set",
            "set",
            "set",
            "deleted",
        ]
        assert [change.version for change in (await kv.changes()).changes] == [1, 2, 3, 4, 5]
        entry = await kv.get("a")
        assert entry is not None
        assert (entry.value, entry.expires_at is not None) == ({"n": number}, True)
        assert await kv.get("first") is None
    assert carried.count(None) == 1, "what is sent again is decided by each namespace alone"
    assert set(carried) == {PLUGINS, None}


async def test_a_conflict_does_not_affect_namespaces_in_the_same_transaction(
    store: holdfast.Store, carried: list[int | None]
) -> None:
    """A conflict in one namespace changes nothing for those that share its transaction."""
    calls = [kv.set("first", 1, expected_version=1 + (n == 3)) for n, kv in enumerate(plugins(store))]
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert [number for number, result in enumerate(found) if isinstance(result, VersionConflict)] == [3]
    assert [(await kv.get("first")).value for kv in plugins(store)] == [int(n != 3) for n in range(PLUGINS)]  # type: ignore[union-attr]
    assert carried == [PLUGINS]


async def test_two_stores_incrementing_the_same_keys_lose_nothing(
    pg_store_url: str, store: holdfast.Store
) -> None:
    """Two stores that increment the same keys in many namespaces lose and double nothing."""
    async with holdfast.open(pg_store_url, reap=False) as other:
        mine, theirs = plugins(store), plugins(other)
        for _ in range(5):
            await asyncio.gather(*(kv.incr("n") for kv in (*mine, *theirs)))
        assert [(await kv.get("n")).value for kv in mine] == [10] * PLUGINS  # type: ignore[union-attr]


async def test_a_change_between_load_and_save_makes_all_namespaces_decide_again(
    pg_store_url: str, store: holdfast.Store, carried: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a namespace changes between load and save, all are decided again: no write is lost."""
    async with holdfast.open(pg_store_url, reap=False) as other:
        decide, theirs = shared.SharedGroup._decide, plugins(other)[3]

        async def slowly(self: Any, *args: Any) -> Any:
            outcome = await decide(self, *args)
            if await theirs.get("n") is None:
                await theirs.incr("n")
            return outcome

        monkeypatch.setattr(shared.SharedGroup, "_decide", slowly)
        found = await asyncio.gather(*(kv.incr("n") for kv in plugins(store)))
    assert [entry.value for entry in found] == [1 + (number == 3) for number in range(PLUGINS)]
    assert carried == [PLUGINS]


async def test_a_locked_namespace_delays_the_others_only_for_a_moment(
    pg_store_url: str, store: holdfast.Store, carried: list[int | None]
) -> None:
    """A locked namespace delays those that share its transaction for a moment only; it gets its turn."""
    holder = await asyncpg.connect(pg_store_url)
    try:
        await holder.execute("BEGIN; SELECT 1 FROM holdfast_namespaces WHERE name = 'kv/plugin-0' FOR UPDATE")
        held, *free = (asyncio.create_task(kv.set("k", 1)) for kv in plugins(store))
        await asyncio.gather(*free)
        assert not held.done()
        await holder.execute("COMMIT")
        assert (await held).version == 2
    finally:
        await holder.close()
    assert carried[0] is None


async def test_an_audited_namespace_gets_its_own_transaction(
    store: holdfast.Store, carried: list[int | None]
) -> None:
    """An audited namespace is executed alone, from its second write on without an attempt to share."""
    engine = store._engine
    assert isinstance(engine, PostgresEngine)
    engine._marks.keep_apart(["kv/plugin-1"])
    await asyncio.gather(*(kv.set("k", 1) for kv in plugins(store)))
    assert carried == [PLUGINS - 1]
    assert [(await kv.get("k")).version for kv in plugins(store)] == [2] * PLUGINS  # type: ignore[union-attr]


async def test_a_policy_set_by_another_process_applies_at_once(
    pg_store_url: str, store: holdfast.Store, carried: list[int | None]
) -> None:
    """Whatever this process remembers of a namespace, a policy holds once it is set, and no longer."""

    async def every(key: str) -> list[int]:
        """The plugins whose write of a key is refused by a quota."""
        calls = (kv.set(key, 1) for kv in plugins(store))
        found = await asyncio.gather(*calls, return_exceptions=True)
        return [number for number, result in enumerate(found) if isinstance(result, QuotaExceeded)]

    async with holdfast.open(pg_store_url, reap=False) as other:
        theirs = other.kv("plugin-3")
        assert [await every(key) for key in ("a", "a")] == [[], []]
        await other.set_policy("kv/plugin-3", {"quota_keys": 2})
        assert await every("b") == [3]
        for _ in range(4):  # until all share transactions again
            assert await every("a") == []
        assert carried[-1] == PLUGINS
        await other.set_policy("kv/plugin-3", {"quota_keys": 3})
        assert await every("b") == []
        assert await theirs.get("b") is not None


async def test_a_failover_clears_what_is_remembered_of_namespaces(
    store: holdfast.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failover that lost a commit, another transaction may have its mark: memories are void."""
    engine = store._engine
    assert isinstance(engine, PostgresEngine)

    async def versions_after_another_life() -> set[int]:
        """Write to all, with memories of versions that this server never gave."""
        for name, state in engine._marks._states.items():
            elsewhere = msgspec.structs.replace(state.namespace, revision=100)
            engine._marks.left_as(state._replace(namespace=elsewhere))
            assert name == elsewhere.name
        return {entry.version for entry in await asyncio.gather(*(kv.set("k", 1) for kv in plugins(store)))}

    await asyncio.gather(*(kv.set("k", 0) for kv in plugins(store)))
    monkeypatch.setattr(shared, "LOAD", shared.LOAD.replace("pg_postmaster_start_time()", "now()"))
    assert await versions_after_another_life() == {3}
    monkeypatch.undo()
    await asyncio.gather(*(kv.set("k", 0) for kv in plugins(store)))
    assert await versions_after_another_life() == {101}, "the memories are used on the server they are of"


@pytest.fixture
async def rival(pg_store_url: str, store: holdfast.Store) -> AsyncIterator[holdfast.Store]:
    """Another store that writes to the same namespaces, which both have noticed."""
    async with holdfast.open(pg_store_url, reap=False) as rival:
        for _ in range(2):
            for one in (rival, store):
                await asyncio.gather(*(kv.set("first", 0) for kv in plugins(one)))
        yield rival


async def test_namespaces_that_two_stores_write_to_share_transactions(
    store: holdfast.Store, rival: holdfast.Store, carried: list[int | None]
) -> None:
    """Two services with the same busy plugins take turns with groups of all of them, and lose nothing."""
    for _ in range(3):
        for one in (store, rival):
            found = await asyncio.gather(*(kv.incr("n") for kv in plugins(one)))
            assert len({entry.value for entry in found}) == 1
    assert carried == [PLUGINS] * 6
    await asyncio.gather(*(kv.incr("n") for _ in range(5) for one in (store, rival) for kv in plugins(one)))
    assert [(await kv.get("n")).value for kv in plugins(store)] == [16] * PLUGINS  # type: ignore[union-attr]


async def test_a_refused_group_of_contended_namespaces_leaves_no_lock(
    store: holdfast.Store, rival: holdfast.Store, carried: list[int | None]
) -> None:
    """A group whose commands are all refused ends its transaction: the other store writes at once."""
    refused = await asyncio.gather(
        *(kv.set("first", 1, expected_version=99) for kv in plugins(store)), return_exceptions=True
    )
    assert {type(refusal) for refusal in refused} == {VersionConflict}
    await asyncio.gather(*(kv.set("first", 2) for kv in plugins(rival)))
    assert carried == [PLUGINS] * 2
    assert [(await kv.get("first")).value for kv in plugins(store)] == [2] * PLUGINS  # type: ignore[union-attr]


async def test_contended_namespaces_commit_nothing_past_a_deadline(
    store: holdfast.Store, rival: holdfast.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deadline that passes between decision and commit refuses its command; the others are written."""
    save = shared.SharedGroup._save

    async def late(self: Any, *args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        assert not options["commits"]
        await asyncio.sleep(1.1)
        return await save(self, *args, **options)

    monkeypatch.setattr(shared.SharedGroup, "_save", late)
    hurried, *patient = plugins(store)
    calls = [hurried.set("k", 1, timeout=1), *(kv.set("k", 1) for kv in patient)]
    first, *others = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(first, Timeout)
    assert not [other for other in others if isinstance(other, BaseException)]
    assert [await kv.get("k") is not None for kv in plugins(rival)] == [False] + [True] * (PLUGINS - 1)


@pytest.mark.usefixtures("rival")
async def test_a_contended_namespace_that_stays_locked_delays_the_others_only_for_a_moment(
    pg_store_url: str, store: holdfast.Store, carried: list[int | None]
) -> None:
    """A process that stops within its turn delays namespaces that it does not hold for a moment only."""
    holder = await asyncpg.connect(pg_store_url)
    try:
        await holder.execute("BEGIN; SELECT 1 FROM holdfast_namespaces WHERE name = 'kv/plugin-0' FOR UPDATE")
        held, *free = (asyncio.create_task(kv.set("k", 1, timeout=5)) for kv in plugins(store))
        await asyncio.gather(*free)
        await asyncio.gather(*(kv.set("k", 2) for kv in plugins(store)[1:]))
        assert not held.done()
        await holder.execute("COMMIT")
        await held
    finally:
        await holder.close()
    assert carried == [None, PLUGINS - 1], "the one that is locked is no longer waited for"
