"""A client over HTTP, and the few connections over which its requests and their replies travel.

The service begins the requests of a connection in the order in which they were sent, without waiting for the
answers to earlier ones, and answers in this order. So one connection keeps the order of its calls, as one to
NATS does.

A request that was not sent raises `Unavailable`. When a
connection is lost, a sent write raises `OutcomeUnknown` and is never resent; a read is sent again within its
own timeout. An answer that does not come from Holdfast, but from a proxy, says nothing about a write.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

import msgspec
from msgspec import UNSET, UnsetType

from holdfast import masking, seams
from holdfast.bus.address import seconds_in
from holdfast.client.client import Client
from holdfast.client.transport import Late, ServiceTime
from holdfast.errors import OutcomeUnknown, PermissionDenied, Unavailable, ValidationError, ValueTooLarge
from holdfast.tracing import Trace
from holdfast.wire.blobs import FIELDS, HEADER, in_ascii
from holdfast.wire.dialects import PLUGIN, Dialect
from holdfast.wire.errors import ERRORS

MOST_HEAD: Final = 65_536
MOST_BODY: Final = 64 * 1024 * 1024
"""Maximum number of bytes of the head and of the body of a response."""
IDLE_SECONDS: Final = 30.0
"""Seconds after which an idle connection is not used again. The service ends it after 60."""
JSON: Final = "Content-Type: application/json"
MOST_PAYLOAD: Final = 1_048_576
"""Maximum number of bytes of a request."""
MOST_LINES: Final = 64
"""Number of connections from which on unused ones are ended. Each namespace has one of its own."""
AGAIN_SECONDS: Final = 0.2
"""The interval between attempts to send a read again or to follow changes again."""
REFUSED_SECONDS: Final = 5.0
"""The interval between attempts to follow changes where the service has refused that. It counts each."""
PROBLEM: Final = "application/problem+json"
TOLD: Final = FIELDS.lower()
_BODILESS: Final = (204, 304)
"""The statuses of answers that have no body."""
_FRAMING: Final = ("content-length", "transfer-encoding")
"""The headers that tell where an answer ends."""
_CHUNK: Final = re.compile(rb"[0-9A-Fa-f]{1,8}\r\n")

HTTP_OPTIONS: Final = {
    "token": "the token that lets this client in",
    "token_file": "a file with that token",
    "timeout": "after how many seconds a call gives up",
    "tls_ca": "a file with the certificates to trust",
}
"""The query options of an `http://` or `https://` URL."""
_PLACE: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(?::([0-9]{1,5}))?/?")
_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,500}")


class HttpAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a service, and the token for it."""

    scheme: str
    host: str
    port: int
    token: str | None = None
    timeout: float = 5.0
    tls_ca: str | None = None

    @property
    def shown(self) -> str:
        """The address without its token."""
        return f"{self.scheme}://{self.netloc}"

    @property
    def netloc(self) -> str:
        """The host and the port, as in a `Host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def context(self) -> ssl.SSLContext | None:
        """Return the context for TLS; None without TLS.

        Raises:
            ValidationError: The file with certificates is missing or has the wrong content.
        """
        if self.scheme != "https":
            return None
        try:
            return ssl.create_default_context(cafile=self.tls_ca)
        except (OSError, ssl.SSLError):
            raise ValidationError("tls_ca in url names no file with certificates", field="url") from None


def http_address(url: str) -> HttpAddress:
    """Parse a URL such as `https://host:8420?token_file=token`.

    Raises:
        ValidationError: The URL names no host, or has an unknown option or one with an illegal value.
    """
    where, _, query = url.partition("?")
    scheme, _, place = where.partition("://")
    match = _PLACE.fullmatch(place)
    if match is None or not 0 < int(match[2] or 1) < 65_536:
        raise ValidationError(
            f"url must be {scheme}://host:port, with a token as ?token=… or ?token_file=…", field="url"
        )
    fields: dict[str, Any] = dict(parse_qsl(query, keep_blank_values=True))
    for name in fields:
        if name not in HTTP_OPTIONS:
            raise ValidationError(
                f"url has the unknown option {name!r}; known are {', '.join(HTTP_OPTIONS)}", field="url"
            )
    if "timeout" in fields:
        fields["timeout"] = seconds_in(fields["timeout"])
    if "token_file" in fields:
        fields["token"] = _read(fields.pop("token_file"))
    if "token" in fields and not _TOKEN.fullmatch(fields["token"]):
        raise ValidationError("token in url is not a token", field="url")
    usual = 443 if scheme == "https" else 80
    return HttpAddress(scheme=scheme, host=match[1].strip("[]"), port=int(match[2] or usual), **fields)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        raise ValidationError(
            f"token_file in url names no file with a token: {masking.shown_path(path)!r}", field="url"
        ) from None


class Broken(Exception):
    """The connection ended, or what came over it is not HTTP."""


class Refused(Broken):
    """The service does not let a stream begin, for example since there are too many."""


class HttpRequest(msgspec.Struct):
    """A request. `told` is the header line for a body that is not JSON but bytes, `more` are other lines.

    `sent` says whether any of it may have left this process.
    """

    method: str
    path: str
    body: bytes | None = None
    told: str = ""
    more: str = ""
    sent: bool = False


class HttpReply(NamedTuple):
    """A response. The names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class HttpConnection:
    """An open connection that speaks HTTP/1.1.

    Only what a Holdfast service answers is understood: a status, headers, and a body of a given length or in
    chunks. Everything is bounded. A connection on which anything went wrong is not used again: from an answer
    that nobody awaits, or the rest of one that was not read, the next request would take the answer of
    another.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str) -> None:
        self._reader = reader
        self._writer = writer
        self._head = head
        self._pending: deque[asyncio.Future[HttpReply]] = deque()
        self._reading: asyncio.Task[None] | None = None
        self._used = seams.ticks()

    @classmethod
    async def to(cls, address: HttpAddress, tls: ssl.SSLContext | None) -> HttpConnection:
        """Connect.

        Raises:
            OSError: The host can't be reached, or is not trusted.
        """
        reader, writer = await asyncio.open_connection(address.host, address.port, ssl=tls, limit=MOST_HEAD)
        token = f"Authorization: Bearer {address.token}\r\n" if address.token else ""
        return cls(reader, writer, f"Host: {address.netloc}\r\n{token}")

    @property
    def usable(self) -> bool:
        """Whether requests may be sent: the other side has not ended the connection, and is not about to.

        One over which nothing has come for long, although its oldest caller has given up, may be dead.
        """
        if self._writer.is_closing() or self._reader.at_eof():
            return False
        awaited = bool(self._pending) and not self._pending[0].done()
        return awaited or self._used > seams.ticks() - IDLE_SECONDS

    @property
    def idle(self) -> bool:
        """Whether no answer is awaited."""
        return not self._pending

    def ask(self, asked: HttpRequest) -> asyncio.Future[HttpReply]:
        """Send a request. Returns the response to come, or `Broken`."""
        answer: asyncio.Future[HttpReply] = asyncio.get_running_loop().create_future()
        if not self._pending:
            self._used = seams.ticks()
        self._pending.append(answer)
        self._send(asked)
        if self._reading is None:
            self._reading = asyncio.create_task(self._read(), name="holdfast http line")
            self._reading.add_done_callback(self._ended)
        return answer

    async def drained(self) -> None:
        """Wait until the other side has taken most of what was sent."""
        with contextlib.suppress(OSError):
            await self._writer.drain()

    async def _read(self) -> None:
        """Read responses until the end, also while none is awaited, to notice those that nobody awaits."""
        with contextlib.suppress(Broken):
            while True:
                reply, last = await self._one()
                if not self._pending:
                    return
                self._used = seams.ticks()
                answer = self._pending.popleft()
                if not answer.done():  # its caller may have given up
                    answer.set_result(reply)
                if last:
                    return

    def _ended(self, reading: asyncio.Task[None]) -> None:
        """End the connection: nobody reads it any more, perhaps since a program cancelled all its tasks."""
        self.end()
        for answer in self._pending:
            if not answer.done():
                answer.set_exception(Broken())
        self._pending.clear()

    async def _one(self) -> tuple[HttpReply, bool]:
        """Read a response. Returns also whether it is the last one."""
        status, headers = await self._answered()
        last = headers.get("connection", "").lower() == "close"
        if "transfer-encoding" in headers:
            pieces, size = [], 0
            async for piece in self._chunks(headers):
                pieces.append(piece)
                size += len(piece)
                if size > MOST_BODY:
                    raise Broken
            body = b"".join(pieces)
        elif "content-length" in headers:
            body = await self._exactly(_length(headers))
        else:  # all that follows is its body, unless it has none
            body, last = b"", last or status not in _BODILESS
        return HttpReply(status, headers, body), last

    async def follow(self, path: str) -> AsyncIterator[bytes]:
        """Send a request and yield the pieces of a response without end.

        Raises:
            Refused: The response is no stream.
            Broken: The connection ended.
        """
        self._send(HttpRequest("GET", path))
        status, headers = await self._answered()
        if status != 200:
            raise Refused
        async for piece in self._chunks(headers):
            yield piece

    def end(self) -> None:
        """End the connection at once. What was not answered is `Broken`."""
        self._writer.transport.abort()

    async def close(self) -> None:
        """End the connection, and wait until nothing of it is left."""
        self.end()
        if self._reading is not None:
            await asyncio.wait([self._reading])

    def _send(self, asked: HttpRequest) -> None:
        body = asked.body
        head = f"{asked.method} {asked.path} HTTP/1.1\r\n{self._head}{asked.more}"
        if body is not None:
            kind = asked.told + "Content-Type: application/octet-stream" if asked.told else JSON
            head += f"{kind}\r\nContent-Length: {len(body)}\r\n"
        self._writer.write(f"{head}\r\n".encode() + (body or b""))

    async def _answered(self) -> tuple[int, dict[str, str]]:
        """Return the status and the headers of the next answer. What comes before it is left out."""
        while True:
            status, headers = await self._next_head()
            if status >= 200:
                return status, headers
            if status == 101:  # all that follows is something else
                raise Broken

    async def _next_head(self) -> tuple[int, dict[str, str]]:
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            raise Broken from None
        first, *lines = head.decode("latin-1").split("\r\n")[:-2]
        parts = first.split(" ", 2)
        if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not parts[1].isdecimal():
            raise Broken
        headers: dict[str, str] = {}
        for line in lines:
            name, _, said = line.partition(":")
            name, said = name.strip().lower(), said.strip()
            if name in _FRAMING and headers.get(name, said) != said:
                raise Broken
            headers[name] = said
        return int(parts[1]), headers

    async def _chunks(self, headers: dict[str, str]) -> AsyncIterator[bytes]:
        if headers.get("transfer-encoding", "").lower() != "chunked" or "content-length" in headers:
            raise Broken
        while True:
            try:
                line = await self._reader.readuntil(b"\r\n")
            except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
                raise Broken from None
            if not _CHUNK.fullmatch(line):
                raise Broken
            size = int(line, 16)
            piece = await self._exactly(size + 2)
            if not piece.endswith(b"\r\n"):
                raise Broken
            if not size:
                return
            yield piece[:-2]

    async def _exactly(self, size: int) -> bytes:
        if size > MOST_BODY:
            raise Broken
        try:
            return await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, OSError):
            raise Broken from None


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
        self.connection: HttpConnection | None = None


class Following:
    """A stream that is followed."""

    def __init__(self, task: asyncio.Task[None]) -> None:
        self._task = task

    def cancel(self) -> None:
        """Follow it no longer."""
        self._task.cancel()


class HttpTransport(ServiceTime):
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
        connections = [way.connection for way in self._ways.values() if way.connection is not None]
        self._ways.clear()
        for connection in connections:
            await connection.close()

    async def ask(
        self,
        subject: str,
        payload: bytes,
        *,
        seconds: float,
        late: Late,
        repeat: bool = False,
        fields: str | None = None,
        trace: Trace | UnsetType = UNSET,
    ) -> HttpAnswer:
        """Post a request to a path and wait for the reply, as the plugin dialect of NATS would spell it.

        Args:
            subject: The path.
            payload: The body of the request.
            seconds: The timeout.
            late: Makes the error to raise if the reply does not arrive in time.
            repeat: Whether the request may be sent again after a lost connection. Never set it for a write.
            fields: The fields of the request, if its body is bytes.
            trace: The trace that the request belongs to.

        Raises:
            Unavailable: The service can't be reached.
            ValueTooLarge: The payload is larger than a service accepts.
            OutcomeUnknown: The connection was lost before the reply to a write arrived.
        """
        if len(payload) > MOST_PAYLOAD:
            raise ValueTooLarge(f"the request has {len(payload)} bytes, more than {MOST_PAYLOAD}")
        reply = await self.exchange(
            "POST", subject, payload, seconds=seconds, late=late, repeat=repeat, fields=fields, trace=trace
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
        fields: str | None = None,
        trace: Trace | UnsetType = UNSET,
    ) -> HttpReply:
        """Send a request and return the response; see `ask`."""
        if self._closed:
            raise Unavailable(f"there is no connection to {self._address.shown}")
        asked = HttpRequest(method, path, payload, _headed(fields), _lines(trace))
        self._under_way += 1
        self._quiet.clear()
        try:
            async with asyncio.timeout(seconds):
                return await self._attempts(asked, repeat=repeat)
        except TimeoutError:
            if not asked.sent:
                raise Unavailable(
                    f"the request to {self._address.shown} could not be sent within {seconds:g} s: "
                    "nothing was done"
                ) from None
            raise late() from None
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._quiet.set()

    async def _attempts(self, asked: HttpRequest, *, repeat: bool) -> HttpReply:
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

    async def _once(self, asked: HttpRequest) -> HttpReply:
        path = asked.path
        way = self._ways.setdefault(path.partition(":")[0], HttpRoute())
        async with way.order:  # waiting tasks get it in the order in which they came
            if way.connection is None or not way.connection.usable:
                if way.connection is not None:
                    way.connection.end()
                self._make_room()
                way.connection = await self._connected()
            sent = seams.ticks()
            asked.sent = True
            answer = way.connection.ask(asked)
            await way.connection.drained()
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
            if way.connection is not None and way.connection.idle and not way.order.locked():
                way.connection.end()
                del self._ways[place]
                return

    async def _connected(self) -> HttpConnection:
        try:
            return await HttpConnection.to(self._address, self._tls)
        except ssl.SSLCertVerificationError as error:
            raise Unavailable(
                f"the service at {self._address.shown} can't be trusted: {error.verify_message}; name the "
                "authority that signed its certificate in the URL, as ?tls_ca=<file>"
            ) from None
        except OSError:
            raise Unavailable(f"no Holdfast service can be reached at {self._address.shown}") from None

    def _understood(self, path: str, reply: HttpReply, *, repeat: bool) -> HttpAnswer:
        """Return a reply as NATS would spell it."""
        kind = reply.headers.get("content-type", "").partition(";")[0].strip()
        if reply.status == 200 and kind == "application/json" and reply.body[:1] == b"{":
            rest = reply.body[1:]
            return HttpAnswer(b'{"success":true' + (b"" if rest == b"}" else b",") + rest)
        if reply.status == 200 and TOLD in reply.headers:
            return HttpAnswer(reply.body, HEADER, reply.headers[TOLD])
        if kind != PROBLEM:
            raise self._strange(path, reply, repeat=repeat)
        try:
            fields: dict[str, Any] = msgspec.json.decode(reply.body, type=dict[str, Any])
            fields |= {"success": False, "error_code": fields.pop("code"), "message": fields.pop("detail")}
        except (msgspec.DecodeError, KeyError):  # a problem that a gateway reports
            raise self._strange(path, reply, repeat=repeat) from None
        if str(fields["error_code"]) not in ERRORS:
            raise self._strange(path, reply, repeat=repeat)
        return HttpAnswer(msgspec.json.encode(fields))

    def _strange(self, path: str, reply: HttpReply, *, repeat: bool) -> Exception:
        """Return the error for an answer that a proxy or another program gave.

        A write may have been done, unless the status says that the request itself was refused.
        """
        said = f"{self._address.shown} answered {path} with the status {reply.status}"
        if not repeat and (reply.status < 400 or reply.status == 408 or reply.status >= 500):
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
            line, pause = None, AGAIN_SECONDS
            try:
                line = await self._connected()
                async for piece in line.follow(path):
                    heard(piece)
            except Refused:
                pause = REFUSED_SECONDS
            except (Broken, Unavailable):
                pass
            finally:
                if line is not None:
                    line.end()
            await asyncio.sleep(pause)


class HttpClient(Client):
    """A client of a service over HTTP.

    Args:
        url: The address of the service, and the token for it.

    Raises:
        ValidationError: The URL is not one of a service over HTTP.
    """

    def __init__(self, url: str) -> None:
        address = http_address(url)
        self._http = HttpTransport(address)
        super().__init__(self._http, address.timeout)
        self._address = address

    def _place(self, namespace: str, verb: str) -> tuple[Dialect, str]:
        return PLUGIN, f"{_path(namespace)}:{verb}"

    def _operators_place(self, verb: str) -> tuple[Dialect, str]:
        return PLUGIN, f"/v1/admin:{verb}"

    async def ready(self) -> None:
        """Ask the service whether it is ready."""
        late = partial(Unavailable, f"no Holdfast service answers at {self._address.shown}")
        reply = await self._http.exchange(
            "GET", "/readyz", None, seconds=self._address.timeout, late=late, repeat=True
        )
        if reply.status != 200:
            raise Unavailable(f"the service is not ready: {_trouble(reply.body)}")

    def _hint(self, namespace: str, ring: Callable[[], None]) -> Callable[[], None]:
        """Call a function whenever the service streams a change. Returns the function that ends this."""
        return self._http.listen(f"{_path(namespace)}?watch", lambda piece: ring()).cancel


def _path(namespace: str) -> str:
    return f"/v1/{namespace}"


def _trouble(body: bytes) -> str:
    """Return what a service says that is not ready."""
    try:
        report: dict[str, Any] = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return "it does not say why"
    parts = ("service", "store", "nats")
    return "; ".join(f"{name}: {report[name]}" for name in parts if report.get(name) not in (None, "ok"))


def _headed(told: str | None) -> str:
    """Return the header that tells the fields of a body that is bytes."""
    return "" if told is None else f"{FIELDS}: {in_ascii(told)}\r\n"


def _lines(trace: Trace | UnsetType) -> str:
    """Return the header lines that name a trace."""
    if isinstance(trace, UnsetType):
        return ""
    return "".join(f"{name}: {value}\r\n" for name, value in trace.headers.items())


def _length(headers: dict[str, str]) -> int:
    said = headers.get("content-length", "0")
    if not said.isdecimal() or len(said) > 12:
        raise Broken
    return int(said)
