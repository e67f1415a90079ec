"""The memory of agents over MCP: nine tools with the names and shapes of server-memory."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from mcp import Client
from mcp_types import Implementation

import holdfast
from holdfast.edges.cli import run
from holdfast.edges.mcp.callers import StoreCaller
from holdfast.edges.mcp.memory import (
    TOOLS,
    Additions,
    Deletions,
    Entity,
    KnowledgeGraph,
    MemoryHandlers,
    Relation,
)
from holdfast.errors import ValueTooLarge
from tests.edges.http.ground import served
from tests.edges.mcp.agents import REVISIONS, Agent
from tests.edges.mcp.http_agents import agent, token_for
from tests.edges.mcp.test_stdio import command
from tests.nats import lasting_nats_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from holdfast.store import Store

ADA: dict[str, Any] = {"name": "Ada", "entityType": "person", "observations": ["likes plums"]}
BOB: dict[str, Any] = {"name": "Bob/ # é" * 20, "entityType": "Person", "observations": []}
KNOWS = {"from": ADA["name"], "to": BOB["name"], "relationType": "knows"}
DONE = {"success": True}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """A store in a file."""
    async with holdfast.open(tmp_path / "state.db") as opened:
        yield opened


@asynccontextmanager
async def memory(store: Store, name: str = "tester", *, read_only: bool = False) -> AsyncIterator[Agent]:
    """Connect a client to a memory."""
    caller = StoreCaller(store, store.kv("notes"), read_only=read_only)
    info = Implementation(name=name, version="1")
    async with Client(MemoryHandlers(lambda ctx: caller).server(), client_info=info) as client:
        yield Agent(client)


async def test_entities_and_relations_are_stored_once(store: Store) -> None:
    """New entities and relations are returned, known ones are left alone, also within one call."""
    async with memory(store) as agent:
        assert await agent.call("create_entities", entities=[ADA, BOB, {**ADA, "entityType": "x"}]) == {
            "entities": [ADA, BOB]
        }
        assert await agent.call("create_entities", entities=[{**ADA, "observations": []}]) == {"entities": []}
        assert await agent.call("create_relations", relations=[KNOWS, KNOWS]) == {"relations": [KNOWS]}
        assert await agent.call("create_relations", relations=[KNOWS]) == {"relations": []}
        graph = await agent.call("read_graph")
        assert sorted(one["name"] for one in graph["entities"]) == sorted([ADA["name"], BOB["name"]])
        assert graph["relations"] == [KNOWS]
        result: Any = await agent.result("read_graph")
        assert json.loads(result.content[0].text) == graph


async def test_observations_are_added_and_removed(store: Store) -> None:
    """Observations are added once; a call about an entity that is not known changes nothing."""
    async with memory(store) as agent:
        await agent.call("create_entities", entities=[ADA])
        additions = [{"entityName": "Ada", "contents": ["likes plums", "is tall", "is tall"]}]
        assert await agent.call("add_observations", observations=additions) == {
            "results": [{"entityName": "Ada", "addedObservations": ["is tall"]}]
        }
        both = [{"entityName": "Ada", "contents": ["x"]}, {"entityName": "Eve", "contents": ["y"]}]
        refused: Any = await agent.result("add_observations", observations=both)
        assert refused.is_error
        assert refused.content[0].text == "Entity with name Eve not found"
        deletions = [
            {"entityName": "Ada", "observations": ["likes plums", "z"]},
            {"entityName": "Eve", "observations": ["y"]},
        ]
        assert await agent.call("delete_observations", deletions=deletions) == DONE | {
            "message": "Deleted 1 of 3 observations. Entities not found: Eve"
        }
        deletions = [{"entityName": "Ada", "observations": ["is tall"]}]
        assert await agent.call("delete_observations", deletions=deletions) == DONE | {
            "message": "Observations deleted successfully"
        }
        assert (await agent.call("open_nodes", names=["Ada"]))["entities"] == [{**ADA, "observations": []}]


async def test_deleting_an_entity_deletes_its_relations(store: Store) -> None:
    """With an entity its relations go; what is not there is named."""
    async with memory(store) as agent:
        await agent.call("create_entities", entities=[ADA, BOB])
        await agent.call("create_relations", relations=[KNOWS, {**KNOWS, "relationType": "helps"}])
        assert (await agent.call("delete_relations", relations=[KNOWS, KNOWS | {"to": "Ada"}]))[
            "message"
        ] == ("Deleted 1 of 2 relations. The rest matched nothing.")
        assert (await agent.call("delete_entities", entityNames=[BOB["name"], "Eve"]))["message"] == (
            "Deleted 1 of 2 entities. Not found: Eve"
        )
        assert await agent.call("read_graph") == {"entities": [ADA], "relations": []}
        assert (await agent.call("delete_entities", entityNames=["Ada"]))["message"] == (
            "Entities deleted successfully"
        )
        assert (await store.kv("notes").list()).keys == []


async def test_search_looks_at_names_types_and_observations(store: Store) -> None:
    """A search ignores case, and relations to entities that were not found are shown too."""
    async with memory(store) as agent:
        await agent.call("create_entities", entities=[ADA, BOB])
        await agent.call("create_relations", relations=[KNOWS])
        assert await agent.call("search_nodes", query="PLUMS") == {"entities": [ADA], "relations": [KNOWS]}
        assert len((await agent.call("search_nodes", query="person"))["entities"]) == 2
        assert await agent.call("search_nodes", query="nothing") == {"entities": [], "relations": []}
        assert await agent.call("open_nodes", names=[BOB["name"]]) == {
            "entities": [BOB],
            "relations": [KNOWS],
        }


async def test_entity_with_many_relations_is_deleted(store: Store) -> None:
    """An entity goes with all of its relations, however many there are, and so do many entities."""
    graph = KnowledgeGraph(StoreCaller(store, store.kv("notes")))
    others = [Entity(f"other-{number}", "person", []) for number in range(1_001)]
    for some in (others[:900], [*others[900:], Entity("Ada", "person", [])]):
        await graph.create_entities(some)
        await graph.create_relations([Relation(one.name, one.name, "is") for one in some[:400]])
    for start in (0, 400, 800):
        await graph.create_relations(
            [Relation("Ada", one.name, "knows") for one in others[start : start + 400]]
        )
    assert await graph.delete_entities(["Eve", "Ada"]) == "Deleted 1 of 2 entities. Not found: Eve"
    assert not [key for key in (await store.kv("notes").list("relation/")).keys if "Ada" in key]
    names = [one.name for one in others]
    assert await graph.delete_entities([*names, "Eve"]) == "Deleted 1001 of 1002 entities. Not found: Eve"
    assert (await store.kv("notes").list()).keys == []


async def test_large_memory_is_searched_and_not_returned_whole(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer has a bounded size, whatever a memory holds; a part of it is found in any."""
    monkeypatch.setattr("holdfast.edges.mcp.memory._MOST_ANSWER", 10_000)
    async with memory(store) as agent:
        for number in range(30):
            named = {"name": f"entity {number}", "entityType": "note", "observations": ["x" * 300]}
            await agent.call("create_entities", entities=[named])
        ends = {"from": "entity 7", "to": "entity 29", "relationType": "see"}
        await agent.call("create_relations", relations=[ends])
        refused: Any = await agent.result("read_graph")
        assert refused.is_error
        assert "search_nodes" in refused.content[0].text
        found = await agent.call("search_nodes", query="ENTITY 7")
        assert ([one["name"] for one in found["entities"]], found["relations"]) == (["entity 7"], [ends])


