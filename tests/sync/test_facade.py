"""The foundation of the handles without `await`: what iterations leave behind, and what verbs are fed."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.sync.facade import Facade, Iteration, fed
from holdfast.sync.thread import LoopThread, SyncIterator

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    """A thread with a loop of its own."""
    thread = LoopThread()
    yield thread
    thread.close()


def counting(ended: list[str]) -> AsyncGenerator[int]:
    """Count for ever; say when that ends."""

    async def count() -> AsyncGenerator[int]:
        number = 0
        try:
            while True:
                yield (number := number + 1)
                await asyncio.sleep(0)
        finally:
            ended.append(threading.current_thread().name)

    return count()


def test_an_iteration_that_is_closed_ends_its_source(thread: LoopThread) -> None:
    """A watch that a program stops reading holds nothing on the loop any more, also if its block failed."""
    ended: list[str] = []
    numbers = Iteration(thread, counting(ended))
    assert [next(numbers), next(numbers)] == [1, 2]
    assert ended == []
    numbers.close()
    assert ended == ["holdfast sync"]
    assert list(numbers) == []
    with pytest.raises(ZeroDivisionError), Iteration(thread, counting(ended)) as numbers:
        print(next(numbers) / 0)
    assert len(ended) == 2
    numbers.close()
    assert len(ended) == 2


def test_an_iteration_without_an_end_of_its_own_can_be_closed(thread: LoopThread) -> None:
    """An iterator that is no generator has nothing to close."""

    class Two:
        """Yields two numbers."""

        def __init__(self) -> None:
            self.left = [2, 1]

        def __aiter__(self) -> Two:
            return self

        async def __anext__(self) -> int:
            if not self.left:
                raise StopAsyncIteration
            return self.left.pop()

    with Iteration(thread, Two()) as numbers:
        assert list(numbers) == [1, 2]


def test_bytes_text_and_files_are_passed_unchanged(thread: LoopThread) -> None:
    """Bytes, text, files and what a verb refuses stay as they are; an iterator, or a handle that is one, is
    wrapped.
    """

    class File:
        """Can be read."""

        def read(self) -> bytes:
            """Return nothing."""
            return b""

        def __iter__(self) -> Iterator[bytes]:
            return iter(())

    class Reader(Facade):
        """A handle that can be read and iterated over."""

        def read(self) -> bytes:
            """Return nothing."""
            return b""

        def __iter__(self) -> Iterator[bytes]:
            return iter([b"x"])

    for given in (b"x", bytearray(b"x"), memoryview(b"x"), "x", File(), counting([]), 7, None):
        assert fed(given) == (given, None)
    kinds: list[Any] = [[b"x"], iter([b"x"]), (b"x" for _ in range(1)), Reader(thread, None)]
    for given in kinds:
        passed, feed = fed(given)
        assert isinstance(feed, SyncIterator)
        assert passed is feed


def test_an_iterator_is_advanced_by_the_thread_that_passed_it(thread: LoopThread) -> None:
    """So it may use the store itself; what it raises reaches the caller through the verb."""
    names: list[str] = []

    def pieces(fails: bool) -> Iterator[int]:
        for number in range(3):
            names.append(threading.current_thread().name)
            yield number
        if fails:
            raise LookupError("no more")

    async def read(feed: SyncIterator) -> list[int]:
        return [piece async for piece in feed]

    feed = SyncIterator(pieces(False))
    assert thread.run(read(feed), feed) == [0, 1, 2]
    assert names == [threading.current_thread().name] * 3
    feed = SyncIterator(pieces(True))
    with pytest.raises(LookupError, match="no more"):
        thread.run(read(feed), feed)


def test_a_verb_that_does_not_read_to_the_end_leaves_the_iterator_there(thread: LoopThread) -> None:
    """The caller gets the result as soon as the verb has it."""
    left = iter(range(10))
    feed = SyncIterator(left)

    async def first() -> int:
        return int(await anext(feed))

    assert thread.run(first(), feed) == 0
    assert next(left) == 1
