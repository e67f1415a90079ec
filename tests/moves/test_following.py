"""A copy that is kept in step: every kind of change arrives, by the journal or by comparison."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.clock import ManualClock
from holdfast.edges.cli.commands.stores import reading, writing
from holdfast.moves import transfers
from holdfast.moves.transfers import Ended, StoreTransfer
from tests.moves.contents import KEY, differing, fill

if TYPE_CHECKING:
    from pathlib import Path


async def test_each_kind_of_change_reaches_a_following_copy(tmp_path: Path) -> None:
    """Writes, deletes, expiries, trims, table items, blobs, policies and purges reach a copy pass by pass."""
    one, two = tmp_path / "one.db", tmp_path / "two.db"
    await fill(one)
    clock = ManualClock()
    clock.advance(300)
    async with (
        reading(str(one)) as source,
        StoreTransfer(
            source, lambda: writing(str(two)), lambda: reading(str(two)), where="two.db"
        ) as transfer,
    ):
        await transfer.begin(lambda names: None)
        await transfer.step()
        assert await differing(one, two) == []
        assert not (await transfer.step()).changed
        async with holdfast.open(one, clock=clock, audit_key=KEY, reap=False) as store:
            kv = store.kv("trivia")
            for number in range(20):
                await kv.set(f"k{number}", number, request_id=f"again{number}", ttl=900)
            await kv.delete("k30")
            await kv.delete("k0")
            await kv.restore("k0")
            await store.tables("shop").delete_item("orders", "c0", 0)
            await store.blobs("media").put("other", b"x" * 300_000)
            await store.blobs("media").delete("big")
            await store.set_policy("kv/new", {"quota_bytes": 9_000})
            await transfer.step()
            assert await differing(one, two) == []
            clock.advance(86_400 * 40)
            await store.sweep()
            await store.upkeep()
            await kv.set("last", 1)
            await transfer.step()
        assert await differing(one, two) == []
        await transfer.finish()
    async with holdfast.open(two, clock=clock, audit_key=KEY, reap=False) as store:
        verified = await store.audit("kv/trivia").verify()
        assert verified.broken_at is None


async def written_at_last(store: holdfast.Store, value: int) -> None:
    """Write as soon as the copy that follows does not have the file open."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(holdfast.Unavailable):
                await store.kv("p").set("k", value)
                return
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_another_process_completes_a_copy_that_follows(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """A copy that follows ends when another one switches, and changes nothing after that."""
    monkeypatch.setattr(transfers, "INTERVAL", 0.1)
    one = str(tmp_path / "one.db")
    two = str(tmp_path / "two.db") if engine == "sqlite" else request.getfixturevalue("pg_store_url")
    async with holdfast.open(one, reap=False) as store:
        await store.kv("p").set("k", 1)
        async with (
            reading(one) as source,
            reading(one) as same,
            StoreTransfer(source, lambda: writing(two), lambda: reading(two), where="two") as follower,
            StoreTransfer(same, lambda: writing(two), lambda: reading(two), where="two") as switcher,
        ):
            await follower.begin(lambda names: None)
            following = asyncio.create_task(follower.follow(asyncio.Event()))
            await store.kv("p").set("k", 2)
            await switcher.begin(lambda names: None)
            await switcher.switch()
            async with holdfast.open(two, reap=False) as moved:
                await written_at_last(moved, 3)
                with pytest.raises(Ended):
                    await asyncio.wait_for(following, 60)
                found = await moved.kv("p").get("k")
        assert (found is not None, found and found.value) == (True, 3)
        with pytest.raises(holdfast.Unavailable, match="has moved to two"):
            await store.ready()


async def test_failed_switch_reopens_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the two stores can't be proven equal, the source accepts writes again and the target is closed."""
    one, two = str(tmp_path / "one.db"), str(tmp_path / "two.db")

    async def failing(*arguments: object, **options: object) -> None:
        raise holdfast.Unavailable("no proof today")

    async with holdfast.open(one, reap=False) as store:
        await store.kv("p").set("k", 1)
        async with (
            reading(one) as source,
            StoreTransfer(source, lambda: writing(two), lambda: reading(two), where="two") as transfer,
        ):
            await transfer.begin(lambda names: None)
            with monkeypatch.context() as patch:
                patch.setattr(StoreTransfer, "_prove", failing)
                with pytest.raises(holdfast.Unavailable, match="no proof"):
                    await transfer.switch()
            await store.kv("p").set("k", 2)
            with pytest.raises(holdfast.Unavailable, match="not complete"):
                await holdfast.open(two).__aenter__()
            await transfer.switch()
    assert await differing(one, two) == []