async def test_a_call_with_very_many_observations_holds_up_nobody(store: Store) -> None:
    """What a call costs grows with its size, and not with its square."""
    graph = KnowledgeGraph(StoreCaller(store, store.kv("notes")))
    known = [f"{number:05d}" for number in range(7_000)]
    await graph.create_entities([Entity("Ada", "person", known)])
    others = [f"x{number}" for number in range(100_000)]
    began = time.process_time()
    done = await graph.delete_observations([Deletions("Ada", [*others, known[-1]])])
    assert done.startswith("Deleted 1 of 100001 ")
    done = await graph.delete_observations([Deletions("Ada", [text]) for text in others[:20_000]])
    assert done.startswith("Deleted 0 of 20000 ")
    for additions in ([Additions("Ada", others)], [Additions("Ada", [text]) for text in others[:20_000]]):
        with pytest.raises(ValueTooLarge):
            await graph.add_observations(additions)
    found = await graph.open_nodes([*others, "Ada"])
    assert time.process_time() - began < 10  # a twentieth of what comparing each with each took
    assert [one["observations"] for one in found["entities"]] == [known[:-1]]


async def test_clients_that_write_at_once_lose_nothing(store: Store) -> None:
    """Observations that several clients add to one entity at once are all there, and say who wrote last."""
    async with AsyncExitStack() as stack:
        agents = [await stack.enter_async_context(memory(store, f"client-{number}")) for number in range(5)]
        await agents[0].call("create_entities", entities=[ADA])

        async def learn(agent: Agent, number: int) -> None:
            for turn in range(5):
                addition = {"entityName": "Ada", "contents": [f"{number}.{turn}"]}
                await agent.call("add_observations", observations=[addition])

        await asyncio.gather(*(learn(agent, number) for number, agent in enumerate(agents)))
        [entity] = (await agents[0].call("open_nodes", names=["Ada"]))["entities"]
    assert len(entity["observations"]) == 26
    writers = {change.last_writer for change in (await store.kv("notes").history("entity/Ada"))}
    assert writers == {f"client-{number}" for number in range(5)}


