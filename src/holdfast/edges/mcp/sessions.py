"""The sessions of one plugin or project over streamable HTTP, and its requests without any.

Clients of the protocol's revision 2026-07-28 have no sessions. Those of earlier revisions have one each,
which only the token that opened it may use.

Sessions are bounded in number, and end when they are idle or when their token does. A plugin that opens
many takes none from others. Few requests of a plugin are worked on at a time; the rest wait, before the large
ones among them are received.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import Receive, Scope, Send

from holdfast import seams
from holdfast.edges.mcp.callers import ServedCaller, ToolCaller
from holdfast.edges.mcp.memory import MemoryHandlers
from holdfast.edges.mcp.server import Handlers

MOST_SESSIONS: Final = 64
"""Maximum number of sessions of one plugin or project."""
IDLE_SECONDS: Final = 600.0
"""Seconds without a request or an open stream after which a session ends."""
AT_ONCE: Final = 8
"""Maximum number of requests of one plugin or project that the SDK works on at a time. Each takes
milliseconds of the event loop; those of a plugin with a thousand connections would take seconds in a row."""
LARGE_AT_ONCE: Final = 2
"""The same for requests that are larger than `LONG` or do not say how large they are."""
_CALLER: Final = "holdfast.caller"


class Sessions:
    """The sessions of one plugin or project.

    Args:
        most_body: Maximum size of a request's body in bytes.
        memory: Whether the tools are those of a memory.
    """

    def __init__(self, most_body: int, *, memory: bool = False) -> None:
        self._handlers = MemoryHandlers(_caller) if memory else Handlers(_caller)
        self._manager = StreamableHTTPSessionManager(
            self._handlers.server(),
            session_idle_timeout=IDLE_SECONDS,
            max_request_body_size=most_body,
            max_sessions=MOST_SESSIONS,
        )
        self.turns, self.large = asyncio.Semaphore(AT_ONCE), asyncio.Semaphore(LARGE_AT_ONCE)
        self.in_use = 0
        """Number of requests and streams that are being answered."""
        self.used = seams.monotonic()
        """When the last one ended."""
        self._up, self._stop = asyncio.Event(), asyncio.Event()
        self._task = asyncio.create_task(self._run(), name="holdfast mcp sessions")

    async def aclose(self) -> None:
        """End all sessions and streams."""
        self._handlers.close()
        self._stop.set()
        await asyncio.gather(self._task, return_exceptions=True)

    @property
    def idle(self) -> bool:
        """Whether there are no sessions, and no requests and streams without one."""
        return not self.in_use and not self._manager._server_instances

    @property
    def users(self) -> set[str]:
        """The tokens that have sessions."""
        return {owner["client_id"] for owner in self._manager._session_owners.values()}

    async def end(self, user: str) -> None:
        """End the sessions of a token, with their streams and subscriptions."""
        manager = self._manager
        for session, owner in list(manager._session_owners.items()):
            transport = manager._server_instances.get(session)
            if owner["client_id"] == user and transport is not None:
                await manager._discard_session(session, transport)

    async def _run(self) -> None:
        async with self._manager.run():
            self._up.set()
            await self._stop.wait()

    async def answer(self, caller: ServedCaller, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of a caller."""
        await self._up.wait()
        known = AccessToken(token="", client_id=caller.user or "local", scopes=[])
        known_scope: dict[str, Any] = {**scope, _CALLER: caller, "user": AuthenticatedUser(known)}
        await self._manager.handle_request(known_scope, receive, send)


def _caller(ctx: Any) -> ToolCaller:
    """Return the caller that the door has let in with this request."""
    caller: ToolCaller = ctx.request.scope[_CALLER]
    return caller
