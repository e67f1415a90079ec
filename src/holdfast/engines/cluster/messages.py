"""The messages of a shard's log: their headers, and outcomes in several parts.

Every message names the one before it twice: by its sequence (the base), which the server checks, and by its
id, which replicas check. An outcome that is larger than a message may be is a batch: JetStream stores all of
its parts or none.

Law: no I/O. A message is what its headers say, or an error.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from holdfast.bus.protocol import Message
from holdfast.engines.cluster.jetstream import sequence_of
from holdfast.errors import ValueTooLarge

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    Part: TypeAlias = tuple[Mapping[str, str], bytes]

HEADROOM: Final = 1024
"""The bytes of a message that are left to its headers."""
MOST_PARTS: Final = 1000
"""The number of messages that JetStream accepts in a batch."""

_BASE: Final = "Nats-Expected-Last-Subject-Sequence"
_ID: Final = "Nats-Msg-Id"
_PART_ID: Final = "Hf-Id"
_PART: Final = "Hf-Part"
_PREVIOUS: Final = "Hf-Prev"
_NODE: Final = "Hf-Node"
_LEASE: Final = "Hf-Lease"
_CHECK: Final = "Hf-Check"
_FORWARDED: Final = "Hf-Forwarded"
_FIRST: Final = "-"
"""Stands for the id of the message before the first one."""


class LogPlace(msgspec.Struct, frozen=True, gc=False):
    """A place in a shard's log: the sequence of a message, and its id."""

    seq: int = 0
    id: str = _FIRST

    def __str__(self) -> str:
        return f"{self.seq} ({self.id})"


class ForwardedName(NamedTuple):
    """The id of a group that another node forwarded, and the last sequence of the log that it knew."""

    id: str
    after: int


class Logged(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A whole message of the log, as a replica receives it."""

    place: LogPlace
    base: LogPlace
    node: str
    lease: int
    data: bytes
    check: str = ""
    """Where to send the hash of the contents right after this message, if that is asked for."""
    forwarded: tuple[str, ...] = ()
    """The ids of the groups in it that other nodes forwarded to its writer."""


class Proposal(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message that is to be published, the same at every attempt."""

    id: str
    base: LogPlace
    node: str
    lease: int
    data: bytes
    check: str = ""
    forwarded: tuple[str, ...] = ()

    def parts(self, max_payload: int) -> list[Part]:
        """Return the headers and the payload of every message that carries this one.

        Raises:
            ValueTooLarge: It does not fit a batch.
        """
        heading = {
            _BASE: str(self.base.seq),
            _PREVIOUS: self.base.id,
            _NODE: self.node,
            _LEASE: str(self.lease),
        }
        if self.check:
            heading[_CHECK] = self.check
        if self.forwarded:
            heading[_FORWARDED] = " ".join(self.forwarded)
        room = max_payload - HEADROOM
        if len(self.data) <= room:
            return [({_ID: self.id, **heading}, self.data)]
        pieces = [self.data[start : start + room] for start in range(0, len(self.data), room)]
        if len(pieces) > MOST_PARTS:
            raise ValueTooLarge(
                f"the write changes {len(self.data)} bytes at once, more than the log of the cluster accepts"
            )
        batch = secrets.token_hex(8)
        headers = [
            {
                "Nats-Batch-Id": batch,
                "Nats-Batch-Sequence": str(number),
                _PART_ID: self.id,
                _PART: f"{number}/{len(pieces)}",
            }
            for number in range(1, len(pieces) + 1)
        ]
        headers[0] |= heading
        headers[-1]["Nats-Batch-Commit"] = "1"
        return list(zip(headers, pieces, strict=True))


class Assembler:
    """Makes whole messages out of what a consumer delivers, in order."""

    def __init__(self) -> None:
        self._head: Message | None = None
        self._pieces: list[bytes] = []

    def add(self, message: Message) -> Logged | None:
        """Take the next message. Return the entry that it completes, or None.

        The last part of an outcome whose first parts were not delivered completes an entry without data,
        whose place can still be compared.
        """
        part = message.header(_PART)
        if part is None:
            return _entry(message, message, message.data)
        number, _, count = part.partition("/")
        if number == "1":
            self._head, self._pieces = message, []
        self._pieces.append(message.data)
        if number != count:
            return None
        head, data = self._head or message, b"".join(self._pieces)
        self._head, self._pieces = None, []
        return _entry(head, message, data)


def base_in(head: bytes) -> int:
    """Return the sequence of the base that a block of headers names; -1 if it names none."""
    return int(Message("", "", "", b"", head).header(_BASE) or -1)


def _entry(head: Message, last: Message, data: bytes) -> Logged:
    return Logged(
        place=LogPlace(sequence_of(last), last.header(_ID) or last.header(_PART_ID) or ""),
        base=LogPlace(int(head.header(_BASE) or -1), head.header(_PREVIOUS) or ""),
        node=head.header(_NODE) or "",
        lease=int(head.header(_LEASE) or 0),
        data=data,
        check=head.header(_CHECK) or "",
        forwarded=tuple((head.header(_FORWARDED) or "").split()),
    )
