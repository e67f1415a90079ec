"""Copies of one store into another, in passes, each of which brings the target in step with the source.

A pass compares and changes only what differs, so a copy that was interrupted continues where it stopped. In
a namespace that was in step before, the journal says which entries have changed since.

Law: a namespace's own row is loaded last, with the rest of its changes. So the version in the target's row is
one at which the namespace was in step, and everything later is in the source's journal or is compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.engine.raw import Position, Positioned, Section
from holdfast.moves.differences import differences, unequal_ranges
from holdfast.moves.walking import PAGE_BYTES, size, walk
from holdfast.rows import REQUEST, Record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from holdfast.engine.raw import Movable, RawLoader, RawSnapshot
    from holdfast.moves.differences import Difference
    from holdfast.rows import Namespace

CHANGES: Final = 2_000
"""The number of changes after which a transaction is committed."""
BYTES: Final = 4 * PAGE_BYTES
"""The size of changes after which a transaction is committed."""

_SOME: Final = 500
"""The number of things that are looked up at once."""
_REQUESTS: Final[tuple[Position, Position]] = ((REQUEST, b""), (f"{REQUEST} ", b""))
"""The positions around the requests, of which there may be as many as writes."""


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
            wanted = {one.name: one for one in await theirs.namespaces()}
            found = {one.name: one for one in await ours.namespaces()}
            names = set(await theirs.names())
            for name in sorted(names):
                new, old = wanted.get(name), found.get(name)
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
            strays = sorted((set(await ours.names()) | found.keys()) - names)
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

    async def _mend(self, found: AsyncIterator[Difference]) -> None:
        async for one in found:
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

    async def _renew(self, section: Section, found: list[Positioned], positions: list[Position]) -> int:
        theirs = {one.position: one for one in found}
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
