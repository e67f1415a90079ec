"""The MCP server over streamable HTTP: tokens, sessions, streams and attacks."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import signal
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import fastmcp
import httpx
import pytest
from mcp import Client, MCPError
from mcp.client.subscriptions import ResourceUpdated, SubscriptionLost
from mcp_types import ResourceUpdatedNotification, TextContent

import holdfast
from holdfast import Policy
from holdfast.clock import ManualClock
from holdfast.edges.http import guard
from holdfast.edges.http.connections import HttpLimits
from holdfast.edges.mcp import door, sessions, tools
from holdfast.edges.mcp.bypass import SdkBypass
from holdfast.edges.mcp.tools import TOOLS
from tests.edges.http.ground import Served, served
from tests.edges.mcp.agents import LEGACY, MODERN, REVISIONS, Agent
from tests.edges.mcp.agents import agent as near
from tests.edges.mcp.http_agents import PATIENCE, agent, token_for
from tests.edges.running import holdfast_up
from tests.nats import lasting_nats_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

HELLO: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    },
}
CLIENT: dict[str, Any] = {
    "protocolVersion": MODERN,
    "clientInfo": {"name": "raw", "version": "1"},
    "clientCapabilities": {},
}
ACCEPTED = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


@pytest.fixture(scope="module")
def bus() -> Iterator[str]:
    """The address of a NATS server."""
    with lasting_nats_server() as url:
        yield url


@pytest.fixture
async def here(bus: str, tmp_path: Path) -> AsyncIterator[Served]:
    """A service that wants a token of every caller."""
    async with served(tmp_path / "state.db", bus, open_mode=False) as found:
        yield found


async def post(here: Served, body: Any, *, token: str | None = None, **headers: str) -> Any:
    """Send a request by hand."""
    known = {} if token is None else {"authorization": f"Bearer {token}"}
    return await here.ask("POST", "/mcp", body, **(ACCEPTED | known | headers))


@pytest.mark.parametrize("mode", REVISIONS)
async def test_a_token_leads_to_its_plugin(here: Served, mode: str) -> None:
    """With a plugin's token an agent uses all tools on that plugin's data."""
    async with agent(here, await token_for(here), mode=mode) as one:
        assert {tool.name for tool in (await one.client.list_tools()).tools} == TOOLS.keys()
        put = await one.call("put", key="a", value={"n": 1}, purpose="config")
        entry = await here.store.kv("trivia").get("a")
        assert entry is not None
        assert (entry.version, entry.value) == (put["version"], {"n": 1})
        lost = await one.call("put", key="a", value=2, expected_version=0)
        assert (lost["error_code"], lost["current"]["value"]) == ("VERSION_CONFLICT", {"n": 1})
        held = await one.call("lock_acquire", name="x")
        assert (await one.call("lock_renew", name="x", token=held["token"]))["renewed"]
        assert (await one.call("lock_release", name="x", token=held["token"]))["released"]
        tables = here.store.tables("trivia")
        if not await tables.list_tables():
            await tables.create_table("t", partition_key=("k", "string"))
        assert (await one.call("table_list"))["tables"] == ["t"]


@pytest.mark.parametrize("mode", REVISIONS)
async def test_a_token_leads_nowhere_else(here: Served, mode: str) -> None:
    """A token of one plugin reads, writes and subscribes to nothing of another, by path, key or URI."""
    await here.store.kv("other").set("a", "secret")
    token = await token_for(here)
    async with agent(here, token, mode=mode) as one:
        assert not (await one.call("get", key="a"))["exists"]
        with pytest.raises(MCPError, match="no such resource"):
            await one.client.read_resource("holdfast://other/a")
        assert [found.uri for found in (await one.client.list_resources()).resources] == [
            "holdfast://trivia/"
        ]
    for path in ("/mcp/kv/other", "/mcp/semantic/trivia/x"):
        told = await here.ask("POST", path, HELLO, **(ACCEPTED | {"authorization": f"Bearer {token}"}))
        assert (told.status_code, "secret" in told.text) == (403, False)
    assert await here.store.kv("trivia").get("a") is None


async def test_a_project_and_an_operator(here: Served) -> None:
    """A project's token leads to the project; an operator names the plugin in the path."""
    async with agent(here, await token_for(here, tenant="acme", project="web")) as one:
        await one.call("put", key="docs/a", value=1)
        assert "table_query" not in {tool.name for tool in (await one.client.list_tools()).tools}
    operator = await token_for(here, operator=True)
    async with agent(here, operator, path="/mcp/semantic/acme/web") as one:
        assert (await one.call("get", key="docs/a"))["value"] == 1
    told = await post(here, HELLO, token=operator)
    assert (told.status_code, "/mcp/kv/" in told.json()["detail"]) == (403, True)


