"""What agents rely on when they call tools, in both revisions of the protocol."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from mcp import MCPError
from mcp.client._memory import InMemoryTransport
from mcp.shared.message import SessionMessage
from mcp_types import (
    ClientCapabilities,
    Implementation,
    InitializeRequestParams,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)

from holdfast.edges.calls import FAMILIES
from holdfast.edges.intake.requests import MOST_SINGLE
from holdfast.edges.mcp.callers import StoreCaller
from holdfast.edges.mcp.server import NEXT, Handlers, shown
from holdfast.edges.mcp.tools import TOOLS
from holdfast.errors import error_classes
from tests.edges.mcp.agents import REVISIONS, agent

if TYPE_CHECKING:
    from holdfast.clock import ManualClock
    from holdfast.store import Store


@pytest.mark.parametrize("mode", REVISIONS)
async def test_a_put_is_read_back(store: Store, mode: str) -> None:
    """What an agent puts is what it gets, with its version, purpose, document and the client's name."""
    async with agent(store, mode=mode, name="reviewer") as one:
        put = await one.call("put", key="a", value={"n": 1}, purpose="config", spec_ref="ADR 7", ttl=60)
        got = await one.call("get", key="a")
    assert (got["value"], got["version"], got["spec_ref"]) == ({"n": 1}, put["version"], "ADR 7")
    assert (got["semantics"]["purpose"], got["last_writer"]) == ("config", "reviewer")
    assert got["expires_at"] == put["expires_at"] is not None


@pytest.mark.parametrize("mode", REVISIONS)
async def test_a_conflict_is_data(store: Store, mode: str) -> None:
    """A lost race writes nothing and returns the current entry and what to do; it is no failed call."""
    async with agent(store, mode=mode) as one:
        first = await one.call("put", key="a", value=1)
        second = await one.call("put", key="a", value=2, expected_version=first["version"])
        lost = await one.call("put", key="a", value=3, expected_version=first["version"])
        assert (lost["success"], lost["error_code"]) == (False, "VERSION_CONFLICT")
        assert (lost["current"]["value"], lost["current"]["version"]) == (2, second["version"])
        assert "expected_version" in lost["next"]
        assert (await one.call("get", key="a"))["value"] == 2
        await one.call("delete", key="a", expected_version=second["version"])
        gone = await one.call("put", key="a", value=3, expected_version=second["version"])
        assert gone["current"] is None
        assert "expected_version 0" in gone["next"]


async def test_a_reused_request_id_is_told_apart(store: Store) -> None:
    """A repeated call gets the first answer; another call with its id is told to take a new one."""
    async with agent(store) as one:
        first = await one.call("counter_add", name="n", by=2, request_id="r1")
        again = await one.call("counter_add", name="n", by=2, request_id="r1")
        other = await one.call("counter_add", name="n", by=3, request_id="r1")
        assert first["value"] == again["value"] == 2
        assert (other["reason"], "new one" in other["next"]) == ("request_id_reused", True)
        assert (await one.call("counter_read", name="n"))["value"] == 2


async def test_text_says_the_same_as_structured_content(store: Store) -> None:
    """A client that shows only text to its model shows all of the result."""
    async with agent(store) as one:
        for result in (await one.result("get", key="a"), await one.result("get", key="")):
            [content] = result.content
            assert json.loads(content.text) == result.structured_content  # type: ignore[union-attr]


async def test_lists_history_and_changes(store: Store) -> None:
    """Pages end with a cursor; history tells who wrote a key; changes go on from `next`."""
    async with agent(store, name="alice") as alice, agent(store, writer="bob:fix") as bob:
        for number in range(3):
            await alice.call("put", key=f"k{number}", value=number)
        await bob.call("put", key="k0", value=9, purpose="result")
        page = await alice.call("list", prefix="k", limit=2, values=True)
        assert ([one["value"] for one in page["entries"]], page["truncated"]) == ([9, 1], True)
        rest = await alice.call("list", prefix="k", limit=2, cursor=page["cursor"])
        assert (rest["keys"], rest["truncated"]) == (["k2"], False)
        told = (await alice.call("history", key="k0"))["changes"]
        assert [(one["last_writer"], one.get("purpose")) for one in told] == [
            ("bob:fix", "result"),
            ("alice", None),
        ]
        seen = await alice.call("changes", limit=3)
        more = await alice.call("changes", since=seen["next"])
        assert [one["key"] for one in seen["changes"] + more["changes"]] == ["k0", "k1", "k2", "k0"]


