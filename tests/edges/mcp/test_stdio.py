"""`holdfast mcp` as a process, driven by the official client and by hand."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.subscriptions import ResourceUpdated

import holdfast
from holdfast.edges.cli import run
from holdfast.edges.mcp.callers import StoreCaller
from holdfast.edges.mcp.server import Handlers
from holdfast.edges.mcp.tools import TOOLS
from tests.edges.mcp.agents import MODERN, Agent
from tests.forking import ForkedProcess

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE = 60.0


def environment(home: Path) -> dict[str, str]:
    """An environment with none of the user's settings."""
    kept = {name: said for name, said in os.environ.items() if not name.startswith(("HOLDFAST_", "NATS_"))}
    return kept | {"HOME": str(home)}


def command(home: Path, *arguments: str) -> StdioServerParameters:
    """How a client starts the server."""
    words = ["-m", "holdfast", "mcp", *arguments]
    return StdioServerParameters(command=sys.executable, args=words, env=environment(home), cwd=home)


@pytest.mark.unmeasured
async def test_an_agent_works_over_stdio(tmp_path: Path) -> None:
    """The official client starts the server, calls tools, subscribes, and finds its data after a restart."""
    server = command(tmp_path, "--plugin", "trivia", "--url", "state.db", "--writer", "bot:tidy")
    async with Client(server, mode=MODERN) as client:
        one = Agent(client)
        assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS.keys()
        large: list[Any] = ["é\n", [[]] * 10_000, None, "x" * 30_000]
        await one.call("put", key="large", value=large)
        assert (await one.call("list", values=True))["entries"][0]["value"] == large
        put = await one.call("put", key="a", value=1)
        lost = await one.call("put", key="a", value=2, expected_version=put["version"] + 1)
        assert lost["current"]["version"] == put["version"]
        async with client.listen(resource_subscriptions=["holdfast://trivia/a"]) as events:
            await one.call("put", key="a", value=3)
            async with asyncio.timeout(PATIENCE):
                assert await anext(events) == ResourceUpdated("holdfast://trivia/a")
    async with holdfast.open(tmp_path / "state.db") as store:
        entry = await store.kv("trivia").get("a")
        assert entry is not None
        assert (entry.value, entry.last_writer) == (3, "bot:tidy")


@pytest.mark.unmeasured
async def test_two_servers_on_one_postgresql(tmp_path: Path, pg_url: str) -> None:
    """Servers on PostgreSQL share locks and tables, and a subscriber of one hears of changes by the other."""
    async with contextlib.AsyncExitStack() as stack:
        server = command(tmp_path, "--plugin", "trivia", "--url", pg_url)
        store = await stack.enter_async_context(holdfast.open(pg_url))
        tables = store.tables("trivia")
        await tables.create_table("t", partition_key=("k", "string"))
        await tables.put_item("t", {"k": "a", "n": 1})
        caller = StoreCaller(store, store.kv("trivia"))
        async with (
            Client(server, mode=MODERN) as far,
            Client(Handlers(lambda ctx: caller).server(), mode=MODERN) as near,
        ):
            one, two = Agent(far), Agent(near)
            held = await one.call("lock_acquire", name="x")
            assert not (await two.call("lock_acquire", name="x"))["acquired"]
            fence = {"lock": "x", "token": held["token"] - 1}
            assert (await two.call("put", key="a", value=1, fence=fence))["error_code"] == "FENCED"
            assert (await one.call("table_query", table="t", partition_key="a"))["count"] == 1
            assert (await two.call("counter_add", name="n", by=2))["value"] == 2
            assert (await one.call("counter_read", name="n"))["value"] == 2
            async with far.listen(resource_subscriptions=["holdfast://trivia/a"]) as events:
                await two.call("put", key="a", value=1)
                async with asyncio.timeout(PATIENCE):
                    assert await anext(events) == ResourceUpdated("holdfast://trivia/a")


NOTHING_OF_US: list[bytes] = [
    b"not json",
    b"[]",
    b"{}",
    b"null",
    b'{"jsonrpc":"2.0","id":1}',
    b'{"jsonrpc":"1.0","id":1,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":2,"method":"nothing/at/all","params":{}}',
    b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":[1]}',
    b'{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":7}}',
    b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"put","arguments":"x"}}',
    b"[" * 100_000,
    b"\xff\xfe\x00",
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}',
]
"""Lines that are no requests which the server answers with a result."""
HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "raw", "version": "1"},
}


def request(number: int, method: str, **params: Any) -> bytes:
    """A request as a line."""
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()


