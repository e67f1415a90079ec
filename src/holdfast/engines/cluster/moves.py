"""Raw reads and loads of a whole cluster; see `holdfast.engine.raw`.

A snapshot has everything that was acknowledged before the reading began, each shard at one instant. A
namespace belongs to one shard, so what it holds is consistent.

Loads go through the logs of the shards, so that all replicas hold the same. The first shard says whether the
store is closed and why, and the others repeat it. A message that loads is stored only while its shard is
closed for the reason that its process gave.

Facts about the store reach the first shard before any other. So a shard that is closed while the first one is
open was left behind by a process that died, and any node may open it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from holdfast.engine.raw import CHANGED, Position, Positioned, Section, StoreInfo
from holdfast.engines.cluster.messages import (
    Change,
    drop_namespaces,
    drop_rows,
    encode_load,
    load_statements,
    put_facts,
    put_namespaces,
    put_rows,
)
from holdfast.engines.cluster.replica import ReplicaStatus
from holdfast.engines.cluster.shard import Shard
from holdfast.engines.sql import sections
from holdfast.engines.sqlite.raw import SqliteSnapshot
from holdfast.errors import Busy, HoldfastError, OutcomeUnknown
from holdfast.rows import Namespace, Row

BYTES: Final = 524_288
"""The size of changes after which a message is published."""
_FACTS: Final = "SELECT name, value FROM holdfast_meta"
_CHANGE_BYTES: Final = 64


class ClusterSnapshot:
    """See `holdfast.engine.raw.RawSnapshot`.

    Args:
        parts: The snapshot of each shard.
        part_of: Returns the number of a namespace's shard.
    """

    def __init__(self, parts: Sequence[SqliteSnapshot], part_of: Callable[[str], int]) -> None:
        self._parts = parts
        self._part_of = part_of

    async def facts(self) -> StoreInfo:
        """See `RawSnapshot.facts`. The first shard keeps what concerns the whole store."""
        return await self._parts[0].facts()

    async def namespaces(self) -> list[Namespace]:
        """See `RawSnapshot.namespaces`."""
        namespaces = [namespace for part in self._parts for namespace in await part.namespaces()]
        return sorted(namespaces, key=lambda namespace: namespace.name)

    async def names(self) -> list[str]:
        """See `RawSnapshot.names`."""
        return sorted([name for part in self._parts for name in await part.names()])

    async def count(self) -> int:
        """See `RawSnapshot.count`."""
        return sum([await part.count() for part in self._parts])

    async def page(
        self, namespace: str, section: Section, *, after: Position | None, limit: int
    ) -> list[Positioned]:
        """See `RawSnapshot.page`."""
        part = self._parts[self._part_of(namespace)]
        return await part.page(namespace, section, after=after, limit=limit)

    async def find(self, namespace: str, section: Section, positions: Sequence[Position]) -> list[Positioned]:
        """See `RawSnapshot.find`."""
        return await self._parts[self._part_of(namespace)].find(namespace, section, positions)


class ClusterLoader:
    """See `holdfast.engine.raw.RawLoader`.

    Changes are published in their order, in messages of bounded size: those of a namespace that are small
    enough become visible together.

    Args:
        shards: The shards.
        shard_of: Returns the number of a namespace's shard.
        facts: The facts at the beginning.
    """

    def __init__(self, shards: Sequence[Shard], shard_of: Callable[[str], int], facts: StoreInfo) -> None:
        self._shards = shards
        self._shard_of = shard_of
        self._facts = facts
        self._pending: list[list[Change]] = [[] for _ in shards]
        self._bytes = [0] * len(shards)

    async def facts(self) -> StoreInfo:
        """See `RawLoader.facts`."""
        return self._facts

    async def put(self, namespace: str, section: Section, held: Sequence[Positioned]) -> None:
        """See `RawLoader.put`."""
        if held:
            size = sum(_CHANGE_BYTES + _size(one) for one in held)
            await self._add(self._shard_of(namespace), put_rows(namespace, section, held), size)

    async def drop(self, namespace: str, section: Section, positions: Sequence[Position]) -> None:
        """See `RawLoader.drop`."""
        if positions:
            size = _CHANGE_BYTES * len(positions)
            await self._add(self._shard_of(namespace), drop_rows(namespace, section, positions), size)

    async def put_namespaces(self, namespaces: Sequence[Namespace]) -> None:
        """See `RawLoader.put_namespaces`."""
        for one in namespaces:
            await self._add(self._shard_of(one.name), put_namespaces([one]), _CHANGE_BYTES)

    async def drop_namespaces(self, names: Sequence[str]) -> None:
        """See `RawLoader.drop_namespaces`."""
        for name in names:
            await self._add(self._shard_of(name), drop_namespaces([name]), _CHANGE_BYTES)

    async def remember(self, facts: StoreInfo) -> None:
        """See `RawLoader.remember`."""
        await self.flush()
        await publish_facts(self._shards, facts, before=self._facts)
        self._facts = facts

    async def flush(self) -> None:
        """Publish what is pending."""
        for number, shard in enumerate(self._shards):
            changes, self._pending[number], self._bytes[number] = self._pending[number], [], 0
            if changes:
                await _put(shard, changes, partial(self._require_loadable, shard))

    async def _add(self, number: int, change: Change, size: int) -> None:
        self._pending[number].append(change)
        self._bytes[number] += size
        if self._bytes[number] >= BYTES:
            await self.flush()

    def _require_loadable(self, shard: Shard) -> None:
        closed = self._facts.closed
        if closed is None or shard.replica.status.closed != closed or not shard.replica.status.unfinished:
            raise Busy(CHANGED)


async def facts_now(shard: Shard) -> StoreInfo:
    """Return what the store remembers about itself, as the first shard has it now."""
    return sections.facts_of(await shard.reads.fresh(partial(shard.replica.file.fetch, _FACTS)))


async def publish_facts(shards: Sequence[Shard], facts: StoreInfo, *, before: StoreInfo) -> None:
    """Replace what a store remembers about itself.

    Raises:
        Busy: It is no longer closed or open as it was before.
        OutcomeUnknown: The first shard may have been changed, and so the store, but not all of its shards.
    """
    first = shards[0].replica

    def allow() -> None:
        if first.status.closed != before.closed:
            raise Busy(CHANGED)

    change = put_facts(facts)
    await _put(shards[0], [change], allow)
    try:
        for shard in shards[1:]:
            await _put(shard, [change], _always)
    except HoldfastError as error:
        raise OutcomeUnknown(
            "the first shard of the store has been opened or closed, but not all of the others: "
            f"{error.message}. Run the same command again"
        ) from error


async def settle(shards: Sequence[Shard]) -> None:
    """Open the shards that were left closed after the store was opened."""
    for shard in shards[1:]:
        status = shard.replica.status
        if status.closed is not None and shards[0].replica.status.closed is None:
            facts = await facts_now(shards[0])
            if facts.closed is None:
                await _put(shard, [put_facts(facts)], partial(_require_still, shard, status))


def _require_still(shard: Shard, status: ReplicaStatus) -> None:
    if shard.replica.status is not status:
        raise Busy(f"{shard.name} was closed again")


def _always() -> None:
    """Allow a message."""


async def _put(shard: Shard, changes: Sequence[Change], allow: Callable[[], None]) -> None:
    await shard.put(encode_load(changes), load_statements(changes), allow=allow)


def _size(held: Positioned) -> int:
    content = held.content
    return content.size if isinstance(content, Row) else len(content.detail or "")
