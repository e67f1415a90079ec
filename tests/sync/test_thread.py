"""The thread that serves stores without asyncio, up to its end."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.errors import Unavailable
from holdfast.sync import thread as module
from holdfast.sync.store import Store
from holdfast.sync.thread import LoopThread, Process

if TYPE_CHECKING:
    from pathlib import Path


def test_the_end_closes_what_is_open(tmp_path: Path) -> None:
    """At the end of a process its stores are closed, waiting calls are told, and the thread stops."""
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


def test_a_store_that_does_not_close(
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
