"""A worker of FastMCP with a login, as a process of its own: all that it must remember is in Holdfast.

    python -m tests.integrations.fastmcp_worker URL PORT ISSUER UPSTREAM

It keeps nothing of its own, so that any other worker with the same storage can go on for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING

import uvicorn
from fastmcp import FastMCP
from fastmcp.server.auth.oauth_proxy import OAuthProxy
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier
from fastmcp.server.dependencies import get_session
from fastmcp.server.sessions import SessionId, SessionProvider

from holdfast.integrations.keyvalue import HoldfastStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

UPSTREAM_TOKEN = "upstream-token"


def worker(storage: HoldfastStore, *, issuer: str, upstream: str) -> FastMCP:
    """A server with a tool that counts the calls of a session, for those who have logged in upstream."""
    login = OAuthProxy(
        upstream_authorization_endpoint=f"{upstream}/authorize",
        upstream_token_endpoint=f"{upstream}/token",
        upstream_client_id="desk",
        upstream_client_secret="secret",
        token_verifier=StaticTokenVerifier(tokens={UPSTREAM_TOKEN: {"client_id": "ada", "scopes": []}}),
        base_url=issuer,
        client_storage=storage,
        jwt_signing_key=b"a key that all workers have, long!",
        require_authorization_consent=False,
    )
    mcp = FastMCP("desk", session_state_store=storage, providers=[SessionProvider()], auth=login)

    @mcp.tool
    async def count(session_id: SessionId) -> int:
        session = await get_session(session_id)
        calls = int(await session.get("calls") or 0) + 1
        await session.set("calls", calls)
        return calls

    return mcp


@contextlib.asynccontextmanager
async def server(url: str, port: int, *, issuer: str, upstream: str) -> AsyncIterator[uvicorn.Server]:
    """A server for the worker, which is not started."""
    async with HoldfastStore(url=url, plugin="desk") as storage:
        app = worker(storage, issuer=issuer, upstream=upstream).http_app(stateless_http=True)
        yield uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error"))


async def main(url: str, port: str, issuer: str, upstream: str) -> None:
    """Serve until the process is killed."""
    async with server(url, int(port), issuer=issuer, upstream=upstream) as served:
        await served.serve()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
