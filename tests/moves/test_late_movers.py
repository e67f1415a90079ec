"""Processes that were paused, or move one store at once: never do two stores accept writes."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.edges.cli.commands.stores import reading, writing
from holdfast.moves.transfers import Ended, StoreTransfer, place_in
from tests.cluster import Nodes, engine_of
from tests.jetstream import servers_running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from holdfast.engine import Movable
    from holdfast.engine.raw import RawLoader


@contextlib.asynccontextmanager
async def moving(one: str, two: str) -> AsyncIterator[StoreTransfer]:
    """A process that has begun to move a store."""
    async with (
        reading(one) as source,
        StoreTransfer(source, lambda: writing(two), lambda: reading(two), where=two) as transfer,
    ):
        await transfer.begin(lambda names: None)
        yield transfer


async def accepting(*places: str) -> list[str]:
    """The stores that accept writes."""
    found = []
    for place in places:
        with contextlib.suppress(holdfast.Unavailable):
            async with holdfast.open(place, reap=False) as store:
                await store.kv("p").set("seen", 1)
                found.append(place)
    return found


def paused_before_opening(
    source: Movable, meanwhile: Callable[[], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Have something happen just before a process opens the source again."""
    change = source.close_to_writes

    async def late(reason: str | None, *, instead_of: str | None) -> None:
        if reason is None:
            await meanwhile()
        await change(reason, instead_of=instead_of)

    monkeypatch.setattr(source, "close_to_writes", late)


@pytest.fixture
async def one(tmp_path: Path) -> str:
    """A store to move."""
    async with holdfast.open(tmp_path / "one.db", reap=False) as store:
        await store.kv("p").set("k", 1)
    return str(tmp_path / "one.db")


@pytest.fixture
def two(tmp_path: Path) -> str:
    """A place to move it to."""
    return str(tmp_path / "two.db")


async def test_late_failed_switch_does_not_reopen_a_moved_source(
    one: str, pg_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A switch that failed was paused before it opened the source, and another has moved the store since."""

    async def another_moves() -> None:
        async with moving(one, pg_url) as second:
            await second.switch()

    async def failing(*arguments: object, **options: object) -> None:
        raise holdfast.Unavailable("no proof today")

    async with moving(one, pg_url) as first:
        paused_before_opening(first._source, another_moves, monkeypatch)
        monkeypatch.setattr(first, "_prove", failing)
        with pytest.raises(holdfast.Unavailable, match="no proof"):
            await first.switch()
    assert await accepting(one, pg_url) == [pg_url]


async def test_late_cancellation_blocks_the_switch(
    one: str, two: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancellation was paused before it opened the source: the switch can't be completed meanwhile."""
    async with moving(one, two) as first, reading(one) as source:
        await source.close_to_writes(first._moved, instead_of=None)

        async def completed() -> None:
            with pytest.raises(Ended):
                await first.finish(keep_epoch=True)

        canceling = StoreTransfer(source, first._open_target, first._look_at_target, where=two)
        paused_before_opening(source, completed, monkeypatch)
        await canceling.cancel()
    assert await accepting(one, two) == [one]


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_moved_store_is_not_reopened_by_a_cancellation(
    engine: str, one: str, two: str, request: pytest.FixtureRequest
) -> None:
    """A store that has moved, or moves elsewhere, is not opened again."""
    two = two if engine == "sqlite" else request.getfixturevalue("pg_url")
    async with moving(one, two) as first:
        await first.switch()
        with pytest.raises(holdfast.ValidationError, match="moved already"):
            await first.cancel()
        elsewhere = StoreTransfer(first._source, first._open_target, first._look_at_target, where="three.db")
        with pytest.raises(holdfast.ValidationError, match=r"does not move to this target: .* has moved to"):
            await elsewhere.cancel()
    assert await accepting(one, two) == [two]


async def test_switch_completed_during_a_cancellation_stays(
    one: str, pg_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the switch is completed after a cancellation has looked at the target, that changes nothing."""
    async with moving(one, pg_url) as first, reading(one) as source:
        await first.step()
        await source.close_to_writes(first._moved, instead_of=None)
        async with (
            StoreTransfer(source, first._open_target, first._look_at_target, where=pg_url) as canceling,
            canceling._target() as target,
        ):
            load = target.loading

            @contextlib.asynccontextmanager
            async def late() -> AsyncIterator[RawLoader]:
                await first.finish(keep_epoch=True)
                async with load() as loader:
                    yield loader

            monkeypatch.setattr(target, "loading", late)
            with pytest.raises(holdfast.Busy, match="changed the target"):
                await canceling.cancel()
    assert await accepting(one, pg_url) == [pg_url]


async def test_concurrent_moves_to_two_places_refuse_one(one: str, two: str, tmp_path: Path) -> None:
    """Of two processes that move a store to different places, one moves it, and the other is refused."""
    three = str(tmp_path / "three.db")
    async with moving(one, two) as first, moving(one, three) as second:
        await first.switch()
        with pytest.raises(holdfast.ValidationError, match=r"has moved to .*two\.db"):
            await second.switch()
    assert await accepting(one, two, three) == [two]


async def test_second_of_two_moves_finds_the_source_closed(
    one: str, two: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one has seen the source open; when it closes the source, that is closed already."""
    three = str(tmp_path / "three.db")
    async with moving(one, two) as first, moving(one, three) as second:
        change = second._source.close_to_writes

        async def late(reason: str | None, *, instead_of: str | None) -> None:
            if reason is not None:
                await first.switch()
            await change(reason, instead_of=instead_of)

        monkeypatch.setattr(second._source, "close_to_writes", late)
        with pytest.raises(holdfast.Busy, match="another process has closed or opened this store"):
            await second.switch()
    assert await accepting(one, two, three) == [two]


@pytest.mark.parametrize("engine", ["sqlite", "postgres", "cluster"])
async def test_store_state_is_replaced_only_by_its_reader(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A store is closed or opened only by one that knows why it is closed, or that it is open."""
    async with contextlib.AsyncExitStack() as stack:
        if engine == "cluster":
            servers = await stack.enter_async_context(servers_running(1))
            store = await Nodes(servers, tmp_path, stack).open(0)
            source: Movable = engine_of(store)
        else:
            url = str(tmp_path / "one.db") if engine == "sqlite" else request.getfixturevalue("pg_url")
            store = await stack.enter_async_context(holdfast.open(url, reap=False))
            source = await stack.enter_async_context(reading(url))
        with pytest.raises(holdfast.Busy):
            await source.close_to_writes(None, instead_of="closed by first")
        await source.close_to_writes("closed by first", instead_of=None)
        for reason, instead_of in (("closed by second", None), (None, None), (None, "closed by second")):
            with pytest.raises(holdfast.Busy):
                await source.close_to_writes(reason, instead_of=instead_of)
            with pytest.raises(holdfast.Unavailable, match="closed by first"):
                await store.kv("p").set("k", 1)
        await source.close_to_writes("closed by second", instead_of="closed by first")
        await source.close_to_writes(None, instead_of="closed by second")
        await store.kv("p").set("k", 1)


@pytest.mark.parametrize(
    ("reason", "place"),
    [
        ("this store has moved to two.db (move 0123abcd)", "two.db"),
        ("one.db accepts no writes: this store has moved to /a b/c (d) (move 0123abcd)", "/a b/c (d)"),
        ("this store has moved to two.db", "two.db"),
        ("a copy into this store is not complete", None),
    ],
)
def test_moved_place_is_read_from_the_reason(reason: str, place: str | None) -> None:
    """Also where the store was closed by a version that did not name moves."""
    assert place_in(reason) == place
