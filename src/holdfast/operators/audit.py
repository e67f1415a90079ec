"""Reading the audit: who changed what, and whether the record is complete and unaltered.

Nothing is written here. A service reads and verifies for its clients, because it has the keys. Both work on
one part at a time, so that a long audit needs no more memory than a short one.

The values of a namespace can also be compared with its audit: every live entry and item must be as its last
record left it. The records are read first, then the stored rows. A row that does not match may have been
changed meanwhile. So the records added since are read too, and only discrepancies that they do not explain
are reported.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from datetime import datetime
from typing import Any, Final, NamedTuple
from zlib import crc32

import msgspec

from holdfast import rules
from holdfast.audit.chain import (
    AUDIT,
    REMOVED,
    REVEALED,
    ROTATED,
    AuditRecord,
    Head,
    address_of,
    hash_with,
    head_behind,
    head_of,
    number_of,
    record_of,
    same,
)
from holdfast.audit.results import AuditEntry, AuditPage, AuditPart, Compared, Discrepancy, Verdict
from holdfast.audit.verify import Break, Chain, head_break
from holdfast.clock import moment
from holdfast.decide.policies import audited
from holdfast.decide.schemas import schema_of
from holdfast.engine import Engine, Scan, Scanned, ends_of, rows_of
from holdfast.errors import DatabaseError, Unsupported, ValidationError
from holdfast.families import has_tables
from holdfast.pipeline.audits import unlike
from holdfast.pipeline.caller import Caller, Service
from holdfast.rows import KV, TABLE, Namespace, Row
from holdfast.tables.items import item_name, table_prefix

STEP: Final = 500
"""Number of records read at a time."""
PART: Final = 10_000
"""Number of records examined in one part."""
SHARE: Final = 50_000
"""Number of entries compared in one share."""
MOST: Final = 1_000
"""Largest number of discrepancies reported."""
ATTEMPTS: Final = 5
_ENDLESS: Final = 2**63
_SPELLING: Final = 32
"""Bytes by which a record in a reply may be longer than in storage."""


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A query of an audit: records after number `after` that match all the other fields.

    With `reverse` the newest come first, and `after` excludes records from that number on; 0 excludes none.
    """

    after: int = 0
    reverse: bool = False
    limit: int
    prefix: str = ""
    writer: str | None = None
    op: str | None = None
    purpose: str | None = None
    request_id: str | None = None
    trace_id: str | None = None
    since: int | None = None
    until: int | None = None


