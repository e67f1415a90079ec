"""Reading the audit: who changed what, and whether the record is complete and unaltered.

Law: nothing is written here. A service reads and verifies for its clients, because it has the keys. Both work
on one part at a time, so that a long audit needs no more memory than a short one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast import rules
from holdfast.audit.chain import (
    AUDIT,
    REMOVED,
    Head,
    address_of,
    head_behind,
    head_of,
    number_of,
    record_of,
    same,
)
from holdfast.audit.results import AuditEntry, AuditPage, AuditPart, Verdict
from holdfast.audit.verify import Break, Chain, head_break
from holdfast.clock import moment
from holdfast.decide.policies import audited
from holdfast.engine import Scan, ends_of, service_of
from holdfast.errors import DatabaseError, ValidationError
from holdfast.operators.audit_values import compare
from holdfast.pipeline.audits import unlike

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from holdfast.audit.chain import AuditRecord
    from holdfast.audit.results import Compared
    from holdfast.engine import Engine, Scanned
    from holdfast.rows import Namespace

STEP: Final = 500
"""Number of records read at a time."""
PART: Final = 10_000
"""Number of records examined in one part."""
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
    since: int | None = None
    until: int | None = None


class Audit:
    """The audit of one namespace, for operators. Get it from `Store.audit`."""

    def __init__(self, engine: Engine, namespace: str, now: Callable[[], int]) -> None:
        self._engine = engine
        self._namespace = namespace
        self._now = now

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
        if (service := service_of(self._engine)) is not None:
            return msgspec.convert(
                await service.operator("audit", _fields(self._namespace, query)), AuditPage
            )
        records: list[AuditEntry] = []
        last, looked, room = query.after, 0, rules.MAX_TRANSFER_BYTES
        everything = query == AuditQuery(after=query.after, limit=query.limit, reverse=query.reverse)
        step = min(STEP, query.limit + 1) if everything else STEP
        while looked < PART:
            found = await self._scan(last, step, reverse=query.reverse)
            for key, row in zip(found.keys, found.rows, strict=True):
                record = record_of(row)
                fits = _fits(record, query)
                room -= row.size + _SPELLING if fits else 0
                if len(records) == query.limit or (records and room < 0):
                    return AuditPage(records=records, next=last)
                last = number_of(key)
                looked += 1
                if fits:
                    records.append(_entry(record))
            if not found.more:
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
        if (service := service_of(self._engine)) is not None:
            fields = {"namespace": self._namespace, "after": after, "anchor": anchor}
            return msgspec.convert(await service.operator("audit_verify", fields), AuditPart)
        head, broken = await self._head()
        number, signature = (after, anchor) if after > head.floor else (head.floor, head.anchor)
        chain = Chain(self._namespace, self._engine.keys, head, after=number, anchor=signature)
        more = broken is None
        for _ in range(PART // STEP if more else 0):
            found = await self._scan(chain.number, STEP)
            broken = chain.first_break(zip(found.keys, found.rows, strict=True))
            more = found.more and broken is None
            if not more:
                break
        number, signature = chain.number, chain.signature
        if broken is None and not more:
            broken = await self._ended(head, number, signature) or await self._changed_outside()
        if broken is not None and (pruned := await self._pruned_past(number)) is not None:
            return AuditPart(number=pruned.floor, signature=pruned.anchor, floor=pruned.floor, complete=False)
        return AuditPart(
            number=number,
            signature=signature,
            floor=head.floor,
            complete=not more,
            broken_at=None if broken is None else broken.number,
            reason=None if broken is None else broken.reason,
        )

    async def _pruned_past(self, number: int) -> Head | None:
        """Return the head if the records after this number were pruned while they were being read."""
        head, broken = await self._head()
        return head if broken is None and head.floor > number else None

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
            found = await self._engine.totals(self._now(), namespace=self._namespace)
            namespace = found[0].namespace if found else None
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
        "since": None if query.since is None else moment(query.since),
        "until": None if query.until is None else moment(query.until),
    }


def _entry(record: AuditRecord) -> AuditEntry:
    fields = msgspec.structs.asdict(record)
    form, principal = (None if one is msgspec.UNSET else one for one in (record.form, record.principal))
    return AuditEntry(**fields | {"at": moment(record.at), "form": form, "principal": principal})


def _fits(record: AuditRecord, query: AuditQuery) -> bool:
    return (
        record.key.startswith(query.prefix)
        and query.writer in (None, record.writer)
        and query.op in (None, record.op)
        and query.purpose in (None, record.purpose)
        and query.request_id in (None, record.request_id)
        and (query.since is None or record.at >= query.since)
        and (query.until is None or record.at < query.until)
    )
