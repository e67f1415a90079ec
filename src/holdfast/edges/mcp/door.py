"""The MCP server over streamable HTTP, as an ASGI application beside the verbs.

    /mcp                               the plugin or project of the caller's token
    /mcp/kv/{plugin}                   this plugin, for operators and, in open mode, for this machine
    /mcp/semantic/{tenant}/{project}   this project, for the same
    /mcp/memory, /mcp/memory/kv/…      the same as a memory of entities, relations and observations

Clients may write slashes at both ends, and append `/mcp` to the address of a server that they were given.

The door decides who is asking before the SDK sees a request, anew for each one, and ends what a token has
open when the token ends. Every step of a tool waits in its plugin's queue like a request over NATS or at
`/v1`, so that lines, rates and budgets are shared; the SDK sees neither its arguments nor its result. The SDK
is imported when the first request comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
from typing import TYPE_CHECKING, Any, Final

from starlette.types import Message, Receive, Scope, Send

from holdfast import extras, seams
from holdfast.edges.http.api import respond
from holdfast.edges.http.app import MCP
from holdfast.edges.http.connections import BODIES, STREAM, BoundedConnection, HttpLimits
from holdfast.edges.http.guard import TokenGuard
from holdfast.edges.http.requests import PathOwner, place_of
from holdfast.edges.http.responses import ALWAYS, NoToken, problem
from holdfast.edges.http.watches import READ_SECONDS
from holdfast.edges.intake.requests import LONG
from holdfast.edges.intake.service import RequestService
from holdfast.edges.mcp.bypass import MOST_ENVELOPE, Envelope
from holdfast.edges.mcp.callers import ServedCaller
from holdfast.errors import (
    Busy,
    HoldfastError,
    InvalidJson,
    InvalidSubject,
    PermissionDenied,
    Unavailable,
    ValueTooLarge,
)
from holdfast.operators.tokens import Token
from holdfast.store import Store

if TYPE_CHECKING:
    from holdfast.edges.mcp.sessions import Sessions

MOST_OWNERS: Final = 1_024
"""Maximum number of plugins and projects that have sessions."""
LOOK_SECONDS: Final = 0.3
"""Seconds between two looks whether the tokens of streams and sessions are still valid."""
IDLE_SECONDS: Final = 60.0
"""Seconds after which a plugin or project without sessions is forgotten."""
LISTEN: Final = "subscriptions/listen"
"""The method whose answer is a stream."""
_EVENTS: Final = b"text/event-stream"
_WELL_KNOWN: Final = "/.well-known/"
_MEMORY: Final = "memory"
_PARTS: Final = {"kv": 2, "semantic": 3}
"""The number of parts of the path of each family, after `/mcp`."""
_SDK: Final = "holdfast.edges.mcp.sessions"

_log = logging.getLogger("holdfast.mcp")


class McpDoor:
    """The door. `service` is None until there is one, and again while it stops.

    Args:
        guard: The check of who is asking.
        store: The store, whose changes are followed for subscribers.
        limits: The limits of the HTTP door; the defaults if not given.
    """

    def __init__(self, guard: TokenGuard, store: Store, limits: HttpLimits | None = None) -> None:
        self.service: RequestService | None = None
        self._guard = guard
        self._store = store
        self._sessions: dict[tuple[str, bool], Sessions] = {}
        """The sessions, by namespace and whether it is used as a memory."""
        self._held = HeldTokens(guard)
        self._looking: asyncio.Task[None] | None = None
        self._closings: set[asyncio.Task[None]] = set()
        self.most_body = (limits or HttpLimits()).body_bytes
        self._receiving = 0

    async def aclose(self) -> None:
        """End all sessions and streams."""
        self.service = None
        if self._looking is not None:
            self._looking.cancel()
        sessions, self._sessions = self._sessions, {}
        await asyncio.gather(*(one.aclose() for one in sessions.values()), *self._closings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        service = self.service
        if service is None:
            await respond(
                send, problem(Unavailable("the service is starting or stopping", retry_after=1.0)), ()
            )
            return
        began = False
        try:
            caller = await self._caller(service, scope)
            sessions = await self._of(caller, memory=_is_memory(scope["path"]))
            sessions.in_use += 1
            answer = _Answer(scope, send, caller, self._held)
            try:
                await self._answer(sessions, answer, caller, scope, receive)
            finally:
                began = answer.began
                answer.end()
                sessions.in_use -= 1
                sessions.used = seams.monotonic()
        except HoldfastError as error:
            service.refused(scope["path"], error)
            if not began:
                await respond(send, problem(error), ())

    async def _answer(
        self, sessions: Sessions, answer: _Answer, caller: ServedCaller, scope: Scope, receive: Receive
    ) -> None:
        """Answer a request that has been let in, when its plugin's turn comes."""
        trimmed = _trimmed(scope)
        if scope["method"] != "POST":
            answer.lasts = True
            await sessions.answer(caller, trimmed, receive, answer.send)
            return
        async with contextlib.AsyncExitStack() as turn:
            if not 0 <= _length(scope) <= LONG:
                await turn.enter_async_context(sessions.large)
            bodies = _Bodies(self, receive)
            turn.callback(bodies.release)
            body = await bodies.whole(_length(scope))
            if body is None:
                return  # the client has gone
            envelope = caller.bypass.take(body)
            if len(envelope.body) > MOST_ENVELOPE:
                raise _too_large(envelope)
            answer.lasts = envelope.method == LISTEN
            if answer.lasts:
                await turn.aclose()
            else:
                await turn.enter_async_context(sessions.turns)
            del body
            await sessions.answer(caller, trimmed, _again(envelope.body, receive), answer.send)

    async def _caller(self, service: RequestService, scope: Scope) -> ServedCaller:
        """Return the caller of a request.

        Raises:
            NoToken: The caller needs a token, or its token is not valid.
            PermissionDenied: The token is for another plugin or project.
            InvalidSubject: There is no such path.
        """
        if _WELL_KNOWN in scope["path"]:  # a client without a token is told too that there is no OAuth
            raise InvalidSubject("this service has no authorization server: send a Holdfast token")
        token = await self._guard.token_of(scope)
        named = _named(scope["path"])
        place = named or _own(token)
        if token is not None and not (token.operator or token.owner == place.owner):
            raise PermissionDenied(f"this token is for {token.owner}")
        return ServedCaller(service, self._store, place, token)

    async def _of(self, caller: ServedCaller, *, memory: bool) -> Sessions:
        """Return the sessions of a caller's plugin or project, or of its memory.

        Raises:
            Unsupported: The SDK is not installed.
            Busy: Too many plugins and projects have sessions.
        """
        name = caller.kv.namespace, memory
        if name not in self._sessions:
            with extras.needed("mcp", "the path /mcp"):
                # It takes a second, for which other requests must not wait.
                sdk: Any = await seams.aside(importlib.import_module, _SDK)
            if self.service is None:
                raise Unavailable("the service is stopping", retry_after=1.0)
            if name not in self._sessions:  # another request may have been faster
                unused = self._make_room()
                self._sessions[name] = sdk.Sessions(self.most_body, memory=memory)
                if self._looking is None or self._looking.done():
                    self._looking = asyncio.create_task(self._look(), name="holdfast mcp tokens")
                if unused is not None:
                    self._closing(unused)
        return self._sessions[name]

    def _make_room(self) -> Sessions | None:
        """Forget the plugin or project that has used no session for longest, if there are too many.

        Raises:
            Busy: All of them have sessions.
        """
        if len(self._sessions) < MOST_OWNERS:
            return None
        idle = [name for name, one in self._sessions.items() if one.idle]
        if not idle:
            raise Busy("too many plugins have MCP sessions", retry_after=60.0)
        return self._sessions.pop(min(idle, key=lambda name: self._sessions[name].used))

    def _closing(self, sessions: Sessions) -> None:
        """Close what is no longer used, as a task that lasts as long as it takes."""
        task = asyncio.create_task(sessions.aclose(), name="holdfast mcp closing")
        self._closings.add(task)
        task.add_done_callback(self._closings.discard)

    async def _look(self) -> None:
        """Until no plugin is left: end what ended tokens have open, and forget plugins that are idle."""
        while self._sessions:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._end_with_tokens()
            except Exception:
                _log.exception("the tokens of MCP sessions could not be checked")
            now = seams.monotonic()
            for name, sessions in list(self._sessions.items()):
                if sessions.idle and sessions.used + IDLE_SECONDS < now:
                    del self._sessions[name]
                    self._closing(sessions)

    async def _end_with_tokens(self) -> None:
        with_sessions = {user for one in self._sessions.values() for user in one.users}
        for user in await self._held.ended(with_sessions):
            for sessions in list(self._sessions.values()):
                await sessions.end(user)


