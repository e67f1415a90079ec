"""Several processes have one SQLite file open. All of them are real ones."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import select
import signal
import sqlite3
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.edges.cli import run
from holdfast.edges.cli.schema import schema_of
from holdfast.engines.sqlite import SqliteEngine, sharing
from holdfast.engines.sqlite.sharing import StoreLock
from holdfast.handles.recipes.names import WAITING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PATIENCE = 60.0


class Worker:
    """A `sharing_process`."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.engines.sharing_process", str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid

    def tell(self, line: str) -> None:
        """Tell it to do something, without waiting for that."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """Wait for its next answer."""
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def has_answered(self) -> bool:
        """Whether there is an answer that was not taken yet."""
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], 0)[0])

    def do(self, line: str) -> Any:
        """Tell it to do something, and wait for its answer."""
        self.tell(line)
        return self.answer()

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self._process.send_signal(number)
        if number == signal.SIGKILL:
            self._process.wait(PATIENCE)

    def end(self) -> None:
        """End it, whatever it is doing."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A place for a store."""
    return tmp_path / "store.db"


@pytest.fixture
def start(path: Path) -> Iterator[Callable[[], Worker]]:
    """Starts further processes, which have the store open when it returns."""
    workers: list[Worker] = []

    def started() -> Worker:
        workers.append(Worker(path))
        assert workers[-1].answer() == "open"
        return workers[-1]

    yield started
    for worker in workers:
        worker.end()


async def test_no_increment_is_lost_or_done_twice(path: Path, start: Callable[[], Worker]) -> None:
    """Three processes and this one add to the same numbers, and no two of them get the same one."""
    workers = [start() for _ in range(3)]
    for worker in workers:
        worker.tell("incr n 200")
    async with holdfast.open(path) as store:
        kv = store.kv("shared")
        own = await asyncio.gather(*(kv.incr("n") for _ in range(100)), *(kv.incr("m") for _ in range(100)))
        last = [await asyncio.to_thread(worker.answer) for worker in workers]
        assert all(isinstance(number, int) for number in last), last
        numbers = [entry.value for entry in own[:100]]
        assert len(set(numbers)) == 100
        assert max(*last, *numbers) == 700
        changes = (await kv.changes(limit=1_000)).changes
        assert [change.version for change in changes] == list(range(1, 801))


async def test_writing_alone_again(path: Path, start: Callable[[], Worker]) -> None:
    """A process whose neighbours have stopped writing decides on what they have written."""
    async with holdfast.open(path) as store:
        kv, engine = store.kv("shared"), store._engine
        assert isinstance(engine, SqliteEngine)
        await kv.set("n", 10)
        other = start()
        assert await asyncio.to_thread(other.do, "incr n 5") == 15
        await kv.set("m", 0)
        assert engine._contended
        for _ in range(3):  # the event loop decides again once two groups have found nobody else
            await kv.incr("m")
        assert (await kv.incr("n")).value == 16
        assert await asyncio.to_thread(other.do, "get n") == 16


async def test_processes_have_one_time(path: Path, start: Callable[[], Worker]) -> None:
    """What one process lets expire is gone for the other at the same millisecond."""
    async with holdfast.open(path) as store:
        other = start()
        before = store.now()
        theirs = await asyncio.to_thread(other.do, "now")
        assert before <= theirs <= store.now()
        other.do("set brief 1")
        entry = await store.kv("shared").get("brief")
        assert entry is not None
        assert entry.expires_at is not None
        while await store.kv("shared").get("brief") is not None:
            assert time.time() < entry.expires_at.timestamp() + PATIENCE
        assert store.now() >= entry.expires_at.timestamp() * 1000
        assert await asyncio.to_thread(other.do, "get brief") is None