@pytest.mark.parametrize("mode", REVISIONS)
async def test_a_token_with_few_verbs_has_few_tools(here: Served, mode: str) -> None:
    """Only tools whose every verb the token allows are offered, and others can't be called."""
    async with agent(here, await token_for(here, verbs=["get", "list"]), mode=mode) as one:
        names = {tool.name for tool in (await one.client.list_tools()).tools}
        assert names == {"get", "list", "checkpoint_load", "flag_read", "counter_read"}
        with pytest.raises(MCPError, match="not available"):
            await one.result("put", key="a", value=1)
        if mode == MODERN:
            with pytest.raises(MCPError, match="does not allow changes"):
                async with one.client.listen(resource_subscriptions=["holdfast://trivia/a"]):
                    pass
    assert await here.store.kv("trivia").get("a") is None


async def test_without_a_valid_token_nothing_is_answered(
    here: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No token, an unknown one and a revoked one are refused, a revoked one also inside a session."""
    assert (await post(here, HELLO)).status_code == 401
    assert (await post(here, HELLO, token="hf_0123456789abcdef_" + "x" * 43)).status_code == 401
    token = await token_for(here)
    hello = await post(here, HELLO, token=token)
    assert hello.status_code == 200
    session = hello.headers["mcp-session-id"]
    monkeypatch.setattr(guard, "FRESH", 0.0)
    await here.store.tokens().revoke(token.split("_")[1])
    again = await post(
        here, {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, token=token, mcp_session_id=session
    )
    assert again.status_code == 401


async def test_a_session_belongs_to_its_token(here: Served) -> None:
    """Another token of the same plugin can't use a session, nor can a token of another plugin."""
    hello = await post(here, HELLO, token=await token_for(here))
    session = hello.headers["mcp-session-id"]
    ask = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    for plugin in ("trivia", "other"):
        told = await post(here, ask, token=await token_for(here, plugin), mcp_session_id=session)
        assert told.status_code == 404


@pytest.mark.parametrize(
    ("header", "said", "status"),
    [
        ("host", "evil.example", 421),
        ("host", "127.0.0.1.evil.example", 421),
        ("origin", "http://evil.example", 403),
        ("origin", "null", 403),
        ("sec-fetch-site", "cross-site", 403),
    ],
)
async def test_web_pages_are_kept_out(here: Served, header: str, said: str, status: int) -> None:
    """A page whose name points at this machine, or of another origin, gets nothing, even with a token."""
    token = await token_for(here)
    told = await post(here, HELLO, token=token, **{header: said})
    assert told.status_code == status
    assert "mcp-session-id" not in told.headers


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"not json", 400),
        (b"", 400),
        (b"[]", 400),
        (b"[" * 100_000, 400),
        (b'{"jsonrpc":"2.0","id":1}', 400),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}', 400),
        (b"\xff\xfe", 400),
        (b" " * (HttpLimits().body_bytes + 1), 413),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"x":"' + b"x" * 10_000_000 + b'"}}', 413),
    ],
    ids=["text", "empty", "batch", "deep", "no method", "no session", "bytes", "spaces", "10 MB"],
)
async def test_malformed_requests_are_refused(here: Served, body: bytes, status: int) -> None:
    """What is no request, and what is too large, is refused; the server goes on."""
    token = await token_for(here)
    for version in ({}, {"mcp-protocol-version": MODERN}):
        told = await post(here, body, token=token, **version)
        assert told.status_code == status, (version, told.text[:200])
    assert (await post(here, HELLO, token=token)).status_code == 200