async def test_read_only_memory_offers_what_reads(store: Store) -> None:
    """A memory that is read only shows and serves the tools that write nothing; wrong arguments are named."""
    async with memory(store, read_only=True) as agent:
        names = {tool.name for tool in (await agent.client.list_tools()).tools}
        assert names == {"read_graph", "search_nodes", "open_nodes"} < TOOLS.keys()
        assert (await agent.result("create_entities", entities=[ADA])).is_error
        missing: Any = await agent.result("open_nodes")
        wrong: Any = await agent.result("open_nodes", names="Ada")
        assert "needs names" in missing.content[0].text
        assert "names is not what open_nodes takes" in wrong.content[0].text
        long: Any = await agent.result("search_nodes", query="x" * 3_000)
        assert "2048 characters" in long.content[0].text


@pytest.fixture(scope="module")
def bus() -> Iterator[str]:
    """The address of a NATS server."""
    with lasting_nats_server() as url:
        yield url


async def learn_together(agents: list[Agent], turns: int = 4) -> None:
    """Let clients add observations to one entity at once; each must be there afterwards."""
    await agents[0].call("create_entities", entities=[ADA])

    async def learn(agent: Agent, number: int) -> None:
        for turn in range(turns):
            addition = {"entityName": "Ada", "contents": [f"{number}.{turn}"]}
            await agent.call("add_observations", observations=[addition])

    await asyncio.gather(*(learn(agent, number) for number, agent in enumerate(agents)))
    [entity] = (await agents[-1].call("open_nodes", names=["Ada"]))["entities"]
    wanted = ["likes plums", *(f"{number}.{turn}" for number in range(len(agents)) for turn in range(turns))]
    assert sorted(entity["observations"]) == sorted(wanted)


