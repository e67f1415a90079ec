"""FastMCP with its state in Holdfast: sessions and OAuth clients outlive the process that made them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fastmcp import Client, FastMCP
from fastmcp.server.auth.oauth_proxy import OAuthProxy
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier
from fastmcp.server.dependencies import get_session
from fastmcp.server.sessions import SessionId, SessionProvider
from mcp.shared.auth import OAuthClientInformationFull
from pydantic import AnyUrl

from holdfast.integrations.keyvalue import HoldfastStore

if TYPE_CHECKING:
    from tests.integrations.grounds import Ground

pytestmark = pytest.mark.unmeasured  # the lines of the adapter are covered by its own tests


def server(storage: HoldfastStore) -> FastMCP:
    """A server with a tool that counts the calls of a session."""
    mcp = FastMCP("desk", session_state_store=storage, providers=[SessionProvider()])

    @mcp.tool
    async def count(session_id: SessionId) -> int:
        session = await get_session(session_id)
        calls = int(await session.get("calls") or 0) + 1
        await session.set("calls", calls)
        return calls

    return mcp


def oauth(storage: HoldfastStore) -> OAuthProxy:
    """The OAuth side of a server, with an upstream that is not asked for anything here."""
    return OAuthProxy(
        upstream_authorization_endpoint="https://login.example/authorize",
        upstream_token_endpoint="https://login.example/token",
        upstream_client_id="desk",
        upstream_client_secret="secret",
        token_verifier=StaticTokenVerifier(tokens={}),
        base_url="https://desk.example",
        client_storage=storage,
        jwt_signing_key=b"a key that both processes have, long",
    )


async def test_a_session_goes_on_after_a_restart(ground: Ground) -> None:
    """A session that one server began goes on at the next, which has a connection of its own."""
    async with HoldfastStore(url=ground.url, plugin="desk") as storage, Client(server(storage)) as client:
        session = (await client.call_tool("create_session")).data
        assert (await client.call_tool("count", {"session_id": session})).data == 1
    async with HoldfastStore(url=ground.url, plugin="desk") as storage, Client(server(storage)) as client:
        assert (await client.call_tool("count", {"session_id": session})).data == 2


async def test_oauth_clients_are_known_after_a_restart(ground: Ground) -> None:
    """A client that registered itself before a restart need not do so again."""
    client = OAuthClientInformationFull(
        client_id="c-1", client_secret="s", redirect_uris=[AnyUrl("http://localhost:1/callback")]
    )
    async with HoldfastStore(url=ground.url, plugin="desk") as storage:
        await oauth(storage).register_client(client)
    async with HoldfastStore(url=ground.url, plugin="desk") as storage:
        known = await oauth(storage).get_client("c-1")
        assert known is not None
        assert known.client_id == "c-1"
        assert await oauth(storage).get_client("c-2") is None