class Audit:
    """The audit of one namespace, for operators. Get it from `Store.audit`."""

    def __init__(self, store: Caller, namespace: str) -> None:
        self._store = store
        self._namespace = namespace
        self._now = store.now

    @property
    def _engine(self) -> Engine:
        return self._store.require_engine()

    async def log(
        self,
        *,
        after: int = 0,
        limit: int | None = None,
        reverse: bool = False,
        prefix: str = "",
        writer: str | None = None,
        op: str | None = None,
        purpose: str | None = None,
        request_id: str | None = None,
        trace_id: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
    ) -> AuditPage:
        """Read records in their order, or the newest first. Only those that match all arguments are returned.

        A page may hold fewer records than `limit`, or none, and still not be the last one: the audit
        continues as long as `next` is not None.

        Args:
            after: Number of the record after which to begin, such as the `next` of the page before.
            limit: Largest number of records, from 1 to 10,000; 1,000 if not given.
            reverse: Whether to begin with the newest record and go on towards older ones.
            prefix: The beginning of the keys.
            writer: Name of the writer.
            op: What happened, such as `set`.
            purpose: The purpose in the entry's semantics.
            request_id: The id of the request.
            trace_id: The id of the trace that the request belongs to.
            since: Time of the earliest record, as a `datetime` or ISO 8601 text; UTC if it has no zone.
            until: Time before which the records were made.

        Returns:
            A page of records.

        Raises:
            ValidationError: An argument breaks its rule.

        Example:
            `page = await store.audit("kv/trivia").log(prefix="game:", op="deleted")`
        """
        query = AuditQuery(
            after=rules.version(after, field="after"),
            limit=rules.limit(limit),
            reverse=rules.boolean(reverse, field="reverse"),
            prefix=rules.prefix(prefix),
            writer=None if writer is None else rules.identity(writer, field="writer"),
            op=None if op is None else rules.identity(op, field="op"),
            purpose=None if purpose is None else rules.identity(purpose, field="purpose"),
            request_id=None if request_id is None else rules.identity(request_id, field="request_id"),
            trace_id=None if trace_id is None else rules.identity(trace_id, field="trace_id"),
            since=None if since is None else rules.time(since, field="since"),
            until=None if until is None else rules.time(until, field="until"),
        )
        return await self.page(query)

    async def page(self, query: AuditQuery) -> AuditPage:
        """Read records in their order, as `log`.

        Args:
            query: Which records, with arguments that were checked.

        Returns:
            A page of records.
        """
        if isinstance(self._store, Service):
            reply = await self._store.operator("audit", _fields(self._namespace, query))
            return msgspec.convert(reply, AuditPage)
        records: list[AuditEntry] = []
        last, looked, room = query.after, 0, rules.MAX_TRANSFER_BYTES
        everything = query == AuditQuery(after=query.after, limit=query.limit, reverse=query.reverse)
        step = min(STEP, query.limit + 1) if everything else STEP
        while looked < PART:
            scanned = await self._scan(last, step, reverse=query.reverse)
            for key, row in zip(scanned.keys, scanned.rows, strict=True):
                record = record_of(row)
                fits = _fits(record, query)
                room -= row.size + _SPELLING if fits else 0
                if len(records) == query.limit or (records and room < 0):
                    return AuditPage(records=records, next=last)
                last = number_of(key)
                looked += 1
                if fits:
                    records.append(_entry(record))
            if not scanned.more:
                return AuditPage(records=records, next=None)
        return AuditPage(records=records, next=last)

    async def verify(self, *, heads: Iterable[str] = ()) -> Verdict:
        """Verify that every record is there, unchanged and in its place, from the oldest to the head.

        The namespace must still have its row, and its policy must ask for the audit that was last set through
        Holdfast.

        Args:
            heads: Heads that were noted earlier, as `number:signature`, such as the log has now and then. An
                audit that does not lead to them has been cut off or replaced by another.

        Returns:
            Whether the audit is whole, and if not, where and why.

        Raises:
            ValidationError: One of the heads does not have this form.
        """
        noted = sorted(set(map(noted_head, heads)))
        part = await self.verify_part(after=0, anchor="")
        while not part.complete:
            part = await self.verify_part(after=part.number, anchor=part.signature)
        broken_at, reason = part.broken_at, part.reason
        if reason is None:
            broken_at, reason = await self._compared(noted, part.floor, part.number)
        return Verdict(
            whole=reason is None,
            records=part.number - part.floor,
            head=f"{part.number}:{part.signature}",
            broken_at=broken_at,
            reason=reason,
        )

    async def verify_values(self) -> Compared:
        """Compare every live entry and item with its last record. Verify the audit itself first.

        Returns:
            The entries and items that differ.

        Raises:
            Unsupported: The storage is behind a service.
        """
        if isinstance(self._store, Service):
            raise Unsupported(
                "a service does not compare values: run holdfast audit verify --values where the storage is, "
                "with the --url that the service uses; the service may keep running"
            )
        return await compare(self._engine, self._namespace, self._now)

    async def verify_part(self, *, after: int, anchor: str) -> AuditPart:
        """Verify a part of the audit.

        Args:
            after: Number of the record after which to begin; 0 is the beginning.
            anchor: Signature of that record.

        Returns:
            Where the part ends, and what is wrong with it.

        Raises:
            ValidationError: The anchor is not text.
        """
        anchor = rules.anchor(anchor)
        if isinstance(self._store, Service):
            fields = {"namespace": self._namespace, "after": after, "anchor": anchor}
            return msgspec.convert(await self._store.operator("audit_verify", fields), AuditPart)
        head, broken = await self._head()
        number, signature = (after, anchor) if after > head.floor else (head.floor, head.anchor)
        chain = Chain(self._namespace, self._engine.keys, head, after=number, anchor=signature)
        more = broken is None
        for _ in range(PART // STEP if more else 0):
            scanned = await self._scan(chain.number, STEP)
            broken = chain.first_break(zip(scanned.keys, scanned.rows, strict=True))
            more = scanned.more and broken is None
            if not more:
                break
        number, signature = chain.number, chain.signature
        if broken is None and not more:
            broken = await self._ended(head, number, signature) or await self._changed_outside()
        if broken is not None and (rest := await self._moved_on(head, number, signature)) is not None:
            return rest
        return AuditPart(
            number=number,
            signature=signature,
            floor=head.floor,
            complete=not more,
            broken_at=None if broken is None else broken.number,
            reason=None if broken is None else broken.reason,
        )

    async def _moved_on(self, head: Head, number: int, signature: str) -> AuditPart | None:
        """Return where to go on if records were pruned meanwhile, or a new key has begun to sign."""
        newer, broken = await self._head()
        if broken is not None or (newer.floor <= number and newer.keys == head.keys):
            return None
        if newer.floor > number:
            number, signature = newer.floor, newer.anchor
        return AuditPart(number=number, signature=signature, floor=newer.floor, complete=False)

    async def _head(self) -> tuple[Head, Break | None]:
        """Return the head and what is wrong with it. A removed head is derived from the records left."""
        [row] = await self._engine.read([address_of(self._namespace, 0)], self._now())
        if row is None and (ends := await ends_of(self._engine.scan, self._namespace, AUDIT)) is not None:
            [row] = await self._engine.read([address_of(self._namespace, 0)], self._now())
            if row is None:
                try:
                    return head_behind(self._namespace, ends, REMOVED), None
                except DatabaseError as error:
                    return Head(), Break(number=0, reason=error.message)
        broken = head_break(self._namespace, self._engine.keys, row)
        return (head_of(row), None) if broken is None else (Head(), broken)

    async def _ended(self, head: Head, number: int, signature: str) -> Break | None:
        """Return what is wrong at the end of the records, which may have grown since the head was read."""
        if number > head.number:
            head, broken = await self._head()
            if broken is not None or head.number > number:
                return broken
        if head.last == REMOVED and not head.signed_by:
            return Break(number=number, reason="the head was removed")
        if number < head.number:
            return Break(number=number + 1, reason=f"record {number + 1} was removed, and all after it")
        if number != head.number or not same(signature, head.last):
            return Break(number=number, reason=f"the head does not lead to record {number}")
        return None

    async def _changed_outside(self) -> Break | None:
        """Return what was changed with SQL in the namespace's row, which holds its policy."""
        while True:
            head, _ = await self._head()
            totals = await self._engine.totals(self._now(), namespace=self._namespace)
            namespace = totals[0].namespace if totals else None
            reason = unlike(head, namespace) or await self._ended_unasked(head, namespace)
            if reason is None:
                return None
            if (await self._head())[0] == head:  # no policy was set between the two reads
                return Break(number=head.number, reason=reason)

    async def _ended_unasked(self, head: Head, namespace: Namespace | None) -> str | None:
        """Detect an audit that was switched off outside Holdfast, where the head does not say.

        Holdfast would have left a record of the policy as the last one.
        """
        if head.audited is not msgspec.UNSET or namespace is None or audited(namespace):
            return None
        [row] = await self._engine.read([address_of(self._namespace, head.number)], self._now())
        if not head.number or row is None or record_of(row).op == "policy":
            return None
        return "the audit was switched off outside Holdfast"

    async def _compared(
        self, noted: list[tuple[int, str]], floor: int, last: int
    ) -> tuple[int, str] | tuple[None, None]:
        """Compare an audit that is consistent in itself with the heads that were noted earlier."""
        for number, signature in noted:
            if number > last:
                return last + 1, f"the audit was cut off: it had {number} records once"
            if number > floor:
                page = await self.page(AuditQuery(after=number - 1, limit=1))
                if not page.records or not same(page.records[0].signature, signature):
                    return number, f"record {number} is not the one that was noted"
        return None, None

    async def _scan(self, after: int, limit: int, *, reverse: bool = False) -> Scanned:
        query = Scan(
            namespace=self._namespace,
            space=AUDIT,
            start=address_of(self._namespace, 1 if reverse else after + 1).key,
            after=address_of(self._namespace, after).key if reverse and after else None,
            reverse=reverse,
            limit=limit,
            max_bytes=2 * rules.MAX_TRANSFER_BYTES,
            values=True,
        )
        return await self._engine.scan(query, self._now())


def noted_head(head: str) -> tuple[int, str]:
    """Return the number and the signature in a head that was noted as `number:signature`.

    Raises:
        ValidationError: The text does not have this form.
    """
    number, _, signature = head.partition(":")
    if not number.isdecimal() or not signature:
        raise ValidationError("a head is a number, a colon and a signature", field="heads")
    return int(number), signature


def _fields(namespace: str, query: AuditQuery) -> dict[str, Any]:
    """Return the fields with which a service is asked for records."""
    return {
        "namespace": namespace,
        "after": query.after,
        "limit": query.limit,
        "reverse": query.reverse or None,
        "prefix": query.prefix,
        "last_writer": query.writer,
        "op": query.op,
        "purpose": query.purpose,
        "request_id": query.request_id,
        "trace_id": query.trace_id,
        "since": None if query.since is None else moment(query.since),
        "until": None if query.until is None else moment(query.until),
    }


def _entry(record: AuditRecord) -> AuditEntry:
    fields = msgspec.structs.asdict(record)
    known: dict[str, Any] = {
        name: None if field is msgspec.UNSET else field for name, field in fields.items()
    }
    return AuditEntry(**known | {"at": moment(record.at)})


def _fits(record: AuditRecord, query: AuditQuery) -> bool:
    return (
        record.key.startswith(query.prefix)
        and query.writer in (None, record.writer)
        and query.op in (None, record.op)
        and query.purpose in (None, record.purpose)
        and query.request_id in (None, record.request_id)
        and query.trace_id in (None, record.trace_id)
        and (query.since is None or record.at >= query.since)
        and (query.until is None or record.at < query.until)
    )


class _Last(NamedTuple):
    """The contents of a key's last record; `after` is None if that record ends the entry."""

    number: int
    version: int
    after: str | None
    signed_by: str


async def compare(engine: Engine, namespace: str, now: Callable[[], int]) -> Compared:
    """Compare the contents of a namespace with its audit."""
    totals = await engine.totals(now(), namespace=namespace)
    keys = totals[0].namespace.keys if totals else 0
    on = bool(totals) and audited(totals[0].namespace)
    shares = 1 + max(0, keys) // SHARE
    parts = [await _Share(engine, namespace, now, share, shares, on=on).judged() for share in range(shares)]
    discrepancies = [one for part in parts for one in part.found]
    return Compared(
        whole=not discrepancies,
        entries=sum(part.entries for part in parts),
        unrecorded=sum(part.unrecorded for part in parts),
        expired=sum(part.expired for part in parts),
        found=sorted(discrepancies, key=lambda one: one.key)[:MOST],
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
        names: set[str] | None = None
        for _ in range(ATTEMPTS):
            suspected = await self._look(names)
            moved = await self._walk()
            if not moved & suspected.keys():
                break
            names = set(suspected)
        discrepancies = [one for name, one in suspected.items() if name not in moved]
        return Compared(whole=not discrepancies, found=discrepancies, **self._counts)

    async def _look(self, wanted: set[str] | None) -> dict[str, Discrepancy]:
        """Return the discrepancies among the wanted keys, or among all keys of this share."""
        discrepancies: dict[str, Discrepancy] = {}
        seen: set[str] = set()
        now = self._now()
        async for name, row in self._rows():
            if not self._mine(name) or (wanted is not None and name not in wanted):
                continue
            seen.add(name)
            wrong = self._judge(name, row)
            if wrong is not None:
                discrepancies[name] = wrong
            elif row.expires_at is not None and row.expires_at <= now:
                self._counts["expired"] += 1
        for name, last in self._last.items():
            gone = last.after is not None and name not in seen and (wanted is None or name in wanted)
            if gone and not self._uncovered(last.version, _ENDLESS):
                reason = f"record {last.number} is its last, and it is not there"
                discrepancies[name] = Discrepancy(key=name, what="deleted", number=last.number, reason=reason)
        return discrepancies

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
        async for _, row in self._scan(AUDIT, address_of(self._namespace, self._number + 1).key):
            moved |= self._learn(record_of(row))
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
            async for key, row in self._scan(KV):
                yield key, row
            return
        tables = [schema_of(row.value or "") async for _, row in self._scan(TABLE)]
        for schema in tables:
            async for _, row in self._scan(schema.item_space):
                yield _plain(item_name(schema, msgspec.json.decode(row.value or ""))), row

    def _scan(self, space: str, start: str | bytes | None = None) -> AsyncIterator[tuple[Any, Row]]:
        return rows_of(
            lambda query: self._engine.scan(query, 0), self._namespace, space, start=start, step=STEP
        )

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
