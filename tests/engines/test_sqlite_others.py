"""What other programs do to a SQLite file while an engine has it, and what that engine knows by itself."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.commands import Many
from holdfast.engines.sqlite import SqliteEngine
from holdfast.engines.sqlite.cache import ROW_BYTES
from holdfast.engines.sqlite.writer import Stale
from holdfast.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.commands import Command


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store's file."""
    return tmp_path / "store.db"


def _versions(results: list[holdfast.Entry | holdfast.HoldfastError]) -> list[int]:
    return [result.version for result in results if isinstance(result, holdfast.Entry)]


async def test_a_commit_of_another_program_between_load_and_commit_is_not_lost(path: Path) -> None:
    """A group that was decided on rows which have changed meanwhile is decided again."""
    async with holdfast.open(path, reap=False) as store:
        kv = store.kv("p")
        await kv.set("n", 1)
        engine = store._engine
        assert isinstance(engine, SqliteEngine)
        decide, interfered = engine.decide, False

        async def decide_and_interfere(*arguments: object) -> object:
            nonlocal interfered
            outcome = await decide(*arguments)  # type: ignore[arg-type]
            if not interfered:
                interfered = True
                with sqlite3.connect(path) as outside:
                    outside.execute("UPDATE plugin_kv_storage SET value_json = '41' WHERE key = 'n'")
                outside.close()
            return outcome

        engine.decide = decide_and_interfere  # type: ignore[assignment, method-assign]
        assert (await kv.incr("n")).value == 42


async def test_a_deadline_that_passes_when_others_stop_writing(path: Path) -> None:
    """A group that was too late in its turn is decided again, though others have stopped writing by then."""
    async with holdfast.open(path, reap=False) as store:
        kv, engine = store.kv("p"), store._engine
        assert isinstance(engine, SqliteEngine)
        await kv.set("n", 1)

        async def too_late(*_: object) -> object:
            engine._contended = False  # as another group does that has found nobody else
            raise Stale(engine._writer.data_version)

        engine._contended = True
        engine._decide_in_turn = too_late  # type: ignore[assignment, method-assign]
        assert (await kv.incr("n")).value == 2


async def test_both_of_two_groups_notice_what_another_program_wrote(path: Path) -> None:
    """A large call is decided again though a write of another namespace has met the change before it."""
    async with holdfast.open(path, reap=False) as store:
        busy, quiet = store.kv("busy"), store.kv("quiet")
        assert (await busy.set("n", 1)).version == 1
        await quiet.set("n", 1)
        engine = store._engine
        assert isinstance(engine, SqliteEngine)
        decide, decided = engine.decide, asyncio.Event()

        async def decide_and_wait(commands: Sequence[Command], *arguments: object) -> object:
            outcome = await decide(commands, *arguments)  # type: ignore[arg-type]
            if isinstance(commands[0], Many) and not decided.is_set():
                decided.set()
                with sqlite3.connect(path) as outside:
                    outside.execute("UPDATE holdfast_namespaces SET revision = 100 WHERE name = 'kv/busy'")
                outside.close()
                assert (await quiet.incr("n")).value == 2
            return outcome

        engine.decide = decide_and_wait  # type: ignore[assignment, method-assign]
        results = await busy.set_many([{"key": f"k{number}", "value": 1} for number in range(500)])
        assert _versions(results) == list(range(101, 601))


async def test_a_later_group_decides_on_nothing_remembered_before_the_change(path: Path) -> None:
    """No decision rests on what this engine remembered before another program wrote."""
    async with holdfast.open(path, reap=False) as store:
        busy, quiet = store.kv("busy"), store.kv("quiet")
        await busy.set_many([{"key": f"k{number}", "value": 1} for number in range(500)])
        await quiet.set("n", 1)
        with sqlite3.connect(path) as outside:
            outside.execute("UPDATE holdfast_namespaces SET revision = 1000 WHERE name = 'kv/busy'")
        outside.close()
        items = [{"key": f"k{number}", "value": 2} for number in range(500)]
        counted = asyncio.gather(*(quiet.incr("n") for _ in range(20)))
        assert _versions(await busy.set_many(items)) == list(range(1001, 1501))
        await counted
        assert (await quiet.incr("n")).value == 22


