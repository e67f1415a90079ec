"""`holdfast audit`: the record of changes, and the check that it is intact.

`holdfast.audit` defines what a record is and when it is broken. The same functions verify what
`audit log --json` has printed, without the store.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import msgspec
from cyclopts import Group, Parameter

import holdfast
from holdfast import rules
from holdfast.audit.chain import AuditRecord, Head, SigningKeys, same
from holdfast.audit.keyring import FileKeyring, add_key
from holdfast.audit.results import AuditEntry, AuditPage
from holdfast.audit.verify import Break, Chain
from holdfast.clock import milliseconds, moment
from holdfast.edges.cli.options import FullName, Whole, require_from_one
from holdfast.edges.cli.output import (
    ERROR,
    OK,
    document,
    document_text,
    file_trouble,
    line,
    lines_of,
    opened_input,
    records,
    say,
    shown_key,
)
from holdfast.edges.cli.schema import BASE, schema_of
from holdfast.edges.cli.target import HERE, STORE, Place, Target
from holdfast.engines.sql.migrate import Need, needed
from holdfast.operators.audit import noted_head
from holdfast.registry import engine_for, is_service
from holdfast.rows import Row

LIMIT: Final = 1_000
NOTHING: Final[Mapping[str, holdfast.Compared]] = {}
_UNSET: Final = ("form", "principal", "trace_id")
"""Fields that not every record has."""
_HEAD: Final = re.compile(rb"audit head of ([a-z0-9_/-]+) is ([0-9]+:[0-9a-f]+)")
_COLUMNS: Final = "number time=at op version key writer purpose request=request_id"


@Parameter(name="*", group=Group("Records", sort_key=5))
@dataclass(frozen=True, kw_only=True)
class RecordFilters:
    """The filters for records; all that are given must match."""

    prefix: Annotated[str, Parameter(name="--key")] = ""
    """Only records of keys with this prefix."""

    writer: str | None = None
    """Only changes that this writer made."""

    op: str | None = None
    """Only changes of this kind: set, deleted, expired, restored or policy."""

    purpose: str | None = None
    """Only records of entries with this purpose."""

    request_id: str | None = None
    """Only records of this request."""

    trace_id: str | None = None
    """Only records of requests that belong to this trace."""

    since: str | None = None
    """Only changes from this time on, such as 2031-05-01T12:30:00Z."""

    until: str | None = None
    """Only changes before this time."""


ANY: Final = RecordFilters()


async def log(
    namespace: FullName = None,
    /,
    *,
    after: Whole = 0,
    limit: Whole = LIMIT,
    everything: Annotated[bool, Parameter(name="--all")] = False,
    reverse: bool = False,
    filters: RecordFilters = ANY,
    target: Target = HERE,
) -> None:
    """Print records in order: number, time, operation, version, key, writer, purpose and request.

    With `--json` each record is one line with all its fields, hashes and signature. A file with all of these
    lines can be verified later, without the store: `audit verify --file`.

    Parameters
    ----------
    after
        Start after the record with this number.
    limit
        Return at most this many; 1000 if not given.
    everything
        All records, whatever the limit.
    reverse
        Begin with the newest record; --after then goes on before the record with this number.
    """
    require_from_one(limit, "limit")
    count, more = 0, None
    async with target.look(keys=True) as store:
        name = target.namespace(store, namespace)
        most = None if everything else limit
        async for page in _pages(store, name, filters, after, most, reverse=reverse):
            count, more = count + len(page.records), page.next
            if target.json:
                for record in page.records:
                    document(record)
            elif page.records:
                records(_COLUMNS, page.records)
    if more is not None and count == limit and not everything:
        say(f"there may be more: --all shows everything, --after {more} continues")


async def verify(
    namespace: FullName = None,
    /,
    *,
    head: tuple[str, ...] = (),
    anchor: tuple[str, ...] = (),
    log: str | None = None,
    file: str | None = None,
    values: bool = False,
    target: Target = HERE,
) -> int:
    """Verify that every record exists, unchanged and in its place; if not, the exit code is 1.

    Without a namespace all audits of a store are verified, even if the row of a namespace is gone. The policy
    of the audit must be the one that was last set through Holdfast.

    A chain that was cut short, or restored together with its own older head, looks whole by itself. To find
    that too, even in a store that was emptied, name heads or anchors that you noted earlier. The log of
    `holdfast up` has anchors. A store that was audited and has no record left is broken.

    Parameters
    ----------
    head
        The head of a namespace as it was once, as number:signature; may be given several times.
    anchor
        A file with what `audit anchor` printed, or one line of it; may be given several times. It finds
        records that were cut off, or put back to an older state, together with their head.
    log
        The log of a service, as lines or as JSON. It names heads too.
    file
        Verify a file with what `audit log --all --json` printed of the namespace, with the keys of the store.
    values
        Also compare every living entry and item with its last record, to find what was changed, deleted or
        inserted with SQL. Entries that are older than the audit, or have expired since, are only counted.
    """
    known: defaultdict[str, list[str]] = defaultdict(list)
    for name, noted in (*(() if log is None else _heads_in(log)), *_anchors_in(anchor)):
        known[name].append(noted)
    head = (*head, *known.pop("", ()))
    advise = partial(_advise, anchored=bool(head or known))
    if file is not None:
        if values:
            raise holdfast.ValidationError("a file of records has no values to compare", field="values")
        name = rules.namespace(target.full_name if namespace is None else namespace)
        code = _report(target, _verify_file(file, name, _keys(target), head, known[name]))
        return code if target.json else advise(code, values=True)
    trouble = None
    async with target.look(keys=True) as store:
        if namespace is not None or target.named or (head and any(target.chosen)):
            names = [target.namespace(store, namespace)]
        elif head:
            raise holdfast.MissingField("name the namespace of the head", field="namespace")
        else:
            names = sorted({*await store.audits(), *known})
            trouble = (await store.suspected_audits()).get("")
        verdicts, compared = {}, {}
        for name in names:
            verdict = await store.audit(name).verify(heads=[*head, *known.get(name, ())])
            if len(names) == 1 or not verdict.whole or verdict.head != "0:" or values:
                verdicts[name] = verdict
            if values and verdict.whole:
                compared[name] = await store.audit(name).verify_values()
    if trouble is not None:
        verdicts["the store"] = holdfast.Verdict(
            whole=False, records=0, head="0:", broken_at=0, reason=trouble
        )
    code = _report(target, verdicts, compared)
    return code if target.json or not verdicts else advise(code, values=values)


def _advise(code: int, *, anchored: bool, values: bool) -> int:
    """Say what options would find that this verification could not, unless it has found something."""
    if code == OK and not values:
        say(
            "--values also finds entries and items that were changed, deleted or inserted with SQL; run it "
            "where the storage is"
        )
    if code == OK and not anchored:
        say(
            "--anchor FILE also finds records that were cut off, or put back to an older state, together "
            "with their head: holdfast audit anchor prints anchors, and --log reads them from the log of "
            "holdfast up"
        )
    return code


async def anchor(namespace: FullName = None, /, *, target: Target = HERE) -> int:
    """Verify audits, and print the record count and head of each, to keep elsewhere.

    `audit verify --anchor` holds that against the store later. Exit with 1 if an audit is broken.
    """
    whole = True
    async with target.look(keys=True) as store:
        named = namespace is not None or target.named
        at = moment(store.now())
        for name in [target.namespace(store, namespace)] if named else await store.audits():
            verdict = await store.audit(name).verify()
            whole = whole and verdict.whole
            if not verdict.whole:
                say(f"{name} is broken at record {verdict.broken_at}, and has no anchor: {verdict.reason}")
            elif verdict.head == "0:":
                continue
            elif target.json:
                document({"namespace": name, "records": verdict.records, "head": verdict.head, "at": at})
            else:
                line(f"{name}\t{verdict.records}\t{verdict.head}")
    return OK if whole else ERROR


async def rotate(*, later: bool = False, target: Place = STORE) -> None:
    """Add a new secret to the audit's key file, and switch all audits to it.

    Each audit gets a record that binds all before it under the new key. Then the older secrets are marked as
    retired: they verify what they signed, and sign nothing new. If another process writes to the store, it
    does this when it is started again, or with its next upkeep.

    Parameters
    ----------
    later
        Only add the secret. Copy the file to every machine that serves the store, then restart the services.
    """
    keys = _keys(target)
    if not isinstance(keys, FileKeyring):
        raise holdfast.Unsupported(
            "only a key in a file can be rotated: append a secret to audit_key in the settings of the "
            "process that opens the store"
        )
    try:
        name = add_key(keys.path)
    except OSError as error:
        raise file_trouble(error, keys.path, field="audit_key_file") from None
    bound = None if later else await _bound(target)
    if target.json:
        document({"file": str(keys.path), "signs": name, "audits": bound})
    elif bound is None:
        say(f"the new key {name} is in {keys.path}: restart what writes to the store, and it signs")
    else:
        say(f"the new key {name} is in {keys.path} and signs; audits switched to it: {bound}")


async def _bound(target: Place) -> int | None:
    """Return the number of audits that switched to the new key; None if another process must do it."""
    try:
        revision = await schema_of(target.address).revision()
        if needed(None if revision == BASE else revision) is Need.CREATE:
            return 0
        async with target.open() as store:
            return await store.bind_keys()
    except holdfast.Unavailable:
        return None


async def _pages(
    store: holdfast.Store,
    namespace: str,
    filters: RecordFilters,
    after: int,
    limit: int | None,
    *,
    reverse: bool,
) -> AsyncIterator[AuditPage]:
    """Yield pages of records until there are no more, or until the limit is reached."""
    audit, left = store.audit(namespace), limit
    following: int | None = after
    while following is not None and left != 0:
        size = LIMIT if left is None else min(left, LIMIT)
        page = await audit.log(after=following, limit=size, reverse=reverse, **asdict(filters))
        yield page
        following = page.next
        left = None if left is None else left - len(page.records)


def _keys(target: Place) -> SigningKeys:
    """Return the keys that sign the audit of the store, without opening the store."""
    if is_service(target.address):
        raise holdfast.Unsupported(
            "a service does not reveal its keys: run this command where the service runs"
        )
    return engine_for(target.address, target.keys_at_hand()).keys


def _heads_in(log: str) -> Iterator[tuple[str, str]]:
    """Yield the heads in a log, each with its namespace."""
    for logged in _lines(log, field="log"):
        for namespace, head in _HEAD.findall(logged):
            yield namespace.decode(), head.decode()


class _Anchor(msgspec.Struct):
    namespace: str
    head: str


def _anchors_in(anchors: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the heads in anchors, each with its namespace.

    An anchor is a line that `audit anchor` printed, or a file of such lines. A head without a namespace
    belongs to the namespace of the command, which is "" here.
    """
    for anchor in anchors:
        lines = list(_lines(anchor, field="anchor")) if Path(anchor).is_file() else [anchor.encode()]
        for printed in filter(bytes.strip, lines):
            yield _parse_anchor(printed.decode(errors="replace").strip(), anchor)


