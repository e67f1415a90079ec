"""Backups of whole stores, and restores.

A backup is what a store held at one instant, whatever is written meanwhile. A restore verifies the whole file
first and then loads it in one transaction, so that a store holds all of a backup or nothing of it. Where the
engine loads in pieces, as a cluster does, the store can't be used until it holds all of the backup.

The file begins with a line of text, `holdfast backup 1`. Each chunk has a kind (1 byte), the length of its
content (4 bytes, big-endian), the content, and 16 bytes of BLAKE2b over the previous checksum, the kind and
the content. The content is MessagePack, compressed with zlib. The first chunk is the header, which names
the fields of rows, records and namespaces; the last one is the end, with the totals. So a chunk that is
altered, missing, added or in another place is noticed, and so is a missing end.

Memory holds one chunk, which has a limit before and after it is decompressed, and nothing is read past the
end. What a chunk holds must have the types of its section, so that a file that somebody has made up is
refused before it is loaded. Values are not judged: a store gets back what it held.
"""

from __future__ import annotations

import contextlib
import hashlib
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import IO, Annotated, Any, Final, TypeVar, get_type_hints

import msgspec

from holdfast import seams
from holdfast.audit.keyring import parse_keys
from holdfast.engine import Movable
from holdfast.engine.raw import UNFINISHED, Positioned, Section, StoreInfo, section_of
from holdfast.errors import Unsupported, ValidationError, ValueTooLarge
from holdfast.moves.walks import PAGE_BYTES, size, walk
from holdfast.rows import Namespace, Record, Row

T = TypeVar("T")

FORMAT: Final = 1
MAGIC: Final = b"holdfast backup "
MOST: Final = 32 * 1024 * 1024
"""The most bytes that a chunk may have, also when it is decompressed: more means that it is not ours.

The largest thing that Holdfast stores is the remembered reply of a `batch_write_item` that returns old items.
These may have 8 MB, and twice as much as text within JSON.
"""
MOST_THINGS: Final = 4_096
"""The most things in a section that a chunk may hold."""
MOST_NAMESPACES: Final = 65_536
"""The most namespaces that a chunk may hold."""

_CHECK: Final = 16
_NAMESPACES_AT_ONCE: Final = 1_000
_YEAR_10000: Final = 253_402_300_800_000
"""In milliseconds since 1970. A store whose time is later could never be used."""
_WHOLE: Final = msgspec.Meta(ge=-(2**63), le=2**63 - 1)
_HEADER: Final = b"H"
_NAMESPACES: Final = b"N"
_SECTION: Final = b"S"
_KEY: Final = b"K"
_END: Final = b"E"


_FIELDS: Final[dict[str, Any]] = {"row": Row, "record": Record, "namespace": Namespace}


class BackupTotals(msgspec.Struct, kw_only=True):
    """The numbers of what a backup holds."""

    namespaces: int = 0
    entries: int = 0
    rows: int = 0
    parts: int = 0
    records: int = 0


class BackupHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The first chunk: when and from which store the backup was made, and the fields that it uses."""

    made_at: int
    facts: StoreInfo
    software: str
    with_key: bool
    row: tuple[str, ...] = Row.__struct_fields__
    record: tuple[str, ...] = Record.__struct_fields__
    namespace: tuple[str, ...] = Namespace.__struct_fields__


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk after the header: namespaces, part of a section, or the audit's secrets."""

    namespaces: list[Namespace] = []
    namespace: str = ""
    section: Section | None = None
    held: list[Positioned] = []
    key: list[bytes] = []


