"""Inspection of namespaces: rows that can't be read, counters that do not match the rows, and wrong blobs.

Nothing is written here, and everything is read, also overdue rows, which are counted until their expiry is
noticed. A namespace that changes while it is read is read again. All bytes of blobs are read, a few parts at
a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Final

import msgspec

from holdfast.blobs.manifest import EMPTY, Manifest, checksum_after, manifest_of, part_space, upload_of
from holdfast.decide.entries import trashed
from holdfast.decide.schemas import schema_of
from holdfast.engine import Engine, Scan, rows_of
from holdfast.errors import DatabaseError
from holdfast.families import has_blobs
from holdfast.rows import (
    DROPPED,
    GUARD,
    KV,
    LETTER,
    LOG,
    PARTS,
    REQUEST,
    TABLE,
    TRASH,
    UPLOAD,
    Address,
    Namespace,
    Row,
)

ALL: Final = 0
"""A time at which nothing has expired yet."""
STEP: Final = 500
ATTEMPTS: Final = 3
"""Number of times that a namespace is read if it changes meanwhile."""
PARTS_AT_ONCE: Final = 4
"""Number of parts of a blob that are read at a time."""
SHOWN: Final = 20
"""Largest number of unreadable rows that are reported."""


class Inspected(msgspec.Struct, kw_only=True):
    """The result of an inspection. `counted` is False if the namespace kept changing and was not compared."""

    rows: int = 0
    keys: int = 0
    bytes: int = 0
    counted: bool = True
    unreadable: list[str] = []
    miscounted: list[str] = []


class Inspection:
    """Inspects namespaces.

    Args:
        engine: Where their rows are kept.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def namespace(self, name: str) -> Inspected:
        """Read all rows of a namespace and compare their number and size with its counters."""
        report = Inspected(counted=False)
        for _ in range(ATTEMPTS):
            before = await self._row(name)
            report = await self._walked(name)
            if await self._row(name) == before:
                _compare(report, before)
                return report
        report.counted = False
        return report

    async def _row(self, name: str) -> Namespace | None:
        totals = await self._engine.totals(ALL, namespace=name)
        return totals[0].namespace if totals else None

    async def _walked(self, name: str) -> Inspected:
        report = Inspected()
        items: list[str] = []
        for space in (KV, TRASH, GUARD, LOG, REQUEST, LETTER, TABLE, DROPPED, UPLOAD):
            async for key, row in _rows(self._engine, name, space):
                readable = _look(report, space, key, row)
                if space == KV and row.version > 0:
                    _count(report, key, row)
                elif space == DROPPED:
                    items.append(bytes(key).decode() if isinstance(key, bytes) else key)
                elif space == TABLE and readable:
                    items.extend(_item_spaces(report, row))
        for space in items:
            if space.startswith("item/"):
                async for key, row in _rows(self._engine, name, space):
                    _look(report, space, key, row)
                    _count(report, key, row)
        if has_blobs(name):
            await BlobInspection(self._engine, name, report).run()
        return report


def _rows(engine: Engine, namespace: str, space: str) -> AsyncIterator[tuple[str | bytes, Row]]:
    return rows_of(lambda query: engine.scan(query, ALL), namespace, space, step=STEP)


def _tell(report: Inspected, trouble: str) -> None:
    if len(report.unreadable) < SHOWN:
        report.unreadable.append(trouble)


def _item_spaces(report: Inspected, row: Row) -> list[str]:
    try:
        return [schema_of(row.value or "").item_space]
    except DatabaseError:
        report.unreadable.append("the definition of a table can't be read")
        return []


def _look(report: Inspected, space: str, key: str | bytes, row: Row) -> bool:
    """Return True if the JSON of a row can be read; otherwise report the row."""
    report.rows += 1
    try:
        for text in (row.value, row.semantics):
            if text:
                msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        _tell(report, f"the row of {key!r} in {space} can't be read")
        return False
    return True


def _count(report: Inspected, key: str | bytes, row: Row) -> None:
    report.keys += 1
    report.bytes += (len(key.encode()) if isinstance(key, str) else len(key)) + row.size


