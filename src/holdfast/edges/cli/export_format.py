"""The format of an export: JSON Lines, a header and then one entry per line, ordered by version.

Law: only this module knows the format of a line. A line that is read is checked against the same rules as a
call, so a file cannot bring anything into a store that a call could not.
"""

from __future__ import annotations

import contextlib
import json
from datetime import datetime
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING, Any, Final

import msgspec

from holdfast import rules
from holdfast.errors import Unsupported, ValidationError
from holdfast.model import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.verbs.keys import Verbs

FORMAT: Final = 1
"""The version of this format, in the field `holdfast` of the header."""

_IN_MEMORY: Final = 16 * 1024 * 1024
"""Maximum number of bytes of entries that are sorted in memory."""
_LONGEST: Final = 16 * 1024 * 1024
"""Maximum number of bytes of a line. No entry has so many, even if each of its characters is escaped."""


def lines_of(file: IO[bytes], *, field: str) -> Iterator[bytes]:
    """Yield the lines of a file, of which memory holds one at a time.

    Raises:
        ValidationError: A line is too long to be one of ours.
    """
    number = 1
    while line := file.readline(_LONGEST + 1):
        if len(line) > _LONGEST:
            raise ValidationError(f"line {number} has more than {_LONGEST} bytes", field=field)
        yield line
        number += 1


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


@contextlib.contextmanager
def sorting() -> Iterator[Sorter]:
    """Yield a sorter for any number of entries."""
    with SpooledTemporaryFile(max_size=_IN_MEMORY) as file:
        yield Sorter(file)


def read_entry(line: bytes, verbs: Verbs, *, most: int) -> Entry:
    """Parse the entry in a line and check that it may be loaded into the namespace of these verbs.

    `most` is the size of the largest value that the namespace allows.

    Raises:
        ValidationError: The line holds no valid entry.
        ValueTooLarge: Its value is too large.
    """
    entry = _decoded(line)
    verbs.load([entry], keep_versions=True)
    if len(line) > most:
        rules.encode_value(entry.value, most=most)
    return entry


def _decoded(line: bytes) -> Entry:
    try:
        return msgspec.json.decode(line, type=Entry)
    except (msgspec.MsgspecError, RecursionError):
        pass
    try:  # the slow decoder also accepts the longest integers and reports errors in other JSON
        return msgspec.convert(_slowly(line), Entry)
    except msgspec.ValidationError as error:
        raise ValidationError(f"this is not an entry: {error}", field="line") from None


def _slowly(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        raise ValidationError("this is not JSON", field="line") from None
