"""A store that moves to another place: copied, kept in step while it is in use, and switched.

The target is closed until the copy is complete, and says which source it is a copy of, so that a copy that
was interrupted is recognised and continued. A copy is made in passes. A pass compares and changes only what
differs. In a namespace that was in step before, the journal says which entries have changed since. A
namespace's own row is loaded last, with the rest of its changes: the version in the target's row is one at
which the namespace was in step, and everything later is in the source's journal or is compared.

To switch, the source is closed to writes for good, the rest is copied, both sides are proven equal, and the
target takes over the source's epoch: watchers continue there. At every instant at most one of the two stores
accepts writes, and a process that is killed leaves a state from which the same command goes on. The reason
with which a process closes a store names that process, and only a process that has read it may replace it. A
process that was paused therefore changes nothing later.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, Self

import msgspec

from holdfast import seams
from holdfast.engine import Movable
from holdfast.engine.raw import UNFINISHED, Position, Positioned, RawLoader, RawSnapshot, Section, StoreInfo
from holdfast.errors import Busy, HoldfastError, OutcomeUnknown, Unavailable, ValidationError
from holdfast.moves.differences import Difference, differences, unequal_ranges
from holdfast.moves.walks import PAGE_BYTES, size, walk
from holdfast.rows import REQUEST, Namespace, Record

CHANGES: Final = 2_000
"""The number of changes after which a transaction is committed."""
BYTES: Final = 4 * PAGE_BYTES
"""The size of changes after which a transaction is committed."""

_SOME: Final = 500
"""The number of things that are looked up at once."""
_REQUESTS: Final[tuple[Position, Position]] = ((REQUEST, b""), (f"{REQUEST} ", b""))
"""The positions around the requests, of which there may be as many as writes."""


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


class Pass(msgspec.Struct, kw_only=True):
    """What a pass did: the namespaces that it looked at, and the numbers of things put and dropped."""

    namespaces: int = 0
    put: int = 0
    dropped: int = 0

    @property
    def changed(self) -> bool:
        """True if the target was not in step."""
        return bool(self.put or self.dropped)


class Copier:
    """Brings a target in step with a source.

    Args:
        source: The store to read.
        target: The store to load.
        check: Called within each transaction, before it changes anything. It may raise to stop.
        advance: Called with the number of things that were read or loaded, to show progress.
    """

    def __init__(
        self,
        source: Movable,
        target: Movable,
        *,
        check: Callable[[RawLoader], object],
        advance: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._source = source
        self._target = target
        self._check = check
        self._advance = advance

    async def step(self, *, thorough: bool, since: Mapping[str, int] | None = None) -> Pass:
        """Make one pass.

        Args:
            thorough: Whether to compare everything. Otherwise namespaces whose rows are equal are skipped,
                and the journal says which entries to look at.
            since: The versions from which the journal is read, by namespace, instead of those of the target.
        """
        done = Pass()
        async with self._source.snapshot() as theirs, self._target.snapshot() as ours:
            sources = {one.name: one for one in await theirs.namespaces()}
            held = {one.name: one for one in await ours.namespaces()}
            names = set(await theirs.names())
            for name in sorted(names):
                new, old = sources.get(name), held.get(name)
                if thorough or new is None or new != old or name in (since or ()):
                    done.namespaces += 1
                    done.put += new != old
                    before = None if thorough else _before(new, old, since or {})
                    work = _Work(self, theirs, ours, name, done)
                    if before is None or new is None or old is None:
                        await work.compare_all()
                    else:
                        await work.follow(new, old, before)
                    await work.flush(new)
            strays = sorted((set(await ours.names()) | held.keys()) - names)
            if strays:
                done.dropped += len(strays)
                await self.load(lambda loader: loader.drop_namespaces(strays))
        return done

    async def load(self, change: Callable[[RawLoader], object]) -> None:
        """Change the target in one transaction."""
        async with self._target.loading() as loader:
            for act in (self._check, change):
                result = act(loader)
                if hasattr(result, "__await__"):
                    await result

    def advance(self, count: int) -> None:
        """Report progress."""
        self._advance(count)


def _before(new: Namespace | None, old: Namespace | None, since: Mapping[str, int]) -> int | None:
    """Return the version at which a namespace was in step, if the journal tells all that came later."""
    if new is None or old is None:
        return None
    before = min(old.revision, since.get(old.name, old.revision))
    return before if new.journal_floor <= before <= new.revision else None


class _Work:
    """The changes that a pass makes to a namespace."""

    def __init__(self, copier: Copier, theirs: RawSnapshot, ours: RawSnapshot, name: str, done: Pass) -> None:
        self._copier = copier
        self._theirs = theirs
        self._ours = ours
        self._name = name
        self._done = done
        self._puts: dict[Section, list[Positioned]] = {section: [] for section in Section}
        self._drops: dict[Section, list[Position]] = {section: [] for section in Section}
        self._count = self._bytes = 0

    async def compare_all(self) -> None:
        """Bring every section in step by comparing it."""
        for section in Section:
            if await self._ours.page(self._name, section, after=None, limit=1):
                await self._compare(section)
            else:
                await self._put_all(section)

    async def follow(self, new: Namespace, old: Namespace, before: int) -> None:
        """Bring the namespace in step, given that after version `before` the journal names the changes.

        The journal names every change of an entry and most new requests. Whatever else may change without a
        record is compared.
        """
        keys: dict[str, None] = {}
        requests: dict[str, None] = {}
        async for page in walk(self._theirs, self._name, Section.JOURNAL, after=(before,)):
            await self._renew(Section.JOURNAL, page, [held.position for held in page])
            for record in (held.content for held in page):
                assert isinstance(record, Record)
                keys[record.key] = None
                if record.request_id is not None:
                    requests[record.request_id] = None
            self._copier.advance(len(page))
        async for page in walk(self._ours, self._name, Section.JOURNAL, upto=(new.journal_floor,)):
            for held in page:
                await self._drop(Section.JOURNAL, held.position)
        await self._renew_all(Section.ENTRIES, [(key,) for key in keys])
        added = await self._renew_all(Section.ROWS, [(REQUEST, one.encode()) for one in requests])
        if old.requests + added != new.requests:  # some have expired
            await self._compare(Section.ROWS, after=_REQUESTS[0], upto=_REQUESTS[1])
        await self._compare(Section.ROWS, upto=_REQUESTS[0])
        await self._compare(Section.ROWS, after=_REQUESTS[1])
        await self._compare(Section.PARTS)

    async def _put_all(self, section: Section) -> None:
        async for page in walk(self._theirs, self._name, section):
            for held in page:
                await self._put(section, held)
            self._copier.advance(len(page))

    async def _compare(
        self, section: Section, *, after: Position | None = None, upto: Position | None = None
    ) -> None:
        parts = await unequal_ranges(
            self._theirs,
            self._ours,
            self._name,
            section,
            after=after,
            upto=upto,
            advance=self._copier.advance,
        )
        for part in parts:
            await self._mend(differences(self._theirs, self._ours, self._name, section, part))

    async def _mend(self, differences: AsyncIterator[Difference]) -> None:
        async for one in differences:
            if one.one is None:
                await self._drop(one.section, one.position)
            else:
                await self._put(one.section, Positioned(one.position, one.one))

    async def _renew_all(self, section: Section, positions: list[Position]) -> int:
        """Bring things in step, by their positions. Returns how many more of them there are now."""
        added = 0
        for start in range(0, len(positions), _SOME):
            some = positions[start : start + _SOME]
            added += await self._renew(section, await self._theirs.find(self._name, section, some), some)
        return added

    async def _renew(self, section: Section, held: list[Positioned], positions: list[Position]) -> int:
        theirs = {one.position: one for one in held}
        ours = {one.position: one for one in await self._ours.find(self._name, section, positions)}
        for position in positions:
            if position in theirs and theirs[position] != ours.get(position):
                await self._put(section, theirs[position])
            elif position not in theirs and position in ours:
                await self._drop(section, position)
        return len(theirs) - len(ours)

    async def _put(self, section: Section, held: Positioned) -> None:
        self._puts[section].append(held)
        self._done.put += 1
        self._bytes += size(held)
        await self._counted()

    async def _drop(self, section: Section, position: Position) -> None:
        self._drops[section].append(position)
        self._done.dropped += 1
        await self._counted()

    async def _counted(self) -> None:
        self._count += 1
        if self._count >= CHANGES or self._bytes >= BYTES:
            await self.flush(None)

    async def flush(self, namespace: Namespace | None) -> None:
        """Commit the changes so far, and with the last of them the namespace's own row."""
        if self._count or namespace is not None:
            puts, drops = self._puts, self._drops

            async def change(loader: RawLoader) -> None:
                for section in Section:
                    await loader.drop(self._name, section, drops[section])
                    await loader.put(self._name, section, puts[section])
                if namespace is not None:
                    await loader.put_namespaces([namespace])

            await self._copier.load(change)
        self._puts = {section: [] for section in Section}
        self._drops = {section: [] for section in Section}
        self._count = self._bytes = 0


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
        self._moved = f"this store has moved to {where} (move {seams.token(4)})"
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
                await _replace(loader, ours, _taken(theirs, epoch=seams.token(8), closed=self._mark))
                if not resumes:
                    async with target.snapshot() as snapshot:  # now that nobody can add a namespace
                        await loader.drop_namespaces(await snapshot.names())

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
            epoch = theirs.epoch if keep_epoch else seams.token(8)
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
        began = seams.monotonic()
        await self.step(thorough=True)
        soon = seams.monotonic() - began < _SOON
        await self._catch_up()
        since = await self._versions()
        closed = (await _facts(self._source)).closed
        self._require_here(closed)
        began = seams.monotonic()
        try:
            await self._source.close_to_writes(self._moved, instead_of=closed)
            await self._prove(since, thorough=soon)
        except Ended:
            raise
        except BaseException:
            await asyncio.shield(self._give_back())
            raise
        await self._hand_over()
        self.result.paused = round(seams.monotonic() - began, 3)
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
        until = seams.monotonic() + _PATIENCE
        while True:
            try:
                return await stack.enter_async_context(self._open_target())
            except Unavailable:
                if seams.monotonic() > until or not await self._unfinished(unseen=False):
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
        self._mark = f"{self._copy}{seams.token(4)}]"

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
            began = seams.monotonic()
            await self.step()
            if seams.monotonic() - began < 1:
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
    match = _MOVED.search(reason)
    return None if match is None else match["place"]


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
