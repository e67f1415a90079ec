"""Turns: one worker at a time writes a thread or a session, and the others wait.

A turn is a lock of the namespace in which the integration keeps its entries. While a task is in a turn, the
writes that the integration makes for it carry the fence of that lock, so a worker that was stopped and comes
back after another one has taken its turn is refused by the store.
"""

from __future__ import annotations

import asyncio
import re
from contextvars import ContextVar
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from holdfast.errors import Busy, LockLost
from holdfast.handles.recipes.names import WAITING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

    from holdfast.handles.kv import KV
    from holdfast.integrations.stores import SyncBridge

Place: TypeAlias = tuple[int, str, str]
"""A store in this process, a namespace in it, and the name of a lock in that."""

_READABLE: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,47}")
_HELD: ContextVar[Mapping[Place, dict[str, Any]]] = ContextVar("holdfast_turns")
"""The fences of the turns that the current task is in. Tasks and threads that it starts inherit them."""


def lock_name(kind: str, name: str) -> str:
    """Return the name of the lock for a thread or session; a name that no lock can have becomes a digest."""
    if _READABLE.fullmatch(name) and name != WAITING:
        return f"{kind}/{name}"
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{kind}.digest/{digest}"


def fence_of(kv: KV, lock: str) -> dict[str, Any]:
    """Return the `fence` for a write, as a keyword argument, or nothing if the task is in no such turn."""
    fence = _HELD.get({}).get(_place(kv, lock))
    return {} if fence is None else {"fence": fence}


def _place(kv: KV, lock: str) -> Place:
    return id(kv.store), kv.namespace, lock


class Turn:
    """The turn of one worker. Get one from `HoldfastSaver.turn` or `HoldfastSession.turn`.

    Use it as a context manager, with `async with`; on a store of `holdfast.sync.open` also with `with`. The
    lock is renewed meanwhile. If it is lost anyway, the task is cancelled and the block raises `LockLost`; on
    a store of `holdfast.sync.open` the block raises that at its end.

    Args:
        kv: The namespace.
        lock: The name of the lock.
        ttl: Seconds after which the turn of a worker that has stopped is over.
        wait: Seconds to wait for the turn before `Busy` is raised; None waits for ever.
        owner: Name of the worker, for whoever looks at the lock.
        bridge: The way to the store; None if it is an asynchronous one.
    """

    def __init__(
        self,
        kv: KV,
        lock: str,
        *,
        ttl: float,
        wait: float | None,
        owner: str | None,
        bridge: SyncBridge | None = None,
    ) -> None:
        self._lock = kv.lock(lock, ttl=ttl, timeout=wait, owner=owner)
        self._wait = wait
        self._place = _place(kv, lock)
        self._bridge = None if bridge is None or bridge.asynchronous else bridge

    @property
    def fence(self) -> dict[str, Any]:
        """The `fence` of this turn, for writes of your own to the same namespace.

        It also refuses them when the turn has run out and nobody has taken it yet.
        """
        return {**self._lock.fence, "live": True}

    async def __aenter__(self) -> Self:
        if self._bridge is None:
            await self._lock.__aenter__()
        else:
            try:
                acquired = await self._bridge.wait(self._lock.acquire(timeout=self._wait))
            except asyncio.CancelledError:
                if self._lock.held:  # it was acquired at the same moment
                    await self._released(self._bridge)
                raise
            self._check(acquired)
        return self._begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        if self._bridge is None:
            await self._lock.__aexit__(kind, error, trace)
        else:
            self._check_kept(await self._released(self._bridge), kind)

    async def _released(self, bridge: SyncBridge) -> bool:
        """Release the lock, which nobody would stop renewing if a cancelled task did not."""
        releasing = asyncio.ensure_future(bridge.wait(self._lock.release()))
        try:
            return await asyncio.shield(releasing)
        except asyncio.CancelledError:
            await asyncio.wait({releasing})
            raise

    def __enter__(self) -> Self:
        if self._bridge is None:
            raise TypeError("use `async with` for a turn on an asynchronous store")
        self._check(self._bridge.run(self._lock.acquire(timeout=self._wait)))
        return self._begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._bridge is not None
        self._end()
        self._check_kept(self._bridge.run(self._lock.release()), kind)

    def _begin(self) -> Self:
        _HELD.set({**_HELD.get({}), self._place: self.fence})
        return self

    def _end(self) -> None:
        _HELD.set({place: fence for place, fence in _HELD.get({}).items() if place != self._place})

    def _check(self, acquired: bool) -> None:
        if not acquired:
            raise Busy(f"lock {self._lock.name!r} was not free within {self._wait:g} s")

    def _check_kept(self, kept: bool, kind: type[BaseException] | None) -> None:
        if not kept and kind is None:
            raise LockLost(f"lock {self._lock.name!r} was lost before it was released")
