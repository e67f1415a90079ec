"""The NATS protocol: bytes in, messages and control lines out; commands in, bytes out.

A server passes vertical tabs, form feeds and bytes that are not UTF-8 in subjects and headers. A parser that
splits lines at any white space can be tricked into assigning a message to another subscription. So this one
splits at single spaces and ends lines at CRLF.

There is no I/O here. A message that can't be read is dropped and counted, and reading continues with the next
one. A line that violates the protocol ends the connection, since the start of the next line is unknown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta

from holdfast.bus.errors import ProtocolError

Event: TypeAlias = "Message | Control | ProtocolError"

PING: Final = b"PING\r\n"
PONG: Final = b"PONG\r\n"
LONGEST_LINE: Final = 65_536
"""The maximum length of a line. By default a server accepts 4096 bytes from a client."""
LARGEST_MESSAGE: Final = 64 * 1024 * 1024
"""The largest payload that a server can be configured to accept."""
USUAL_PAYLOAD: Final = 1024 * 1024
"""The largest payload that a server accepts by default."""
_CRLF: Final = b"\r\n"
_CONTROL: Final = frozenset({b"PING", b"PONG", b"INFO", b"-ERR", b"+OK"})
_WITH_REPLY: Final = {"MSG": 5, "HMSG": 6}
"""The number of words in the line of a message that has a reply subject."""


class Message(msgspec.Struct, gc=False):
    """A message of a subscription. `head` is the raw block of its headers."""

    sid: str
    subject: str
    reply: str
    data: bytes
    head: bytes = b""

    @property
    def status(self) -> str:
        """The status that the server itself sends, such as 503 for no responders; empty in other messages."""
        return self.head[8:12].decode(errors="replace").strip() if self.head.startswith(b"NATS/1.0 ") else ""

    def header(self, name: str) -> str | None:
        """Return the first value of a header, or None if it is missing or can't be decoded."""
        _, found, rest = self.head.partition(f"\r\n{name}:".encode())
        try:
            return rest.partition(_CRLF)[0].strip(b" ").decode() if found else None
        except UnicodeDecodeError:
            return None


class Control(msgspec.Struct, gc=False):
    """A control line with its argument: PING, PONG, INFO, -ERR or +OK."""

    verb: str
    rest: bytes