async def test_spaces_around_headers_mean_nothing(here: Served) -> None:
    """A header's value is compared with the body without the spaces around it, as HTTP defines values."""
    meta = {f"io.modelcontextprotocol/{name}": said for name, said in CLIENT.items()}
    params = {"name": "get", "arguments": {"key": "a"}, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    headers = {
        **ACCEPTED,
        "authorization": f"Bearer {await token_for(here)}  ",
        "mcp-protocol-version": f"  {MODERN}\t",
        "mcp-method": " tools/call ",
        "mcp-name": " get  ",
    }

    def ask() -> tuple[int, bytes]:
        with contextlib.closing(http.client.HTTPConnection(urlsplit(here.url).netloc)) as connection:
            connection.request("POST", "/mcp", body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()

    status, told = await asyncio.to_thread(ask)
    assert (status, b'"success":true' in told) == (200, True), told


async def test_other_methods_and_paths(here: Served) -> None:
    """Paths below /mcp that name nothing, and names that are not legal, are refused in words."""
    known = ACCEPTED | {"authorization": f"Bearer {await token_for(here, operator=True)}"}
    assert (await here.ask("POST", "/mcp/nothing", HELLO, **known)).status_code == 404
    assert (await here.ask("POST", "/mcp/admin", HELLO, **known)).status_code == 404
    assert (await here.ask("POST", "/mcp/kv/Not%20Legal", HELLO, **known)).status_code == 400
    assert (await here.ask("POST", "/mcpx", HELLO, **known)).status_code == 405
    assert (await here.ask("PUT", "/mcp/kv/trivia", HELLO, **known)).status_code in (400, 405)


async def test_open_mode_needs_a_name_and_a_near_caller(bus: str, tmp_path: Path) -> None:
    """In open mode a process of this machine names its plugin; a request through a proxy needs a token."""
    async with served(tmp_path / "state.db", bus) as here:
        async with agent(here, None, path="/mcp/kv/trivia") as one:
            assert (await one.call("put", key="a", value=1))["success"]
        nameless = await post(here, HELLO)
        assert (nameless.status_code, "/mcp/kv/trivia" in nameless.json()["detail"]) == (401, True)
        passed_on = await here.ask("POST", "/mcp/kv/trivia", HELLO, **ACCEPTED, x_forwarded_for="1.2.3.4")
        assert passed_on.status_code == 401


@pytest.mark.parametrize(
    "path",
    [
        "/mcp/kv/trivia",
        "/mcp/kv/trivia/",
        "//mcp/kv/trivia",
        "/mcp/kv%2Ftrivia",
        "/mcp/kv/trivia%2F",
        "/mcp/kv/%74rivia",
        "/mcp/kv/trivia/mcp",
        "/mcp/kv/trivia/mcp/",
        "/mcp/kv/trivia?source=config",
    ],
)
async def test_clients_may_rewrite_the_path_of_a_plugin(bus: str, tmp_path: Path, path: str) -> None:
    """The official client and FastMCP's reach the plugin, however the address was written or joined."""
    async with served(tmp_path / "state.db", bus) as here:
        async with agent(here, None, path=path) as one:
            assert await one.call("put", key="k", value=1) is not None
        async with fastmcp.Client(here.url + path, timeout=PATIENCE) as other:
            found = await other.call_tool("get", {"key": "k"})
            assert found.structured_content is not None
            assert found.structured_content["value"] == 1
        assert await here.store.kv("trivia").get("k") is not None


async def test_a_plugin_may_have_the_name_of_the_path(bus: str, tmp_path: Path) -> None:
    """A plugin or project named `mcp` is not taken for what a client appends."""
    async with served(tmp_path / "state.db", bus) as here:
        for path in (
            "/mcp/kv/mcp",
            "/mcp/kv/mcp/mcp",
            "/mcp/semantic/acme/mcp",
            "/mcp/semantic/acme/mcp/mcp",
        ):
            async with agent(here, None, path=path) as one:
                await one.call("put", key="k", value=1)
        assert await here.store.kv("mcp").get("k") is not None
        assert await here.store.semantic("acme", "mcp").get("k") is not None
        for path in ("/mcp/kv/trivia/sse", "/mcp/kv/trivia/mcp/mcp", "/mcp/semantic/acme"):
            assert (await here.ask("POST", path, HELLO, **ACCEPTED)).status_code == 404


@pytest.mark.parametrize(
    "wellknown", ["oauth-protected-resource", "oauth-authorization-server", "openid-configuration"]
)
async def test_clients_find_no_authorization_server(here: Served, wellknown: str) -> None:
    """A client that looks for OAuth learns that there is none, without a token, wherever it looks."""
    for path in (
        f"/.well-known/{wellknown}",
        f"/.well-known/{wellknown}/mcp/kv/trivia",
        f"/mcp/.well-known/{wellknown}",
        f"/mcp/kv/trivia/.well-known/{wellknown}",
        f"/mcp/semantic/acme/web/.well-known/{wellknown}",
    ):
        assert (await here.ask("GET", path)).status_code == 404, path
    assert (await post(here, HELLO)).status_code == 401


async def test_a_stream_over_http(here: Served) -> None:
    """A subscriber hears of changes that are written at another door."""
    async with (
        agent(here, await token_for(here)) as one,
        one.client.listen(resource_subscriptions=["holdfast://trivia/a"]) as events,
    ):
        await here.store.kv("trivia").set("a", 1)
        async with asyncio.timeout(PATIENCE):
            assert await anext(events) == ResourceUpdated("holdfast://trivia/a")


async def test_a_stream_ends_with_its_token(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A subscriber whose token is revoked is cut off and hears of nothing more."""
    monkeypatch.setattr(door, "LOOK_SECONDS", 0.01)
    token = await token_for(here)
    async with (
        agent(here, token) as one,
        one.client.listen(resource_subscriptions=["holdfast://trivia/a"]) as events,
    ):
        await here.store.tokens().revoke(token.split("_")[1])
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(SubscriptionLost):
                await anext(events)


@pytest.mark.parametrize("how", ["revoked", "expired"])
@pytest.mark.filterwarnings("ignore:resources/(un)?subscribe is removed")
async def test_a_session_ends_with_its_token(
    bus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Once a token is revoked or has expired, its session ends, with its subscriptions and its stream."""
    monkeypatch.setattr(door, "LOOK_SECONDS", 0.01)
    clock = ManualClock()
    async with served(tmp_path / "state.db", bus, open_mode=False, clock=clock) as here:
        token, other = await token_for(here, ttl=1_000), await token_for(here)
        known = {"authorization": f"Bearer {token}"}
        hello = await post(here, HELLO, token=token)
        session = {"mcp_session_id": hello.headers["mcp-session-id"]}
        await post(here, {"jsonrpc": "2.0", "method": "notifications/initialized"}, token=token, **session)
        ask = {"jsonrpc": "2.0", "id": 2, "method": "resources/subscribe"}
        subscribe = ask | {"params": {"uri": "holdfast://trivia/a"}}
        assert (await post(here, subscribe, token=token, **session)).status_code == 200
        headers = ACCEPTED | known | {"mcp-session-id": session["mcp_session_id"]}
        async with here.client.stream("GET", "/mcp", headers=headers) as stream:
            assert named("holdfast mcp notifications")
            async with agent(here, other) as stays:
                if how == "revoked":
                    await here.store.tokens().revoke(token.split("_")[1])
                else:
                    clock.advance(1_000)
                async with asyncio.timeout(PATIENCE):
                    with contextlib.suppress(httpx.TransportError):
                        async for _ in stream.aiter_bytes():
                            pass
                    await asyncio.gather(*named("holdfast mcp notifications"), return_exceptions=True)
                assert (await stays.call("put", key="a", value=1))["success"]
        assert not here.mcp._sessions["kv/trivia", False].users


def named(name: str) -> list[asyncio.Task[Any]]:
    """The tasks with a name."""
    return [task for task in asyncio.all_tasks() if task.get_name() == name]


async def test_a_session_ends_soon_after_its_token_is_revoked(here: Served) -> None:
    """What a revoked token has open ends about a second later: the door remembers tokens that long."""
    token = await token_for(here)
    async with (
        agent(here, token) as one,
        one.client.listen(resource_subscriptions=["holdfast://trivia/a"]) as events,
    ):
        await one.call("get", key="a")  # so that the token is remembered
        began = time.monotonic()
        await here.store.tokens().revoke(token.split("_")[1])
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(SubscriptionLost):
                await anext(events)
        assert time.monotonic() - began < 5 * (guard.FRESH + door.LOOK_SECONDS)  # for a busy machine
        assert guard.FRESH + door.LOOK_SECONDS < 1.5


async def test_a_token_behind_a_cookie_is_looked_up_as_often(
    here: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a revoked token has open by the cookie of a console's session ends at the next look, not when the
    door forgets the token."""
    monkeypatch.setattr(door, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(guard, "FRESH", 3_600.0)
    token = await token_for(here)
    port = here.url.rpartition(":")[2]
    headers = {**ACCEPTED, "cookie": f"holdfast-{port}={here.sessions.open(token)}", "origin": here.url}
    hello = await here.client.post("/mcp", json=HELLO, headers=headers)
    session = headers | {"mcp-session-id": hello.headers["mcp-session-id"]}
    async with here.client.stream("GET", "/mcp", headers=session) as stream:
        await here.store.tokens().revoke(token.split("_")[1])
        async with asyncio.timeout(PATIENCE):
            with contextlib.suppress(httpx.TransportError):
                async for _ in stream.aiter_bytes():
                    pass
    refused = await here.client.post("/mcp", json=HELLO, headers=headers)
    assert refused.status_code == 401


@pytest.mark.filterwarnings("ignore:resources/(un)?subscribe is removed")
async def test_a_session_hears_of_changes(here: Served) -> None:
    """A client of an earlier revision is told of changes over the stream of its session."""
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def hear(message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            heard.put_nowait(message.params.uri)

    async with agent(here, await token_for(here), mode=LEGACY, message_handler=hear) as one:
        await one.client.subscribe_resource("holdfast://trivia/a")
        async with asyncio.timeout(PATIENCE):
            while heard.empty():  # the stream of a session opens after its first answer
                await here.store.kv("trivia").set("a", 1)
                await asyncio.sleep(0.05)
            assert await heard.get() == "holdfast://trivia/a"
    assert not named("holdfast mcp notifications")


async def test_sessions_of_a_plugin_are_bounded(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin that opens too many sessions is refused another, and others still get theirs."""
    monkeypatch.setattr(sessions, "MOST_SESSIONS", 3)
    token, other = await token_for(here), await token_for(here, "other")
    told = [(await post(here, HELLO, token=token)).status_code for _ in range(5)]
    assert told == [200, 200, 200, 503, 503]
    assert (await post(here, HELLO, token=other)).status_code == 200
    monkeypatch.setattr(door, "MOST_OWNERS", 2)
    assert (await post(here, HELLO, token=await token_for(here, "third"))).status_code == 503


async def test_plugins_without_sessions_make_room(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plugins that once asked take no place from others: only those with a session or a stream keep one."""
    monkeypatch.setattr(door, "MOST_OWNERS", 2)
    held = await post(here, HELLO, token=await token_for(here, "held"))
    for number in range(5):
        async with agent(here, await token_for(here, f"plugin{number}")) as one:
            assert (await one.call("put", key="a", value=number))["success"]
    assert here.mcp._sessions.keys() == {("kv/held", False), ("kv/plugin4", False)}
    assert held.status_code == 200


async def test_plugins_that_are_idle_are_forgotten(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin without sessions is forgotten after a while, and everything that was made for it ends."""
    monkeypatch.setattr(door, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(door, "IDLE_SECONDS", 0.05)
    async with agent(here, await token_for(here)) as one:
        await one.call("put", key="a", value=1)
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*named("holdfast mcp sessions"), *named("holdfast mcp tokens"))
    assert not here.mcp._sessions
    async with agent(here, await token_for(here)) as one:
        assert (await one.call("get", key="a"))["value"] == 1


@pytest.mark.parametrize("mode", REVISIONS)
async def test_arguments_and_results_are_not_the_sdks(
    here: Served, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large arguments and results come through whole, in the text as in the structured content."""
    value = {"text": 'é\n"x' * 5_000, "list": [[1, None, 0.5, {}]] * 1_000, "holdfast:": 0}
    async with agent(here, await token_for(here), mode=mode) as one:
        await one.call("put", key="a", value=value)
        told = await one.result("list", values=True)
        assert told.structured_content["entries"][0]["value"] == value
        [content] = told.content
        assert isinstance(content, TextContent)
        assert json.loads(content.text) == told.structured_content
        page = await asyncio.gather(*(one.call("list", values=True) for _ in range(20)))
        assert all(found["entries"][0]["value"] == value for found in page)


@pytest.mark.parametrize("mode", REVISIONS)
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("put", {"key": "a", "value": [[]] * 300_000}),
        ("get", {f"n{number:05}": 1 for number in range(60_000)}),
        ("lock_acquire", {"name": "x" * 200_000}),
    ],
    ids=["value", "names", "recipe"],
)
async def test_arguments_are_refused_by_their_size(
    here: Served, mode: str, tool: str, arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arguments that are too large for their tool are refused without being decoded."""
    monkeypatch.setattr(tools, "fields_of", None)
    async with agent(here, await token_for(here), mode=mode) as one:
        told = await one.refused(tool, **arguments)
        assert told["error_code"] == "VALUE_TOO_LARGE"


async def test_a_request_is_refused_by_what_the_sdk_would_see(here: Served) -> None:
    """Whatever is large in a request besides arguments is refused before the SDK looks at it."""
    token = await token_for(here)
    large: dict[str, Any] = {"x": [[]] * 100_000}
    told = await post(here, HELLO | {"params": HELLO["params"] | {"_meta": large}}, token=token)
    assert (told.status_code, told.json()["code"]) == (413, "VALUE_TOO_LARGE")
    told = await post(here, b'{"jsonrpc":"2.0","id":1,"params":' + b"[" * 200_000, token=token)
    assert (told.status_code, told.json()["code"]) == (400, "INVALID_JSON")


async def test_large_requests_of_a_plugin_are_taken_few_at_a_time(
    here: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many large requests a plugin sends at once, few are held in memory, and all are answered."""
    held: list[int] = []
    take = SdkBypass.take

    def taken(bypass: SdkBypass, body: bytes) -> Any:
        held.append(here.mcp._receiving)
        return take(bypass, body)

    monkeypatch.setattr(SdkBypass, "take", taken)
    meta = {f"io.modelcontextprotocol/{name}": said for name, said in CLIENT.items()}
    params = {"name": "put", "arguments": {"key": "a", "value": "x" * 900_000}, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "put"}
    token = await token_for(here)
    told = await asyncio.gather(*(post(here, body, token=token, **headers) for _ in range(12)))
    assert all("VALUE_TOO_LARGE" in one.text for one in told)
    assert max(held) <= 2 * len(body)
    assert here.mcp._receiving == 0


async def test_calls_share_the_rate_of_the_plugin(here: Served) -> None:
    """A policy's rate holds for tools as at every door, and an agent is told to wait."""
    await here.store.set_policy("kv/trivia", Policy(rate_limit=1))
    async with agent(here, await token_for(here)) as one:
        told = [await one.result("get", key="a") for _ in range(5)]
    refused = [result.structured_content for result in told if result.is_error]
    assert refused
    assert all((one["error_code"], one["retryable"]) == ("RATE_LIMITED", True) for one in refused)


async def test_the_principal_is_the_token(here: Served) -> None:
    """The audit records the token that wrote, beside the writer that an agent claims to be."""
    token = await token_for(here, tenant="acme", project="web")
    async with agent(here, token) as one:
        await one.call("put", key="a", value=1, last_writer="planner:plan")
    [record] = (await here.store.audit("semantic/acme/web").log()).records
    assert (record.writer, record.principal) == ("planner:plan", f"token:acme/web#{token.split('_')[1]}")


async def test_a_stopping_service_ends_streams(here: Served) -> None:
    """When the service stops, streams end in an orderly way and requests are told to come back."""
    token = await token_for(here)
    async with (
        agent(here, token) as one,
        one.client.listen(resource_subscriptions=["holdfast://trivia/a"]) as events,
    ):
        await here.mcp.aclose()
        async with asyncio.timeout(PATIENCE):
            assert [event async for event in events] == []
        assert (await post(here, HELLO, token=token)).status_code == 503


@pytest.mark.parametrize("door_used", ["nats", "http"])
async def test_a_server_in_front_of_a_service(bus: str, tmp_path: Path, door_used: str) -> None:
    """`holdfast mcp` on the address of a service behaves as on a file."""
    async with (
        served(tmp_path / "state.db", bus) as here,
        holdfast.open(here.bus if door_used == "nats" else here.url) as far,
        near(far) as one,
    ):
        put = await one.call("put", key="a", value=[1], purpose="result", spec_ref="x")
        got = await one.call("get", key="a")
        assert (got["value"], got["version"], got["spec_ref"]) == ([1], put["version"], "x")
        lost = await one.call("put", key="a", value=2, expected_version=0)
        assert lost["current"]["value"] == [1]
        held = await one.call("lock_acquire", name="x", ttl=30)
        fence = {"lock": "x", "token": held["token"]}
        assert (await one.call("counter_add", name="n", by=2, fence=fence))["value"] == 2
        assert (await one.call("lock_renew", name="x", token=held["token"]))["renewed"]
        assert (await one.call("lock_release", name="x", token=held["token"]))["released"]
        assert (await one.call("list", values=True))["count"] == 2
        assert (await one.call("history", key="a"))["changes"][0]["purpose"] == "result"
        assert (await one.call("changes"))["head"] > put["version"]
        assert (await one.call("table_list"))["tables"] == []
        async with one.client.listen(resource_subscriptions=["holdfast://trivia/a"]) as events:
            await here.store.kv("trivia").set("a", 3)
            async with asyncio.timeout(PATIENCE):
                assert await anext(events) == ResourceUpdated("holdfast://trivia/a")


async def test_a_missing_sdk_is_reported(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service without the extra answers at /mcp with what to install, and everything else works."""
    monkeypatch.setattr(door, "_SDK", "not_installed")
    told = await post(here, HELLO, token=await token_for(here))
    assert (told.status_code, "holdfast-kv[mcp]" in told.json()["detail"]) == (501, True)


@pytest.mark.unmeasured
async def test_holdfast_up_serves_agents(tmp_path: Path) -> None:
    """A running `holdfast up` answers at /mcp, and ends a client's stream in order when it stops."""
    async with holdfast_up(tmp_path) as up:
        url = f"http://127.0.0.1:{up.http_port}/mcp/kv/trivia"
        async with Client(url, mode=MODERN) as client:
            assert (await Agent(client).call("put", key="a", value=1))["success"]
            async with client.listen(resource_subscriptions=["holdfast://trivia/a"]) as events:
                up.signal(signal.SIGTERM)
                async with asyncio.timeout(PATIENCE):
                    assert [event async for event in events] == []
        assert await up.stop(signal.SIGTERM) == 0
    assert "Traceback" not in up.complaints
