"""What monitoring looks up in a store: what namespaces hold and may hold, and what has piled up in them.

Law: nothing is written here and no rate is charged. What is read are rows that hold sums, so that a look
costs the same however much the store holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.audit import address_of, head_of
from holdfast.decide.entries import purpose_of
from holdfast.decide.letters import Held, letter_address
from holdfast.decide.policies import audited, policy_of
from holdfast.errors import DatabaseError
from holdfast.model import Policy, Stats, moment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.engine import Engine, Totals
    from holdfast.rows import Address, Row


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """What a namespace holds, what was asked of it, and whether its changes are recorded for ever."""

    stats: Stats
    policy: Policy
    audited: bool


class AuditEnd(msgspec.Struct, frozen=True, kw_only=True):
    """Where an audit ends: the number of its newest record, how many are kept, and the age of the newest.

    The number is 0 where there is no record, and where the head can't be read. `age` is None if there is no
    newest record.
    """

    number: int = 0
    kept: int = 0
    age: float | None = None


class Survey:
    """Looks into an engine.

    Args:
        engine: What to look into.
        now: The time to go by.
    """

    def __init__(self, engine: Engine, now: Callable[[], int]) -> None:
        self._engine = engine
        self._now = now

    async def holdings(self) -> list[Holding]:
        """Every namespace, by name."""
        return [
            Holding(
                stats=stats_of(totals),
                policy=policy_of(totals.namespace.policy),
                audited=audited(totals.namespace),
            )
            for totals in await self._engine.totals(self._now())
        ]

    async def purposes(self, addresses: Sequence[Address]) -> list[str | None]:
        """The purposes of the entries at these addresses, by position; None where there is none of either."""
        rows = await self._engine.read(addresses, self._now()) if addresses else []
        return [None if row is None else purpose_of(row.semantics) for row in rows]

    async def audit_ends(self, names: Sequence[str]) -> list[AuditEnd]:
        """Where the audits of these namespaces end, by position. Nothing is verified."""
        if not names:
            return []
        now = self._now()
        heads = [
            _readable(row) for row in await self._engine.read([address_of(name, 0) for name in names], now)
        ]
        newest = [address_of(name, end.number) for name, end in zip(names, heads, strict=True)]
        return [
            msgspec.structs.replace(end, age=(now - row.created_at) / 1000) if end.number and row else end
            for end, row in zip(heads, await self._engine.read(newest, now), strict=True)
        ]

    async def letters(self, names: Sequence[str]) -> list[int]:
        """How many dead letters these namespaces have, by position."""
        sums = [letter_address(name, 0) for name in names]
        return [_held(row) for row in await self._engine.read(sums, self._now())] if sums else []


def stats_of(totals: Totals) -> Stats:
    """What a namespace holds, less what is past its deadline."""
    namespace = totals.namespace
    return Stats(
        namespace=namespace.name,
        keys=namespace.keys - totals.due_keys,
        bytes=namespace.bytes - totals.due_bytes,
        version=namespace.revision,
        changed_at=moment(namespace.changed_at),
    )


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