class Info(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a server's INFO that matter here. `ldm` means that the server is shutting down."""

    tls_required: bool = False
    tls_available: bool = False
    nonce: Annotated[str, Meta(max_length=256)] = ""
    max_payload: Annotated[int, Meta(ge=1, le=LARGEST_MESSAGE)] = USUAL_PAYLOAD
    connect_urls: list[str] | None = None
    ldm: bool = False
    version: Annotated[str, Meta(max_length=64)] = ""
    server_id: Annotated[str, Meta(max_length=256)] = ""
    cluster: Annotated[str, Meta(max_length=256)] = ""


class Reader:
    """Parses a server's stream, in whatever pieces it arrives.

    `needed` is the size of a message of which a part has arrived, if that part tells it. `held` is the size
    of that part.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.needed: int = 0
        self.held: int = 0
        self.unreadable: int = 0

    @property
    def missing(self) -> int:
        """The number of bytes still missing from a started message; 0 if there is none."""
        return self.needed - self.held if self.needed else 0

    def feed(self, data: bytes) -> list[Event]:
        """Parse the next piece of the stream and return the events that it completes.

        If a line violates the protocol, the last event is the error, and the reader must not be fed any more.
        """
        if self.held:
            self._pieces.append(data)
            self.held += len(data)
            if self.held < self.needed:
                return []
            data = b"".join(self._pieces)
        events: list[Event] = []
        try:
            rest = self._read(data, events)
        except ProtocolError as error:
            events.append(error)
        except ValueError:
            events.append(ProtocolError("the server sent a message with an unknown size"))
        else:
            self._pieces = [rest]
            self.held = len(rest)
        return events

    def _read(self, data: bytes, events: list[Event]) -> bytes:
        """Add complete events to `events` and return the rest of the data.

        The usual message is parsed inline, without calling our own functions, since this runs for each one.
        """
        position, last = 0, len(data) - 2
        while (end := data.find(_CRLF, position)) >= 0:
            start = end + 2
            try:
                words = data[position:end].decode().split(" ")
                readable = True
            except UnicodeDecodeError:
                words = data[position:end].decode("latin-1").split(" ")
                readable = False
            if words[0] == "MSG" and len(words) == 5 and readable:
                after = start + int(words[4])
                if start <= after <= last and data.startswith(_CRLF, after):
                    events.append(Message(words[2], words[1], words[3], data[start:after]))
                    position = after + 2
                    continue
            head, size = _sizes(words)
            if size < 0:
                events.append(control_of(data[position:end]))
                position = start
                continue
            body, after = start + head, start + size
            if after > last:
                self.needed = after + 2 - position
                return data[position:]
            if not data.startswith(_CRLF, after):
                raise ProtocolError("the server sent a message that does not end where it should")
            if readable:
                reply = words[3] if len(words) == _WITH_REPLY[words[0]] else ""
                events.append(Message(words[2], words[1], reply, data[body:after], data[start:body]))
            else:
                self.unreadable += 1
            position = after + 2
        return self._unfinished(data[position:])

    def _unfinished(self, line: bytes) -> bytes:
        if len(line) > LONGEST_LINE:
            raise ProtocolError("the server sent a line without an end")
        self.needed = 0
        return line


def _sizes(words: list[str]) -> tuple[int, int]:
    """Return the size of a message's headers and its total size, or 0 and -1 for a line without a message."""
    if words[0] == "MSG" and len(words) in (4, 5):
        head, size = 0, int(words[-1])
    elif words[0] == "HMSG" and len(words) in (5, 6):
        head, size = int(words[-2]), int(words[-1])
    else:
        return 0, -1
    if not 0 <= head <= size <= LARGEST_MESSAGE:
        raise ProtocolError("the server sent a message with an impossible size")
    return head, size


def control_of(line: bytes) -> Control:
    """Parse a control line, given without its CRLF.

    Raises:
        ProtocolError: It is not a control line.
    """
    verb, _, rest = line.partition(b" ")
    if verb not in _CONTROL:
        raise ProtocolError("the server sent a line that is not part of the protocol")
    return Control(verb.decode(), rest)


def info_of(control: Control) -> Info:
    """Parse a server's INFO.

    Raises:
        ProtocolError: It is not JSON, or a field is illegal.
    """
    try:
        return msgspec.json.decode(control.rest, type=Info)
    except (ValueError, RecursionError):  # the latter if it is nested too deeply
        raise ProtocolError("the server sent an INFO line that can't be read") from None


def connect(fields: Mapping[str, Any]) -> bytes:
    """Return the CONNECT command with these fields."""
    return b"CONNECT %b\r\n" % json.dumps(fields).encode()


def sub(subject: str, queue: str, sid: str) -> bytes:
    """Return the command that subscribes to a subject, in a queue group if one is named."""
    return f"SUB {subject} {queue} {sid}\r\n".encode() if queue else f"SUB {subject} {sid}\r\n".encode()


def unsub(sid: str) -> bytes:
    """Return the command that ends a subscription."""
    return f"UNSUB {sid}\r\n".encode()


def block(headers: Mapping[str, str]) -> bytes:
    """Encode headers to send before a payload. Names and values must each be one line."""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    return f"NATS/1.0\r\n{lines}\r\n".encode()


def pub(subject: str, payload: bytes, *, reply: str = "", head: bytes = b"") -> bytes:
    """Return the command that publishes a message, with its block of headers if it has any."""
    where = f"{subject} {reply}" if reply else subject
    if not head:
        return b"PUB %b %d\r\n%b\r\n" % (where.encode(), len(payload), payload)
    return b"HPUB %b %d %d\r\n%b%b\r\n" % (where.encode(), len(head), len(head) + len(payload), head, payload)


def reply_of(command: bytes) -> str:
    """Return the subject for the reply in a command; empty if it asks for none."""
    verb, *words = command.partition(b"\r\n")[0].decode().split(" ")
    return words[1] if len(words) == {"PUB": 3, "HPUB": 4}.get(verb) else ""
