"""A SQLite store whose callers, files or disk go away in the middle: nothing is lost, done twice or hangs."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import sqlite3
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.clock import SystemClock
from holdfast.engines.sqlite import SqliteEngine, sharing
from holdfast.engines.sqlite import writer as writer_module
from holdfast.engines.sqlite.writer import Stale, WriteInterrupted, Writer
from holdfast.errors import Busy, Unavailable

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from pathlib import Path

    from holdfast.store import Store

LONG = [{"key": f"k{number}", "value": "long"} for number in range(400)]
"""A write that takes so many rows that it gives way to others."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A place for a store, in a folder of its own."""
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder" / "store.db"


async def opened(path: Path) -> Store:
    """A store that the test closes."""
    store = holdfast.open(path, reap=False)
    await store.start()
    return store


def writer_of(store: Store) -> Writer:
    """The writer of a store."""
    assert isinstance(store._engine, SqliteEngine)
    return store._engine._writer


async def cancelled(call: Coroutine[Any, Any, Any], at_work: threading.Event) -> None:
    """Begin a call, and cancel it and all that it has begun once the writer's thread works on it."""
    others = asyncio.all_tasks()
    task = asyncio.create_task(call)
    assert await asyncio.to_thread(at_work.wait, 60)
    for one in (tasks := asyncio.all_tasks() - others):
        one.cancel()
    assert task in tasks
    await asyncio.wait(tasks)


