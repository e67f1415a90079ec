"""A NATS connection that no message can derail.

The library's own client takes a line apart at whatever Python calls white space, though the server lets
vertical tabs and form feeds through in subjects; so a message could pass itself off as another
subscription's, or cut the connection. It stops reading for good when a subject is not valid UTF-8 or a header
is odd, and it closes for good at most errors that a server reports. Its flush is no barrier: the PING goes
out ahead of what waits to be sent.

Between a message and who takes it the library has a queue and a task, and as many again between a reply and
the server. Each costs everybody a turn of the loop, and the queues fill; `listen` and `send` do without.

Law: a message that can't be read is dropped and counted, and the next one is read. Whatever the server thinks
fatal it ends by itself; then this connects again, for as long as it is open. What waits to be sent is
bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any, Final

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import ProtocolError
from nats.protocol.parser import AWAITING_CONTROL_LINE, AWAITING_MSG_PAYLOAD, Parser

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nats.aio.subscription import Subscription

PING_SECONDS: Final = 5
MOST_UNSENT: Final = 16 * 1024 * 1024
"""How many bytes may wait for a server that does not take them."""
CLOSE_SECONDS: Final = 1.0
"""For how long the end of a connection is waited for."""
_CRLF: Final = b"\r\n"
_PING: Final = b"PING\r\n"
_FIRST: Final = {"allow_reconnect": False, "max_reconnect_attempts": 1, "reconnect_time_wait": 0.1}
_LATER: Final = {"allow_reconnect": True, "max_reconnect_attempts": -1, "reconnect_time_wait": 1}


class Connection(Client):
    """A client for those who listen where others may send whatever they like."""

    def __init__(self) -> None:
        super().__init__()
        self._ps = _Parser(self)
        self._takers: dict[int, Callable[[Msg], None]] = {}
        self.unreadable = 0

    async def reach(self, servers: str | list[str], **options: Any) -> None:
        """Connect, or fail soon. Once connected, every later loss of the connection is mended by itself.

        Args:
            servers: Where to try; the first that answers is taken.
            **options: As `connect` takes them.

        Raises:
            NatsError: No server can be reached, or it does not let this user in.
        """
        try:
            await self.connect(servers, **{"ping_interval": PING_SECONDS, **options, **_FIRST})
        except BaseException:
            if self._transport is not None:  # the library leaves it open
                await self.close()
            raise
        self.options |= _LATER

    async def listen(self, subject: str, take: Callable[[Msg], None], *, queue: str = "") -> Subscription:
        """Have each message at a subject taken as soon as it is read, in the order of the connection.

        Args:
            subject: Where to listen; it may hold wildcards.
            take: Is given each message, without its headers. It must put it away rather than deal with it.
            queue: The group whose members share the messages.
        """

        async def at_first(message: Msg) -> None:
            take(message)

        subscription = await self.subscribe(subject, queue=queue, cb=at_first)
        self._takers[subscription._id] = take
        return subscription

    def send(self, subject: str, payload: bytes, headers: Mapping[str, str] | None = None) -> bool:
        """Have a message sent, without waiting; False if it can't be and is dropped.

        Args:
            subject: Where to; that it is one is the caller's business.
            payload: No more than the server takes.
            headers: Names and values of one line each.
        """
        command = _publication(subject.encode(), payload, headers)
        room = MOST_UNSENT if self.is_connected else self._max_pending_size
        if self.is_closed or self._pending_data_size + len(command) > room:
            return False
        self._pending.append(command)
        self._pending_data_size += len(command)
        self.stats["out_msgs"] += 1
        self.stats["out_bytes"] += len(payload)
        if self.is_connected and self._flush_queue is not None and self._flush_queue.empty():
            self._flush_queue.put_nowait(asyncio.get_running_loop().create_future())
        return True

    async def close(self) -> None:
        """Disconnect, soon; what could not be sent to a server that is gone is dropped."""
        if not self.is_connected:
            self._pending.clear()
            self._pending_data_size = 0
        # The server has gone at this very moment, or the library writes to a transport that is closed, or it
        # waits for the end of one that failed at TLS, which never comes.
        with contextlib.suppress(OSError, RuntimeError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await super().close()

    async def _send_ping(self, future: asyncio.Future[Any] | None = None) -> None:
        """Ask for a PONG behind all that was sent before, so that it proves that the server has seen that."""
        self._pongs.append(asyncio.get_running_loop().create_future() if future is None else future)
        await self._send_command(_PING)
        await self._flush_pending()

    async def _attempt_reconnect(self) -> None:
        """Connect again without what was meant for the connection that is lost."""
        keep = self._max_pending_size > 0
        self._pending = [command for command in self._pending if keep and command != _PING]
        self._pending_data_size = sum(map(len, self._pending))
        await super()._attempt_reconnect()

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Msg | None:
        try:
            message: Msg = super()._build_message(sid, subject, reply, data, headers)
        except UnicodeDecodeError:
            self.unreadable += 1
            return None
        return message

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        take = self._takers.get(sid)
        if take is None:
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        self.stats["in_msgs"] += 1
        self.stats["in_bytes"] += len(data)
        if sid in self._subs and (message := self._build_message(sid, subject, reply, data, None)):
            try:
                take(message)
            except Exception as defect:  # reading must go on
                await self._error_cb(defect)

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        try:
            return await super()._process_headers(headers)
        except (IndexError, UnicodeDecodeError):
            return None

    async def _process_err(self, err_msg: str) -> None:
        await self._error_cb(NatsError(f"nats: {err_msg}"))


def _publication(subject: bytes, payload: bytes, headers: Mapping[str, str] | None) -> bytes:
    """A message as it is told to the server."""
    if not headers:
        return b"PUB %b %d\r\n%b\r\n" % (subject, len(payload), payload)
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"NATS/1.0\r\n{lines}\r\n".encode()
    return b"HPUB %b %d %d\r\n%b%b\r\n" % (subject, len(head), len(head) + len(payload), head, payload)


class _Parser(Parser):
    """Takes apart what the server sends, at its spaces and line ends and nowhere else."""

    _addressed: tuple[int, bytes, bytes]

    async def parse(self, data: bytes = b"") -> None:
        self.buf.extend(data)
        while self.buf:
            if self.state == AWAITING_CONTROL_LINE:
                end = self.buf.find(_CRLF)
                if end < 0:
                    return
                line = bytes(self.buf[:end])
                del self.buf[: end + 2]
                await self._control(line)
            elif len(self.buf) < self.needed + 2:
                return
            else:
                await self._message()

    async def _control(self, line: bytes) -> None:
        match line.split(b" "):
            case [b"MSG", subject, sid, reply, size]:
                self._expect(subject, sid, reply, b"0", size)
            case [b"MSG", subject, sid, size]:
                self._expect(subject, sid, b"", b"0", size)
            case [b"HMSG", subject, sid, head, size]:
                self._expect(subject, sid, b"", head, size)
            case [b"HMSG", subject, sid, reply, head, size]:
                self._expect(subject, sid, reply, head, size)
            case [b"PING", *_]:
                await self.nc._process_ping()
            case [b"PONG", *_]:
                await self.nc._process_pong()
            case [b"INFO", *_]:
                await self.nc._process_info(json.loads(line[5:]))
            case [b"-ERR", *_]:
                await self.nc._process_err(line[5:].decode(errors="replace").strip(" '"))
            case [b"+OK", *_]:
                pass
            case _:
                raise ProtocolError

    def _expect(self, subject: bytes, sid: bytes, reply: bytes, head: bytes, size: bytes) -> None:
        self._addressed = int(sid), subject, reply
        self.header_needed, self.needed = int(head), int(size)
        self.state = AWAITING_MSG_PAYLOAD

    async def _message(self) -> None:
        whole = bytes(self.buf[: self.needed])
        del self.buf[: self.needed + 2]
        self.state = AWAITING_CONTROL_LINE
        head = self.header_needed
        await self.nc._process_msg(*self._addressed, whole[head:], whole[:head] or None)
