"""The format of a backup: a header, and sections that each carry a checksum of everything before their end.

The file begins with a line of text, `holdfast backup 1`. Each section has a kind (1 byte), the length of its
content (4 bytes, big-endian), the content, and 16 bytes of BLAKE2b over the previous checksum, the kind and
the content. The content is MessagePack, compressed with zlib. The first section is the header, which names
the fields of rows, records and namespaces; the last one is the end, with the totals. So a section that is
altered, missing, added or in another place is noticed, and so is a missing end.

Law: only this module knows the format. It keeps one section in memory and never reads past the end.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import IO, TYPE_CHECKING, Any, Final

import msgspec

from holdfast.engine.moving import Facts, Marked, Shelf
from holdfast.errors import Unsupported, ValidationError
from holdfast.rows import Namespace, Record, Row

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FORMAT: Final = 1
MAGIC: Final = b"holdfast backup "
MOST: Final = 512 * 1024 * 1024
"""The most bytes that a section may have: more means that the file is none of ours."""

_CHECK: Final = 16
_HEADER: Final = b"H"
_NAMESPACES: Final = b"N"
_SHELF: Final = b"S"
_KEY: Final = b"K"
_END: Final = b"E"


class BackupTotals(msgspec.Struct, kw_only=True):
    """The numbers of what a backup holds."""

    namespaces: int = 0
    entries: int = 0
    rows: int = 0
    parts: int = 0
    records: int = 0


class BackupHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The first section: when and from which store the backup was made, and the fields that it uses."""

    made_at: int
    facts: Facts
    software: str
    with_key: bool
    row: tuple[str, ...] = Row.__struct_fields__
    record: tuple[str, ...] = Record.__struct_fields__
    namespace: tuple[str, ...] = Namespace.__struct_fields__


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A section after the header: namespaces, part of a shelf, or the audit's secrets."""

    namespaces: list[Namespace] = []
    namespace: str = ""
    shelf: Shelf | None = None
    held: list[Marked] = []
    key: list[bytes] = []


class BackupWriter:
    """Writes a backup section by section."""

    def __init__(self, file: IO[bytes], header: BackupHeader) -> None:
        self._file = file
        self._check = b""
        self.totals = BackupTotals()
        self._file.write(MAGIC + str(FORMAT).encode() + b"\n")
        self._write(_HEADER, header)

    def namespaces(self, namespaces: Sequence[Namespace]) -> None:
        """Write the rows of namespaces."""
        self.totals.namespaces += len(namespaces)
        self._write(_NAMESPACES, [msgspec.structs.astuple(one) for one in namespaces])

    def shelf(self, namespace: str, shelf: Shelf, held: Sequence[Marked]) -> None:
        """Write a part of a shelf."""
        name = "records" if shelf is Shelf.JOURNAL else shelf.value
        setattr(self.totals, name, getattr(self.totals, name) + len(held))
        contents = [(one.mark, msgspec.structs.astuple(one.content)) for one in held]
        self._write(_SHELF, (namespace, shelf.value, contents))

    def key(self, secrets: Sequence[bytes]) -> None:
        """Write the audit's secrets."""
        self._write(_KEY, secrets)

    def end(self) -> None:
        """Write the end. Without it the backup is refused."""
        self._write(_END, self.totals)

    def _write(self, kind: bytes, content: object) -> None:
        data = zlib.compress(msgspec.msgpack.encode(content), 1)
        self._check = _checksum(self._check, kind, data)
        self._file.write(kind + len(data).to_bytes(4, "big") + data + self._check)


class BackupReader:
    """Reads a backup section by section, and checks each before it is returned.

    Raises:
        ValidationError: The file is no backup.
        Unsupported: A newer Holdfast has written it.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._check = b""
        line = file.readline(len(MAGIC) + 8)
        if not line.startswith(MAGIC) or not line.endswith(b"\n"):
            raise ValidationError("this is not a Holdfast backup", field="file")
        if line != MAGIC + str(FORMAT).encode() + b"\n":
            raise Unsupported("a newer version of Holdfast has written this backup: upgrade Holdfast")
        kind, content = self._next()
        if kind != _HEADER:
            raise _damaged("it has no header")
        self.header = msgspec.convert(content, BackupHeader)
        for known, used in _FIELDS.items():
            if not set(getattr(self.header, known)) <= set(used.__struct_fields__):
                raise Unsupported("a newer version of Holdfast has written this backup: upgrade Holdfast")
        self.totals: BackupTotals | None = None

    def sections(self) -> Iterator[Section]:
        """Yield the sections up to the end, whose totals are then in `totals`.

        Raises:
            ValidationError: The file is damaged or truncated.
        """
        while True:
            kind, content = self._next()
            match kind:
                case b"N":
                    names = self.header.namespace
                    yield Section(
                        namespaces=[Namespace(**dict(zip(names, one, strict=True))) for one in content]
                    )
                case b"S":
                    yield self._shelf(*content)
                case b"K":
                    yield Section(key=content)
                case b"E":
                    self.totals = msgspec.convert(content, BackupTotals)
                    if self._file.read(1):
                        raise _damaged("something follows its end")
                    return
                case _:
                    raise _damaged("it has a section of an unknown kind")

    def _shelf(self, namespace: str, name: str, contents: list[Any]) -> Section:
        shelf = Shelf(name)
        kind, fields = (Record, self.header.record) if shelf is Shelf.JOURNAL else (Row, self.header.row)
        held = [
            Marked(tuple(mark), kind(**dict(zip(fields, values, strict=True)))) for mark, values in contents
        ]
        return Section(namespace=namespace, shelf=shelf, held=held)

    def _next(self) -> tuple[bytes, Any]:
        kind, length = self._exactly(1), int.from_bytes(self._exactly(4), "big")
        if length > MOST:
            raise _damaged("a section is too long")
        data = self._exactly(length)
        self._check = _checksum(self._check, kind, data)
        if self._exactly(_CHECK) != self._check:
            raise _damaged("a checksum is wrong")
        return kind, msgspec.msgpack.decode(zlib.decompress(data))

    def _exactly(self, count: int) -> bytes:
        data = self._file.read(count)
        if len(data) < count:
            raise _damaged("it ends too early")
        return data


_FIELDS: Final[dict[str, Any]] = {"row": Row, "record": Record, "namespace": Namespace}


def verified(file: IO[bytes]) -> tuple[BackupHeader, BackupTotals]:
    """Read a whole backup without keeping it, and return its header and totals.

    Raises:
        ValidationError: The file is no backup, or is damaged or truncated.
    """
    reader = BackupReader(file)
    for _ in reader.sections():
        pass
    assert reader.totals is not None
    return reader.header, reader.totals


def _checksum(before: bytes, kind: bytes, data: bytes) -> bytes:
    return hashlib.blake2b(before + kind + data, digest_size=_CHECK).digest()


def _damaged(how: str) -> ValidationError:
    return ValidationError(
        f"the backup is damaged: {how}. Nothing was restored; use another copy of the file", field="file"
    )