class HeldTokens:
    """The tokens that have a request, a stream or a session open.

    A look goes to the store and not to what the guard remembers, so that what a token has open, whether it
    was sent itself or as the cookie of a session, ends within a second of the token.

    Args:
        guard: The check of who is asking.
    """

    def __init__(self, guard: TokenGuard) -> None:
        self._guard = guard
        self._scopes: dict[str, Scope] = {}
        self._answers: dict[str, set[_Answer]] = {}

    def open(self, user: str, scope: Scope, answer: _Answer) -> None:
        """Note a request that a token has under way, and how the token was shown."""
        if user:
            self._scopes[user] = scope
            self._answers.setdefault(user, set()).add(answer)

    def close(self, user: str, answer: _Answer) -> None:
        """Note the end of a request. Its token is forgotten at the next look unless something is open."""
        answers = self._answers.get(user, set())
        answers.discard(answer)
        if not answers:
            self._answers.pop(user, None)

    async def ended(self, with_sessions: set[str]) -> list[str]:
        """Cut the streams of tokens that are no longer valid, and return those tokens.

        Args:
            with_sessions: The tokens that have sessions.
        """
        held = with_sessions | self._answers.keys()
        self._scopes = {user: scope for user, scope in self._scopes.items() if user in held}
        try:
            valid = await self._guard.still_admits(self._scopes)
        except HoldfastError:
            return []  # the store can't be asked now
        ended = [user for user in self._scopes if user not in valid]
        for user in ended:
            for answer in list(self._answers.get(user, ())):
                answer.cut()
        return ended


