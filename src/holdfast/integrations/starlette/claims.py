"""A claim on one request: who runs it, and what came of it, in one entry that all workers share.

Law: a claim belongs to the worker whose mark it has, and expires unless that worker renews it. A worker that
has lost its claim to another one stores nothing.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from holdfast.errors import OutcomeUnknown, Transient, VersionConflict

if TYPE_CHECKING:
    from holdfast.handles.kv import KV

_log: Final = logging.getLogger("holdfast.integrations.starlette")


class Claim:
    """The claim of this worker on a key.

    Args:
        kv: The namespace.
        key: The entry of the request.
        request: The fingerprint of the request.
        lease: Seconds for which a claim lasts unless it is renewed.
    """

    def __init__(self, kv: KV, key: str, request: str, lease: int) -> None:
        self.mark: Final = secrets.token_hex(16)
        self._kv = kv
        self._key = key
        self._running = {"request": request, "worker": self.mark}
        self._lease = lease
        self._version = 0
        self._renewing: asyncio.Task[None] | None = None

    async def take(self) -> dict[str, Any] | None:
        """Claim the request, or return what is stored of it if it is claimed or done."""
        while True:
            try:
                entry = await self._kv.set(self._key, self._running, ttl=self._lease, expected_version=0)
            except VersionConflict as conflict:
                current = conflict.current
                if current is not None and current.value is UNSET:
                    current = await self._kv.get(self._key)
                if current is not None:
                    found: dict[str, Any] = current.value
                    return found
            else:
                self._version = entry.version
                return None

    def hold(self) -> None:
        """Begin to renew the claim."""
        self._renewing = asyncio.create_task(self._renew(), name="holdfast idempotency claim")

    async def let_go(self) -> None:
        """Stop renewing the claim."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing])

    async def finish(self, outcome: dict[str, Any], ttl: int) -> bool:
        """Store what came of the request, and return False if another worker has taken it over."""
        await self.let_go()
        return await self._put({**self._running, **outcome}, ttl)

    async def release(self) -> None:
        """Give the claim up, so that the request can be sent again at once."""
        await self.let_go()
        while True:
            try:
                await self._kv.delete(self._key, expected_version=self._version)
            except VersionConflict:
                if not await self._is_mine() or self._version == 0:
                    return
            else:
                return

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._lease / 3)
            try:
                if not await self._put(self._running, self._lease):
                    _log.warning("another worker has taken over the request of %s", self._key)
                    return
            except (Transient, OutcomeUnknown) as error:
                _log.warning("can't renew the claim on %s: %s", self._key, error.message)

    async def _put(self, value: dict[str, Any], ttl: int) -> bool:
        """Store a value over the claim of this worker, or where a claim of it has expired."""
        while True:
            try:
                entry = await self._kv.set(self._key, value, ttl=ttl, expected_version=self._version)
            except VersionConflict:
                if not await self._is_mine():
                    return False
            else:
                self._version = entry.version
                return True

    async def _is_mine(self) -> bool:
        """Return whether no other worker has the request, and take note of its version."""
        entry = await self._kv.get(self._key)
        self._version = 0 if entry is None else entry.version
        return entry is None or entry.value["worker"] == self.mark
