"""Changes around a lock, followed by one watch for all of its waiters in this process.

Law: a waiter registers the key it waits for before it reads whether the key exists. So no change is missed:
the watch may wake it too often, but never too late. Each waiter has a timer for its deadlines. One shared
task checks the clock for all of them, because thousands of separate checks would leave no time for anything
else.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Final, cast
from weakref import WeakKeyDictionary

from holdfast.errors import Unavailable
from holdfast.handles.recipes import lease

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from holdfast.handles.keys import Keys
    from holdfast.model import Change
    from holdfast.pipeline.pipeline import Pipeline

JUMP: Final = 0.05
"""Seconds by which the store's clock may gain on the machine's before waiters are woken."""

_SHARED: Final[WeakKeyDictionary[Pipeline, dict[tuple[str, str], News]]] = WeakKeyDictionary()
"""The news in use, by store, namespace and prefix."""


class News:
    """A watch of the keys that begin with a prefix, shared by any number of listeners."""

    def __init__(self, kv: Keys, prefix: str, *, since: int) -> None:
        self.listeners = 0
        self._awaited: defaultdict[str, set[asyncio.Future[None]]] = defaultdict(set)
        self._task = asyncio.create_task(
            self._follow(kv, prefix, since), name=f"holdfast listens below {prefix}"
        )
        self._glancing = asyncio.create_task(
            self._glance(kv.store), name=f"holdfast looks at the clock for {prefix}"
        )

    @property
    def ended(self) -> bool:
        """True if no more changes will be reported."""
        return self._task.done()

    def leaving(self, key: str) -> asyncio.Future[None]:
        """Return a future that is done when the key may have been removed. It fails if the watch has ended.

        Cancel it when it is no longer needed.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.ended:
            future.set_exception(Unavailable("following changes has stopped"))
        else:
            self._awaited[key].add(future)
            future.add_done_callback(lambda _: self._forget(key, future))
        return future

    async def end(self) -> None:
        """Stop the watch."""
        self._task.cancel()
        self._glancing.cancel()
        await asyncio.gather(self._task, self._glancing, return_exceptions=True)

    async def _follow(self, kv: Keys, prefix: str, since: int) -> None:
        changes = cast("AsyncGenerator[Change]", kv.watch(prefix, since=since))
        error: Exception = Unavailable("the store was closed")
        try:
            async with aclosing(changes):
                async for change in changes:
                    if change.op == "gap":
                        self._tell(*self._awaited)
                    elif change.op in ("deleted", "expired"):
                        self._tell(change.key)
        except Exception as failure:
            error = failure
        for future in [future for waiting in self._awaited.values() for future in waiting]:
            if not future.done():
                future.set_exception(error)
                future.exception()  # a waiter that no longer reads it must not cause a warning

    async def _glance(self, store: Pipeline) -> None:
        """Wake all waiters when the store's clock has advanced further than their timers could know."""
        loop = asyncio.get_running_loop()
        least = store.now() / 1000 - loop.time()
        while True:
            await asyncio.sleep(lease.GLANCE)
            ahead = store.now() / 1000 - loop.time()
            least = min(least, ahead)
            if ahead > least + JUMP:
                least = ahead
                self._tell(*self._awaited)

    def _tell(self, *keys: str) -> None:
        for key in keys:
            for future in self._awaited.get(key, ()):
                if not future.done():
                    future.set_result(None)

    def _forget(self, key: str, future: asyncio.Future[None]) -> None:
        self._awaited[key].discard(future)
        if not self._awaited[key]:
            del self._awaited[key]


def is_heard(kv: Keys, prefix: str) -> bool:
    """Return True if a waiter in this process follows the news of a prefix."""
    return (kv.namespace, prefix) in _SHARED.get(kv.store, {})


@asynccontextmanager
async def news_of(kv: Keys, prefix: str, *, since: int) -> AsyncIterator[News]:
    """Yield the news of a prefix, from version `since` at the latest."""
    known = _SHARED.setdefault(kv.store, {})
    name = (kv.namespace, prefix)
    news = known.get(name)
    if news is None or news.ended:
        news = known[name] = News(kv, prefix, since=since)
    news.listeners += 1
    try:
        yield news
    finally:
        news.listeners -= 1
        if not news.listeners:
            if known.get(name) is news:
                del known[name]
            await news.end()