class _Bodies:
    """The body of a request, counted with all others that are being received."""

    def __init__(self, door: McpDoor, receive: Receive) -> None:
        self._door = door
        self._receive = receive
        self._held = 0

    def release(self) -> None:
        """Count the body as gone."""
        self._door._receiving -= self._held
        self._held = 0

    async def whole(self, length: int) -> bytes | None:
        """Receive the body; None if the client has gone.

        Raises:
            ValueTooLarge: It is larger than allowed.
            Busy: Too much is being received.
        """
        most, parts = self._door.most_body, []
        more = length <= most
        while more:
            message = await self._receive()
            if message["type"] != "http.request":
                return None
            parts.append(message.get("body", b""))
            size = len(parts[-1])
            self._held += size
            self._door._receiving += size
            if self._door._receiving > BODIES * most:
                raise Busy("too many large requests are being received", retry_after=0.5)
            more = message.get("more_body", False) and self._held <= most
        if max(length, self._held) > most:
            raise ValueTooLarge(f"the body has {max(length, self._held)} bytes, more than {most}")
        return b"".join(parts)


class _Answer:
    """A response of the SDK, which may be a stream without an end.

    It gets the headers of every response, and results in place of their marks. A stream is cut off if its
    client does not read it, or if its token is revoked or expires.
    """

    def __init__(self, scope: Scope, send: Send, caller: ServedCaller, held: HeldTokens) -> None:
        self._connection: BoundedConnection = scope[STREAM]
        self._send = send
        self._caller = caller
        self._held = held
        held.open(caller.user, scope, self)
        self._start: Message | None = None
        self._streams = False
        self.lasts = False
        """Whether a stream may go on for ever. One that ends with a result has the time of every answer."""
        self.began = False

    def end(self) -> None:
        """Stop looking after the response."""
        self._held.close(self._caller.user, self)

    def cut(self) -> None:
        """End the response at once if it is a stream. Any other ends by itself."""
        if self._streams:
            self._connection.cut()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.began = True
            headers = [
                (name, value) for name, value in message["headers"] if name.lower() != b"cache-control"
            ]
            self._start = {**message, "headers": [*headers, *ALWAYS]}
            if any(name == b"content-type" and _EVENTS in value for name, value in headers):
                self._streams = True
                if self.lasts:
                    self._connection.stream()
                await self._pass_on(self._start)
                self._start = None
            return
        marked = message.get("body", b"")
        body = self._caller.bypass.give(marked)
        if self._start is not None:
            await self._pass_on(_longer(self._start, len(body) - len(marked)))
            self._start = None
        await self._pass_on({**message, "body": body})

    async def _pass_on(self, message: Message) -> None:
        try:
            async with asyncio.timeout(READ_SECONDS if self._streams else None):
                await self._send(message)
        except TimeoutError:
            self._connection.cut()