@contextlib.contextmanager
def other_process_has_the_turn(path: Path) -> Iterator[None]:
    """Hold the turn as another process would, from when this one does not."""
    with open(f"{path}.turn", "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


async def test_a_cancelled_write_that_gave_way_is_not_made_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gave way to a write that was decided without it, and would undo that."""
    at_work, goes_on = threading.Event(), threading.Event()

    def giving_way(writer: Writer, plan: Any, yields: Any) -> Any:
        for done, statement in enumerate(plan):
            if done == 1:
                at_work.set()
                assert goes_on.wait(60)
                writer._give_way(yields)
            yield statement

    async with holdfast.open(path) as store:
        kv = store.kv("a")
        await kv.set("k0", "old")
        monkeypatch.setattr(Writer, "_giving_way", giving_way)
        await cancelled(kv.set_many(LONG), at_work)
        limit = asyncio.create_task(store.set_policy("kv/a", {"quota_bytes": 12_345_678}))
        while not writer_of(store).pending:  # noqa: ASYNC110 - it tells no one
            await asyncio.sleep(0)
        goes_on.set()
        assert (await limit).quota_bytes == 12_345_678
    async with holdfast.open(path) as store:  # what waited was done or dropped as the store was closed
        assert (await store.policy("kv/a")).quota_bytes == 12_345_678
        assert (await store.kv("a").list()).keys == ["k0"]


async def cancelled_in_the_middle(
    call: Coroutine[Any, Any, Any], monkeypatch: pytest.MonkeyPatch
) -> threading.Event:
    """Cancel a write that the thread has begun. It goes on once the returned event is set."""
    at_work, goes_on = threading.Event(), threading.Event()
    attempt = Writer._attempt

    def wait(writer: Writer, *given: Any, **more: Any) -> Any:
        at_work.set()
        assert goes_on.wait(60)
        return attempt(writer, *given, **more)

    monkeypatch.setattr(Writer, "_attempt", wait)
    await cancelled(call, at_work)
    return goes_on


async def test_write_after_a_cancelled_one_is_decided_after_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread goes on with a write whose task was cancelled. The next one counts what it leaves."""
    async with holdfast.open(path) as store:
        kv = store.kv("a")
        await kv.set("n", 1)
        goes_on = await cancelled_in_the_middle(kv.incr("n"), monkeypatch)
        again = asyncio.create_task(kv.incr("n"))
        await asyncio.sleep(0)  # it is submitted while the first one is under way
        goes_on.set()
        assert (await again).value == 3
        assert [change.version for change in (await kv.changes(0)).changes] == [1, 2, 3]
        assert await store.recount("kv/a") == 0


async def test_what_is_read_beside_a_cancelled_write_decides_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that was read before the cancelled write was kept is old, although this process keeps rows."""
    async with holdfast.open(path, reap=False) as store:
        kv = store.kv("a")
        await kv.set("n", 1)
        goes_on = await cancelled_in_the_middle(kv.incr("n"), monkeypatch)
        assert await kv.get("n") is not None
        goes_on.set()
        for _ in range(2):
            assert await kv.delete("nothing") is False
        assert (await kv.incr("n")).value == 3
        assert [change.version for change in (await kv.changes(0)).changes] == [1, 2, 3]


async def test_a_load_that_is_cancelled_as_it_begins_leaves_nothing_open(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread begins the transaction although nobody waits for it any more. It must also end it."""
    at_work, goes_on = threading.Event(), threading.Event()
    begin = Writer.begin_load

    def wait(writer: Writer) -> None:
        at_work.set()
        assert goes_on.wait(60)
        begin(writer)

    monkeypatch.setattr(Writer, "begin_load", wait)
    async with holdfast.open(path, reap=False) as store:
        engine = store._engine
        assert isinstance(engine, SqliteEngine)
        load = asyncio.create_task(engine.loading().__aenter__())
        assert await asyncio.to_thread(at_work.wait, 60)
        load.cancel()
        goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await load
        assert (await store.kv("a").set("n", 1)).version == 1


async def test_bells_ring_again_after_a_program_has_cancelled_all_its_tasks(path: Path) -> None:
    """Otherwise later watches would hear of other processes by looking once a second alone."""
    async with holdfast.open(path, reap=False) as store, holdfast.open(path, reap=False) as other:
        engine, rung, others = store._engine, asyncio.Event(), asyncio.all_tasks()
        assert isinstance(engine, SqliteEngine)
        stops = [engine.hint("kv/a", rung.clear)]
        for task in asyncio.all_tasks() - others:
            task.cancel()
            await asyncio.wait([task])
        stops.append(engine.hint("kv/a", rung.set))
        await other.kv("a").set("n", 1)
        async with asyncio.timeout(60):
            await rung.wait()
        for stop in stops:
            stop()


async def test_reads_that_are_under_way_end_when_a_store_is_closed(path: Path) -> None:
    """A read that takes several looks into the file is answered or refused, and never waits for ever."""
    store = await opened(path)
    kv = store.kv("a")
    for start in range(0, 6_000, 500):
        await kv.set_many([{"key": f"k{start + n}", "value": "x" * 600} for n in range(500)])
    for pause in (0.0, 0.005, 0.01):
        listing = [asyncio.create_task(kv.list(writer="nobody")) for _ in range(10)]
        await asyncio.sleep(pause)
        await store.aclose()
        done, waiting = await asyncio.wait(listing, timeout=30)
        assert not waiting
        errors = [error for task in done if (error := task.exception()) is not None]
        assert all(isinstance(error, Unavailable) for error in errors), errors
        store = await opened(path)
        kv = store.kv("a")
    await store.aclose()


async def test_a_store_whose_folder_is_gone_is_closed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its threads end, and its files are closed, whatever the program is told."""
    monkeypatch.setattr(sharing, "CHECK_SECONDS", 0.0)
    store = await opened(path)
    await store.kv("a").set("n", 1)
    shutil.rmtree(path.parent)
    with contextlib.suppress(Unavailable):
        await store.aclose()
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith("holdfast writer")]
    assert not [name for name in open_files() if str(path) in name]


def open_files() -> list[str]:
    """The files that this process has open, gone ones too."""
    names = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the folder itself
            names.append(os.readlink(f"/proc/self/fd/{number}"))
    return names


async def test_a_write_that_gave_way_is_refused_if_it_does_not_get_its_turn_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process that stops within its turn holds up neither the caller nor the end of the program."""
    monkeypatch.setattr(writer_module, "PATIENCE", 0.3)
    monkeypatch.setattr(writer_module, "WATCH_SECONDS", 0.02)
    held = threading.Event()
    roll_back, gave_way = Writer._roll_back, [False]
    store = await opened(path)
    await store.kv("a").set("x", 1)
    other = os.open(f"{path}.turn", os.O_RDWR)

    def take_the_turn() -> None:
        fcntl.flock(other, fcntl.LOCK_EX)
        held.set()

    def give_way(writer: Writer, yields: Any) -> None:
        if not gave_way[0]:
            gave_way[0] = True
            threading.Thread(target=take_the_turn).start()
            raise WriteInterrupted

    def rolled_back(writer: Writer) -> None:
        roll_back(writer)
        if gave_way[0]:
            assert held.wait(60)

    monkeypatch.setattr(Writer, "_give_way", give_way)
    monkeypatch.setattr(Writer, "_roll_back", rolled_back)
    try:
        async with asyncio.timeout(30):
            with pytest.raises(Busy, match="nothing was written"):
                await store.kv("a").set_many(LONG)
            await store.aclose()
    finally:
        os.close(other)


async def test_nothing_is_answered_before_the_time_is_known(path: Path) -> None:
    """A call while a store is opened is refused: the store may have answered with a later time before."""
    ahead = SystemClock(wall=lambda: time.time() + 3_600)
    async with holdfast.open(path, clock=ahead, reap=False) as store:
        await store.kv("a").set("lease", "mine", ttl=1)
        await asyncio.sleep(1.1)
        assert await store.kv("a").get("lease") is None
    store = holdfast.open(path, reap=False)
    opening, shown = asyncio.create_task(store.start()), []
    while not opening.done():
        with contextlib.suppress(Unavailable):
            shown.append(await store.kv("a").get("lease"))
        await asyncio.sleep(0)
    await opening
    assert all(entry is None for entry in shown)
    assert await store.kv("a").get("lease") is None
    await store.aclose()


class FailsOnce:
    """A connection whose disk fails once, when the writer looks how large the file may become."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.failed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        """Fail once."""
        if sql == "PRAGMA max_page_count" and not self.failed:
            self.failed = True
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_IOERR_READ, "SQLITE_IOERR_READ"
            raise error
        return self._connection.execute(sql, *parameters)


async def test_a_disk_that_fails_between_two_writes_does_not_end_the_writer(path: Path) -> None:
    """What the writer does between two jobs fails, and is done after the next one."""
    async with holdfast.open(path, reap=False) as store:
        kv, writer = store.kv("a"), writer_of(store)
        await kv.set("x", 0)
        assert writer._connection is not None
        failing: Any = FailsOnce(writer._connection)
        writer._connection = failing
        cover, may_grow = writer._cover, writer._may_grow
        writer._cover, writer._may_grow = lambda size: False, lambda: False
        await kv.set("x", 1)
        async with asyncio.timeout(30):
            while not failing.failed:  # noqa: ASYNC110 - it tells no one
                await asyncio.sleep(0.01)
            writer._cover, writer._may_grow = cover, may_grow
            assert (await kv.set("x", 2)).version == 3


async def test_a_turn_file_that_was_replaced_by_a_link_does_not_end_the_writer(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link is refused, also when the log is checkpointed between two writes; without it, all goes on."""
    monkeypatch.setattr(sharing, "CHECK_SECONDS", 0.0)
    monkeypatch.setattr(writer_module, "IDLE_SECONDS", 0.1)
    turn = path.with_name(f"{path.name}.turn")
    async with asyncio.timeout(60), holdfast.open(path, reap=False) as store:
        await store.kv("a").set("n", 1)
        turn.unlink()
        turn.symlink_to(path.with_name("elsewhere"))
        with pytest.raises(Unavailable, match="symbolic link"):
            await store.kv("a").set("n", 2)
        while not writer_of(store)._checkpointed:  # noqa: ASYNC110 - it tells no one
            await asyncio.sleep(0.01)
        turn.unlink()
        assert (await store.kv("a").set("n", 3)).version == 2


async def test_a_turn_file_that_another_program_has_spoiled_makes_nothing_twice(path: Path) -> None:
    """Nothing that goes wrong after a commit may look as if the commit had failed."""
    async with holdfast.open(path, reap=False), holdfast.open(path, reap=False) as store:
        kv = store.kv("a")
        for number in range(1, sharing.COUNT_PAGES + 50):
            with open(f"{path}.turn", "r+b") as file:  # noqa: ASYNC230 - a short file
                file.write(b"\xff" * 8)
            await asyncio.gather(kv.incr("n"), kv.incr("n"))
            entry = await kv.get("n")
            assert entry is not None
            assert entry.value == 2 * number


async def test_a_refused_process_does_not_keep_the_turn(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread gets the turn after the caller was refused, and lets other processes have it at once."""
    monkeypatch.setattr(writer_module, "PATIENCE", 0.1)
    async with holdfast.open(path, reap=False) as store:
        kv, writer = store.kv("a"), writer_of(store)
        await kv.set("x", 1)
        assert writer._turn is not None
        turn = writer._turn
        with other_process_has_the_turn(path), pytest.raises(Busy):
            await kv.set("x", 2)
        assert not await writer.run(lambda: turn.held)
        assert (await kv.set("x", 3)).version == 2


async def test_nobody_checkpoints_in_the_turn_of_another_process(path: Path) -> None:
    """SQLite before 3.51.3 may corrupt a file whose log one process writes back while another one commits."""
    async with holdfast.open(path, reap=False) as store:
        writer = writer_of(store)
        with other_process_has_the_turn(path):
            before = await asyncio.to_thread(path.read_bytes)
        await store.kv("a").set("x", "y" * 10_000)
        with other_process_has_the_turn(path):
            await writer.run(lambda: writer.checkpoint("PASSIVE"))
            assert await asyncio.to_thread(path.read_bytes) == before
        await writer.run(lambda: writer.checkpoint("PASSIVE"))
        assert await asyncio.to_thread(path.read_bytes) != before


async def test_a_write_that_outlasts_its_deadline_in_its_turn_is_not_made(path: Path) -> None:
    """A process that decides within its turn looks at the deadline right before the commit, too."""
    async with holdfast.open(path, reap=False) as store:
        writer, late = writer_of(store), iter([False, True])
        insert = "INSERT INTO holdfast_meta VALUES ('probe', 'x')", ()
        with pytest.raises(Stale):
            await writer.run(
                lambda: writer.decide(lambda _: None, lambda _: ([insert], 1), lambda _: next(late))
            )
        rows = await writer.run(lambda: writer.fetch("SELECT * FROM holdfast_meta WHERE name = 'probe'"))
        assert rows == []


async def test_a_file_grows_again_in_the_write_that_finds_room(path: Path) -> None:
    """A full disk may have room once the log was written back. The write that had none is made after all."""
    async with holdfast.open(path, reap=False) as store:
        kv, writer, written_back = store.kv("a"), writer_of(store), []
        await kv.set("x", 1)
        checkpoint = writer.checkpoint

        def noted(mode: str) -> None:
            checkpoint(mode)
            written_back.append(mode)

        writer.checkpoint, writer._may_grow = noted, lambda: "RESTART" in written_back  # type: ignore[method-assign]
        await writer.run(writer.restrict)
        assert (await kv.set("y", "z" * 60_000)).version == 2
        assert "RESTART" in written_back
