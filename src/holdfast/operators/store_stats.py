"""Numbers for monitoring: contents and limits of namespaces, and their backlogs.

Nothing is written here, and no rate is charged. Only rows that hold sums are read, so that the cost does not
grow with the contents of a namespace.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

import msgspec

from holdfast import rules
from holdfast.audit.chain import address_of, head_of
from holdfast.cursors import cursor_after, last_seen
from holdfast.decide.letters import Held, letter_address
from holdfast.decide.policies import audited, policy_of, quota_of, settled_bytes
from holdfast.engine import ClusterFigures, Engine, SharedStorage, Totals
from holdfast.errors import DatabaseError
from holdfast.model import Policy, Stats
from holdfast.pipeline.caller import Caller, Service
from holdfast.pipeline.pipeline import stats_of
from holdfast.rows import SYSTEM, Address, Row
from holdfast.stored import purpose_of

PART: Final = 50
"""Number of namespaces or entries read at a time, since an engine may block the event loop meanwhile."""

STATS_BYTES: Final = 1_024
"""Bytes that a namespace may take in a reply: a name of at most 136 characters, and 14 numbers."""


class AuditEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of an audit: the number of its newest record, the number of records kept, and the newest's age.

    The number is 0 if there is no record or the head cannot be read. `age` is None if there is no newest
    record.
    """

    number: int = 0
    kept: int = 0
    age: float | None = None


class NamespaceFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The contents and the policy of a namespace, its dead letters, and its audit if it has one.

    `quota_bytes` is the quota of its policy, or the default. `settled_bytes` counts the kept bytes that would
    not be removed before that quota refuses.
    """

    stats: Stats
    policy: Policy
    quota_bytes: int | None
    settled_bytes: int
    letters: int
    audit: AuditEnd | None


class StatsPage(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of some namespaces, by name. `cursor` continues the list and is None at the end."""

    namespaces: list[Stats]
    cursor: str | None


class StoreStats:
    """Reads monitoring numbers from an engine.

    Args:
        engine: The engine.
        now: Returns the store's time.
    """

    def __init__(self, engine: Engine, now: Callable[[], int]) -> None:
        self._engine = engine
        self._now = now

    async def namespaces(self) -> AsyncIterator[list[NamespaceFigures]]:
        """Yield every namespace, by name, in parts. Other tasks get their turn between parts."""
        totals = await self._totals()
        for start in range(0, len(totals), PART):
            yield await self._figures(totals[start : start + PART])
            await asyncio.sleep(0)

    def cluster(self) -> ClusterFigures | None:
        """Return what this node knows of its cluster; None if the store is not part of one."""
        return self._engine.figures() if isinstance(self._engine, SharedStorage) else None

    async def page(self, *, limit: object = None, cursor: object = None) -> StatsPage:
        """Return the numbers of as many namespaces as fit one reply."""
        most = rules.limit(limit)
        after = "" if cursor is None else last_seen(cursor, "")
        rest = [totals for totals in await self._totals() if totals.namespace.name > after]
        part = rest[: min(most, rules.MAX_TRANSFER_BYTES // STATS_BYTES)]
        more = len(part) < len(rest)
        return StatsPage(
            namespaces=[stats_of(totals.namespace.name, totals) for totals in part],
            cursor=cursor_after(part[-1].namespace.name) if more else None,
        )

    async def purposes(self, addresses: Sequence[Address]) -> AsyncIterator[list[tuple[Address, str | None]]]:
        """Yield these addresses in parts, each with the purpose of its entry or None."""
        for start in range(0, len(addresses), PART):
            part = addresses[start : start + PART]
            rows = await self._engine.read(part, self._now())
            yield [
                (address, None if row is None else purpose_of(row.semantics))
                for address, row in zip(part, rows, strict=True)
            ]
            await asyncio.sleep(0)

    async def _totals(self) -> list[Totals]:
        """Return the totals of all namespaces but those of the store itself."""
        every = await self._engine.totals(self._now())
        return [totals for totals in every if not totals.namespace.name.startswith(SYSTEM)]

    async def _figures(self, part: list[Totals]) -> list[NamespaceFigures]:
        sums = await self._engine.read(
            [letter_address(totals.namespace.name, 0) for totals in part], self._now()
        )
        watched = [totals.namespace.name for totals in part if audited(totals.namespace)]
        ends = await self._audit_ends(watched)
        return [
            NamespaceFigures(
                stats=stats_of(totals.namespace.name, totals),
                policy=policy_of(totals.namespace.policy),
                quota_bytes=quota_of(totals.namespace, self._engine.defaults),
                settled_bytes=settled_bytes(totals.namespace),
                letters=_held(row),
                audit=ends.get(totals.namespace.name),
            )
            for totals, row in zip(part, sums, strict=True)
        ]

    async def _audit_ends(self, names: list[str]) -> dict[str, AuditEnd]:
        """Return the ends of these namespaces' audits. Nothing is verified."""
        if not names:
            return {}
        now = self._now()
        heads = await self._engine.read([address_of(name, 0) for name in names], now)
        ends = dict(zip(names, map(_readable, heads), strict=True))
        newest = await self._engine.read([address_of(name, end.number) for name, end in ends.items()], now)
        for (name, end), row in zip(list(ends.items()), newest, strict=True):
            if end.number and row is not None:
                ends[name] = msgspec.structs.replace(end, age=(now - row.created_at) / 1000)
        return ends


async def stats_of_all(store: Caller) -> list[Stats]:
    """Return the numbers of all namespaces, ordered by name."""
    if not isinstance(store, Service):
        every = await store.require_engine().totals(store.now())
        named = [totals for totals in every if not totals.namespace.name.startswith(SYSTEM)]
        return [stats_of(totals.namespace.name, totals) for totals in named]
    stats: list[Stats] = []
    fields: dict[str, Any] = {"limit": rules.MAX_LIMIT}
    while True:
        page = await store.operator("namespaces", fields)
        stats += msgspec.convert(page["namespaces"], list[Stats])
        if page["cursor"] is None:
            return stats
        fields["cursor"] = page["cursor"]


def _held(row: Row | None) -> int:
    try:
        return 0 if row is None else msgspec.json.decode(row.value or "", type=Held).count
    except msgspec.DecodeError:
        return 0


def _readable(row: Row | None) -> AuditEnd:
    try:
        head = head_of(row)
    except DatabaseError:
        return AuditEnd()
    return AuditEnd(number=head.number, kept=head.number - head.floor)