class BackupWriter:
    """Writes a backup chunk by chunk."""

    def __init__(self, file: IO[bytes], header: BackupHeader) -> None:
        self._file = file
        self._check = b""
        self.totals: BackupTotals = BackupTotals()
        self._file.write(MAGIC + str(FORMAT).encode() + b"\n")
        self._write(_HEADER, header)

    def namespaces(self, namespaces: Sequence[Namespace]) -> None:
        """Write the rows of namespaces."""
        self.totals.namespaces += len(namespaces)
        for start in range(0, len(namespaces), _NAMESPACES_AT_ONCE):
            some = namespaces[start : start + _NAMESPACES_AT_ONCE]
            self._write(_NAMESPACES, [msgspec.structs.astuple(one) for one in some])

    def section(self, namespace: str, section: Section, held: Sequence[Positioned]) -> None:
        """Write a part of a section, in as many chunks as its size asks for."""
        name = "records" if section is Section.JOURNAL else section.value
        setattr(self.totals, name, getattr(self.totals, name) + len(held))
        contents: list[tuple[Any, ...]] = []
        room = PAGE_BYTES
        for one in held:
            room -= size(one)
            if contents and (room < 0 or len(contents) == MOST_THINGS):
                self._write(_SECTION, (namespace, section.value, contents))
                contents, room = [], PAGE_BYTES - size(one)
            contents.append((one.position, msgspec.structs.astuple(one.content)))
        self._write(_SECTION, (namespace, section.value, contents))

    def key(self, secrets: Sequence[bytes]) -> None:
        """Write the audit's secrets."""
        self._write(_KEY, secrets)

    def end(self) -> None:
        """Write the end. Without it the backup is refused."""
        self._write(_END, self.totals)

    def _write(self, kind: bytes, content: object) -> None:
        packed = msgspec.msgpack.encode(content)
        if len(packed) > MOST:
            raise ValueTooLarge(
                f"the store holds something of {len(packed)} bytes; a restore accepts no more than {MOST} at "
                "once: look for values that were written with SQL"
            )
        data = zlib.compress(packed, 1)
        self._check = _checksum(self._check, kind, data)
        self._file.write(kind + len(data).to_bytes(4, "big") + data + self._check)


class BackupReader:
    """Reads a backup chunk by chunk, and checks each before it is returned.

    Raises:
        ValidationError: The file is no backup.
        Unsupported: A newer Holdfast has written it.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._check = b""
        line = file.readline(len(MAGIC) + 8)
        number = line.removeprefix(MAGIC).removesuffix(b"\n")
        if not line.startswith(MAGIC) or not line.endswith(b"\n") or not number.isdigit() or int(number) < 1:
            raise ValidationError("this is not a Holdfast backup", field="file")
        if int(number) > FORMAT:
            raise _newer()
        kind, content = self._next()
        if kind != _HEADER:
            raise _damaged("it has no header")
        self.header: BackupHeader = _decoded(content, BackupHeader)
        if not (0 <= self.header.made_at < _YEAR_10000 and 0 <= self.header.facts.clock < _YEAR_10000):
            raise _damaged("its time is none")
        for known, used in _FIELDS.items():
            if not set(getattr(self.header, known)) <= set(used.__struct_fields__):
                raise _newer()
        self._namespaces = _list_of(_fields(Namespace, self.header.namespace), MOST_NAMESPACES)
        row, record = _fields(Row, self.header.row), _fields(Record, self.header.record)
        self._sections = {
            Section.ENTRIES: _list_of(tuple[tuple[str], row], MOST_THINGS),  # type: ignore[valid-type]
            Section.ROWS: _list_of(tuple[tuple[str, bytes], row], MOST_THINGS),  # type: ignore[valid-type]
            Section.PARTS: _list_of(tuple[tuple[str, bytes], row], MOST_THINGS),  # type: ignore[valid-type]
            Section.JOURNAL: _list_of(tuple[tuple[int], record], MOST_THINGS),  # type: ignore[valid-type]
        }
        self.totals: BackupTotals | None = None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks up to the end, whose totals are then in `totals`.

        Raises:
            ValidationError: The file is damaged or truncated.
        """
        seen = BackupTotals()
        while True:
            kind, content = self._next()
            match kind:
                case b"N":
                    chunk = self._namespace_chunk(content)
                    seen.namespaces += len(chunk.namespaces)
                    yield chunk
                case b"S":
                    chunk = self._section_chunk(content)
                    name = "records" if chunk.section is Section.JOURNAL else str(chunk.section)
                    setattr(seen, name, getattr(seen, name) + len(chunk.held))
                    yield chunk
                case b"K":
                    yield Chunk(key=_secrets(content))
                case b"E":
                    self.totals = _decoded(content, BackupTotals)
                    if self.totals != seen:
                        raise _damaged("its totals are not those of what it holds")
                    if self._file.read(1):
                        raise _damaged("something follows its end")
                    return
                case _:
                    raise _damaged("it has a chunk of an unknown kind")

    def _namespace_chunk(self, content: bytes) -> Chunk:
        rows = _decoded(content, self._namespaces)
        return Chunk(namespaces=[_made(Namespace, self.header.namespace, one) for one in rows])

    def _section_chunk(self, content: bytes) -> Chunk:
        namespace, section, rest = _decoded(content, tuple[str, Section, msgspec.Raw])
        kind, fields = (Record, self.header.record) if section is Section.JOURNAL else (Row, self.header.row)
        made: Any = _made
        held = [
            Positioned(position, made(kind, fields, values))
            for position, values in _decoded(bytes(rest), self._sections[section])
        ]
        for one in held:
            _require_place(namespace, section, one)
        return Chunk(namespace=namespace, section=section, held=held)

    def _next(self) -> tuple[bytes, bytes]:
        """Return the kind and the content of the next chunk."""
        kind, length = self._exactly(1), int.from_bytes(self._exactly(4), "big")
        if length > MOST:
            raise _damaged("a chunk is too long")
        data = self._exactly(length)
        self._check = _checksum(self._check, kind, data)
        if self._exactly(_CHECK) != self._check:
            raise _damaged("a checksum is wrong")
        stream = zlib.decompressobj()
        try:
            content = stream.decompress(data, MOST)
        except zlib.error:
            raise _damaged("a chunk can't be decompressed") from None
        if not stream.eof or stream.unused_data:
            raise _damaged("a chunk is too long when it is decompressed, or is cut off")
        return kind, content

    def _exactly(self, count: int) -> bytes:
        data = self._file.read(count)
        if len(data) < count:
            raise _damaged("it ends too early")
        return data


