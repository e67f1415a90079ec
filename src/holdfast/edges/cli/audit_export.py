"""The audit outside its store: exports, and the heads that a service has logged.

Law: this module defines the format of an export. The same functions as for a store decide whether it is
intact.
"""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

import holdfast
from holdfast import rules
from holdfast.audit.chain import AuditRecord, Head, same
from holdfast.audit.results import AuditEntry
from holdfast.audit.verify import Break, Chain
from holdfast.clock import milliseconds
from holdfast.edges.cli.export_format import lines_of
from holdfast.edges.cli.output import file_trouble
from holdfast.operators.audit import noted_head
from holdfast.rows import Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from holdfast.audit.chain import SigningKeys

_LATER: Final = ("form", "principal")
"""Fields that records of earlier versions do not have."""
_HEAD: Final = re.compile(rb"audit head of ([a-z0-9_/-]+) is ([0-9]+:[0-9a-f]+)")


class Trail(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of an export: the namespace of the records and the time of the export."""

    holdfast_audit: int
    namespace: str
    exported_at: datetime

    def line(self) -> bytes:
        """Return the header as a line."""
        return msgspec.json.encode(self) + b"\n"


def record_line(record: AuditEntry) -> bytes:
    """Return a record as a line."""
    return msgspec.json.encode(record) + b"\n"


def heads_in(log: str) -> dict[str, list[str]]:
    """Return the heads in a log, by namespace."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for line in _lines(log, field="log"):
        for namespace, head in _HEAD.findall(line):
            found[namespace.decode()].append(head.decode())
    return found


class _Anchor(msgspec.Struct):
    namespace: str
    head: str


def anchors_in(given: Iterable[str]) -> dict[str, list[str]]:
    """Return the heads in anchors, by namespace.

    An anchor is a line that `audit anchor` printed, or a file of such lines. A head without a namespace
    belongs to the namespace of the command, which is "" here.
    """
    found: defaultdict[str, list[str]] = defaultdict(list)
    for one in given:
        lines = list(_lines(one, field="anchor")) if Path(one).is_file() else [one.encode()]
        for line in filter(bytes.strip, lines):
            namespace, head = _anchor(line.decode(errors="replace").strip(), one)
            found[namespace].append(head)
    return found


def merged(one: Mapping[str, Iterable[str]], other: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """Return the heads of both, by namespace."""
    return {name: [*one.get(name, ()), *other.get(name, ())] for name in {**one, **other}}


def _anchor(line: str, given: str) -> tuple[str, str]:
    try:
        if line.startswith("{"):
            said = msgspec.json.decode(line, type=_Anchor)
            namespace, head = said.namespace, said.head
        else:
            *names, head = line.split()
            namespace = names[0] if names else ""
        noted_head(head)
        return rules.namespace(namespace) if namespace else "", head
    except (msgspec.MsgspecError, RecursionError, holdfast.ValidationError):
        raise holdfast.ValidationError(
            f"{given[:100]!r} is neither a file nor a line that holdfast audit anchor printed", field="anchor"
        ) from None


def verify_trail(
    file: str, keys: SigningKeys, heads: Iterable[str], noted: Mapping[str, Iterable[str]]
) -> dict[str, holdfast.Verdict]:
    """Return whether an export is intact, by namespace.

    It must include all of `heads`. Heads noted for its namespace may be newer than the export.
    """
    lines = _lines(file, field="file")
    namespace = _trail(next(lines, b"")).namespace
    must = dict(map(noted_head, heads))
    known = dict(map(noted_head, noted.get(namespace, ()))) | must
    verdict = _verdict(namespace, keys, lines, known)
    last = int(verdict.head.partition(":")[0])
    if verdict.whole and any(number > last for number in must):
        reason = f"the export was cut off: there were {max(must)} records once"
        verdict = msgspec.structs.replace(verdict, whole=False, broken_at=last + 1, reason=reason)
    return {namespace: verdict}


def _verdict(
    namespace: str, keys: SigningKeys, lines: Iterable[bytes], known: Mapping[int, str]
) -> holdfast.Verdict:
    count = 0
    broken: Break | None = None
    chain = Chain(namespace, keys, Head(), after=0, anchor="")
    for position, line in enumerate(lines, start=2):
        record = _record(line, position)
        if not count:
            chain.number, chain.signature = record.number - 1, record.previous
        broken = chain.first_break([_stored(record)])
        number = chain.number
        if broken is None and not same(known.get(number, chain.signature), chain.signature):
            broken = Break(number=number, reason=f"record {number} is not the one that was noted")
        if broken is not None:
            break
        count += 1
    return holdfast.Verdict(
        whole=broken is None,
        records=count,
        head=f"{chain.number}:{chain.signature}",
        broken_at=None if broken is None else broken.number,
        reason=None if broken is None else broken.reason,
    )


def _stored(record: AuditRecord) -> tuple[bytes, Row]:
    """Return a record as a store holds it."""
    value = msgspec.json.encode(record)
    row = Row(value=value.decode(), size=len(value), version=0, created_at=record.at, updated_at=record.at)
    return record.number.to_bytes(8, "big"), row


def _lines(name: str, *, field: str) -> Iterator[bytes]:
    try:
        with Path(name).open("rb") as file:
            yield from lines_of(file, field=field)
    except OSError as error:
        raise file_trouble(error, name, field=field) from None


def _trail(line: bytes) -> Trail:
    try:
        return msgspec.json.decode(line, type=Trail)
    except (msgspec.MsgspecError, RecursionError):
        raise holdfast.ValidationError(
            "line 1 is not the header of an audit's export", field="file"
        ) from None


def _record(line: bytes, position: int) -> AuditRecord:
    try:
        entry = msgspec.json.decode(line, type=AuditEntry)
        if record_line(entry) != line.rstrip(b"\n") + b"\n":  # a field is repeated, or unknown
            raise msgspec.ValidationError
    except (msgspec.MsgspecError, RecursionError):
        raise holdfast.ValidationError(
            f"line {position} is not a record of the audit", field="file"
        ) from None
    fields = msgspec.structs.asdict(entry) | {"at": milliseconds(entry.at)}
    for name in _LATER:
        if fields[name] is None:
            fields[name] = msgspec.UNSET
    return AuditRecord(**fields)
