"""The MCP server over streamable HTTP, as an ASGI application beside the verbs.

    /mcp                               the plugin or project of the caller's token
    /mcp/kv/{plugin}                   this plugin, for operators and, in open mode, for this machine
    /mcp/semantic/{tenant}/{project}   this project, for the same

Law: the door decides who is asking before the SDK sees a request, anew for each one. Every step of a tool
waits in its plugin's queue like a request over NATS or at `/v1`, so that lines, rates and budgets are shared.
The SDK is imported when the first request comes.
"""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING, Any, Final

from holdfast import extras
from holdfast.edges.http.api import respond
from holdfast.edges.http.bodies import BODIES
from holdfast.edges.http.connections import STREAM
from holdfast.edges.http.door import MCP
from holdfast.edges.http.limits import HttpLimits
from holdfast.edges.http.responses import ALWAYS, NoToken, problem
from holdfast.edges.http.routes import place_of
from holdfast.edges.http.watching import READ_SECONDS
from holdfast.edges.mcp.served import ServedCaller
from holdfast.errors import Busy, HoldfastError, InvalidSubject, PermissionDenied, Unavailable

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

    from holdfast.edges.http.api import Service
    from holdfast.edges.http.connections import BoundedConnection
    from holdfast.edges.http.guard import TokenGuard
    from holdfast.edges.http.routes import PathOwner
    from holdfast.edges.mcp.sessions import Sessions
    from holdfast.operators.tokens import Token
    from holdfast.store import Store

MOST_OWNERS: Final = 1_024
"""Maximum number of plugins and projects that have sessions."""
LOOK_SECONDS: Final = 1.0
"""Seconds between two looks whether the token of a stream is still valid."""
_EVENTS: Final = b"text/event-stream"
_SDK: Final = "holdfast.edges.mcp.sessions"


class McpDoor:
    """The door. `service` is None until there is one, and again while it stops.

    Args:
        guard: The check of who is asking.
        store: The store, whose changes are followed for subscribers.
        limits: The limits of the HTTP door; the defaults if not given.
    """

    def __init__(self, guard: TokenGuard, store: Store, limits: HttpLimits | None = None) -> None:
        self.service: Service | None = None
        self._guard = guard
        self._store = store
        self._sessions: dict[str, Sessions] = {}
        self.most_body = (limits or HttpLimits()).body_bytes
        self._receiving = 0

    async def aclose(self) -> None:
        """End all sessions and streams."""
        self.service = None
        sessions, self._sessions = self._sessions, {}
        await asyncio.gather(*(one.aclose() for one in sessions.values()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        service = self.service
        if service is None:
            await respond(
                send, problem(Unavailable("the service is starting or stopping", retry_after=1.0)), ()
            )
            return
        answer = _Answer(self._guard, scope, send)
        bodies = _Bodies(self, receive)
        try:
            caller = await self._caller(service, scope)
            sessions = await self._of(caller)
            await sessions.answer(caller, _trimmed(scope), bodies.receive, answer.send)
        except HoldfastError as error:
            service.refused(scope["path"], error)
            if not answer.began:
                await respond(send, problem(error), ())
        finally:
            self._receiving -= bodies.held
            answer.end()

    async def _caller(self, service: Service, scope: Scope) -> ServedCaller:
        """Return the caller of a request.

        Raises:
            NoToken: The caller needs a token, or its token is not valid.
            PermissionDenied: The token is for another plugin or project.
            InvalidSubject: There is no such path.
        """
        token = await self._guard.token_of(scope)
        named = _named(scope["path"])
        place = named or _own(token)
        if token is not None and not (token.operator or token.owner == place.owner):
            raise PermissionDenied(f"this token is for {token.owner}")
        return ServedCaller(service, self._store, place, token)

    async def _of(self, caller: ServedCaller) -> Sessions:
        """Return the sessions of a caller's plugin or project.

        Raises:
            Unsupported: The SDK is not installed.
            Busy: Too many plugins and projects have sessions.
        """
        namespace = caller.kv.namespace
        if namespace not in self._sessions:
            with extras.needed("mcp", "the path /mcp"):
                # It takes a second, for which other requests must not wait.
                sdk: Any = await asyncio.to_thread(importlib.import_module, _SDK)
            if self.service is None:
                raise Unavailable("the service is stopping", retry_after=1.0)
            if len(self._sessions) >= MOST_OWNERS:
                raise Busy("too many plugins have MCP sessions", retry_after=60.0)
            if namespace not in self._sessions:  # another request may have been faster
                self._sessions[namespace] = sdk.Sessions(self.most_body)
        return self._sessions[namespace]


class _Bodies:
    """The body of a request, counted with all others that are being received."""

    def __init__(self, door: McpDoor, receive: Receive) -> None:
        self._door = door
        self._receive = receive
        self.held = 0

    async def receive(self) -> Message:
        message = await self._receive()
        size = len(message.get("body", b""))
        self.held += size
        self._door._receiving += size
        if self._door._receiving > BODIES * self._door.most_body:
            raise Busy("too many large requests are being received", retry_after=0.5)
        return message


class _Answer:
    """A response of the SDK, which may be a stream without an end.

    It gets the headers of every response. A stream is cut off if its client does not read it, or if its token
    is revoked or expires.
    """

    def __init__(self, guard: TokenGuard, scope: Scope, send: Send) -> None:
        self._guard = guard
        self._scope = scope
        self._connection: BoundedConnection = scope[STREAM]
        self._send = send
        self._looking: asyncio.Task[None] | None = None
        self.began = False

    def end(self) -> None:
        """Stop looking after a stream."""
        if self._looking is not None:
            self._looking.cancel()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.began = True
            headers = [(name, said) for name, said in message["headers"] if name.lower() != b"cache-control"]
            if any(name == b"content-type" and _EVENTS in said for name, said in headers):
                self._connection.stream()
                self._looking = asyncio.create_task(self._look(), name="holdfast mcp token")
            message = {**message, "headers": [*headers, *ALWAYS]}
        try:
            async with asyncio.timeout(None if self._looking is None else READ_SECONDS):
                await self._send(message)
        except TimeoutError:
            self._connection.cut()

    async def _look(self) -> None:
        """Cut the stream off when its token is no longer valid."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._guard.token_of(self._scope)
            except NoToken:
                self._connection.cut()
            except HoldfastError:
                continue  # the store can't be asked now


def _trimmed(scope: Scope) -> Scope:
    """Return a request without the spaces after its headers' values, which the parser leaves there.

    The SDK compares headers with the body of the request.
    """
    return {**scope, "headers": [(name, said.strip(b" \t")) for name, said in scope["headers"]]}


def _named(path: str) -> PathOwner | None:
    """Return what a path names; None if it leaves that to the token."""
    rest = path.removeprefix(MCP).strip("/")
    if not rest:
        return None
    family, _, owner = rest.partition("/")
    if family not in ("kv", "semantic"):
        raise InvalidSubject("the path must be /mcp, /mcp/kv/<plugin> or /mcp/semantic/<tenant>/<project>")
    return place_of(family, owner)


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
