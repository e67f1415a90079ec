"""Comparison of stored data with the audit: every live entry and item must be as its last record left it.

The records are read first, then the stored rows. A row that does not match may have been changed meanwhile.
So the records added since are read too, and only discrepancies that they do not explain are reported.

Law: nothing is written here, and the audit itself is trusted: verify it first. A large namespace is compared
in shares, each small enough to be held in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zlib import crc32

import msgspec

from holdfast import rules
from holdfast.audit.chain import (
    AUDIT,
    REVEALED,
    ROTATED,
    address_of,
    hash_with,
    head_of,
    record_of,
    same,
)
from holdfast.audit.results import Compared, Discrepancy
from holdfast.decide.policies import audited
from holdfast.decide.schemas import schema_of
from holdfast.engine import Scan, service_of
from holdfast.errors import Unsupported
from holdfast.families import has_tables
from holdfast.rows import KV, TABLE
from holdfast.tables.images import item_name, table_prefix

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from holdfast.audit.chain import AuditRecord
    from holdfast.engine import Engine
    from holdfast.rows import Row

SHARE: Final = 50_000
"""Number of entries compared in one share."""
STEP: Final = 500
"""Number of records or rows read at a time."""
MOST: Final = 1_000
"""Largest number of discrepancies reported."""
ATTEMPTS: Final = 5
_ENDLESS: Final = 2**63


class _Last(NamedTuple):
    """The contents of a key's last record; `after` is None if that record ends the entry."""

    number: int
    version: int
    after: str | None
    signed_by: str


async def compare(engine: Engine, namespace: str, now: Callable[[], int]) -> Compared:
    """Compare the contents of a namespace with its audit.

    Raises:
        Unsupported: The storage is behind a service.
    """
    if service_of(engine) is not None:
        raise Unsupported(
            "a service does not compare values: run holdfast audit verify --values where the storage is, "
            "with the --url that the service uses; the service may keep running"
        )
    totals = await engine.totals(now(), namespace=namespace)
    keys = totals[0].namespace.keys if totals else 0
    on = bool(totals) and audited(totals[0].namespace)
    shares = 1 + max(0, keys) // SHARE
    parts = [await _Share(engine, namespace, now, share, shares, on=on).judged() for share in range(shares)]
    found = [one for part in parts for one in part.found]
    return Compared(
        whole=not found,
        entries=sum(part.entries for part in parts),
        unrecorded=sum(part.unrecorded for part in parts),
        expired=sum(part.expired for part in parts),
        found=sorted(found, key=lambda one: one.key)[:MOST],
    )


