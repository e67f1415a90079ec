"""`holdfast export` and `import`: a namespace or a plugin's tables as a file, and back.

A file is JSON Lines: a header, then one entry per line, ordered by version, or one item per line. A line that
is read is checked against the same rules as a call, so a file cannot bring anything into a store that a call
could not. An item always gets a new version, so an import of tables can be repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING, Annotated, Any, Final, TypeVar

import msgspec
from cyclopts import Parameter

import holdfast
from holdfast import families, rules
from holdfast.clock import moment
from holdfast.edges.cli.options import ALL_PAGES
from holdfast.edges.cli.output import (
    amount,
    lines_of,
    opened_input,
    opened_output,
    progress,
    report,
    require_free,
    say,
)
from holdfast.edges.cli.target import HERE, Target
from holdfast.errors import HoldfastError, RateLimited, TableNotFound, Unsupported, ValidationError
from holdfast.handles.kv import KV
from holdfast.model import Entry
from holdfast.rules import MAX_BATCH, MAX_TRANSFER_BYTES, MAX_VALUE_BYTES, semantic_root
from holdfast.store import Store

if TYPE_CHECKING:
    from holdfast.handles.tables import Tables

T = TypeVar("T")


async def export_entries(
    *,
    prefix: str = "",
    tables: bool = False,
    out: str | None = None,
    force: bool = False,
    target: Target = HERE,
) -> None:
    """Write the entries of a namespace as JSON Lines, ordered by version. Expired ones are left out.

    The first line has the namespace's policy, if it has one. To copy a whole store, see backup and copy.

    Parameters
    ----------
    prefix
        Prefix of the keys; all if not given.
    tables
        Write the plugin's tables with their definitions, indexes and items, instead of its keys.
    out
        The file to write instead of stdout; it appears when it is complete, and only its owner can read it.
    force
        Replace the file if it exists.
    """
    require_free(out, force=force)
    if tables:
        await _export_tables(out, force=force, target=target)
        return
    async with target.look() as store:
        keys = target.keys(store)
        total = await _count(store, keys, prefix)
        with SpooledTemporaryFile(max_size=_IN_MEMORY) as spool:
            sorter = Sorter(spool)
            with progress("export", total) as advance:
                async for page in ALL_PAGES.pages(partial(keys.list, prefix, values=True)):
                    for entry in page.entries or ():
                        sorter.add(entry)
                    advance(page.count)
            header = await _header(store, keys.namespace)
            with opened_output(out, force=force) as file:
                file.write(header.line())
                file.writelines(sorter.lines())
    if out is not None:
        written = amount(sorter.count, "entry", "entries")
        content = {"namespace": keys.namespace, "entries": sorter.count, "file": out}
        report(target.json, content, f"exported {written} of {keys.namespace} to {out}")


async def import_entries(
    file: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    dry_run: bool = False,
    resume: bool = False,
    target: Target = HERE,
) -> None:
    """Write the entries of an export into a namespace.

    They keep their versions if the namespace was never written to, else they get new ones; items of tables
    always get new ones. Entries that have expired since are left out. A namespace without a policy gets that
    of the export. Without --plugin or --tenant it is the namespace that they were exported from.

    Parameters
    ----------
    file
        The file, or - for stdin.
    dry_run
        Check every line and write nothing.
    resume
        Continue an interrupted import into a namespace that was empty when it began.
    """
    with _input(file) as lines:
        header = Header.read(next(lines, b""))
        if header.tables is not None:
            await _import_tables(file, lines, header, dry_run=dry_run, target=target)
            return
        async with target.open() as store:
            keys = target.keys(store) if target.named else _exported_from(store, header.namespace)
            version = (await store.stats(keys.namespace)).version
            policy = await _set_policy(store, keys.namespace, header, dry_run=dry_run)
            intake = Importer(
                store,
                keys,
                after=version if resume else 0,
                keeps_versions=version == 0 or resume,
                dry_run=dry_run,
                most=(policy or await store.policy(keys.namespace)).max_value_bytes,
            )
            intake.tally.policy_set = policy is not None
            if not intake.tally.keeps_versions and not target.json:
                say(f"{keys.namespace} has been written to before, so the entries get new versions")
            await _feed(intake, file, lines)
    tally = intake.tally
    skipped = f", {tally.skipped} there already" if tally.skipped else ""
    expired = f", {tally.expired} expired" if tally.expired else ""
    written = amount(tally.written, "entry", "entries")
    _report(tally, written, f"into {tally.namespace}{skipped}{expired}", target)


async def _export_tables(out: str | None, *, force: bool, target: Target) -> None:
    async with target.look() as store:
        plugin = target.chosen.plugin
        if not plugin:
            raise holdfast.MissingField(
                "which plugin? Give --plugin NAME (or set HOLDFAST_PLUGIN)", field="plugin"
            )
        handle, name = store.tables(plugin), families.tables(plugin)
        described = await definitions(handle)
        header = await _header(store, name, tables=described)
        total = (await store.stats(name)).keys
        with opened_output(out, force=force) as file, progress("export", total) as advance:
            file.write(header.line())
            items = 0
            async for lines in item_lines(handle, described):
                file.writelines(lines)
                items += len(lines)
                advance(len(lines))
    if out is not None:
        content = {"namespace": name, "tables": len(described), "items": items, "file": out}
        written = f"{amount(items, 'item')} of {amount(len(described), 'table')}"
        report(target.json, content, f"exported {written} of {name} to {out}")


async def _import_tables(
    name: str, lines: Iterator[bytes], header: Header, *, dry_run: bool, target: Target
) -> None:
    plugin = target.chosen.plugin if target.named else header.namespace.rpartition("/")[2]
    if not plugin:
        raise holdfast.ValidationError("tables belong to a plugin: give --plugin NAME", field="plugin")
    try:
        msgspec.convert(header.tables, list[_Definition])
    except msgspec.ValidationError as error:
        raise ValidationError(f"line 1 does not define tables: {error}", field="line") from None
    namespace = families.tables(plugin)
    async with target.open() as store:
        tally = TableCounts(namespace=namespace, dry_run=dry_run)
        tally.policy_set = await _set_policy(store, namespace, header, dry_run=dry_run) is not None
        intake = TableImporter(store.tables(plugin), header.tables or [], tally)
        await intake.begin()
        await _feed(intake, name, lines)
    _report(tally, amount(tally.written, "item"), f"into {namespace}, new tables: {tally.tables}", target)


async def _feed(intake: Importer | TableImporter, name: str, lines: Iterator[bytes]) -> None:
    """Give the lines after the header to an importer."""
    with progress("import", _size(name), in_bytes=True) as advance:
        for number, line in enumerate(lines, start=2):
            if line.strip():
                await intake.take(number, line)
            advance(len(line))
    await intake.finish()


def _size(name: str) -> int | None:
    """Return the size of a file; None if unknown, as for stdin."""
    return None if name == "-" else Path(name).stat().st_size


def _report(tally: ImportCounts | TableCounts, written: str, details: str, target: Target) -> None:
    done = "would be imported" if tally.dry_run else "imported"
    policy = ", with its policy" if tally.policy_set else ""
    report(target.json, tally, f"{written} {done} {details}{policy}")


async def _header(
    store: holdfast.Store, namespace: str, *, tables: list[dict[str, Any]] | None = None
) -> Header:
    policy = msgspec.to_builtins(await store.policy(namespace))
    return Header(
        holdfast=FORMAT,
        namespace=namespace,
        exported_at=moment(store.now()),
        policy={name: value for name, value in policy.items() if value is not None} or None,
        tables=tables,
    )


async def _set_policy(
    store: holdfast.Store, namespace: str, header: Header, *, dry_run: bool
) -> holdfast.Policy | None:
    """Set the policy of the export if the namespace has none. Returns the policy that is or would be set."""
    if header.policy is None or await store.policy(namespace) != holdfast.Policy():
        return None
    policy = rules.policy(header.policy)
    if not dry_run:
        await store.set_policy(namespace, policy)
    return policy


async def _count(store: holdfast.Store, keys: holdfast.KV, prefix: str) -> int:
    """Return the number of entries to export. Those with a prefix are counted only if a progress bar shows
    it."""
    if not prefix or not sys.stderr.isatty():
        return (await store.stats(keys.namespace)).keys
    return sum([page.count async for page in ALL_PAGES.pages(partial(keys.list, prefix))])


def _exported_from(store: holdfast.Store, namespace: str) -> holdfast.KV:
    match namespace.split("/"):
        case [families.PLAIN, plugin]:
            return store.kv(plugin)
        case [families.SEMANTIC, tenant, project]:
            return store.semantic(tenant, project)
        case _:
            raise holdfast.ValidationError(
                f"the export is of {namespace!r}: name a namespace with --plugin, or --tenant and --project",
                field="plugin",
            )


@contextlib.contextmanager
def _input(name: str) -> Iterator[Iterator[bytes]]:
    """Open the lines of a file or of stdin."""
    if name == "-":
        yield lines_of(sys.stdin.buffer, field="line")
        return
    with opened_input(name, field="file") as file:
        yield lines_of(file, field="line")


FORMAT: Final = 1
"""The version of this format, in the field `holdfast` of the header."""

_IN_MEMORY: Final = 16 * 1024 * 1024
"""Maximum number of bytes of entries that are sorted in memory."""


class Header(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first line: the namespace, the time of the export, the namespace's policy and its tables."""

    holdfast: int
    namespace: str
    exported_at: datetime
    policy: dict[str, Any] | None = None
    tables: list[dict[str, Any]] | None = None

    @classmethod
    def read(cls, line: bytes) -> Header:
        """Parse the header from a line.

        Raises:
            ValidationError: The line is not a header.
            Unsupported: A newer Holdfast has written it.
        """
        try:
            header = msgspec.json.decode(line, type=cls)
        except (msgspec.MsgspecError, RecursionError):
            raise ValidationError("line 1 is not the header of a Holdfast export", field="line") from None
        if header.holdfast != FORMAT:
            raise Unsupported(
                f"the file has format {header.holdfast}, but this version knows format {FORMAT}: "
                "upgrade Holdfast"
            )
        return header

    def line(self) -> bytes:
        """Return the header as a line."""
        return msgspec.json.encode(self) + b"\n"


