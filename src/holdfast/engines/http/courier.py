"""Requests and their replies over HTTP, on a few connections that are kept.

Law: as in `holdfast.engines.remote.mailbox`. A request that was not sent raises `Unavailable`. When a
connection is lost, a sent write raises `OutcomeUnknown` and is never resent; a read is sent again within its
own timeout. An answer that does not come from Holdfast, but from a proxy, says nothing about a write.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from holdfast.clock import TICKS
from holdfast.engines.http.line import Broken, HttpAsked, HttpLine
from holdfast.engines.remote.service_time import ServiceTime
from holdfast.errors import OutcomeUnknown, PermissionDenied, Unavailable, ValueTooLarge
from holdfast.wire.blobs import FIELDS, HEADER, in_ascii

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.engines.http.address import HttpAddress
    from holdfast.engines.http.line import HttpReply
    from holdfast.engines.remote.mailbox import Late

MOST_PAYLOAD: Final = 1_048_576
"""Maximum number of bytes of a request."""
MOST_LINES: Final = 64
"""Number of connections from which on unused ones are ended. Each namespace has one of its own."""
AGAIN_SECONDS: Final = 0.2
"""The interval between attempts to send a read again or to follow changes again."""
PROBLEM: Final = "application/problem+json"
TOLD: Final = FIELDS.lower()


class HttpAnswer(NamedTuple):
    """A reply as NATS would spell it. `head` says whether its fields are in `told` and its data is bytes."""

    data: bytes
    head: bytes = b""
    told: str | None = None

    def header(self, name: str) -> str | None:
        """Return the header with the fields."""
        return self.told if name == FIELDS else None


class HttpRoute:
    """The connection for the calls of one namespace, which are sent in the order in which they are begun."""

    def __init__(self) -> None:
        self.order: asyncio.Lock = asyncio.Lock()
        self.line: HttpLine | None = None


class Following:
    """A stream that is followed."""

    def __init__(self, task: asyncio.Task[None]) -> None:
        self._task = task

    def cancel(self) -> None:
        """Follow it no longer."""
        self._task.cancel()


class Courier(ServiceTime):
    """Sends requests and returns their replies.

    Args:
        address: The place of the service, and the token for it.
    """

    def __init__(self, address: HttpAddress) -> None:
        super().__init__()
        self._address = address
        self._tls: ssl.SSLContext | None = None
        self._ways: dict[str, HttpRoute] = {}
        self._under_way = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._closed = True
        self._following: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Connect.

        Raises:
            Unavailable: No service can be reached.
        """
        self._tls = self._address.context()
        self._closed = False
        try:
            (await self._connected()).end()
        except Unavailable:
            self._closed = True
            raise

    async def close(self) -> None:
        """Wait until every pending request has ended, then disconnect."""
        self._closed = True
        for task in self._following:
            task.cancel()
        await asyncio.gather(*self._following, return_exceptions=True)
        await self._quiet.wait()
        for way in self._ways.values():
            if way.line is not None:
                way.line.end()
        self._ways.clear()

    async def ask(
        self,
        subject: str,
        payload: bytes,
        *,
        seconds: float,
        late: Late,
        repeat: bool = False,
        told: str | None = None,
    ) -> HttpAnswer:
        """Post a request to a path and wait for the reply, as the plugin dialect of NATS would spell it.

        Args:
            subject: The path.
            payload: The body of the request.
            seconds: The timeout.
            late: Makes the error to raise if the reply does not arrive in time.
            repeat: Whether the request may be sent again after a lost connection. Never set it for a write.
            told: The fields of the request, if its body is bytes.

        Raises:
            Unavailable: The service can't be reached.
            ValueTooLarge: The payload is larger than a service accepts.
            OutcomeUnknown: The connection was lost before the reply to a write arrived.
        """
        if len(payload) > MOST_PAYLOAD:
            raise ValueTooLarge(f"the request has {len(payload)} bytes, more than {MOST_PAYLOAD}")
        reply = await self.exchange(
            "POST", subject, payload, seconds=seconds, late=late, repeat=repeat, told=told
        )
        return self._understood(subject, reply, repeat=repeat)

    async def exchange(
        self,
        method: str,
        path: str,
        payload: bytes | None,
        *,
        seconds: float,
        late: Late,
        repeat: bool,
        told: str | None = None,
    ) -> HttpReply:
        """Send a request and return the response; see `ask`."""
        if self._closed:
            raise Unavailable(f"there is no connection to {self._address.shown}")
        self._under_way += 1
        self._quiet.clear()
        try:
            async with asyncio.timeout(seconds):
                return await self._attempts(HttpAsked(method, path, payload, _headed(told)), repeat=repeat)
        except TimeoutError:
            raise late() from None
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._quiet.set()

    async def _attempts(self, asked: HttpAsked, *, repeat: bool) -> HttpReply:
        lost = False
        while True:
            try:
                return await self._once(asked)
            except Unavailable:
                if not lost:
                    raise
                await asyncio.sleep(AGAIN_SECONDS)  # the service may be restarting
            except Broken:
                lost = True
                if not repeat:
                    raise OutcomeUnknown(
                        f"the connection to {self._address.shown} was lost before a reply to {asked.path} "
                        "came: it may or may not have been done"
                    ) from None
                await asyncio.sleep(AGAIN_SECONDS)

    async def _once(self, asked: HttpAsked) -> HttpReply:
        path = asked.path
        way = self._ways.setdefault(path.partition(":")[0], HttpRoute())
        async with way.order:  # waiting tasks get it in the order in which they came
            if way.line is None or not way.line.usable:
                self._make_room()
                way.line = await self._connected()
            sent = TICKS()
            answer = way.line.ask(asked)
            await way.line.drained()
        reply = await answer
        self._learn_time(reply.headers.get("holdfast-time"), sent)
        if "holdfast-warning" in reply.headers:
            self._warn(path, reply.headers["holdfast-warning"])
        return reply

    def _make_room(self) -> None:
        """End a connection that is not in use, if there are too many."""
        if len(self._ways) <= MOST_LINES:
            return
        for place, way in self._ways.items():
            if way.line is not None and way.line.idle and not way.order.locked():
                way.line.end()
                del self._ways[place]
                return

    async def _connected(self) -> HttpLine:
        try:
            return await HttpLine.to(self._address, self._tls)
        except ssl.SSLCertVerificationError as error:
            raise Unavailable(
                f"the service at {self._address.shown} can't be trusted: {error.verify_message}; name the "
                "authority that signed its certificate in the URL, as ?tls_ca=<file>"
            ) from None
        except OSError:
            raise Unavailable(f"no Holdfast service can be reached at {self._address.shown}") from None

    def _understood(self, path: str, reply: HttpReply, *, repeat: bool) -> HttpAnswer:
        """Return a reply as NATS would spell it."""
        kind = reply.headers.get("content-type", "")
        if reply.status == 200 and kind == "application/json" and reply.body[:1] == b"{":
            rest = reply.body[1:]
            return HttpAnswer(b'{"success":true' + (b"" if rest == b"}" else b",") + rest)
        if reply.status == 200 and TOLD in reply.headers:
            return HttpAnswer(reply.body, HEADER, reply.headers[TOLD])
        if kind != PROBLEM:
            raise self._strange(path, reply, repeat=repeat)
        fields: dict[str, Any] = msgspec.json.decode(reply.body)
        fields |= {"success": False, "error_code": fields.pop("code"), "message": fields.pop("detail")}
        return HttpAnswer(msgspec.json.encode(fields))

    def _strange(self, path: str, reply: HttpReply, *, repeat: bool) -> Exception:
        """Return the error for an answer that a proxy or another program gave."""
        said = f"{self._address.shown} answered {path} with the status {reply.status}"
        if reply.status >= 500 and not repeat:
            return OutcomeUnknown(
                f"{said}, which does not come from Holdfast: it may or may not have been done"
            )
        if reply.status in (401, 403, 421):
            return PermissionDenied(f"{said}: {reply.body[:200].decode('ascii', 'replace')}")
        return Unavailable(f"{said}, which does not come from Holdfast")

    def listen(self, subject: str, heard: Callable[[Any], None]) -> Following:
        """Follow the stream of events at a path, and call a function whenever something comes."""
        task = asyncio.get_running_loop().create_task(self._follow(subject, heard))
        self._following.add(task)
        task.add_done_callback(self._following.discard)
        return Following(task)

    async def _follow(self, path: str, heard: Callable[[Any], None]) -> None:
        while True:
            line = None
            try:
                line = await self._connected()
                async for piece in line.follow(path):
                    heard(piece)
            except (Broken, Unavailable):
                pass
            finally:
                if line is not None:
                    line.end()
            await asyncio.sleep(AGAIN_SECONDS)


def _headed(told: str | None) -> str:
    """Return the header that tells the fields of a body that is bytes."""
    return "" if told is None else f"{FIELDS}: {in_ascii(told)}\r\n"
