"""The foundation of the generated classes of `holdfast.sync`.

A facade holds an asynchronous handle and the thread that serves it. Its class has the docstrings of the
handle's class, as they read without `await`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable
from types import FunctionType
from typing import Any, Final, Generic, Self, TypeVar

from holdfast.engine import Later
from holdfast.handles.kv import KV
from holdfast.rows import Row
from holdfast.sync.thread import LoopThread, SyncIterator

SPELLING: Final = {
    "await ": (r"\bawait ", ""),
    "async ": (r"\basync (with|for)\b", r"\1"),
    "asynchronous iterator": (r"\b([Aa]n) asynchronous iterator", r"\1 iterator"),
    "asynchronous context": (r"\b([Aa])n asynchronous context manager", r"\1 context manager"),
    "aclose": (r"\baclose\b", "close"),
    "holdfast.open": (r"\bholdfast\.open\b", "holdfast.sync.open"),
}
"""What reads differently without `await`: a piece of text that is found quickly, and how it is replaced."""
ARGS: Final = re.compile(r"\n\n *Args:(?:\n +.*)*")
"""The arguments of a class."""

T = TypeVar("T")
F = TypeVar("F", bound="Callable[..., Any]")


class Facade:
    """A handle without `await`. Its calls run on the event loop of another thread, and wait for it.

    Args:
        of: The class of the asynchronous handle, which has the docstrings.
    """

    __slots__ = ("_handle", "_thread")

    def __init_subclass__(cls, *, of: type | None = None) -> None:
        super().__init_subclass__()
        if of is not None:
            _complete(cls, of)
            for name, member in vars(cls).items():
                if isinstance(member, (FunctionType, property)):
                    _complete(member, getattr(of, "__aiter__" if name == "__iter__" else name, None))

    def __init__(self, thread: LoopThread, handle: Any) -> None:
        self._thread = thread
        self._handle = handle


def _complete(member: Any, source: Any) -> None:
    """Replace a docstring that has only the first line of another one by all of it, without `await`."""
    first, whole = member.__doc__, source.__doc__
    if first and whole and whole.startswith(first):
        if isinstance(member, type):
            whole = ARGS.sub("", whole)  # programs get these objects from other calls, and never make one
        for piece, (pattern, replacement) in SPELLING.items():
            if piece in whole:
                whole = re.sub(pattern, replacement, whole)
        member.__doc__ = whole


def documented(source: Callable[..., Any]) -> Callable[[F], F]:
    """Give a function the docstring of an asynchronous one."""

    def decorate(function: F) -> F:
        _complete(function, source)
        return function

    return decorate


class NeedsLoop(Exception):
    """A quick read is not possible: the loop has to be asked."""


class QuickReads:
    """The part of a pipeline that reads one entry, on the thread of the caller."""

    __slots__ = ("_store", "_thread")

    def __init__(self, thread: LoopThread, store: Any) -> None:
        self._thread = thread
        self._store = store

    async def get_at(self, namespace: str, key: str) -> tuple[Row | None, int]:
        """See `Pipeline.get_at`.

        Raises:
            NeedsLoop: The loop has to be asked.
        """
        found = self._store.peek(namespace, key) if self._thread.running else Later.LATER
        if found is Later.LATER:
            raise NeedsLoop
        row: tuple[Row | None, int] = found
        return row


class KeysFacade(Facade):
    """A facade that first tries to read on the caller's thread, where the engine allows it.

    Crossing to the loop and back takes several times as long as a read from a file.
    """

    __slots__ = ("_quick",)

    def __init__(self, thread: LoopThread, handle: KV) -> None:
        super().__init__(thread, handle)
        reads: Any = QuickReads(thread, handle.store)
        self._quick = KV(reads, handle.verbs)

    def _quickly(
        self, quick: Coroutine[Any, Any, T], verb: Callable[..., Coroutine[Any, Any, T]], *given: Any
    ) -> T:
        """Run a verb's coroutine here, which does not wait; or on the loop if it can't be done here."""
        try:
            quick.send(None)
        except StopIteration as done:
            result: T = done.value
            return result
        except NeedsLoop:
            return self._thread.run(verb(*given))
        raise AssertionError("a quick read never waits")


class Iteration(Generic[T]):
    """An iterator over what an asynchronous one yields. Close it, or use it in a `with` block, to stop."""

    def __init__(self, thread: LoopThread, source: AsyncIterator[T]) -> None:
        self._thread = thread
        self._source = source

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        try:
            return self._thread.run(_next(self._source))
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        """Stop following."""
        self._thread.run(_stop(self._source))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *given: object) -> None:
        self.close()


async def _stop(source: Any) -> None:
    if hasattr(source, "aclose"):  # an iterator that is no generator may have none
        await source.aclose()


async def _next(source: AsyncIterator[T]) -> T:
    return await anext(source)


def fed(given: Any) -> tuple[Any, SyncIterator | None]:
    """Return what a verb gets in place of an argument, with the feed if the argument is an iterator.

    Bytes, files and asynchronous iterators stay as they are, and so does what the verb will refuse. A handle
    that can be iterated over is no file, even if it has a `read`.
    """
    file = hasattr(given, "read") and not isinstance(given, Facade)
    kept = file or isinstance(given, (bytes, bytearray, memoryview, str, AsyncIterable))
    if kept or not isinstance(given, Iterable):
        return given, None
    feed = SyncIterator(iter(given))
    return feed, feed