async def answers_until(process: ForkedProcess, last: int) -> dict[int, Any]:
    """Read what the server answers, by the id of the request, until it answers one."""
    answers: dict[int, Any] = {}
    while last not in answers:
        line = await asyncio.wait_for(process.stdout.readline(), PATIENCE)
        assert line, answers
        found = json.loads(line)
        answers[found.get("id")] = found
    return answers


@pytest.mark.unmeasured
async def test_malformed_lines_do_no_harm(tmp_path: Path) -> None:
    """After lines that are no requests the server still answers, and stdout has nothing but answers."""
    async with holdfast.open(tmp_path / "state.db") as store:
        await store.kv("trivia").set("a", 1)
    words = ("mcp", "--plugin", "trivia", "--url", "state.db", "--read-only")
    process = await ForkedProcess.start(
        "holdfast", *words, env=environment(tmp_path), cwd=tmp_path, told=True, near=True
    )
    assert process.stdin is not None
    lines = [
        request(100, "initialize", **HELLO),
        b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
        *NOTHING_OF_US,
        request(200, "tools/call", name="put", arguments={"key": "a", "value": 2}),
        request(300, "tools/call", name="get", arguments={"key": "a"}),
    ]
    process.stdin.write(b"\n".join(lines) + b"\n")
    answers = await answers_until(process, 300)
    process.stdin.close()
    assert await asyncio.wait_for(process.wait(), PATIENCE) == 0
    assert answers[300]["result"]["structuredContent"]["value"] == 1
    assert all("error" in answers[number] for number in (2, 4, 5, 200))


@pytest.mark.unmeasured
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
async def test_a_signal_ends_it(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C ends the server though its stdin is open, with what it wrote on disk and the file free again."""
    words, errors = ("mcp", "--plugin", "trivia", "--url", "state.db"), tmp_path / "stderr"
    with errors.open("wb") as file:
        process = await ForkedProcess.start(
            *("holdfast", *words),
            env=environment(tmp_path),
            cwd=tmp_path,
            stderr=file.fileno(),
            told=True,
            near=True,
        )
    assert process.stdin is not None
    lines = [
        request(100, "initialize", **HELLO),
        b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
        request(200, "tools/call", name="put", arguments={"key": "a", "value": 1}),
    ]
    process.stdin.write(b"\n".join(lines) + b"\n")
    await answers_until(process, 200)
    process.send_signal(number)
    assert await asyncio.wait_for(process.wait(), PATIENCE) == 128 + number
    assert b"Traceback" not in errors.read_bytes()
    process.stdin.close()
    async with holdfast.open(tmp_path / "state.db") as store:
        entry = await store.kv("trivia").set("b", 1)
        assert entry.version == 2


def test_configurations_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The block for each client starts this server on an absolute path."""
    monkeypatch.chdir(tmp_path)
    for client, section in {"claude": "mcpServers", "cursor": "mcpServers", "vscode": "servers"}.items():
        assert (
            run(["mcp", "--project", "acme/web", "--url", "s.db", "--read-only", "--print-config", client])
            == 0
        )
        server = json.loads(capsys.readouterr().out)[section]["holdfast-acme-web"]
        assert server["args"] == ["mcp", "--tenant", "acme", "--project", "web", "--read-only"]
        assert server["env"] == {"HOLDFAST_URL": str(tmp_path / "s.db")}
    assert not (tmp_path / "s.db").exists()


def test_the_configuration_of_a_service_has_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    """For a service over HTTP the block names /mcp and a variable for the token, never a token."""
    url = "http://user:secret@db.example:8080/?token=hf_secret"
    assert run(["mcp", "--plugin", "trivia", "--url", url, "--print-config", "cursor"]) == 0
    told = capsys.readouterr()
    server = json.loads(told.out)["mcpServers"]["holdfast-trivia"]
    assert server["url"] == "http://db.example:8080/mcp"
    assert server["headers"] == {"Authorization": "Bearer ${env:HOLDFAST_TOKEN}"}
    assert "secret" not in told.out + told.err


@pytest.mark.parametrize("words", [[], ["--print-config", "claude"], ["--tenant", "acme"]])
def test_mcp_without_a_plugin_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Without a plugin or a project nothing is served, and the message names the option."""
    assert run(["mcp", "--url", "memory://", *words]) == 2
    assert "--p" in capsys.readouterr().err


def test_two_tenants_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A tenant that contradicts the project's is refused."""
    assert run(["mcp", "--url", "memory://", "--tenant", "a", "--project", "b/c"]) == 2
    assert "two tenants" in capsys.readouterr().err