async def test_a_watch_hears_other_processes(path: Path, start: Callable[[], Worker]) -> None:
    """A watch yields what another process writes, and the other way round."""
    other = start()
    async with holdfast.open(path) as store:
        kv = store.kv("shared")
        since = (await kv.set("c", 1)).version
        heard = asyncio.ensure_future(anext(aiter(kv.watch("a", since=since))))
        version = await asyncio.to_thread(other.do, "set a 60")
        assert (await asyncio.wait_for(heard, PATIENCE)).version == version
        other.tell(f"watch b {version}")
        await asyncio.sleep(0.2)  # so that it mostly waits already
        version = (await kv.set("b", 1)).version
        assert await asyncio.to_thread(other.answer) == version


async def test_a_killed_process_blocks_nobody(path: Path, start: Callable[[], Worker]) -> None:
    """The lock of a process that is killed in its transaction ends with it, and nothing of it is written."""
    other = start()
    async with holdfast.open(path) as store:
        await store.kv("shared").set("k", 1)
        other.tell("hold 600")
        assert other.answer() == "holding"
        write = asyncio.create_task(store.kv("shared").set("k", 2))
        other.signal(signal.SIGKILL)
        assert (await asyncio.wait_for(write, PATIENCE)).version == 2


async def test_beside_a_stopped_process(
    path: Path, start: Callable[[], Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is stopped in its transaction makes writers wait for a while, never readers.

    Writers are told who it is, and nothing of what was refused is done later. The system is asked for that
    once, since nobody on the machine can lock a file meanwhile.
    """
    monkeypatch.setattr("holdfast.engines.sqlite.writer.PATIENCE", 0.5)
    asked: list[str] = []
    holder = sharing.Turn.holder

    def counted(turn: sharing.Turn) -> str:
        asked.append(holder(turn))
        return asked[-1]

    monkeypatch.setattr(sharing.Turn, "holder", counted)
    other = start()
    async with holdfast.open(path) as store:
        kv = store.kv("shared")
        await kv.set("k", 1)
        other.tell("hold 5")
        assert other.answer() == "holding"
        other.signal(signal.SIGSTOP)
        writes = [asyncio.create_task(kv.set(key, 2)) for key in ("k", "l")]
        entry = await kv.get("k")
        assert entry is not None
        assert entry.value == 1
        for write in writes:
            with pytest.raises(holdfast.Busy, match=rf"by process {other.pid} \(") as busy:
                await asyncio.wait_for(write, PATIENCE)
            assert busy.value.retry_after == 1.0
        with pytest.raises(holdfast.Busy):
            await asyncio.wait_for(kv.set("k", 2), PATIENCE)
        assert len(asked) == 1
        other.signal(signal.SIGCONT)
        assert await asyncio.to_thread(other.answer) == "held"
        assert await _set_at_last(kv, "k") == 2
        assert await kv.get("l") is None


async def _set_at_last(kv: holdfast.KV, key: str) -> int:
    """Set a key once the process has its turn again, which its writer may not have noticed yet."""
    async with asyncio.timeout(PATIENCE):
        while True:
            with contextlib.suppress(holdfast.Busy):
                return (await kv.set(key, 2)).version


async def test_opening_and_closing_beside_a_stopped_process(
    path: Path, start: Callable[[], Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store can be opened, read and closed while another process is stopped in its transaction."""
    monkeypatch.setattr("holdfast.engines.sqlite.writer.PATIENCE", 0.5)
    other = start()
    other.do("set k 60")
    other.tell("hold 5")
    assert other.answer() == "holding"
    other.signal(signal.SIGSTOP)
    async with asyncio.timeout(PATIENCE):
        async with holdfast.open(path) as store:
            assert await store.kv("shared").get("k") is not None
            with pytest.raises(holdfast.Busy):
                await store.kv("shared").set("k", 3)
    other.signal(signal.SIGCONT)
    assert await asyncio.to_thread(other.answer) == "held"
    assert await asyncio.to_thread(other.do, "get k") == 1


async def test_opening_an_older_store_beside_a_process(path: Path, start: Callable[[], Worker]) -> None:
    """A store that has to be migrated is not touched while another process has it open."""
    other = start()
    lock = StoreLock(path.with_name("store.db.lock"))
    assert not lock.acquire()
    assert f"process {other.pid} (" in lock.holder()
    lock.close()
    assert other.do("close") == "closed"
    assert lock.acquire()
    lock.close()


async def test_a_process_that_does_not_share(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older version, or a command that needs the store for itself, keeps others out and is named."""
    async with holdfast.open(path) as store:
        await store.kv("shared").set("k", 1)
    monkeypatch.setattr(sharing, "OPENING_SECONDS", 0.05)
    holder = _locked(f"{path}.lock")
    with pytest.raises(holdfast.Unavailable, match=rf"held by process {holder.pid} \("):
        async with holdfast.open(path):
            pass
    holder.communicate("")
    async with holdfast.open(path) as store:
        assert (await store.kv("shared").incr("k")).value == 2


def _locked(path: str) -> subprocess.Popen[str]:
    """A process that holds a lock alone, until its input is closed."""
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import fcntl, sys; file = open(sys.argv[1], 'r+'); fcntl.flock(file, fcntl.LOCK_EX); "
            "print('ready', flush=True); sys.stdin.read()",
            path,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "ready\n"
    return holder


async def test_the_upkeep_is_taken_over(path: Path, start: Callable[[], Worker]) -> None:
    """One process does the upkeep. If it ends or is stopped, another one does it within seconds."""
    leader = start()
    assert leader.do("lead")
    async with holdfast.open(path, sweep_interval=0.5) as store:
        engine = store._engine
        assert isinstance(engine, SqliteEngine)
        assert not engine.leads_upkeep()
        leader.signal(signal.SIGSTOP)
        await _until(engine.leads_upkeep)
        leader.signal(signal.SIGCONT)
        await _until(lambda: leader.do("lead") and not engine.leads_upkeep())
        leader.signal(signal.SIGKILL)
        await _until(engine.leads_upkeep)


async def test_a_replaced_turn_is_noticed(path: Path, start: Callable[[], Worker]) -> None:
    """If the file of the turn is removed, all processes go on with the one that is there next."""
    other = start()
    async with holdfast.open(path) as store:
        kv = store.kv("shared")
        await kv.incr("n")
        os.unlink(f"{path}.turn")
        other.tell("incr n 50")
        for _ in range(50):
            await kv.incr("n")
        assert isinstance(await asyncio.to_thread(other.answer), int)
        await asyncio.sleep(2 * sharing.CHECK_SECONDS)
        last = [(await kv.incr("n")).value, await asyncio.to_thread(other.do, "incr n 1")]
        assert last == [102, 103]
        engine = store._engine
        assert isinstance(engine, SqliteEngine)
        assert engine._turn is not None
        assert os.fstat(engine._turn.opened()).st_ino == os.stat(f"{path}.turn").st_ino


async def test_the_log_is_bounded_for_all(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that several processes fill is checkpointed when it is full, however little each has added."""
    monkeypatch.setattr("holdfast.engines.sqlite.writer.CHECKPOINT_PAGES", 1_000)
    monkeypatch.setattr(sharing, "COUNT_PAGES", 20)
    async with contextlib.AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(holdfast.open(path)) for _ in range(4)]
        for number in range(80):
            for place, store in enumerate(stores):
                await store.kv("shared").set(f"{place}:{number}", "x" * 40_000)
        largest = os.stat(f"{path}-wal").st_size
    assert largest < 2 * 1_000 * 4096


async def test_a_process_knows_whether_it_is_alone(
    path: Path, start: Callable[[], Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a process that has company tells others of its changes, which costs time with every write.

    It does not ask the system for all locks: while that lists them, nobody can take one.
    """
    monkeypatch.setattr(sharing.LockFile, "holders", lambda _: pytest.fail("all locks were listed"))
    monkeypatch.setattr(sharing, "COMPANY_SECONDS", 0.0)
    monkeypatch.setattr(sharing, "CHECK_SECONDS", 0.0)
    async with holdfast.open(path) as store:
        kv = store.kv("shared")
        engine = store._engine
        assert isinstance(engine, SqliteEngine)
        turn = engine._turn
        assert turn is not None
        await kv.set("k", 1)
        await engine._writer.run(lambda: engine._writer.checkpoint("PASSIVE"))
        await kv.set("k", 1)
        shared = [turn.shared]
        other = start()
        await kv.set("k", 1)
        shared.append(turn.shared)
        assert other.do("close") == "closed"
        await kv.set("k", 1)
        shared.append(turn.shared)
        start()
        await kv.set("k", 1)
        assert [*shared, turn.shared] == [False, True, False, True]


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs"])
async def test_a_network_file_system_is_refused(
    path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Machines that share a disk don't see each other's locks. Who knows better can say so in the URL."""
    device = path.parent.stat().st_dev
    mounts = path.with_name("mountinfo")
    mounts.write_text(
        "22 1 0:5 / /proc rw - proc proc rw\n"
        f"36 35 {os.major(device)}:{os.minor(device)} / /mnt rw,noatime - {kind} host:/export rw\n"
    )
    monkeypatch.setattr("holdfast.engines.sqlite.files.MOUNTS", str(mounts))
    with pytest.raises(holdfast.Unsupported, match=rf"network file system \({kind}\)") as refused:
        async with holdfast.open(path):
            pass
    assert os.listdir(mounts.parent) == ["mountinfo"]
    url = refused.value.message.split()[-1]
    async with holdfast.open(url) as store:
        await store.kv("shared").set("k", 1)
    assert schema_of(url).file == path


async def test_a_file_system_that_may_be_a_network_is_named(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Containers show parts of this machine as 9p, so that is used with a warning."""
    device = path.parent.stat().st_dev
    mounts = path.with_name("mountinfo")
    mounts.write_text(f"36 35 {os.major(device)}:{os.minor(device)} / / rw - 9p none rw\n")
    monkeypatch.setattr("holdfast.engines.sqlite.files.MOUNTS", str(mounts))
    async with holdfast.open(path) as store:
        await store.kv("shared").set("k", 1)
    assert "(9p) that may be a network's" in caplog.text


async def test_a_rate_that_another_process_sets(path: Path, start: Callable[[], Worker]) -> None:
    """A process learns of a rate with its next write at the latest. Each process counts for itself."""
    other = start()
    async with holdfast.open(path) as store:
        kv = store.kv("shared")
        await kv.set("k", 1)
        other.do("do await store.set_policy('kv/shared', {'rate_limit': 2})")
        await kv.set("k", 1)
        with pytest.raises(holdfast.RateLimited):
            await asyncio.gather(*(kv.set("k", 1) for _ in range(10)))
        assert await asyncio.to_thread(other.do, "incr n 1") == 1


async def test_a_lock_goes_from_process_to_process_in_order(path: Path, start: Callable[[], Worker]) -> None:
    """Who asks for a lock first gets it first, whichever process that is in."""
    workers = [start() for _ in range(3)]
    take = "do state.update(lock=kv.lock('l', ttl=120)) or await state['lock'].acquire(timeout=100)"
    async with holdfast.open(path) as store:
        held = store.kv("shared").lock("l", ttl=120)
        await held.acquire()
        for number, worker in enumerate(workers, 1):
            worker.tell(take)
            await _until_waiting(store.kv("shared"), number)
        await held.release()
        for worker in workers:
            assert await asyncio.to_thread(worker.answer) is True
            assert all(not one.has_answered() for one in workers if one is not worker)
            worker.do("do await state['lock'].release()")


async def _until_waiting(kv: holdfast.KV, count: int) -> None:
    """Wait until this many wait for a lock."""
    since = 0
    async with asyncio.timeout(PATIENCE):
        while len([key for key in (await kv.list()).keys if WAITING in key]) < count:
            since = (await anext(aiter(kv.watch(since=since)))).version


@pytest.mark.parametrize(("revision", "words"), [("0006", "stop it and try again"), ("9999", "upgrade")])
async def test_another_version_of_the_schema(
    path: Path, start: Callable[[], Worker], revision: str, words: str
) -> None:
    """A process whose schema is another one than that of a file which is in use is told so."""
    other = start()
    other.do("set k 60")
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE holdfast_alembic_version SET version_num = ?", [revision])
    with pytest.raises(holdfast.HoldfastError, match=words) as refused:
        async with holdfast.open(path):
            pass
    assert revision in refused.value.message
    if revision == "0006":
        assert f"process {other.pid} (" in refused.value.message


async def test_a_file_that_is_moved_away(path: Path, start: Callable[[], Worker]) -> None:
    """Every process notices that the file is gone or another one, writes nothing, and resumes later."""
    other = start()
    async with holdfast.open(path) as store:
        kv = store.kv("shared")
        await kv.set("k", 1)
        other.do("set k 60")
        os.rename(path, f"{path}.aside")
        for _ in range(2):
            with pytest.raises(
                (holdfast.DatabaseError, holdfast.OutcomeUnknown), match="was removed or moved away"
            ):
                await kv.set("k", 2)
            answer = await asyncio.to_thread(other.do, "set k 60")
            assert answer["code"] in ("DATABASE_ERROR", "OUTCOME_UNKNOWN")  # it was noticed after the commit
        os.close(os.open(path, os.O_CREAT))
        with pytest.raises(holdfast.DatabaseError, match="was replaced by another file"):
            await kv.set("k", 2)
        assert "was replaced by another file" in (await asyncio.to_thread(other.do, "set k 60"))["message"]
        os.rename(f"{path}.aside", path)
        version = (await kv.set("k", 2)).version
        assert await asyncio.to_thread(other.do, "set k 60") == version + 1


async def test_a_removed_lock_is_noticed(path: Path, start: Callable[[], Worker]) -> None:
    """Processes hold the lock that is there, so that nobody migrates or restores under them."""
    other = start()
    async with holdfast.open(path) as store:
        os.unlink(f"{path}.lock")
        await asyncio.sleep(2 * sharing.CHECK_SECONDS)
        await store.kv("shared").set("k", 1)
        other.do("set k 60")
        lock = StoreLock(path.with_name("store.db.lock"))
        assert not lock.acquire()
        assert lock.holders() == [other.pid]
        lock.close()


async def test_a_move_closes_the_source_for_all(path: Path, start: Callable[[], Worker]) -> None:
    """After `copy --switch` no process writes to the old place, and none of its writes is lost."""
    other = start()
    there = path.with_name("there.db")
    async with holdfast.open(path) as store:
        await store.kv("shared").set("k", 1)
        other.tell("do [await kv.incr('n') for _ in range(100_000)]")
        code = await asyncio.to_thread(run, ["copy", str(path), str(there), "--switch", "--yes"])
        assert code == 0
        refusal = await asyncio.to_thread(other.answer)
        assert refusal["code"] == "UNAVAILABLE"
        assert str(there) in refusal["message"]
        with pytest.raises(holdfast.Unavailable, match=re.escape(str(there))):
            await store.kv("shared").set("k", 2)
        last = await store.kv("shared").get("n")
        assert last is not None
    async with holdfast.open(there) as moved:
        assert await moved.kv("shared").get("n") == last
        assert (await moved.kv("shared").incr("n")).value == last.value + 1


async def test_a_restore_needs_the_store_alone(path: Path, start: Callable[[], Worker]) -> None:
    """A backup is made beside others, and restored only when nobody has the store open."""
    other = start()
    backup = str(path.with_name("backup"))
    other.do("incr n 5")
    assert await asyncio.to_thread(run, ["backup", backup, "--url", str(path)]) == 0
    other.do("incr n 5")
    restore = ["restore", backup, "--url", str(path), "--yes"]
    assert await asyncio.to_thread(run, restore) != 0
    assert other.do("get n") == 10
    assert other.do("close") == "closed"
    assert await asyncio.to_thread(run, restore) == 0
    assert start().do("get n") == 5


async def _until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not await asyncio.to_thread(holds):
        assert time.monotonic() < until
        await asyncio.sleep(0.1)