def _parse_anchor(printed: str, anchor: str) -> tuple[str, str]:
    try:
        if printed.startswith("{"):
            fields = msgspec.json.decode(printed, type=_Anchor)
            namespace, head = fields.namespace, fields.head
        else:
            *names, head = printed.split()
            namespace = names[0] if names else ""
        noted_head(head)
        return rules.namespace(namespace) if namespace else "", head
    except (msgspec.MsgspecError, RecursionError, holdfast.ValidationError):
        raise holdfast.ValidationError(
            f"{anchor[:100]!r} is neither a file nor a line that holdfast audit anchor printed",
            field="anchor",
        ) from None


def _verify_file(
    file: str, namespace: str, keys: SigningKeys, heads: Iterable[str], known: Iterable[str]
) -> dict[str, holdfast.Verdict]:
    """Return whether the records in a file are intact, by namespace.

    The file must include all of `heads`. Heads known of its namespace may be newer than the file.
    """
    required = dict(map(noted_head, heads))
    noted = dict(map(noted_head, known)) | required
    verdict = _verdict(namespace, keys, _lines(file, field="file"), noted)
    if verdict.whole and not verdict.records:
        raise holdfast.ValidationError(f"{file} has no record", field="file")
    last = int(verdict.head.partition(":")[0])
    if verdict.whole and any(number > last for number in required):
        reason = f"the file was cut off: there were {max(required)} records once"
        verdict = msgspec.structs.replace(verdict, whole=False, broken_at=last + 1, reason=reason)
    return {namespace: verdict}


