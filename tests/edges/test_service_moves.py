"""A service goes on by itself at the place to which its store has moved."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING

import holdfast
from holdfast.edges import served_store
from holdfast.edges.served_store import MovesFollower
from holdfast.edges.settings.read import read_config
from holdfast.engine import Movable
from tests.edges.running import holdfast_up
from tests.forking import completed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest


async def copied(*arguments: object) -> None:
    """Run `holdfast copy`."""
    done = await asyncio.to_thread(completed, "holdfast", "copy", *map(str, arguments), "--yes")
    assert done.returncode == 0, done.stderr


async def incremented(kv: holdfast.KV, request_id: str) -> None:
    """Increment a counter once, and repeat it as long as that is refused for now."""
    while True:
        with contextlib.suppress(holdfast.Unavailable, holdfast.OutcomeUnknown, holdfast.Busy):
            await kv.incr("n", request_id=request_id)
            return
        await asyncio.sleep(0.02)


async def test_clients_of_a_service_notice_only_a_pause(tmp_path: Path) -> None:
    """A program that repeats what was refused as unavailable goes on at the target, and loses nothing."""
    one, two = tmp_path / "one.db", tmp_path / "two.db"
    async with holdfast_up(tmp_path / "up", "--db", one) as up:
        async with holdfast.open(f"{up.url}?timeout=2") as client, asyncio.timeout(250):
            await incremented(client.kv("jobs"), "r0")
            moving = asyncio.create_task(copied(one, two, "--switch"))
            done, left = 1, 3
            while left:
                await incremented(client.kv("jobs"), f"r{done}")
                done, left = done + 1, left - moving.done()
                await asyncio.sleep(0.01)
            await moving
        status, _ = await up.http("/readyz")
        assert (status, await up.stop()) == (200, 0)
        assert f"The store has moved to {two}. Holdfast follows." in up.said
    async with holdfast.open(two, reap=False) as store:
        found = await store.kv("jobs").get("n")
        assert found is not None
        assert (found.value, found.version) == (done, done)
    async with holdfast.open(one, reap=False) as store:
        found = await store.kv("jobs").get("n")
        assert found is not None
        assert found.value < done


def tells(follower: MovesFollower, place: str | None) -> bool:
    """Whether the service has said that the store has moved to a place."""
    return follower.announced == place


async def until(happens: Callable[[], bool]) -> None:
    """Wait until something has happened that sets no event."""
    async with asyncio.timeout(60):
        while not happens():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_place_that_a_service_can_not_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so once and stays, also while the target can't be opened, and goes on after a failed switch."""
    monkeypatch.setattr(served_store, "INTERVAL", 0.02)
    config = read_config(environment={}, db=str(tmp_path / "one.db"), data_dir=str(tmp_path))
    said: list[str] = []
    stop = asyncio.Event()
    served = await served_store.open_served(config, said.append, stop)
    engine = served.store._engine
    assert isinstance(engine, Movable)
    async with served.stack:
        follower = MovesFollower(served, said.append, stop)
        waiting = asyncio.create_task(follower.wait())
        closed = None
        for place in ("postgresql://me:***@127.0.0.1:1/db", f"{tmp_path}/one.db/two.db", None):
            reason = place and f"this store has moved to {place} (move 0123abcd)"
            await engine.close_to_writes(reason, instead_of=closed)
            closed = reason
            await until(partial(tells, follower, place))
            assert not waiting.done()
        await served.store.kv("p").set("k", 1)
        stop.set()
        await asyncio.wait_for(waiting, 30)
    assert said[0] == (
        "The store has moved to postgresql://me:***@127.0.0.1:1/db. Start Holdfast again with that URL."
    )
    assert said[1:] == [f"The store has moved to {tmp_path}/one.db/two.db. Holdfast follows."]