async def test_a_process_that_has_only_read_so_far_decides_on_what_others_have_written(path: Path) -> None:
    """One that could not write to the folder when it opened the file may do so later, and has kept rows."""
    async with holdfast.open(path, reap=False) as store:
        await store.kv("p").set("n", 1)
    reader = holdfast.open(path, reap=False)
    assert isinstance(reader._engine, SqliteEngine)
    reader._engine.open_read_only()
    async with reader:
        assert await reader.kv("p").get("n") is not None
        async with holdfast.open(path, reap=False) as store:
            for _ in range(3):
                await store.kv("p").incr("n")
        for value in range(5, 10):
            entry = await reader.kv("p").incr("n")
            assert (entry.value, entry.version) == (value, value)


async def test_versions_continue_from_the_counter_in_the_file(path: Path) -> None:
    """Versions go on from the counter in the file, though this engine knows what it wrote there itself."""
    async with holdfast.open(path, reap=False) as store:
        kv = store.kv("p")
        assert (await kv.set("k", 1)).version == 1
        with sqlite3.connect(path) as outside:
            outside.execute("UPDATE holdfast_namespaces SET revision = 100, keys = 7")
        outside.close()
        assert (await kv.set("k", 2)).version == 101
        assert (await store.stats("kv/p")).keys == 7


async def test_rows_beyond_the_cache_are_right(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows and namespaces are right, also where there are more of them, and larger ones, than are cached."""
    monkeypatch.setattr("holdfast.engines.sqlite.cache.MAX_NAMESPACES", 3)
    async with Store(SqliteEngine(path, cache_bytes=6 * (ROW_BYTES + 10)), reap=False) as store:
        for expected in (1, 2, 3):
            handles = [store.kv(f"p{number}") for number in range(5)]
            assert [(await kv.incr("n")).value for kv in handles] == [expected] * 5
            assert [(await kv.set("large", "x" * 4000)).version for kv in handles] == [2 * expected] * 5
        assert await handles[0].delete("n")
        assert (await handles[0].incr("n")).value == 1
        assert (await handles[0].set("large", 1, expected_version=6)).version == 9


async def test_a_conflict_shows_what_is_in_the_file(path: Path) -> None:
    """A conflict shows what is in the file, also what another program put there after the last commit."""
    async with holdfast.open(path, reap=False) as store:
        kv = store.kv("p")
        await kv.set("k", "ours")
        with sqlite3.connect(path) as outside:
            outside.execute("UPDATE plugin_kv_storage SET value_json = '\"theirs\"'")
        outside.close()
        with pytest.raises(holdfast.VersionConflict) as conflict:
            await kv.set("k", "more", expected_version=7)
        assert conflict.value.current is not None
        assert conflict.value.current.value == "theirs"


async def test_a_write_succeeds_beside_a_program_that_never_stops_writing(path: Path) -> None:
    """A write that finds no quiet moment is decided again with the file locked, and overwrites nothing."""
    async with holdfast.open(path, reap=False) as store:
        kv = store.kv("p")
        await kv.set("n", 1)
        engine = store._engine
        assert isinstance(engine, SqliteEngine)
        decide = engine.decide

        async def decide_and_interfere(*arguments: object) -> object:
            outcome = await decide(*arguments)  # type: ignore[arg-type]
            with sqlite3.connect(path) as outside:
                outside.execute("UPDATE plugin_kv_storage SET value_json = value_json + 1")
            outside.close()
            return outcome

        engine.decide = decide_and_interfere  # type: ignore[assignment, method-assign]
        assert (await kv.incr("n")).value == 3
        assert (await kv.incr("n")).value == 4
