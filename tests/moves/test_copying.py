"""Passes of a copy: what each of them looks at, and what is left when one is interrupted."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.clock import ManualClock
from holdfast.edges.cli.commands.stores import reading, writing
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.moves import transfers
from holdfast.moves.transfers import Copier, StoreTransfer
from tests.moves.contents import differing
from tests.moves.test_late_movers import moving
from tests.moves.test_proof import VALUE, changed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from holdfast.engine.raw import RawLoader


@pytest.fixture
async def one(tmp_path: Path) -> str:
    """A store to copy, with twenty entries of a plugin."""
    async with holdfast.open(tmp_path / "one.db", reap=False) as store:
        for number in range(20):
            await store.kv("p").set(f"k{number}", number)
    return str(tmp_path / "one.db")


@pytest.fixture
def two(tmp_path: Path) -> str:
    """A place to copy it to."""
    return str(tmp_path / "two.db")


@contextlib.asynccontextmanager
async def copying_to(one: str, two: str) -> AsyncIterator[Copier]:
    """A copier between two stores."""
    async with reading(one) as source, writing(two) as target:
        yield Copier(source, target, check=lambda loader: None)


async def test_an_interrupted_first_pass_is_completed_by_the_next(
    one: str, two: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A namespace counts as in step only when all of it has arrived, so the next pass brings the rest."""
    monkeypatch.setattr(transfers, "CHANGES", 5)
    put, count = Copier.load, iter(range(100))

    async def broken(self: Copier, change: Any) -> None:
        if next(count) == 2:
            raise OSError("the disk is gone")
        await put(self, change)

    async with copying_to(one, two) as copier:
        with monkeypatch.context() as patch:
            patch.setattr(Copier, "load", broken)
            with pytest.raises(OSError, match="the disk is gone"):
                await copier.step(thorough=False)
        await copier.step(thorough=False)
    assert await differing(one, two) == []