async def test_memory_over_http(bus: str, tmp_path: Path) -> None:
    """Clients over HTTP share the memory of their token's plugin; the history says which wrote what."""
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(served(tmp_path / "state.db", bus, open_mode=False))
        token = await token_for(here, "notes")
        agents = []
        for number in range(4):
            info = Implementation(name=f"client-{number}", version="1")
            mode = REVISIONS[number % len(REVISIONS)]
            client = agent(here, token, path="/mcp/memory", mode=mode, client_info=info)
            agents.append(await stack.enter_async_context(client))
        assert {tool.name for tool in (await agents[0].client.list_tools()).tools} == TOOLS.keys()
        await learn_together(agents)
        changes = await here.store.kv("notes").history("entity/Ada")
        assert Counter(change.last_writer for change in changes) == {
            **{f"client-{number}": 4 for number in range(1, 4)},
            "client-0": 5,
        }
        operator = await token_for(here, operator=True)
        async with agent(here, operator, path="/mcp/memory/kv/notes/mcp") as one:
            assert len((await one.call("read_graph"))["entities"]) == 1
        async with agent(here, token) as plain:  # the catalogue is at its own path
            assert (await plain.call("get", key="entity/Ada"))["exists"]


async def test_token_that_only_reads_a_memory(bus: str, tmp_path: Path) -> None:
    """A token without the verb that writes is shown the tools that read, and may use no others."""
    async with served(tmp_path / "state.db", bus, open_mode=False) as here:
        token = await token_for(here, "notes", verbs=["get", "get_many", "list"])
        async with agent(here, token, path="/mcp/memory") as one:
            names = {tool.name for tool in (await one.client.list_tools()).tools}
            assert names == {"read_graph", "search_nodes", "open_nodes"}
            assert await one.call("read_graph") == {"entities": [], "relations": []}
            assert (await one.result("create_entities", entities=[ADA])).is_error
        bearer = f"Bearer {await token_for(here, 'other')}"
        refused = await here.ask("POST", "/mcp/memory/kv/notes", {}, authorization=bearer)
        assert refused.status_code == 403
        assert (await here.ask("POST", "/mcp/memory/x", {}, authorization=bearer)).status_code == 404


@pytest.mark.unmeasured
async def test_memory_of_many_processes_on_one_file(tmp_path: Path) -> None:
    """Several servers over stdio, each a process, share the memory in one SQLite file and lose nothing."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(60))
        agents = []
        for number in range(3):
            words = ("--memory", "--plugin", "notes", "--url", "state.db", "--writer", f"agent-{number}")
            client = await stack.enter_async_context(Client(command(tmp_path, *words)))
            agents.append(Agent(client))
        await learn_together(agents)
    async with holdfast.open(tmp_path / "state.db") as store:
        changes = await store.kv("notes").history("entity/Ada")
    assert Counter(change.last_writer for change in changes) == {"agent-0": 5, "agent-1": 4, "agent-2": 4}


@pytest.mark.unmeasured
async def test_memory_over_stdio_after_an_import(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file of server-memory is imported once, and clients that the command serves find what it held."""
    file = tmp_path / "memory.jsonl"
    lines = [{"type": "entity", **ADA}, {"type": "entity", **BOB}, {"type": "relation", **KNOWS}]
    file.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    words = ["mcp", "--memory", "--plugin", "notes", "--url", str(tmp_path / "state.db")]
    for stored in ("new entities: 2, new relations: 1", "new entities: 0, new relations: 0"):
        assert await asyncio.to_thread(run, [*words, "--import-file", str(file)]) == 0
        assert stored in capsys.readouterr().err
    server = command(tmp_path, "--memory", "--plugin", "notes", "--url", "state.db")
    async with asyncio.timeout(60), Client(server) as client, Client(server) as other:
        assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS.keys()
        await Agent(other).call("add_observations", observations=[{"entityName": "Ada", "contents": ["ü"]}])
        graph = await Agent(client).call("search_nodes", query="Ü")
        assert graph == {"entities": [{**ADA, "observations": ["likes plums", "ü"]}], "relations": [KNOWS]}
    file.write_text('{"type": "entity", "name": 7}\n')
    assert await asyncio.to_thread(run, [*words, "--import-file", str(file)]) != 0
    assert "line 1" in capsys.readouterr().err
