"""What the clients of a node did, beyond reads and writes of single keys, and how it is written down.

A step holds only what its client knew. A write is in the file before it is sent, so that a process that
is killed leaves it there as a step whose outcome is unknown.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeAlias, TypeVar

import msgspec

from tests.linear.history import Operation, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

Kind: TypeAlias = Literal["incr", "append", "grant", "fenced", "audited", "watch"]
Record: TypeAlias = "Step | Operation"
T = TypeVar("T")


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step of one client. Times are nanoseconds of CLOCK_MONOTONIC; see `history.Operation`.

    Attributes:
        kind: An increment by one, a transaction that appends to lists, a lock that is taken, a write under
            that lock, a write to the audited namespace, or a change that a watch yielded.
        client: The client, or the life of a watch.
        call: When the client called.
        end: When the call returned, if it did.
        outcome: How it ended.
        key: The counter, or the key.
        request_id: The id of the request.
        token: The token of the lock.
        added: The element that the transaction appended to each list.
        found: The lists as the transaction read them.
        value: The value in the reply.
        version: The version in the reply.
        replies: The value and version of every reply to a request that was sent several times.
        code: The code of the error.
    """

    kind: Kind
    client: str
    call: int
    end: int | None = None
    outcome: Outcome = "unknown"
    key: str = ""
    request_id: str | None = None
    token: int | None = None
    added: dict[str, int] = {}
    found: dict[str, list[int]] = {}
    value: int | None = None
    version: int | None = None
    replies: list[tuple[int, int]] = []
    code: str | None = None

    def __str__(self) -> str:
        fields = {
            name: getattr(self, name)
            for name in self.__struct_fields__
            if name not in ("kind", "client", "call", "end") and getattr(self, name)
        }
        end = "never" if self.end is None else f"{self.end / 1e6:.3f}"
        return f"[{self.call / 1e6:.3f} … {end} ms] {self.client}: {self.kind} {fields}"


class Line(msgspec.Struct, Generic[T], array_like=True):
    """A line of a file: the number of a record in this file, and the record as it is known by then."""

    number: int
    record: T


class Recorder:
    """A file that records are appended to, with one write each, so that a kill loses none.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._file: Final = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._number = 0

    def begin(self, record: Record) -> int:
        """Write down a record that has not ended. Return its number."""
        self._number += 1
        self._write(self._number, record)
        return self._number

    def end(self, record: Record, number: int | None = None) -> None:
        """Write down how a record ended; without a number, one that was not begun."""
        if number is None:
            self._number += 1
            number = self._number
        self._write(number, record)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _write(self, number: int, record: Record) -> None:
        os.write(self._file, msgspec.json.encode(Line(number, record)) + b"\n")


def recorded(paths: Iterable[Path], kind: type[T]) -> list[T]:
    """Return the records of files, each as it was last written. A line that is not whole is left out."""
    found: list[T] = []
    decoder = msgspec.json.Decoder(Line[kind])  # type: ignore[valid-type]
    for path in paths:
        records: dict[int, T] = {}
        for line in path.read_bytes().split(b"\n")[:-1]:
            one = decoder.decode(line)
            records[one.number] = one.record
        found += records.values()
    return found


def of_kind(steps: Sequence[Step], *kinds: Kind) -> list[Step]:
    """Return the steps of these kinds."""
    return [step for step in steps if step.kind in kinds]
