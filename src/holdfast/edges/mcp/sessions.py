"""The sessions of one plugin or project over streamable HTTP, and its requests without any.

Clients of the protocol's revision 2026-07-28 have no sessions. Those of earlier revisions have one each,
which only the token that opened it may use.

Law: sessions are bounded in number and end when they are idle. A plugin that opens many takes none from
others.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from holdfast.edges.mcp.server import Handlers

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from holdfast.edges.mcp.callers import ToolCaller
    from holdfast.edges.mcp.served import ServedCaller

MOST_SESSIONS: Final = 64
"""Maximum number of sessions of one plugin or project."""
IDLE_SECONDS: Final = 600.0
"""Seconds without a request or an open stream after which a session ends."""
_CALLER: Final = "holdfast.caller"


class Sessions:
    """The sessions of one plugin or project.

    Args:
        most_body: Maximum size of a request's body in bytes.
    """

    def __init__(self, most_body: int) -> None:
        self._handlers = Handlers(_caller)
        self._manager = StreamableHTTPSessionManager(
            self._handlers.server(),
            session_idle_timeout=IDLE_SECONDS,
            max_request_body_size=most_body,
            max_sessions=MOST_SESSIONS,
        )
        self._up, self._stop = asyncio.Event(), asyncio.Event()
        self._task = asyncio.create_task(self._run(), name="holdfast mcp sessions")

    async def aclose(self) -> None:
        """End all sessions and streams."""
        self._handlers.subscriptions.close()
        self._stop.set()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        async with self._manager.run():
            self._up.set()
            await self._stop.wait()

    async def answer(self, caller: ServedCaller, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of a caller."""
        await self._up.wait()
        known = AccessToken(token="", client_id=caller.user or "local", scopes=[])
        found: dict[str, Any] = {**scope, _CALLER: caller, "user": AuthenticatedUser(known)}
        await self._manager.handle_request(found, receive, send)


def _caller(ctx: Any) -> ToolCaller:
    """Return the caller that the door has let in with this request."""
    caller: ToolCaller = ctx.request.scope[_CALLER]
    return caller