def _list_of(kind: Any, most: int) -> Any:
    return Annotated[list[kind], msgspec.Meta(max_length=most)]


def _fields(kind: type, names: tuple[str, ...]) -> Any:
    """Return the type of a tuple that holds these fields of a struct, with numbers that a database can hold.

    Raises:
        ValidationError: A field is named twice, or one that has no default is missing.
    """
    required = {one.name for one in msgspec.structs.fields(kind) if one.required}
    if len(set(names)) != len(names) or not required <= set(names):
        raise _damaged("its header does not name the fields of what it holds")
    hints = get_type_hints(kind)
    return tuple.__class_getitem__(tuple(_bounded(hints[name]) for name in names))


def _bounded(hint: Any) -> Any:
    if hint is int:
        return Annotated[int, _WHOLE]
    return Annotated[int, _WHOLE] | None if hint == int | None else hint


def _secrets(content: bytes) -> list[bytes]:
    """Return the audit's secrets, which go into a file of keys as they are."""
    secrets: list[bytes] = _decoded(content, list[bytes])
    try:
        legal = parse_keys(b"\n".join(secrets).decode()) == secrets
    except (UnicodeDecodeError, ValidationError):
        legal = False
    if not legal:
        raise _damaged("a secret of its audit is none")
    return secrets


def _made(kind: type[T], names: tuple[str, ...], values: tuple[Any, ...]) -> T:
    return kind(**dict(zip(names, values, strict=True)))


def _decoded(content: bytes, kind: Any) -> Any:
    try:
        return msgspec.msgpack.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise _damaged(f"a chunk does not hold what it should ({error})") from None


def _require_place(namespace: str, section: Section, held: Positioned) -> None:
    """Check that something may stand where it does."""
    position, content = held
    if isinstance(content, Record):
        if (content.namespace, content.version) != (namespace, position[0]):
            raise _damaged("a record is not in its place")
        return
    if section is not Section.ENTRIES and section_of(str(position[0])) is not section:
        raise _damaged("a row is not in its place")
    if content.value is None or content.size < 0:
        raise _damaged("a row has no value")