async def test_a_project_has_relative_keys_and_no_tables(store: Store) -> None:
    """A project's tools take keys relative to it, and it has no tools for tables."""
    async with agent(store, store.semantic("acme", "web")) as one:
        await one.call("put", key="docs/cursor", value=1, purpose="cursor")
        assert (await one.call("list"))["keys"] == ["tenant/acme/project/web/docs/cursor"]
        foreign = await one.refused("get", key="tenant/other/project/web/docs/cursor")
        assert foreign["error_code"] == "VALIDATION_ERROR"
        names = {tool.name for tool in (await one.client.list_tools()).tools}
        assert names == {name for name, tool in TOOLS.items() if not tool.table}


async def test_tables_are_queried(store: Store) -> None:
    """An agent finds the tables of its plugin and queries a range of a partition."""
    tables = store.tables("trivia")
    await tables.create_table("scores", partition_key=("user", "string"), sort_key=("at", "number"))
    for at in range(5):
        await tables.put_item("scores", {"user": "a", "at": at})
    async with agent(store) as one:
        assert (await one.call("table_list"))["tables"] == ["scores"]
        page = await one.call("table_query", table="scores", partition_key="a", sort_key_condition={"gte": 3})
        assert [item["at"] for item in page["items"]] == [3, 4]
        assert (await one.refused("table_query", table="x", partition_key="a"))[
            "error_code"
        ] == "TABLE_NOT_FOUND"


async def test_checkpoints_flags_and_counters_are_those_of_programs(store: Store) -> None:
    """A program and an agent share checkpoints, flags and counters by name."""
    kv = store.kv("trivia")
    await kv.flag("dark", default=False).set(True)
    await kv.counter("hits").add(3)
    async with agent(store) as one:
        assert (await one.call("flag_read", name="dark"))["value"] is True
        assert (await one.call("flag_read", name="other", default=7))["value"] == 7
        assert (await one.call("counter_add", name="hits", by=0.5))["value"] == 3.5
        none = await one.call("checkpoint_load", name="import")
        assert (none["exists"], none["version"]) == (False, 0)
        saved = await one.call("checkpoint_save", name="import", value={"row": 1}, expected_version=0)
        progress = kv.checkpoint("import")
        loaded = await progress.load()
        assert loaded is not None
        assert (loaded.value, loaded.version) == ({"row": 1}, saved["version"])
        await progress.advance({"row": 2})
        late = await one.call("checkpoint_save", name="import", value=0, expected_version=saved["version"])
        assert (late["error_code"], late["current"]["value"]) == ("VERSION_CONFLICT", {"row": 2})
        await kv.set("counter/odd", "text")
        assert (await one.refused("counter_read", name="odd"))["error_code"] == "VALIDATION_ERROR"


async def test_a_misspelled_argument_is_refused(store: Store) -> None:
    """A condition with a slip in its name is refused with the right name, never ignored."""
    async with agent(store) as one:
        told = await one.refused("put", key="a", value=1, expected_versoin=3)
        assert "did you mean expected_version?" in told["message"]
        inner = await one.refused("put", key="a", value=1, fence={"lock": "x", "tokn": 1})
        assert inner["field"] == "fence.tokn"
        assert not (await one.call("get", key="a"))["exists"]