def _verdict(
    namespace: str, keys: SigningKeys, lines: Iterable[bytes], noted: Mapping[int, str]
) -> holdfast.Verdict:
    count = 0
    broken: Break | None = None
    chain = Chain(namespace, keys, Head(), after=0, anchor="")
    for position, printed in enumerate(lines, start=1):
        record = _record(printed, position)
        if not count:
            chain.number, chain.signature = record.number - 1, record.previous
        broken = chain.first_break([_stored(record)])
        number = chain.number
        if broken is None and not same(noted.get(number, chain.signature), chain.signature):
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
    with opened_input(name, field=field) as file:
        yield from lines_of(file, field=field)


def _record(line: bytes, position: int) -> AuditRecord:
    """Return the record in a line that `audit log --json` printed."""
    try:
        entry = msgspec.json.decode(line, type=AuditEntry)
        if document_text(entry).encode() != line.rstrip(b"\n"):  # a field is repeated, or unknown
            raise msgspec.ValidationError
    except (msgspec.MsgspecError, RecursionError):
        raise holdfast.ValidationError(
            f"line {position} is not a record that holdfast audit log --json printed", field="file"
        ) from None
    fields = msgspec.structs.asdict(entry) | {"at": milliseconds(entry.at)}
    for name in _UNSET:
        if fields[name] is None:
            fields[name] = msgspec.UNSET
    return AuditRecord(**fields)


def _report(
    target: Place, verdicts: dict[str, holdfast.Verdict], values: Mapping[str, holdfast.Compared] = NOTHING
) -> int:
    for name, verdict in verdicts.items():
        compared = values.get(name)
        if target.json:
            more = {} if compared is None else {"values": compared}
            document({"namespace": name, **msgspec.structs.asdict(verdict), **more})
        elif verdict.whole:
            line(f"{name}\twhole\t{verdict.records}\t{verdict.head}")
            _report_values(name, compared)
        else:
            line(f"{name}\tbroken\t{verdict.broken_at}\t{verdict.reason}")
    whole = all(verdict.whole for verdict in verdicts.values())
    return OK if whole and all(compared.whole for compared in values.values()) else ERROR


def _report_values(name: str, compared: holdfast.Compared | None) -> None:
    if compared is None:
        return
    line(f"{name}\tvalues\t{compared.entries}\t{compared.unrecorded}\t{compared.expired}")
    for one in compared.found:
        line(f"{name}\t{one.what}\t{shown_key(one.key)}\t{one.reason}")
