"""`holdfast up --no-nats`: HTTP, MCP and the console alone, without any NATS server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

import holdfast
from holdfast.edges.settings.read import read_config
from holdfast.errors import ValidationError
from tests.edges.running import PATIENCE, Up, holdfast_up

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MCP_HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


@pytest.fixture
async def up(tmp_path: Path) -> AsyncIterator[Up]:
    """A service without NATS."""
    async with holdfast_up(tmp_path, "--no-nats") as running:
        yield running


@pytest.fixture
async def client(up: Up) -> AsyncIterator[httpx.AsyncClient]:
    """A client of it."""
    url = f"http://127.0.0.1:{up.http_port}"
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE) as one:
        yield one


async def test_every_door_but_nats_answers(up: Up, client: httpx.AsyncClient) -> None:
    """Keys, operators' verbs, health, metrics, the console and MCP work, and no NATS server is started."""
    stored = await client.put("/v1/kv/demo/greeting", content=b'"hello"')
    assert stored.status_code == 200, stored.text
    assert (await client.get("/v1/kv/demo/greeting")).json() == "hello"
    listed = await client.post("/v1/admin:namespaces", json={})
    assert [one["namespace"] for one in listed.json()["namespaces"]] == ["kv/demo"]

    ready = await client.get("/readyz")
    report = ready.json()
    assert (ready.status_code, report["ready"], report["store"]) == (200, True, "ok")
    assert "nats" not in report
    metrics = (await client.get("/metrics")).text
    assert "holdfast_kv_set" in metrics
    assert (await client.get("/")).status_code == 200
    overview = await client.get("/", headers={"Accept": "application/json"})
    assert overview.status_code == 200
    assert [one["state"] for one in overview.json()["instances"]] == ["ok"]

    begun = await client.post("/mcp/kv/demo", json=_initialize(), headers=MCP_HEADERS)
    assert begun.status_code == 200, begun.text
    assert "holdfast" in begun.text

    assert not (up.home / "holdfast" / "nats").exists()
    assert any(line == "NATS  not served: callers use HTTP" for line in up.said)
    assert not any("nats://" in line for line in up.said)


async def test_changes_are_watched_over_http(client: httpx.AsyncClient) -> None:
    """A watch tells of a change that is made while it is open."""
    async with asyncio.timeout(PATIENCE), client.stream("GET", "/v1/kv/demo?watch") as stream:
        lines = stream.aiter_lines()
        assert await anext(lines) == ": watching"
        await client.put("/v1/kv/demo/k", content=b"1")
        async for line in lines:
            if line.startswith("data: "):
                assert json.loads(line.removeprefix("data: "))["key"] == "k"
                return
    pytest.fail("the stream ended without a change")


async def test_programs_and_commands_find_the_service(up: Up) -> None:
    """`holdfast.open` works at the URL of the printed command, and the store announces that URL."""
    url = f"http://127.0.0.1:{up.http_port}"
    assert any(line.startswith("Try ") and line.endswith(f"--url {url}") for line in up.said)
    async with holdfast.open(url) as store:
        entry = await store.kv("demo").set("k", 1)
        assert await store.kv("demo").get("k") == entry
    lock = (up.home / "holdfast" / "holdfast.db.lock").read_text()
    assert lock.splitlines()[1] == url


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"nats": "nats://bus:4222"}, "--nats needs NATS, which --no-nats turns off: leave one of them out"),
        ({"nats_port": 4222}, "--nats-port needs NATS, which --no-nats turns off: leave one of them out"),
        ({"nats_config": "n.conf"}, "--nats-config needs NATS"),
        ({"nats_user": "u"}, "--nats-user needs NATS"),
        ({"cluster": "c"}, "--cluster needs NATS"),
        ({"own_connection": "trivia"}, "--own-connection needs NATS"),
        ({"reply_mode": "accounts"}, "--reply-mode needs NATS"),
        ({"db": "cluster://a,b,c/name"}, "a cluster keeps its log in NATS, which --no-nats turns off"),
        ({"http_port": 0}, "--no-nats leaves only HTTP, which --http-port turns off"),
    ],
)
def test_settings_of_nats_are_refused_without_it(settings: dict[str, Any], said: str) -> None:
    """A setting that means nothing without NATS is refused with both settings named."""
    with pytest.raises(ValidationError, match=said):
        read_config(environment={}, no_nats=True, **settings)


def test_variables_of_other_tools_are_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NATS_URL is there for other programs; HOLDFAST_NATS and a setting in the file contradict."""
    monkeypatch.chdir(tmp_path)
    assert read_config(environment={"NATS_URL": "nats://bus:4222"}, no_nats=True).nats is None
    with pytest.raises(ValidationError, match="HOLDFAST_NATS needs NATS, which HOLDFAST_NO_NATS turns off"):
        read_config(environment={"HOLDFAST_NATS": "nats://bus:4222", "HOLDFAST_NO_NATS": "true"})
    Path("holdfast.toml").write_text('[nats]\noff = true\nurl = "nats://bus:4222"\n')
    with pytest.raises(ValidationError, match=r"nats.url in holdfast.toml needs NATS"):
        read_config(environment={})


async def test_the_command_refuses_both(tmp_path: Path) -> None:
    """`holdfast up --no-nats --nats URL` ends at once and says why."""
    code, last = await Up(tmp_path, ("--no-nats", "--nats", "nats://127.0.0.1:1"), {}).ended()
    assert code == 2
    assert "--nats needs NATS, which --no-nats turns off" in last


def _initialize() -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