async def test_a_copy_leaves_nothing_of_a_target_in_use(
    one: str, pg_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another process writes to the target just before it is replaced is no part of the copy."""
    original = PostgresEngine.loading
    async with holdfast.open(pg_store_url, reap=False) as other:

        @contextlib.asynccontextmanager
        async def write_first(engine: PostgresEngine) -> AsyncIterator[RawLoader]:
            monkeypatch.undo()
            for number in range(5):
                await other.kv("p").set(f"late{number}", number)
            async with original(engine) as loader:
                yield loader

        monkeypatch.setattr(PostgresEngine, "loading", write_first)
        async with moving(one, pg_store_url) as transfer:
            await transfer.step()
            await transfer.finish()
    assert await differing(one, pg_store_url) == []


async def test_an_interrupted_later_pass_is_completed_by_the_next(
    one: str, two: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same holds for changes that the journal names: their namespace's own row comes last."""
    monkeypatch.setattr(transfers, "CHANGES", 5)
    put, count = Copier.load, iter(range(100))

    async def broken(self: Copier, change: Any) -> None:
        if next(count) == 1:
            raise OSError("the disk is gone")
        await put(self, change)

    async with copying_to(one, two) as copier:
        await copier.step(thorough=False)
    async with holdfast.open(one, reap=False) as store:
        for number in range(20):
            await store.kv("p").set(f"k{number}", "new")
    async with copying_to(one, two) as copier:
        with monkeypatch.context() as patch:
            patch.setattr(Copier, "load", broken)
            with pytest.raises(OSError, match="the disk is gone"):
                await copier.step(thorough=False)
        await copier.step(thorough=False)
    assert await differing(one, two) == []


async def test_a_pass_compares_again_from_an_earlier_version(one: str, two: str) -> None:
    """What has changed since a version is compared again, although the target has that and later changes."""
    async with copying_to(one, two) as copier:
        await copier.step(thorough=False)
    changed(two, VALUE)
    async with copying_to(one, two) as copier:
        assert not (await copier.step(thorough=False)).changed, "nothing says that it differs"
        assert not (await copier.step(thorough=False, since={"kv/p": 6})).changed, "k5 has the version 6"
        assert (await copier.step(thorough=False, since={"kv/p": 5})).put == 1
    assert await differing(one, two) == []


async def test_requests_that_no_record_names_reach_the_copy(tmp_path: Path, two: str) -> None:
    """A delete that finds nothing leaves a request and no record, and a request expires without one."""
    one, clock = str(tmp_path / "one.db"), ManualClock()
    async with holdfast.open(one, clock=clock, reap=False) as store:
        await store.kv("p").set("k", 1, request_id="first")
        async with copying_to(one, two) as copier:
            await copier.step(thorough=False)
            await store.kv("p").delete("none", request_id="second")
            await copier.step(thorough=False)
            assert await differing(one, two) == []
            clock.advance(3_600)
            await store.kv("p").delete("none", request_id="third")
            await copier.step(thorough=False)
            clock.advance(86_400 - 3_600)
            await store.upkeep()
            await copier.step(thorough=False)
            assert await differing(one, two) == []
            clock.advance(3_600)
            await store.upkeep()
            await copier.step(thorough=False)
            assert await differing(one, two) == []


async def test_a_trimmed_journal_makes_a_pass_compare_everything(tmp_path: Path, two: str) -> None:
    """If the journal no longer reaches back to the copy's version, everything is compared instead."""
    one, clock = str(tmp_path / "one.db"), ManualClock()
    async with holdfast.open(one, clock=clock, reap=False) as store:
        await store.set_policy("kv/p", holdfast.Policy(journal_retention=60))
        for number in range(5):
            await store.kv("p").set(f"k{number}", 1)
    async with copying_to(one, two) as copier:
        await copier.step(thorough=False)
    async with holdfast.open(one, clock=clock, reap=False) as store:
        await store.kv("p").set("k1", "new")
        await store.kv("p").delete("k2")
        clock.advance(3_600)
        await store.upkeep()
        await store.kv("p").set("k3", "newer")
    async with copying_to(one, two) as copier:
        await copier.step(thorough=False)
    assert await differing(one, two) == []


async def test_a_target_ahead_of_a_restored_source_gets_its_content(one: str, two: str) -> None:
    """A target with later versions than the source, which was restored, holds what the source holds."""
    async with copying_to(one, two) as copier:
        await copier.step(thorough=False)
    async with holdfast.open(two, reap=False) as store:
        for number in range(5):
            await store.kv("p").set(f"k{number}", "ahead")
            await store.kv("p").set(f"more{number}", "ahead")
    async with copying_to(one, two) as copier:
        await copier.step(thorough=False)
    assert await differing(one, two) == []


async def test_namespaces_that_the_source_does_not_have_are_dropped(one: str, two: str) -> None:
    """A copy holds nothing that its source does not hold, whatever was in the target before."""
    async with holdfast.open(two, reap=False) as store:
        await store.kv("old").set("k", 1)
    async with copying_to(one, two) as copier:
        done = await copier.step(thorough=False)
        assert (done.dropped, done.changed) == (1, True)
        assert not (await copier.step(thorough=True)).changed
    assert await differing(one, two) == []


async def test_copy_asks_before_it_overwrites_namespaces(one: str, two: str) -> None:
    """The caller learns which namespaces of the target would be lost; a refusal changes nothing."""
    async with holdfast.open(two, reap=False) as store:
        await store.kv("old").set("k", 1)

    def refuse(names: list[str]) -> None:
        raise holdfast.ValidationError(f"it holds {names}", field="to")

    async with (
        reading(one) as source,
        StoreTransfer(source, lambda: writing(two), lambda: reading(two), where="two") as transfer,
    ):
        with pytest.raises(holdfast.ValidationError, match=r"it holds \['kv/old'\]"):
            await transfer.begin(refuse)
    async with holdfast.open(two, reap=False) as store:
        assert (await store.kv("old").set("k", 2)).version == 2


async def test_a_copy_gets_its_own_epoch_and_a_move_keeps_it(one: str, two: str, tmp_path: Path) -> None:
    """Both stores of a copy go on, so the copy gets an epoch of its own; watchers follow a move."""
    three = str(tmp_path / "three.db")
    async with moving(one, two) as transfer:
        await transfer.step()
        await transfer.finish()
    async with moving(one, three) as transfer:
        await transfer.switch()
    epochs = []
    for place in (one, two, three):
        async with reading(place) as store, store.snapshot() as snapshot:
            epochs.append((await snapshot.facts()).epoch)
    assert epochs[0] == epochs[2]
    assert len({*epochs}) == 2
