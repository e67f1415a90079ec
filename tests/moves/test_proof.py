"""The proof of a switch, and the hand-over after it: nothing differs, and never are two stores open."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.engines.cluster import engine as cluster_engine
from holdfast.engines.cluster import moves
from holdfast.moves import transfers
from tests.cluster import Nodes, engine_of
from tests.jetstream import servers_running
from tests.moves.contents import differing, fill
from tests.moves.test_late_movers import accepting, moving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from holdfast.engines.cluster.shard import Shard
    from holdfast.moves.transfers import StoreTransfer

VALUE = "UPDATE plugin_kv_storage SET value_json = '\"other\"' WHERE key = 'k5'"
"""Changes the value of an entry behind the store: its version stays the same."""
BEHIND = {
    "value": VALUE,
    "deadline": "UPDATE plugin_kv_storage SET expires_at = 9000000000000 WHERE key = 'k5'",
    "item": "UPDATE holdfast_rows SET value = '{}' WHERE namespace = 'table/shop'",
    "part": "UPDATE holdfast_parts SET data = x'00' WHERE key = (SELECT min(key) FROM holdfast_parts)",
    "policy": "UPDATE holdfast_namespaces SET policy = NULL WHERE name = 'kv/trivia'",
}


def changed(path: str, statement: str) -> None:
    """Change a file as no store would, without a new version."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        found = connection.execute("SELECT name, value FROM holdfast_meta WHERE name = 'closed'").fetchall()
        connection.execute("DELETE FROM holdfast_meta WHERE name = 'closed'")  # the triggers look there
        connection.execute("INSERT INTO holdfast_meta (name, value) VALUES ('inside', '')")  # and there
        assert connection.execute(statement).rowcount >= 1, statement
        connection.execute("DELETE FROM holdfast_meta WHERE name = 'inside'")
        connection.executemany("INSERT INTO holdfast_meta (name, value) VALUES (?, ?)", found)