class Sorter:
    """Collects entries in any order and returns their lines by version, without keeping them in memory.

    An entry that was written without Holdfast has version 0. Such entries come last: they get new versions,
    which must not take those of others.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._places: list[tuple[float, int, int]] = []

    @property
    def count(self) -> int:
        """The number of entries added."""
        return len(self._places)

    def add(self, entry: Entry) -> None:
        """Add an entry."""
        line = msgspec.json.encode(entry) + b"\n"
        self._places.append((entry.version or float("inf"), self._file.tell(), len(line)))
        self._file.write(line)

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of the added entries by version."""
        for _, place, size in sorted(self._places):
            self._file.seek(place)
            yield self._file.read(size)


async def _at_its_rate(call: Callable[[], Awaitable[T]]) -> T:
    """Make a call as soon as the namespace's rate limit allows it. The import may have set that itself."""
    while True:
        try:
            return await call()
        except RateLimited as error:
            await asyncio.sleep(error.retry_after or 1.0)


def _decoded(line: bytes, kind: type[T], what: str) -> T:
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.MsgspecError, RecursionError):
        pass
    try:  # the slow decoder also accepts the longest integers and reports errors in other JSON
        return msgspec.convert(json.loads(line), kind)
    except msgspec.ValidationError as error:
        raise ValidationError(f"this is not {what}: {error}", field="line") from None
    except (ValueError, RecursionError):
        raise ValidationError("this is not JSON", field="line") from None