@pytest.mark.parametrize("value", ["\ud800", 10**5000], ids=["surrogate", "digits"])
async def test_values_that_json_does_not_have_are_refused(store: Store, value: Any) -> None:
    """A value that can't be stored is refused as at every door, and never changed to something else."""
    async with agent(store) as one:
        told = await one.refused("put", key="a", value=value)
        assert told["error_code"] == "VALIDATION_ERROR"


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e400"])
async def test_numbers_that_json_does_not_have_are_refused(store: Store, value: str) -> None:
    """A number that JSON does not have, which the SDK lets through, is refused and not stored as null."""
    caller = StoreCaller(store, store.kv("trivia"))
    call = {"name": "put", "arguments": {"key": "a", "value": "VALUE"}}
    hello = InitializeRequestParams(
        protocol_version="2025-11-25",
        capabilities=ClientCapabilities(),
        client_info=Implementation(name="raw", version="1"),
    )
    lines = [
        json.dumps(
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello.model_dump(by_alias=True)}
        ),
        json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}).replace(
            '"VALUE"', value
        ),
    ]
    async with InMemoryTransport(Handlers(lambda ctx: caller).server()) as (reading, writing):
        for line in lines:
            await writing.send(SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False)))
            answer = await reading.receive()
    assert isinstance(answer, SessionMessage)
    assert isinstance(answer.message, JSONRPCResponse)
    assert answer.message.result["structuredContent"]["error_code"] == "VALIDATION_ERROR"
    assert await store.kv("trivia").get("a") is None


async def test_arguments_have_a_limit(store: Store) -> None:
    """Arguments of 10 MB are refused, and a value over its limit is refused with the usual words."""
    async with agent(store) as one:
        told = await one.refused("put", key="a", value="x" * 10_000_000)
        assert (told["error_code"], str(MOST_SINGLE) in told["message"]) == ("VALUE_TOO_LARGE", True)
        told = await one.refused("put", key="a", value="x" * 70_000)
        assert "exceeds 64KB limit" in told["message"]


@pytest.mark.parametrize("mode", REVISIONS)
async def test_an_unknown_tool_is_an_error_of_the_protocol(store: Store, mode: str) -> None:
    """A tool that does not exist is an error with invalid parameters, as the specification wants it."""
    async with agent(store, mode=mode) as one:
        with pytest.raises(MCPError, match="there is no tool 'nothing'") as caught:
            await one.result("nothing")
        assert caught.value.code == -32602


async def test_read_only_offers_no_tool_that_writes(store: Store) -> None:
    """With --read-only an agent neither sees nor can call a tool that writes, and sees no prompt for one."""
    async with agent(store, read_only=True) as one:
        tools = (await one.client.list_tools()).tools
        assert {tool.name for tool in tools} == {name for name, tool in TOOLS.items() if not tool.writes}
        assert all(tool.annotations is not None and tool.annotations.read_only_hint for tool in tools)
        with pytest.raises(MCPError, match="not available"):
            await one.result("put", key="a", value=1)
        assert (await one.client.list_prompts()).prompts == []


@pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)
def test_schemas_are_valid(tool: Any) -> None:
    """The schemas of a tool are JSON Schema 2020-12, closed for arguments, and refer to nothing outside."""
    told = shown(tool)
    for schema in (told.input_schema, told.output_schema):
        assert schema is not None
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object"
        refs = [one.partition('"')[0] for one in json.dumps(schema).split('"$ref": "')[1:]]
        assert all(ref.startswith("#/$defs/") and ref[8:] in schema["$defs"] for ref in refs)
    assert told.input_schema["additionalProperties"] is False
    assert all("description" in one for one in told.input_schema["properties"].values())
    assert len(told.description or "") > 40


def test_effects_are_those_of_the_catalogue() -> None:
    """A tool says that it writes exactly if it uses a writing verb."""
    for tool in TOOLS.values():
        verbs = [FAMILIES["table" if tool.table else "kv"][name] for name in tool.verbs]
        assert tool.writes == any(verb.writes for verb in verbs), tool.name
        told = shown(tool).annotations
        assert told is not None
        assert told.read_only_hint is not tool.writes
        assert told.destructive_hint is (tool.name in ("put", "delete"))


def test_every_code_has_a_next_step() -> None:
    """Whatever is refused, an agent is told what to do."""
    assert NEXT.keys() == {error.code for error in error_classes()}


async def test_expired_entries_are_gone(store: Store, clock: ManualClock) -> None:
    """A tool does not see an entry past its deadline."""
    async with agent(store) as one:
        await one.call("put", key="a", value=1, ttl=10)
        clock.advance(10)
        assert not (await one.call("get", key="a"))["exists"]
