"""The format of an export: JSON Lines, a header and then one entry each, by version.

Law: what a line looks like is known here and nowhere else. A line that is read is checked against the same
rules as a call, so that nothing gets into a store through a file that could not get there otherwise.
"""

from __future__ import annotations

import contextlib
import json
from datetime import datetime
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING, Any, Final

import msgspec

from holdfast.errors import Unsupported, ValidationError
from holdfast.model import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.verbs.keys import Verbs

FORMAT: Final = 1
"""The number of this format, in the field `holdfast` of the header."""

_IN_MEMORY: Final = 16 * 1024 * 1024
"""How many bytes of entries are sorted without a file."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line: of which namespace the entries are, and when they were read."""

    holdfast: int
    namespace: str
    exported_at: datetime

    @classmethod
    def read(cls, line: bytes) -> Header:
        """The header in a line.

        Raises:
            ValidationError: It is none.
            Unsupported: A newer Holdfast has written it.
        """
        try:
            header = msgspec.json.decode(line, type=cls)
        except msgspec.MsgspecError:
            raise ValidationError("line 1 is not the header of an export of Holdfast", field="line") from None
        if header.holdfast != FORMAT:
            raise Unsupported(
                f"the file has format {header.holdfast} and this version knows {FORMAT}: upgrade Holdfast"
            )
        return header

    def line(self) -> bytes:
        """As it is written."""
        return msgspec.json.encode(self) + b"\n"


class Sorter:
    """Gathers entries in any order and gives their lines back by version, without keeping them in memory.

    An entry that was written past Holdfast has the version 0. Such entries come last: they will be given new
    versions, which must not take those of others.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._places: list[tuple[float, int, int]] = []

    @property
    def count(self) -> int:
        """How many entries were taken."""
        return len(self._places)

    def add(self, entry: Entry) -> None:
        """Take an entry."""
        line = msgspec.json.encode(entry) + b"\n"
        self._places.append((entry.version or float("inf"), self._file.tell(), len(line)))
        self._file.write(line)

    def lines(self) -> Iterator[bytes]:
        """The lines of the entries taken."""
        for _, place, size in sorted(self._places):
            self._file.seek(place)
            yield self._file.read(size)


@contextlib.contextmanager
def sorting() -> Iterator[Sorter]:
    """A sorter with room for any number of entries."""
    with SpooledTemporaryFile(max_size=_IN_MEMORY) as file:
        yield Sorter(file)


def read_entry(line: bytes, verbs: Verbs) -> Entry:
    """The entry in a line, which may be loaded into the namespace of these verbs.

    Raises:
        ValidationError: There is none, or it is not legal.
        ValueTooLarge: Its value is.
    """
    entry = _decoded(line)
    verbs.load([entry], keep_versions=True)
    return entry


def _decoded(line: bytes) -> Entry:
    try:
        return msgspec.json.decode(line, type=Entry)
    except (msgspec.MsgspecError, RecursionError):
        pass
    try:  # the slow decoder also knows the longest integers, and what is wrong with other JSON
        return msgspec.convert(_slowly(line), Entry)
    except msgspec.ValidationError as error:
        raise ValidationError(f"this is no entry: {error}", field="line") from None


def _slowly(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        raise ValidationError("this is not JSON", field="line") from None