def verified(file: IO[bytes]) -> tuple[BackupHeader, BackupTotals]:
    """Read a whole backup without keeping it, and return its header and totals.

    Raises:
        ValidationError: The file is no backup, or is damaged or truncated.
    """
    reader = BackupReader(file)
    for _ in reader.chunks():
        pass
    assert reader.totals is not None
    return reader.header, reader.totals


def _checksum(before: bytes, kind: bytes, data: bytes) -> bytes:
    return hashlib.blake2b(before + kind + data, digest_size=_CHECK).digest()


def _newer() -> Unsupported:
    return Unsupported("a newer version of Holdfast has written this backup: upgrade Holdfast")


def _damaged(how: str) -> ValidationError:
    return ValidationError(
        f"the backup is damaged: {how}. Nothing was restored; use another copy of the file", field="file"
    )


def _quiet(count: int) -> None:
    """Report no progress."""


async def back_up(
    store: Movable,
    file: IO[bytes],
    *,
    made_at: int,
    software: str,
    key: Sequence[bytes] | None = None,
    advance: Callable[[int], None] = _quiet,
) -> BackupTotals:
    """Write a backup of a store that may be in use.

    Args:
        store: The store's engine.
        file: The file to write.
        made_at: The time, in milliseconds since 1970.
        software: The version of Holdfast.
        key: The audit's secrets, if the backup is to hold them.
        advance: Called with the number of things that were written, to show progress.
    """
    async with store.snapshot() as snapshot:
        facts = msgspec.structs.replace(await snapshot.facts(), closed=None)
        header = BackupHeader(made_at=made_at, facts=facts, software=software, with_key=key is not None)
        writer = BackupWriter(file, header)
        if key is not None:
            writer.key(key)
        writer.namespaces(await snapshot.namespaces())
        for name in await snapshot.names():
            for section in Section:
                async for page in walk(snapshot, name, section):
                    writer.section(name, section, page)
                    advance(len(page))
    writer.end()
    return writer.totals


async def held_by(store: Movable) -> list[str]:
    """Return the names of the namespaces that a store holds, which a restore would remove."""
    async with store.snapshot() as snapshot:
        return await snapshot.names()


async def restore(
    store: Movable,
    file: IO[bytes],
    *,
    adopt: Callable[[Sequence[bytes]], object] = lambda secrets: None,
    advance: Callable[[int], None] = _quiet,
) -> BackupTotals:
    """Replace everything that a store holds by a backup. The store gets an epoch of its own.

    Args:
        store: The store's engine. No other process may have it open for writing.
        file: The backup, which is read twice.
        adopt: Takes the audit's secrets, if the backup holds them, once everything else is loaded.
        advance: Called with the number of things that were loaded, to show progress.

    Raises:
        ValidationError: The file is no backup, or is damaged or truncated. Nothing was changed.
    """
    _, totals = verified(file)
    file.seek(0)
    reader = BackupReader(file)
    secrets: list[bytes] = []
    async with _refusing(), store.loading() as loader:
        closed = f"{UNFINISHED}: run holdfast restore again [{seams.token(4)}]"
        await loader.remember(msgspec.structs.replace(await loader.facts(), closed=closed))
        await loader.drop_namespaces(await held_by(store))  # now that nobody can add one
        for chunk in reader.chunks():
            if chunk.namespaces:
                await loader.put_namespaces(chunk.namespaces)
            elif chunk.section is not None:
                await loader.put(chunk.namespace, chunk.section, chunk.held)
                advance(len(chunk.held))
            else:
                secrets += chunk.key
        if secrets:
            adopt(secrets)
        epoch = seams.token(8)
        await loader.remember(msgspec.structs.replace(reader.header.facts, epoch=epoch, closed=None))
    return totals


@contextlib.asynccontextmanager
async def _refusing() -> AsyncIterator[None]:
    """Raise what a driver says about contents that its database can't hold as an error of ours."""
    try:
        yield
    except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
        raise ValidationError(
            f"the backup holds something that this store can't: {error}. Nothing was restored", field="file"
        ) from error