class _Share:
    """One share of the keys of a namespace."""

    def __init__(
        self, engine: Engine, namespace: str, now: Callable[[], int], share: int, shares: int, *, on: bool
    ) -> None:
        self._engine, self._namespace, self._now = engine, namespace, now
        self._share, self._shares, self._on = share, shares, on
        self._last: dict[str, _Last] = {}
        self._number = 0
        self._policy: int | None = None
        self._gaps: list[tuple[int, int]] = []
        self._begins: int | None = None
        self._counts = {"entries": 0, "unrecorded": 0, "expired": 0}

    async def judged(self) -> Compared:
        """Compare the entries of this share with their records."""
        await self._walk()
        wanted: set[str] | None = None
        for _ in range(ATTEMPTS):
            found = await self._look(wanted)
            moved = await self._walk()
            if not moved & found.keys():
                break
            wanted = set(found)
        told = [one for name, one in found.items() if name not in moved]
        return Compared(whole=not told, found=told, **self._counts)

    async def _look(self, wanted: set[str] | None) -> dict[str, Discrepancy]:
        """Return the discrepancies among the wanted keys, or among all keys of this share."""
        found: dict[str, Discrepancy] = {}
        seen: set[str] = set()
        now = self._now()
        async for name, row in self._rows():
            if not self._mine(name) or (wanted is not None and name not in wanted):
                continue
            seen.add(name)
            wrong = self._judge(name, row)
            if wrong is not None:
                found[name] = wrong
            elif row.expires_at is not None and row.expires_at <= now:
                self._counts["expired"] += 1
        for name, last in self._last.items():
            gone = last.after is not None and name not in seen and (wanted is None or name in wanted)
            if gone and not self._uncovered(last.version, _ENDLESS):
                reason = f"record {last.number} is its last, and it is not there"
                found[name] = Discrepancy(key=name, what="deleted", number=last.number, reason=reason)
        return found

    def _judge(self, name: str, row: Row) -> Discrepancy | None:
        """Return what is wrong with an existing row, or None."""
        last = self._last.get(name)
        if last is None or last.after is None:
            return self._unrecorded(name, row, last)
        secret = self._engine.keys.secret(last.signed_by)
        known = secret is not None and same(hash_with(secret, row.value or ""), last.after)
        if known and row.version == last.version:
            self._counts["entries"] += 1
            return None
        if self._uncovered(row.version - 1, row.version + 1):
            self._counts["unrecorded"] += 1
            return None
        what = f"its version is {row.version}, not {last.version}" if known else "its value is another"
        reason = f"record {last.number} is its last, and {what}"
        return Discrepancy(key=name, what="changed", number=last.number, reason=reason)

    def _unrecorded(self, name: str, row: Row, last: _Last | None) -> Discrepancy | None:
        begins = (1 if self._on else _ENDLESS) if self._begins is None else self._begins
        older = last is None and 0 < row.version < begins
        if older or self._uncovered(row.version - 1, row.version + 1):
            self._counts["unrecorded"] += 1
            return None
        reason = "no record tells of it" if last is None else f"record {last.number} tells of its end"
        return Discrepancy(key=name, what="inserted", number=last and last.number, reason=reason)

    def _uncovered(self, since: int, until: int) -> bool:
        """Return True if the audit was off at a version between these two."""
        off = [] if self._on or self._policy is None else [(self._policy, _ENDLESS)]
        return any(begin < until - 1 and end > since + 1 for begin, end in [*self._gaps, *off])

    async def _walk(self) -> set[str]:
        """Read the records that were not read yet. Returns the keys that they mention."""
        moved: set[str] = set()
        more = True
        while more:
            query = Scan(
                namespace=self._namespace,
                space=AUDIT,
                start=address_of(self._namespace, self._number + 1).key,
                limit=STEP,
                max_bytes=2 * rules.MAX_TRANSFER_BYTES,
                values=True,
            )
            page = await self._engine.scan(query, self._now())
            for row in page.rows:
                moved |= self._learn(record_of(row))
            more = page.more
        if self._begins is None:
            [head] = await self._engine.read([address_of(self._namespace, 0)], self._now())
            version = head_of(head).version
            self._begins = version + 1 if isinstance(version, int) else None
        return moved

    def _learn(self, record: AuditRecord) -> set[str]:
        self._number = record.number
        if record.op == ROTATED:
            return set()
        if self._begins is None:
            self._begins = record.version
        if record.op == "policy":
            if self._policy is not None and record.version - self._policy > 1:
                self._gaps.append((self._policy, record.version))
            self._policy = record.version
            return set()
        self._policy = None
        if record.op == "table_dropped":
            gone = {name for name in self._last if name.startswith(table_prefix(record.key))}
            for name in gone:
                del self._last[name]
            return gone
        name = _plain(record.key) if self._of_tables else record.key
        if record.op == REVEALED or record.op.startswith(("table_", "index_")) or not self._mine(name):
            return set()
        self._last[name] = _Last(record.number, record.version, record.after, record.signed_by)
        return {name}

    async def _rows(self) -> AsyncIterator[tuple[str, Row]]:
        """Yield every stored row, also overdue ones, by the name that records use for it."""
        if not self._of_tables:
            async for key, row in self._scan(KV, ""):
                yield key, row
            return
        tables = [schema_of(row.value or "") async for _, row in self._scan(TABLE, b"")]
        for schema in tables:
            async for _, row in self._scan(schema.item_space, b""):
                yield _plain(item_name(schema, msgspec.json.decode(row.value or ""))), row

    async def _scan(self, space: str, start: str | bytes) -> AsyncIterator[tuple[Any, Row]]:
        after: Any = None
        more = True
        while more:
            query = Scan(
                namespace=self._namespace,
                space=space,
                start=start,
                after=after,
                limit=STEP,
                max_bytes=2 * rules.MAX_TRANSFER_BYTES,
                values=True,
            )
            page = await self._engine.scan(query, 0)
            for key, row in zip(page.keys, page.rows, strict=True):
                after = key
                yield key, row
            more = page.more

    @property
    def _of_tables(self) -> bool:
        return has_tables(self._namespace)

    def _mine(self, name: str) -> bool:
        return self._shares == 1 or crc32(name.encode("utf-8", "replace")) % self._shares == self._share


def _plain(name: str) -> str:
    """Return the name of an item in one canonical spelling: 1 and 1.0 are the same key."""
    table, _, key = name.partition(":")
    values = map(_whole, msgspec.json.decode(key or "[]"))
    return table_prefix(table) + msgspec.json.encode(list(values)).decode()


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value
