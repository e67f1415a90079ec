"""A store that moves to another place: copied, kept in step while it is in use, and switched.

The target is closed until the copy is complete, and says which source it is a copy of, so that a copy that
was interrupted is recognised and continued. To switch, the source is closed to writes for good, the rest is
copied, both sides are proven equal, and the target takes over the source's epoch: watchers continue there.

Law: at every instant at most one of the two stores accepts writes, and a process that is killed leaves a
state from which the same command goes on. The reason with which a process closes a store names that process,
and only a process that has read it may replace it. A process that was paused therefore changes nothing later.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import time
from typing import TYPE_CHECKING, Final, Self

import msgspec

from holdfast.engine.raw import UNFINISHED, StoreInfo
from holdfast.errors import Busy, HoldfastError, OutcomeUnknown, Unavailable, ValidationError
from holdfast.moves.copying import Copier

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from holdfast.engine.raw import Movable, RawLoader
    from holdfast.moves.copying import Pass

_MOVED: Final = re.compile(r"this store has moved to (?P<place>.*?)(?: \(move [0-9a-f]{8}\))?$")
"""The reason for which a source is closed. It ends with the random name of the move."""
INTERVAL: Final = 1.0
"""Seconds between two passes of a copy that follows its source."""
_PATIENCE: Final = 60.0
_PAUSE: Final = 0.05
"""Seconds to wait in all, and between two attempts, while another process has the target open."""
_SOON: Final = 1.5
"""Seconds that a comparison of everything may take for it to happen while writes are refused."""
_PASSES: Final = 8
"""The number of passes after which two stores are expected to be equal."""


class Ended(Exception):
    """Another process has completed this copy, or goes on with it: `complete` says which."""

    def __init__(self, *, complete: bool) -> None:
        super().__init__()
        self.complete = complete


class Copied(msgspec.Struct, kw_only=True):
    """The result of a copy. `paused` is the number of seconds for which the source refused writes.

    `complete` is False if the target can't be used yet, because the copy only followed its source.
    """

    passes: int = 0
    put: int = 0
    dropped: int = 0
    complete: bool = False
    switched: bool = False
    paused: float | None = None


class StoreTransfer:
    """A copy from a source to a target.

    Args:
        source: The engine of the source, opened for reading.
        open_target: Opens the engine of the target. Unless several processes can load it, it is opened for
            each pass, so that another process may complete the copy.
        look_at_target: Opens it for reading, also while another process writes to it.
        where: The place of the target, as clients that still write to the source are told it.
        advance: Called with the number of things that were read or loaded, to show progress.
    """

    def __init__(
        self,
        source: Movable,
        open_target: Callable[[], AbstractAsyncContextManager[Movable]],
        look_at_target: Callable[[], AbstractAsyncContextManager[Movable]],
        *,
        where: str,
        advance: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._source = source
        self._open_target = open_target
        self._look_at_target = look_at_target
        self._where = where
        self._moved = f"this store has moved to {where} (move {secrets.token_hex(4)})"
        self._advance = advance
        self._copy = self._mark = ""
        self._kept: Movable | None = None
        self._stack = contextlib.AsyncExitStack()
        self.result: Copied = Copied()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close the target."""
        self._kept = None
        await self._stack.aclose()

    async def begin(self, overwrite: Callable[[list[str]], None]) -> None:
        """Prepare the target. `overwrite` is called with the namespaces that it would lose, and may raise.

        A copy that was begun is taken over: a process that still works on it ends.

        Raises:
            Busy: Another process has done the same at this instant.
            Ended: The store has moved to this target already.
            ValidationError: Both are the same store, or the source can't be copied.
        """
        theirs = await _facts(self._source)
        self._name(theirs)
        async with self._target() as target:
            async with target.snapshot() as snapshot:
                ours, names = await snapshot.facts(), await snapshot.names()
            self._require_copyable(theirs, ours)
            resumes = self._is_copy(ours)
            if names and not resumes:
                overwrite(names)
            async with target.loading() as loader:
                await _replace(loader, ours, _taken(theirs, epoch=secrets.token_hex(8), closed=self._mark))
                if not resumes:
                    await loader.drop_namespaces(names)

    async def step(self, *, thorough: bool = False, since: dict[str, int] | None = None) -> Pass:
        """Bring the target in step with the source once.

        Raises:
            Ended: Another process has completed the copy, or has taken it over.
        """
        async with self._target() as target:
            self._require_mine(await _facts(target))  # a pass without changes loads nothing
            copier = Copier(self._source, target, check=self._check, advance=self._advance)
            done = await copier.step(thorough=thorough, since=since)
        self.result.passes += 1
        self.result.put += done.put
        self.result.dropped += done.dropped
        return done

    async def finish(self, *, keep_epoch: bool = False) -> None:
        """Open the target for use."""
        theirs = await _facts(self._source)
        async with self._target() as target, target.loading() as loader:
            await self._check(loader)
            epoch = theirs.epoch if keep_epoch else secrets.token_hex(8)
            await loader.remember(_taken(theirs, epoch=epoch, closed=None))
        self.result.complete = True

    async def follow(self, stop: asyncio.Event) -> None:
        """Keep the target in step until `stop` is set, or until another process takes over."""
        while not stop.is_set():
            try:
                await self.step()
            except (Busy, Unavailable):  # a restart, or another process that completes the copy
                if not await self._unfinished(unseen=True):
                    raise Ended(complete=True) from None
            try:
                async with asyncio.timeout(INTERVAL):
                    await stop.wait()
            except TimeoutError:
                continue

    async def switch(self) -> None:
        """Close the source, copy the rest, prove both equal, and open the target in its place.

        If that fails, the source is opened again and nothing has moved.

        Raises:
            Busy: Another process has closed or opened the source in between.
            Unavailable: The two stores did not become equal.
            ValidationError: Another process moves the source to another place.
        """
        async with self._keeping():
            await self._switch()

    async def _switch(self) -> None:
        began = time.monotonic()
        await self.step(thorough=True)
        soon = time.monotonic() - began < _SOON
        await self._catch_up()
        since = await self._versions()
        closed = (await _facts(self._source)).closed
        self._require_here(closed)
        began = time.monotonic()
        try:
            await self._source.close_to_writes(self._moved, instead_of=closed)
            await self._prove(since, thorough=soon)
        except Ended:
            raise
        except BaseException:
            await asyncio.shield(self._give_back())
            raise
        await self._hand_over()
        self.result.paused = round(time.monotonic() - began, 3)
        self.result.switched = True

    async def cancel(self) -> None:
        """Open the source again after a switch that was interrupted. A process that still switches ends.

        Raises:
            Busy: Another process has begun a switch, or canceled this one, in between.
            ValidationError: The target is in use already, or nothing was begun.
        """
        theirs = await _facts(self._source)
        if theirs.closed is None:
            raise ValidationError("the source is not closed: there is nothing to cancel", field="cancel")
        if place_in(theirs.closed) != self._where:
            raise ValidationError(f"the source does not move to this target: {theirs.closed}", field="cancel")
        self._name(theirs)
        async with self._target() as target:
            ours = await _facts(target)
            if ours.epoch == theirs.epoch:
                raise ValidationError("the store has moved already, and the target is in use", field="cancel")
            if self._is_copy(ours):
                async with target.loading() as loader:
                    await _replace(loader, ours, msgspec.structs.replace(ours, closed=self._mark))
        await self._source.close_to_writes(None, instead_of=theirs.closed)

    @contextlib.asynccontextmanager
    async def _target(self) -> AsyncIterator[Movable]:
        """Open the target, or use the one that is kept open.

        One that several processes can load is kept open: opening it may mean to fetch all that it holds.
        """
        if self._kept is not None:
            yield self._kept
            return
        async with contextlib.AsyncExitStack() as stack:
            target = await self._opened(stack)
            if target.capabilities.multi_process:
                self._kept = target
                self._stack.push_async_callback(stack.pop_all().aclose)
            yield target

    async def _opened(self, stack: contextlib.AsyncExitStack) -> Movable:
        """Open the target. While a copy into it is under way, its files are free again before long."""
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                return await stack.enter_async_context(self._open_target())
            except Unavailable:
                if time.monotonic() > until or not await self._unfinished(unseen=False):
                    raise
            await asyncio.sleep(_PAUSE)

    @contextlib.asynccontextmanager
    async def _keeping(self) -> AsyncIterator[None]:
        """Keep the target open: a client that looks whether it is complete must not come in between."""
        async with self._target() as target:
            before, self._kept = self._kept, target
            try:
                yield
            finally:
                self._kept = before

    async def _hand_over(self) -> None:
        try:
            await self.finish(keep_epoch=True)
        except OutcomeUnknown:
            raise
        except HoldfastError:
            await self._give_back()
            raise

    async def _give_back(self) -> None:
        """Open the source again, unless another process has taken over."""
        with contextlib.suppress(Busy):
            await self._source.close_to_writes(None, instead_of=self._moved)

    def _name(self, theirs: StoreInfo) -> None:
        """Choose the reason that names this copy of a source, and the random name of this process in it."""
        self._copy = f"{UNFINISHED}: run holdfast copy again to complete it [{theirs.epoch}/"
        self._mark = f"{self._copy}{secrets.token_hex(4)}]"

    def _is_copy(self, ours: StoreInfo) -> bool:
        """Return whether a copy of this source into a target is under way, by any process."""
        return ours.closed is not None and ours.closed.startswith(self._copy)

    async def _unfinished(self, *, unseen: bool) -> bool:
        """Return whether this copy is still to be completed, or `unseen` if the target can't be looked at."""
        try:
            if self._kept is not None:
                return self._is_copy(await _facts(self._kept))
            async with self._look_at_target() as target:
                return self._is_copy(await _facts(target))
        except (Busy, Unavailable):
            return unseen

    async def _catch_up(self) -> None:
        """Make passes until one is quick, so that the last one is quick too."""
        for _ in range(_PASSES):
            began = time.monotonic()
            await self.step()
            if time.monotonic() - began < 1:
                return

    async def _prove(self, since: dict[str, int], *, thorough: bool) -> None:
        """Make passes until one finds nothing to change.

        It compares everything, or what has changed since these versions: all else was compared before.
        """
        await self.step()
        for _ in range(_PASSES):
            done = await self.step(thorough=thorough, since=since)
            if not done.changed:
                return
        raise Unavailable("the target does not become equal to the source: does another process change it?")

    async def _versions(self) -> dict[str, int]:
        """Return the versions of the target's namespaces."""
        async with self._target() as target, target.snapshot() as snapshot:
            return {one.name: one.revision for one in await snapshot.namespaces()}

    async def _check(self, loader: RawLoader) -> None:
        self._require_mine(await loader.facts())

    def _require_mine(self, ours: StoreInfo) -> None:
        if ours.closed != self._mark:
            raise Ended(complete=not self._is_copy(ours))

    def _require_copyable(self, theirs: StoreInfo, ours: StoreInfo) -> None:
        former = ours.closed is not None and place_in(ours.closed) is not None  # it moves back
        if theirs.epoch == ours.epoch and not (former and theirs.closed is None):
            if theirs.closed is not None and ours.closed is None:
                raise Ended(complete=True)
            raise ValidationError("both are the same store", field="to")
        self._require_here(theirs.closed)

    def _require_here(self, closed: str | None) -> None:
        if closed is not None and place_in(closed) != self._where:
            raise ValidationError(f"the source can't be copied: {closed}", field="from")


def place_in(reason: str) -> str | None:
    """Return the place to which a store has moved, or is moving, from the reason why it is closed."""
    found = _MOVED.search(reason)
    return None if found is None else found["place"]


async def _replace(loader: RawLoader, ours: StoreInfo, facts: StoreInfo) -> None:
    """Replace what a target remembers, unless another process has closed or opened it since it was read."""
    if (await loader.facts()).closed != ours.closed:
        raise Busy("another process has changed the target meanwhile: try again")
    await loader.remember(facts)


def _taken(facts: StoreInfo, *, epoch: str, closed: str | None) -> StoreInfo:
    return msgspec.structs.replace(facts, epoch=epoch, closed=closed)


async def _facts(store: Movable) -> StoreInfo:
    async with store.snapshot() as snapshot:
        return await snapshot.facts()