def _compare(report: Inspected, row: Namespace | None) -> None:
    if row is None:
        report.miscounted.append("the namespace has no row")
        return
    for what, counted, recorded in (("keys", report.keys, row.keys), ("bytes", report.bytes, row.bytes)):
        if counted != recorded:
            report.miscounted.append(f"it has {counted} {what}, and its row says {recorded}")


class Bytes(msgspec.Struct, frozen=True, kw_only=True):
    """The findings about the parts of an upload. `wrong` are those that don't match their checksums."""

    parts: int
    size: int
    checksum: str
    wrong: list[int]


class BlobInspection:
    """Inspects the blobs of a namespace.

    Args:
        engine: Where their rows are kept.
        namespace: The namespace's full name.
        report: Gets the problems and counts the parts.
    """

    def __init__(self, engine: Engine, namespace: str, report: Inspected) -> None:
        self._engine = engine
        self._namespace = namespace
        self._report = report
        self._references: Counter[int] = Counter()
        self._known: dict[int, Bytes] = {}

    async def run(self) -> None:
        """Read every part, then compare every blob with its parts."""
        async for key, row in _rows(self._engine, self._namespace, UPLOAD):
            assert isinstance(key, bytes)
            upload = int.from_bytes(key, "big")
            self._known[upload] = await self._bytes(upload)
            self._references[upload] -= upload_of(row.value).references
        async for key, _ in _rows(self._engine, self._namespace, DROPPED):
            space = bytes(key).decode() if isinstance(key, bytes) else key
            if space.startswith(PARTS):
                async for _ in self._parts(space):
                    pass
        for space in (KV, TRASH):
            async for key, row in _rows(self._engine, self._namespace, space):
                self._compare(space, key if isinstance(key, str) else key.decode(), row)
        for upload, by in self._references.items():
            if by and upload in self._known:
                _tell(self._report, f"upload {upload} is counted {-by:+d} times too often by its record")

    def _compare(self, space: str, name: str, row: Row) -> None:
        """Compare a blob with the parts of its upload."""
        try:
            text = row.value if space == KV else bytes(trashed(name, row).value).decode()
            manifest = manifest_of(name, text)
        except DatabaseError as error:
            _tell(self._report, error.message)
            return
        self._references[manifest.upload] += 1
        if manifest.upload:
            self._compare_bytes(name, manifest)

    def _compare_bytes(self, name: str, manifest: Manifest) -> None:
        known = self._known.get(manifest.upload)
        if known is None:
            _tell(self._report, f"the bytes of blob {name!r} are missing")
        elif known.wrong:
            parts = ", ".join(map(str, known.wrong[:5]))
            _tell(self._report, f"bytes of blob {name!r} were changed: parts {parts} of {manifest.parts}")
        elif (known.parts, known.size) != (manifest.parts, manifest.size):
            _tell(self._report, f"blob {name!r} has {known.size} of {manifest.size} bytes")
        elif known.checksum != manifest.checksum:
            _tell(self._report, f"blob {name!r} does not match its checksum")

    async def _bytes(self, upload: int) -> Bytes:
        parts = size = 0
        chain, wrong = EMPTY, []
        async for key, row in self._parts(part_space(upload)):
            number, data = int.from_bytes(key, "big"), row.data or b""
            checksum = sha256(data).hexdigest()
            if checksum != row.value:
                wrong.append(number)
            chain = checksum_after(chain, checksum, number)
            parts, size = parts + 1, size + len(data)
        return Bytes(parts=parts, size=size, checksum=chain, wrong=wrong)

    async def _parts(self, space: str) -> AsyncIterator[tuple[bytes, Row]]:
        """Yield the parts in a space, and count them."""
        after: bytes | None = None
        more = True
        while more:
            query = Scan(
                namespace=self._namespace,
                space=space,
                start=b"",
                after=after,
                limit=PARTS_AT_ONCE,
                max_bytes=PARTS_AT_ONCE * 4,
            )
            page = await self._engine.scan(query, 0)
            rows = await self._engine.read([Address(self._namespace, space, key) for key in page.keys], 0)
            for key, row in zip(page.keys, rows, strict=True):
                if row is not None:
                    self._report.rows += 1
                    self._report.bytes += len(key) + row.size
                    yield key, row
            more, after = page.more, page.keys[-1] if page.keys else None
