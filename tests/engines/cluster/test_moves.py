"""Loads and facts of a whole store in the logs of its shards."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.edges.cli.commands.stores import writing
from holdfast.engine.raw import UNFINISHED, StoreInfo
from holdfast.engines.cluster import moves
from holdfast.engines.cluster.messages import load_statements, put_facts
from holdfast.engines.cluster.replica import ReplicaStatus, status_of
from holdfast.errors import Busy, OutcomeUnknown, Unavailable
from holdfast.rows import KV
from tests.cluster import engine_of

if TYPE_CHECKING:
    from holdfast.engines.cluster.shard import Shard
    from tests.cluster import Nodes


def run(connection: sqlite3.Connection, facts: StoreInfo) -> dict[str, str]:
    """Remember facts as every replica does, and return what is kept then."""
    for sql, row in load_statements([put_facts(facts)]):
        connection.execute(sql, row)
    return dict(connection.execute("SELECT name, value FROM holdfast_meta"))


def test_the_clock_of_a_node_does_not_go_back_with_a_load() -> None:
    """A load brings the time of its source; a node whose own time is later keeps that."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE holdfast_meta (name TEXT PRIMARY KEY, value TEXT)")
        assert run(connection, StoreInfo(epoch="e", clock=900))["clock"] == "900"
        assert run(connection, StoreInfo(epoch="e", clock=1_000))["clock"] == "1000"
        assert run(connection, StoreInfo(epoch="e", clock=950))["clock"] == "1000"


def test_a_store_is_open_closed_or_unfinished() -> None:
    """A store that is closed can be read; one into which a load is under way can't be used at all."""
    opened, closed = status_of([]), status_of([("closed", "moved"), ("store_epoch", "e")])
    unfinished = ReplicaStatus(f"{UNFINISHED}: run it again")
    assert (closed.closed, closed.epoch) == ("moved", "e")
    for status, reads, writes in ((opened, True, True), (closed, True, False), (unfinished, False, False)):
        for allowed, require in ((reads, status.require_finished), (writes, status.require_open)):
            if allowed:
                require("s")
            else:
                with pytest.raises(Unavailable, match="the store s"):
                    require("s")


async def test_the_first_shard_is_changed_first(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a shard that is closed while the first one is open was left behind, and may be opened."""
    store = await nodes.open(1, shards=3)
    engine, told, put = engine_of(store), [], moves._put

    async def noted(shard: Shard, changes: Any, allow: Any) -> None:
        told.append(shard.number)
        await put(shard, changes, allow)

    monkeypatch.setattr(moves, "_put", noted)
    await engine.close_to_writes("closed for a test", instead_of=None)
    await engine.close_to_writes(None, instead_of="closed for a test")
    assert told == [0, 1, 2] * 2


@pytest.mark.parametrize("failing", [0, 1, 2])
async def test_a_change_that_reached_the_first_shard_may_have_been_made(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """If a later shard can't be told, the store counts as changed, and nobody may take it for unchanged."""
    store = await nodes.open(1, shards=3)
    engine, put = engine_of(store), moves._put

    async def refused(shard: Shard, changes: Any, allow: Any) -> None:
        if shard.number == failing:
            raise Unavailable("no server leads the log")
        await put(shard, changes, allow)

    with monkeypatch.context() as patch:
        patch.setattr(moves, "_put", refused)
        with pytest.raises(OutcomeUnknown if failing else Unavailable, match="no server leads the log"):
            await engine.close_to_writes("closed for a test", instead_of=None)
    assert (engine._shards[0].replica.status.closed is not None) == (failing > 0)


async def test_of_two_that_close_a_store_at_once_one_is_refused(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have read that it is open. What counts is the place in the log at which the change is stored."""
    store = await nodes.open(1)
    engine, put = engine_of(store), moves._put

    async def after_another(shard: Shard, changes: Any, allow: Any) -> None:
        monkeypatch.undo()
        await engine.close_to_writes("by the first", instead_of=None)
        await put(shard, changes, allow)

    monkeypatch.setattr(moves, "_put", after_another)
    with pytest.raises(Busy):
        await engine.close_to_writes("by the second", instead_of=None)
    assert engine._shards[0].replica.status.closed == "by the first"


async def test_a_closed_store_expires_nothing(nodes: Nodes) -> None:
    """What has expired in a store that has moved is left alone: it could not be removed there."""
    store = await nodes.open(1)
    await store.kv("trivia").set("key", 1, ttl=1)
    engine, later = engine_of(store), store.now() + 10_000
    assert len(await engine.due(KV, later, limit=10)) == 1
    await engine.close_to_writes("it has moved", instead_of=None)
    assert await engine.due(KV, later, limit=10) == []


async def test_a_load_that_was_not_begun_changes_nothing(nodes: Nodes) -> None:
    """Raw contents are accepted only while the store is closed by the process that loads."""
    await nodes.open(1)
    async with writing(nodes.url(0)) as engine:
        with pytest.raises(holdfast.Busy):
            async with engine.loading() as loader:
                await loader.drop_namespaces(["kv/trivia"])