_MARGIN: Final = 256
"""Bytes that a line counts in addition to its length."""
_DEFINING: Final = ("partition_key", "sort_key", "ttl_attribute", "stream")


class ItemLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line: an item and its table. The version is that at the time of the export."""

    table: str
    item: dict[str, Any]
    version: int


class _Attribute(msgspec.Struct):
    name: str
    type: str


class _Index(msgspec.Struct):
    name: str
    key: _Attribute


class _Definition(msgspec.Struct):
    """What a header must say about a table."""

    table: str
    partition_key: _Attribute
    sort_key: _Attribute | None
    ttl_attribute: str | None
    stream: str | None
    indexes: list[_Index]


class TableCounts(msgspec.Struct, kw_only=True):
    """Counts of an import: the tables that it made and the items that it put."""

    namespace: str
    dry_run: bool
    tables: int = 0
    written: int = 0
    policy_set: bool = False


async def definitions(tables: Tables) -> list[dict[str, Any]]:
    """Return the descriptions of all tables, by name."""
    return [await tables.describe_table(name) for name in await tables.list_tables()]


async def item_lines(tables: Tables, described: list[dict[str, Any]]) -> AsyncIterator[list[bytes]]:
    """Yield the lines of all items, page by page, table by table."""
    for one in described:
        async for page in ALL_PAGES.pages(partial(tables.scan, one["table"])):
            yield [
                msgspec.json.encode({"table": one["table"], "item": item.value, "version": item.version})
                + b"\n"
                for item in page.items
            ]


class TableImporter:
    """Takes the lines of an export of tables, in their order."""

    def __init__(self, tables: Tables, described: list[dict[str, Any]], tally: TableCounts) -> None:
        self._tables = tables
        self._described = {one["table"]: one for one in described}
        self.tally = tally
        self._chunk: list[tuple[int, ItemLine]] = []
        self._room = MAX_TRANSFER_BYTES

    async def begin(self) -> None:
        """Make the tables that do not exist.

        Raises:
            ValidationError: A table exists and has other keys.
        """
        for name, definition in self._described.items():
            existing = await self._found(name)
            if existing is not None and any(existing[part] != definition[part] for part in _DEFINING):
                raise ValidationError(
                    f"table {name!r} exists and has another definition: import into another plugin, or drop "
                    "the table first",
                    field="table",
                )
            if existing is None:
                self.tally.tables += 1
                if not self.tally.dry_run:
                    await self._make(definition)

    async def take(self, number: int, line: bytes) -> None:
        """Take a line.

        Raises:
            ValidationError: The line holds no item of a table of this export.
        """
        one = self._read(number, line)
        size = len(line) + _MARGIN
        last = self._chunk[-1][1].table if self._chunk else one.table
        if size > self._room or len(self._chunk) == MAX_BATCH or one.table != last:
            await self._write()
        self._chunk.append((number, one))
        self._room -= size

    async def finish(self) -> None:
        """Write the last items, then make the indexes, which fill themselves."""
        await self._write()
        for name, definition in self._described.items():
            existing = None if self.tally.dry_run else await self._found(name)
            known = {index["name"] for index in existing["indexes"]} if existing is not None else set()
            for index in definition["indexes"]:
                if existing is not None and index["name"] not in known:
                    key = _attribute(index["key"])
                    await _at_its_rate(partial(self._tables.create_index, name, index["name"], key=key))

    def _read(self, number: int, line: bytes) -> ItemLine:
        try:
            one = _decoded(line, ItemLine, "an item")
        except ValidationError as error:
            raise ValidationError(f"line {number}: {error.message}", field="line") from None
        if one.table not in self._described:
            raise ValidationError(f"line {number}: the header has no table {one.table!r}", field="line")
        return one

    async def _write(self) -> None:
        chunk, self._chunk, self._room = self._chunk, [], MAX_TRANSFER_BYTES
        self.tally.written += len(chunk)
        if not chunk or self.tally.dry_run:
            return
        puts = [{"put": {"item": one.item}} for _, one in chunk]
        done = await _at_its_rate(partial(self._tables.batch_write_item, chunk[0][1].table, puts))
        for (number, _), result in zip(chunk, done, strict=True):
            if isinstance(result, HoldfastError):
                raise ValidationError(f"line {number}: {result.message}", field="line")

    async def _found(self, name: str) -> dict[str, Any] | None:
        try:
            return await _at_its_rate(partial(self._tables.describe_table, name))
        except TableNotFound:
            return None

    async def _make(self, definition: dict[str, Any]) -> None:
        sort = definition["sort_key"]
        create = partial(
            self._tables.create_table,
            definition["table"],
            partition_key=_attribute(definition["partition_key"]),
            sort_key=None if sort is None else _attribute(sort),
            ttl_attribute=definition["ttl_attribute"],
            stream=definition["stream"],
        )
        await _at_its_rate(create)


def _attribute(described: dict[str, Any]) -> tuple[str, Any]:
    return described["name"], described["type"]


_DESCRIBED: Final = 10
"""Maximum number of bad lines that are described."""


class ImportCounts(msgspec.Struct, kw_only=True):
    """Counts of lines: skipped entries already existed, expired ones have passed their deadline."""

    namespace: str
    keeps_versions: bool
    dry_run: bool
    written: int = 0
    expired: int = 0
    skipped: int = 0
    policy_set: bool = False


class Importer:
    """Takes the lines of an export, in their order.

    Args:
        store: The store to write to.
        keys: The namespace.
        after: The version after which to resume an import that kept versions; 0 to start from the beginning.
        keeps_versions: Whether entries keep their versions.
        dry_run: Whether lines are only checked.
        most: The size of the largest value that the namespace allows; the usual limit if None.
    """

    def __init__(
        self,
        store: Store,
        keys: KV,
        *,
        after: int,
        keeps_versions: bool,
        dry_run: bool,
        most: int | None = None,
    ) -> None:
        self._store = store
        self._keys = keys
        self._after = after
        self._joined = after == 0
        self._verbs = store.caller.verbs(keys.namespace, root=semantic_root(keys.namespace))
        self._most = most or MAX_VALUE_BYTES
        self._last = 0
        self._chunk: list[Entry] = []
        self._room = MAX_TRANSFER_BYTES
        self._bad: list[str] = []
        self.tally = ImportCounts(namespace=keys.namespace, keeps_versions=keeps_versions, dry_run=dry_run)

    async def take(self, number: int, line: bytes) -> None:
        """Take a line; errors in it are raised when its chunk is written."""
        try:
            entry = _decoded(line, Entry, "an entry")
            self._verbs.load([entry], keep_versions=True)
            if len(line) > self._most:
                rules.encode_value(entry.value, most=self._most)
            self._in_order(entry)
        except HoldfastError as error:
            self._bad.append(f"line {number}: {error.message}")
            return
        if 0 < entry.version <= self._after:
            await self._skip(entry)
            return
        size = len(line) + _MARGIN
        if size > self._room or len(self._chunk) == MAX_BATCH:
            await self._write()
        self._room -= size
        self._chunk.append(entry)

    async def finish(self) -> None:
        """Write the last chunk.

        Raises:
            ValidationError: A line of the last chunk is bad, or in a dry run any line.
        """
        await self._write()
        if self._bad:
            raise ValidationError(_described(self._bad), field="line")

    def _in_order(self, entry: Entry) -> None:
        if not self.tally.keeps_versions or entry.version == 0:
            return
        if entry.version <= self._last:
            raise ValidationError(
                f"version {entry.version} comes after {self._last}, but versions are kept only in "
                "ascending order"
            )
        self._last = entry.version

    async def _skip(self, entry: Entry) -> None:
        """Skip an existing entry. The last version of the namespace must belong to such an entry."""
        self.tally.skipped += 1
        if entry.version == self._after:
            current = await _at_its_rate(partial(self._keys.get, entry.key))
            self._joined = self._over(entry) or (current is not None and current.version == entry.version)

    async def _write(self) -> None:
        if not self._joined:
            raise ValidationError(
                f"{self._keys.namespace} does not end where an import of this file stopped: its last "
                f"version, {self._after}, is not in the file. Without --resume, all is imported "
                "under new versions",
                field="resume",
            )
        if self._bad and not self.tally.dry_run:
            raise ValidationError(_described(self._bad), field="line")
        written = sum(not self._over(entry) for entry in self._chunk)
        if self._chunk and not self.tally.dry_run:
            keep = self.tally.keeps_versions
            load = partial(self._store.load, self._keys.namespace, self._chunk, keep_versions=keep)
            written = await _at_its_rate(load)
        self.tally.written += written
        self.tally.expired += len(self._chunk) - written
        self._chunk, self._room = [], MAX_TRANSFER_BYTES

    def _over(self, entry: Entry) -> bool:
        return entry.expires_at is not None and entry.expires_at <= moment(self._store.now())


def _described(bad: list[str]) -> str:
    more = len(bad) - _DESCRIBED
    return "; ".join([*bad[:_DESCRIBED], *([f"and {more} lines more"] if more > 0 else [])])
