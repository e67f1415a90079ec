"""Handles without `await`: what a program without asyncio relies on."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import holdfast.sync
from holdfast.clock import ManualClock
from holdfast.engines.sqlite import reads
from holdfast.errors import RateLimited, Unavailable, ValidationError, VersionConflict
from holdfast.testing.exact import present, refusal
from tests.sync import sample

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.sync.kv import KV
    from holdfast.sync.store import Store

PATIENCE = 20.0


@pytest.fixture(params=["memory://", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    url = tmp_path / "store.db" if request.param == "sqlite" else request.param
    with holdfast.sync.open(url) as store:
        yield store


@pytest.fixture
def kv(store: Store) -> KV:
    """The keys of a plugin."""
    return store.kv("trivia")


def until(condition: Any) -> None:
    """Wait until something holds."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_sample_program_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The program that the type checker reads runs as it says."""
    sample.main(str(tmp_path / "store.db"))
    assert capsys.readouterr().out == "b'south'\n4 [{'user': 'ada'}]\n"


def test_errors_of_the_store_are_raised_in_the_calling_thread(kv: KV) -> None:
    """A refusal is raised in the calling thread, with all that it carries."""
    entry = kv.set("k", 1)
    with refusal(VersionConflict) as caught:
        kv.set("k", 2, expected_version=0)
    assert caught.value.current == entry
    with refusal(ValidationError, field="key"):
        kv.get("")


def test_a_thread_sees_its_own_writes(kv: KV) -> None:
    """After a set returns, every get sees it, in whichever thread, though others write at the same time."""

    def work(name: str) -> None:
        for number in range(100):
            kv.set(name, number)
            assert present(kv.get(name)).value == number
            assert kv.exists(name)
            kv.incr("all")

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, [f"t{number}" for number in range(8)]))
        assert list(threads.map(lambda _: present(kv.get("all")).value, range(32))) == [800] * 32


def test_a_long_read_of_one_thread_does_not_hold_back_another(tmp_path: Path) -> None:
    """A thread sees its own write though another thread is in the middle of a read."""
    with holdfast.sync.open(tmp_path / "store.db", cache_bytes=0) as store:
        kv = store.kv("trivia")
        kv.set("k", 1)
        reading, written = threading.Event(), threading.Event()

        def read() -> None:
            kv.get("k")
            engine: Any = kv._handle.store.require_engine()
            connection = engine._thread_connections._mine.own.connection
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM plugin_kv_storage").fetchall()
            reading.set()
            assert written.wait(PATIENCE)
            connection.execute("COMMIT")

        with ThreadPoolExecutor(1) as threads:
            reader = threads.submit(read)
            assert reading.wait(PATIENCE)
            kv.set("k", 2)
            seen = present(kv.get("k")).value
            written.set()
            reader.result(PATIENCE)
        assert seen == 2


def test_a_batch_is_never_seen_in_part(kv: KV) -> None:
    """A thread that has seen one write of a batch sees all of it."""
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            kv.batch(writes=[{"key": "a", "value": number}, {"key": "b", "value": number}])

    kv.batch(writes=[{"key": "a", "value": 0}, {"key": "b", "value": 0}])
    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(300):
            first = present(kv.get("a")).value
            assert present(kv.get("b")).value >= first
    finally:
        stop.set()
        writer.join()


def test_thread_without_a_connection_reads_through_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that gets no connection of its own reads through the loop."""
    monkeypatch.setattr(reads, "MOST_THREADS", 1)
    with holdfast.sync.open(tmp_path / "store.db") as store:
        kv = store.kv("trivia")
        kv.set("k", 1)
        gate = threading.Barrier(3)

        def read(_: int) -> Any:
            gate.wait(PATIENCE)
            return present(kv.get("k")).value

        with ThreadPoolExecutor(3) as threads:
            assert list(threads.map(read, range(3))) == [1, 1, 1]


def test_a_rate_limit_counts_quick_reads(store: Store, kv: KV) -> None:
    """A get is counted though it is answered on the caller's thread."""
    kv.set("k", 1)
    store.set_policy("kv/trivia", {"rate_limit": 1})
    with refusal(RateLimited):
        for _ in range(5):
            kv.get("k")


def test_quick_reads_see_no_expired_entry(tmp_path: Path) -> None:
    """An entry is gone at its deadline for quick reads too."""
    clock = ManualClock()
    with holdfast.sync.open(tmp_path / "store.db", clock=clock, reap=False) as store:
        kv = store.kv("trivia")
        kv.set("k", 1, ttl=60)
        clock.advance(59.5)
        assert (present(kv.get("k")).value, kv.get_ttl("k")) == (1, 1)
        clock.advance(0.5)
        assert (kv.get("k"), kv.exists("k"), kv.get_ttl("k")) == (None, False, 0)


def test_closed_store_raises_unavailable(tmp_path: Path) -> None:
    """After `close` every call raises Unavailable, and the file can be opened again."""
    store = holdfast.sync.open(tmp_path / "store.db")
    store.start()
    kv = store.kv("trivia")
    kv.set("k", 1)
    assert kv.exists("k")
    store.close()
    with refusal(Unavailable, says="not open"):
        kv.get("k")
    with refusal(Unavailable, says="not open"):
        kv.set("k", 2)
    with holdfast.sync.open(tmp_path / "store.db") as again:
        assert present(again.kv("trivia").get("k")).value == 1


def test_a_watch_is_an_iterator(store: Store, kv: KV) -> None:
    """A watch yields changes of other threads as they come, and ends when the store is closed."""
    told: list[str] = []
    kv.set("before", 1)
    watch = kv.watch(since=0)

    def follow() -> None:
        told.extend(change.key for change in watch)

    follower = threading.Thread(target=follow)
    follower.start()
    kv.set("after", 1)
    until(lambda: told == ["before", "after"])
    store.close()
    follower.join(PATIENCE)
    assert not follower.is_alive()


def test_lock_lets_one_thread_in_at_a_time(kv: KV) -> None:
    """Threads that take a lock go through the block one at a time."""
    inside: list[int] = []

    def work(number: int) -> None:
        with kv.lock("one", ttl=30) as lock:
            assert (inside, lock.held) == ([], True)
            inside.append(number)
            kv.set("last", number, fence=lock.fence)
            inside.pop()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(12)))


def test_mirror_follows_in_the_background(kv: KV) -> None:
    """A mirror follows while the program does other things."""
    with kv.mirror("c:") as mirror:
        kv.set("c:a", 1)
        until(lambda: dict(mirror.items()) == {"c:a": 1})
        assert mirror.stale_for < PATIENCE


def test_callback_that_calls_the_store_gets_an_error(kv: KV) -> None:
    """A callback that calls the store it is called by gets an error instead of waiting forever."""
    met: list[BaseException] = []

    def call_back(value: int) -> int:
        try:
            kv.set("other", 1)
        except RuntimeError as error:
            met.append(error)
        return value + 1

    assert kv.update("n", call_back, default=0).value == 1
    [error] = met
    assert "let the callback note what to do" in str(error)


def test_one_thread_serves_all_stores(tmp_path: Path) -> None:
    """However many stores are open, one thread has the loop."""
    stores = [holdfast.sync.open("memory://") for _ in range(3)]
    for store in stores:
        store.start()
    assert [thread.name for thread in threading.enumerate()].count("holdfast sync") == 1
    for store in stores:
        store.close()
