"""Iterators that a program without asyncio passes to a verb.

Law: an iterator is advanced on the thread that passed it, while that thread waits for the verb. So it may use
the store itself, or anything else that belongs to its thread, and never holds up the event loop.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

Asked: TypeAlias = "tuple[asyncio.AbstractEventLoop, asyncio.Future[Any]]"

END: Final = object()


class Feed:
    """An asynchronous iterator over a plain one.

    Args:
        source: The plain iterator.
    """

    def __init__(self, source: Iterator[Any]) -> None:
        self._source = source
        self._asked: SimpleQueue[Asked | None] = SimpleQueue()

    def __aiter__(self) -> Feed:
        return self

    async def __anext__(self) -> Any:
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        self._asked.put((loop, answer))
        found = await answer
        if found is END:
            raise StopAsyncIteration
        return found

    def serve(self) -> None:
        """Advance the iterator whenever the verb asks for it, until the verb has ended."""
        while (asked := self._asked.get()) is not None:
            loop, answer = asked
            try:
                step = partial(_give, answer, next(self._source, END))
            except Exception as error:
                step = partial(_fail, answer, error)
            with suppress(RuntimeError):  # the loop was closed in the meantime, which has ended the verb
                loop.call_soon_threadsafe(step)

    def end(self) -> None:
        """Let `serve` return, because the verb has ended."""
        self._asked.put(None)


def _give(answer: asyncio.Future[Any], found: Any) -> None:
    if not answer.done():
        answer.set_result(found)


def _fail(answer: asyncio.Future[Any], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
