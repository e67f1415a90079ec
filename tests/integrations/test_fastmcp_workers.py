"""Two FastMCP workers in two processes: logins and sessions are good at both, and outlive both."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import secrets
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from fastmcp import Client

from tests.forking import ForkedProcess
from tests.integrations.fastmcp_worker import UPSTREAM_TOKEN, server
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

PATIENCE = 60.0
BACK = "http://localhost:1/callback"

pytestmark = pytest.mark.unmeasured


class Upstream(BaseHTTPRequestHandler):
    """An identity provider that gives everyone the same token."""

    def do_POST(self) -> None:
        """Answer a request for a token."""
        self.rfile.read(int(self.headers["content-length"]))
        token = {
            "access_token": UPSTREAM_TOKEN,
            "refresh_token": "r",
            "token_type": "Bearer",
            "expires_in": 600,
        }
        body = json.dumps(token).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *given: Any) -> None:
        """Print nothing."""


@pytest.fixture
def upstream() -> Iterator[str]:
    """The address of an identity provider."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Upstream) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@contextlib.asynccontextmanager
async def near_worker(url: str, port: int, **given: str) -> AsyncIterator[None]:
    """A worker in this process within an `async with` block."""
    async with server(url, port, **given) as served, asyncio.TaskGroup() as group:
        group.create_task(served.serve())
        try:
            await answering(port)
            yield
        finally:
            served.should_exit = True


@contextlib.asynccontextmanager
async def far_worker(url: str, port: int, **given: str) -> AsyncIterator[None]:
    """A worker in a process of its own within an `async with` block, which kills it."""
    words = (url, str(port), given["issuer"], given["upstream"])
    process = await ForkedProcess.start("tests.integrations.fastmcp_worker", *words, near=True)
    try:
        await answering(port)
        yield
    finally:
        process.kill()
        await process.wait()


async def answering(port: int) -> None:
    """Wait until a worker answers."""
    async with httpx.AsyncClient() as client, asyncio.timeout(PATIENCE):
        while True:
            if await up(client, f"http://127.0.0.1:{port}"):
                return
            await asyncio.sleep(0.02)


async def up(client: httpx.AsyncClient, address: str) -> bool:
    """Whether a worker answers."""
    try:
        return (await client.get(f"{address}/.well-known/oauth-authorization-server")).status_code == 200
    except httpx.TransportError:
        return False


async def login(one: str, other: str) -> dict[str, Any]:
    """Log in as a browser and a client do, each step at the other worker; the tokens."""
    verifier = secrets.token_urlsafe(48)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    async with httpx.AsyncClient() as client:
        wanted = {"redirect_uris": [BACK], "token_endpoint_auth_method": "none"}
        known = (await client.post(f"{one}/register", json=wanted)).json()
        asked = {
            "response_type": "code",
            "client_id": known["client_id"],
            "redirect_uri": BACK,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            "state": "mine",
        }
        sent = await client.get(f"{other}/authorize", params=asked)
        state = parse_qs(urlsplit(sent.headers["location"]).query)["state"][0]
        back = await client.get(f"{one}/auth/callback", params={"code": "c", "state": state})
        code = parse_qs(urlsplit(back.headers["location"]).query)["code"][0]
        proof = {"grant_type": "authorization_code", "code": code, "redirect_uri": BACK}
        given = {**proof, "client_id": known["client_id"], "code_verifier": verifier}
        tokens = await client.post(f"{other}/token", data=given)
        assert tokens.status_code == 200, tokens.text
        found: dict[str, Any] = {**tokens.json(), "client_id": known["client_id"]}
        return found


async def called(address: str, token: str, tool: str, **arguments: Any) -> Any:
    """Call a tool of a worker."""
    async with Client(f"{address}/mcp", auth=token) as client:
        return (await client.call_tool(tool, arguments)).data


async def test_workers_share_logins_and_sessions(pg_url: str, upstream: str) -> None:
    """A login and a session that two workers have made go on when one was killed and the other restarted."""
    ports = [free_port(), free_port()]
    one, two = (f"http://127.0.0.1:{port}" for port in ports)
    given = {"issuer": one, "upstream": upstream}
    async with far_worker(pg_url, ports[1], **given), near_worker(pg_url, ports[0], **given):
        tokens = await login(one, two)
        token = tokens["access_token"]
        session = await called(two, token, "create_session")
        assert [await called(at, token, "count", session_id=session) for at in (one, two)] == [1, 2]
    async with near_worker(pg_url, ports[0], **given), httpx.AsyncClient() as client:
        assert await called(one, token, "count", session_id=session) == 3
        asked = {
            "grant_type": "refresh_token",
            **{key: tokens[key] for key in ("refresh_token", "client_id")},
        }
        fresh = (await client.post(f"{one}/token", data=asked)).json()["access_token"]
        assert await called(one, fresh, "count", session_id=session) == 4
        refused = await client.post(f"{one}/mcp", headers={"authorization": "Bearer unknown"}, json={})
        assert refused.status_code == 401