def before_closing(
    transfer: StoreTransfer, meanwhile: Callable[[], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Have something happen just before a switch closes its source, after everything was compared once."""
    close = transfer._source.close_to_writes

    async def late(reason: str | None, *, instead_of: str | None) -> None:
        if reason is not None:
            await meanwhile()
        await close(reason, instead_of=instead_of)

    monkeypatch.setattr(transfer._source, "close_to_writes", late)


@pytest.fixture
async def one(tmp_path: Path) -> str:
    """A store to move, with something in every section."""
    await fill(tmp_path / "one.db")
    return str(tmp_path / "one.db")


@pytest.fixture
def two(tmp_path: Path) -> str:
    """A place to move it to."""
    return str(tmp_path / "two.db")


@pytest.mark.parametrize("what", BEHIND)
@pytest.mark.parametrize("soon", [0.0, 3_600.0])
async def test_a_switch_mends_contents_that_differ_at_the_same_version(
    one: str, two: str, monkeypatch: pytest.MonkeyPatch, soon: float, what: str
) -> None:
    """A copy that was changed behind the store is mended before the switch, in a small store and in a large.

    In a large one the comparison of everything takes longer than writes may be refused, so it comes first.
    """
    monkeypatch.setattr(transfers, "_SOON", soon)
    async with moving(one, two) as transfer:
        await transfer.step()
    changed(two, BEHIND[what])
    async with moving(one, two) as transfer:
        await transfer.switch()
    assert await differing(one, two) == []
    assert transfer.result.switched


async def test_a_small_store_is_compared_whole_while_it_is_closed(
    one: str, two: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What differs by then is found although no version tells, because all of it can be compared in time."""
    monkeypatch.setattr(transfers, "_SOON", 3_600.0)
    async with moving(one, two) as transfer:

        async def change() -> None:
            changed(two, VALUE)

        before_closing(transfer, change, monkeypatch)
        await transfer.switch()
    assert await differing(one, two) == []


async def test_writes_during_the_switch_are_compared_by_content(
    one: str, two: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a large store the proof looks at all that has changed since the comparison, and at its contents."""
    monkeypatch.setattr(transfers, "_SOON", 0.0)
    async with moving(one, two) as transfer:

        async def write() -> None:
            async with holdfast.open(one, reap=False, audit_key="a-secret-for-the-tests") as store:
                await store.kv("trivia").set("k5", "new")
            await transfer.step()
            changed(two, VALUE)

        before_closing(transfer, write, monkeypatch)
        await transfer.switch()
    assert await differing(one, two) == []


async def test_a_target_that_another_process_keeps_changing_is_not_switched_to(
    one: str, two: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If no pass finds the two equal, nothing has moved: the source alone accepts writes."""
    async with moving(one, two) as transfer:
        step, number = transfer.step, iter(range(1_000))

        async def interfered(**options: Any) -> Any:
            if options.get("since") is not None:
                changed(two, VALUE.replace("other", str(next(number))))
            return await step(**options)

        monkeypatch.setattr(transfer, "step", interfered)
        with pytest.raises(holdfast.Unavailable, match="does not become equal"):
            await transfer.switch()
    assert not transfer.result.switched
    assert await accepting(one, two) == [one]


async def test_an_interrupted_switch_reopens_the_source(
    one: str, two: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while writes are refused cancels the switch: the source accepts writes again."""
    async with moving(one, two) as transfer:
        proving = asyncio.Event()

        async def prove(*given: object, **options: object) -> None:
            proving.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(transfer, "_prove", prove)
        switching = asyncio.create_task(transfer.switch())
        await proving.wait()
        assert await accepting(one) == []
        switching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await switching
    assert await accepting(one, two) == [one]


@pytest.fixture(params=["sqlite", "postgres"])
def anywhere(request: pytest.FixtureRequest, two: str) -> str:
    """A place of either engine to move the store to."""
    return two if request.param == "sqlite" else str(request.getfixturevalue("pg_url"))


@pytest.mark.parametrize("kept", [True, False])
async def test_a_handover_of_unknown_outcome_keeps_the_source_closed(
    one: str, anywhere: str, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    """The source stays closed, since the target may be in use; the same command then completes the move."""
    async with moving(one, anywhere) as transfer:
        finish = transfer.finish

        async def unanswered(**options: Any) -> None:
            if kept:
                await finish(**options)
            raise holdfast.OutcomeUnknown("the commit was not confirmed")

        monkeypatch.setattr(transfer, "finish", unanswered)
        with pytest.raises(holdfast.OutcomeUnknown):
            await transfer.switch()
    assert await accepting(one, anywhere) == ([anywhere] if kept else [])
    if not kept:
        async with moving(one, anywhere) as again:
            await again.switch()
        assert await accepting(one, anywhere) == [anywhere]


@pytest.mark.parametrize("error", [holdfast.Unavailable("no"), holdfast.Busy("no")])
async def test_a_handover_that_certainly_failed_reopens_the_source(
    one: str, two: str, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """If the target is known to be closed still, the source accepts writes again."""
    async with moving(one, two) as transfer:

        async def failing(**options: Any) -> None:
            raise error

        monkeypatch.setattr(transfer, "finish", failing)
        with pytest.raises(type(error)):
            await transfer.switch()
    assert await accepting(one, two) == [one]


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Nodes]:
    """The nodes of a new cluster."""
    async with servers_running(1) as servers, AsyncExitStack() as stack:
        yield Nodes(servers, tmp_path, stack)


async def test_a_cluster_whose_first_shard_is_open_counts_as_open(
    one: str, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the log fails after the first shard was opened, nodes open the rest: the source stays closed."""
    put, there = moves._put, nodes.url(0, shards=3)

    async def failing(shard: Shard, changes: Any, allow: Any) -> None:
        if shard.number and changes[0][0] == "remember" and ["closed", None] in map(list, changes[0][3]):
            raise holdfast.Unavailable("no server leads the log")
        await put(shard, changes, allow)

    monkeypatch.setattr(cluster_engine, "SETTLE_SECONDS", 0.05)
    async with moving(one, there) as transfer:
        with monkeypatch.context() as patch:
            patch.setattr(moves, "_put", failing)
            with pytest.raises(holdfast.OutcomeUnknown, match="no server leads the log"):
                await transfer.switch()
    assert await accepting(one) == []
    node = await nodes.open(1)
    async with asyncio.timeout(60):
        while any(shard.replica.status.closed for shard in engine_of(node)._shards):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert (await node.kv("plain").set("k", 2)).version == 2
