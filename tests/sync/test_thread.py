"""The thread that serves stores without asyncio, up to its end."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.errors import Unavailable
from holdfast.sync import thread as module
from holdfast.sync.store import Store
from holdfast.sync.thread import LoopThread, Process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_process_end_closes_open_stores(tmp_path: Path) -> None:
    """At the end of a process its stores are closed, waiting calls get an error, and the thread stops."""
    process = Process()
    process.thread = LoopThread()
    store = Store(process.thread, holdfast.open(tmp_path / "store.db"))
    store.start()
    kv = store.kv("trivia")
    kv.set("k", 1)
    watch, lock = kv.watch(), kv.lock("l")
    lock.acquire()
    met: list[object] = []

    def wait() -> None:
        try:
            met.append(next(watch, "ended"))
        except Unavailable as error:
            met.append(error.message)

    waiting = threading.Thread(target=wait)
    waiting.start()
    process.at_exit()
    waiting.join(20)
    assert met == ["ended"] or "closing" in str(met[0]) or "not open" in str(met[0])
    for call in (kv.list, store.close):
        with pytest.raises(RuntimeError, match=r"call holdfast\.sync\.open in the child"):
            call()
    process.at_exit()


def test_process_end_does_not_wait_for_a_stuck_store(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The end of a process does not wait for ever for a store, nor fail with one, and both are logged."""
    monkeypatch.setattr(module, "CLOSING", 0.05)

    async def hang() -> None:
        await asyncio.Event().wait()

    async def fail() -> None:
        raise OSError("the disk is gone")

    thread = LoopThread()
    for end in (hang, fail):
        behind = holdfast.open("memory://")
        Store(thread, behind).start()
        monkeypatch.setattr(behind, "aclose", end)
    thread.close()
    assert "a store was not closed within 0.05 s" in caplog.text
    assert "closing a store failed: the disk is gone" in caplog.text


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    """A thread with a loop of its own."""
    thread = LoopThread()
    yield thread
    thread.close()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_call_is_cancelled(thread: LoopThread, kind: type[BaseException]) -> None:
    """A call whose caller was interrupted does not go on behind the program's back."""
    waits, ended = threading.Event(), threading.Event()

    async def wait() -> None:
        waits.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    class Interrupted:
        """What the caller waits in when the interrupt comes."""

        def serve(self) -> None:
            """Be interrupted."""
            assert waits.wait(60)
            raise kind

        def end(self) -> None:
            """Do nothing."""

    feed: Any = Interrupted()
    with pytest.raises(kind):
        thread.run(wait(), feed)
    assert ended.wait(10)
    assert thread.call(lambda: len(asyncio.all_tasks())) == 1


def test_a_call_is_cancelled_though_it_has_not_begun(thread: LoopThread) -> None:
    """An interrupt right after the call was handed to the loop cancels it as well."""
    begun = []
    goes_on = threading.Event()

    async def call() -> None:
        begun.append(asyncio.current_task())
        await asyncio.Event().wait()

    class Interrupted:
        """What the caller waits in when the interrupt comes."""

        def serve(self) -> None:
            """Be interrupted before the loop has had a turn."""
            raise KeyboardInterrupt

        def end(self) -> None:
            """Do nothing."""

    feed: Any = Interrupted()
    thread._loop.call_soon_threadsafe(goes_on.wait, 60)
    with pytest.raises(KeyboardInterrupt):
        thread.run(call(), feed)
    goes_on.set()
    assert thread.call(lambda: len(asyncio.all_tasks())) == 1
    assert begun == []


def test_a_fork_waits_for_the_step_of_the_loop(thread: LoopThread, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the loop is doing ends before the process forks, and the loop goes on afterwards."""
    monkeypatch.setattr(module, "PAUSING", 60.0)
    process, order, ends = Process(), [], threading.Event()
    process.thread = thread

    def step() -> None:
        assert ends.wait(60)
        order.append("step")

    def fork() -> None:
        process.before_fork()
        order.append("fork")
        process.after_fork_in_parent()

    thread._loop.call_soon_threadsafe(step)
    forking = threading.Thread(target=fork)
    forking.start()
    while not thread._paused:
        time.sleep(0.001)
    ends.set()
    forking.join(60)
    assert order == ["step", "fork"]
    assert thread.call(lambda: "goes on") == "goes on"
    assert not thread._paused


def test_a_fork_on_the_loop_itself_does_not_wait(thread: LoopThread) -> None:
    """A callback that forks can't wait for its own end, nor can a fork after the loop has stopped."""
    assert thread.call(thread.pause) is None
    assert not thread._paused
    thread.close()
    thread.pause()
    thread.go_on()
    assert not thread._paused


def test_a_child_can_open_a_store_though_a_thread_of_its_parent_was_about_to() -> None:
    """The thread that held the lock does not exist in the child, so the child gets a lock of its own."""
    process = Process()
    process.starting.acquire()
    process.after_fork()
    assert process.starting.acquire(blocking=False)


def test_a_child_forgets_its_parents_thread() -> None:
    """After a fork the parent's thread takes no calls, and the next store starts another."""
    process = Process()
    process.after_fork()
    thread = LoopThread()
    process.thread = thread
    process.after_fork()
    assert (process.parents, thread.running) == ([thread], False)
    assert vars(process)["thread"] is None
    process.at_exit()
    thread.running = True
    thread.close()