def _longer(start: Message, by: int) -> Message:
    """Return the start of a response whose body has become longer."""
    if not by:
        return start
    headers = [
        (name, str(int(value) + by).encode() if name == b"content-length" else value)
        for name, value in start["headers"]
    ]
    return {**start, "headers": headers}


def _length(scope: Scope) -> int:
    """Return the length of a body as its request says it; -1 if it does not."""
    length = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    return int(length) if length.strip().isdigit() else -1


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a function that receives a body, and then whatever the connection has."""
    received = False

    async def receive_again() -> Message:
        nonlocal received
        if received:
            return await receive()
        received = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


def _too_large(envelope: Envelope) -> HoldfastError:
    size = len(envelope.body)
    if not envelope.method:
        return InvalidJson(f"the {size} bytes of the body are no request of JSON-RPC")
    return ValueTooLarge(
        f"the request has {size} bytes besides the arguments of a tool, more than {MOST_ENVELOPE}"
    )


def _trimmed(scope: Scope) -> Scope:
    """Return a request without the spaces after its headers' values, which the parser leaves there.

    The SDK compares headers with the body of the request.
    """
    return {**scope, "headers": [(name, value.strip(b" \t")) for name, value in scope["headers"]]}


def _parts(path: str) -> list[str]:
    """Return the parts of a path after `/mcp`."""
    return f"/{path.strip('/')}".removeprefix(MCP).strip("/").split("/")


def _is_memory(path: str) -> bool:
    """Return whether a path names a memory."""
    return _parts(path)[0] == _MEMORY


def _named(path: str) -> PathOwner | None:
    """Return what a path names; None if it leaves that to the token."""
    parts = _parts(path)
    if parts[0] == _MEMORY:
        parts = parts[1:] or [""]
    if parts[-1] == MCP[1:] and len(parts) == _PARTS.get(parts[0], 0) + 1:
        parts.pop()  # a client has appended it
    family, *owner = parts or [""]
    if not family:
        return None
    if family not in _PARTS:
        raise InvalidSubject(
            "the path must be /mcp, /mcp/kv/<plugin> or /mcp/semantic/<tenant>/<project>, or one of these "
            "that begins with /mcp/memory"
        )
    return place_of(family, "/".join(owner))


def _own(token: Token | None) -> PathOwner:
    """Return the plugin or project of a token."""
    if token is None:
        raise NoToken(
            "this needs a token: send it as Authorization: Bearer <token>; or name a plugin in the path, as "
            "in /mcp/kv/trivia"
        )
    if token.operator:
        raise PermissionDenied("a token for operators names the plugin in the path, as in /mcp/kv/trivia")
    return place_of("kv" if token.plugin else "semantic", token.owner)
