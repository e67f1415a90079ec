"""The rules of a memory that `server-memory` keeps, on a plugin and on a tenant's project.

Each rule is a sequence of calls with what they must answer. Its tests are about the same behaviour, but the
one about the format of its own file, which a memory here does not have.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
from mcp import Client

import holdfast
from holdfast.edges.mcp.callers import StoreCaller
from holdfast.edges.mcp.memory import Imported, KnowledgeGraph, MemoryHandlers, Relation
from holdfast.errors import ValidationError, ValueTooLarge
from holdfast.testing.exact import refusal
from tests.edges.mcp.agents import Agent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from holdfast.handles.kv import KV
    from holdfast.store import Store


class Call(NamedTuple):
    """A call of a tool, and what it answers: fields of the answer, or the text of a refusal."""

    tool: str
    arguments: dict[str, Any]
    answer: dict[str, Any] | str


def entity(name: str, *observations: str, kind: str = "person") -> dict[str, Any]:
    """Return an entity."""
    return {"name": name, "entityType": kind, "observations": [*observations]}


def relation(start: str, end: str, kind: str = "knows") -> dict[str, str]:
    """Return a relation."""
    return {"from": start, "to": end, "relationType": kind}


def create(*entities: dict[str, Any], new: list[dict[str, Any]] | None = None) -> Call:
    """Create entities, of which some or all are new."""
    return Call(
        "create_entities",
        {"entities": [*entities]},
        {"entities": [*entities] if new is None else new},
    )


def relate(*relations: dict[str, str], new: list[dict[str, str]] | None = None) -> Call:
    """Create relations, of which some or all are new."""
    return Call(
        "create_relations",
        {"relations": [*relations]},
        {"relations": [*relations] if new is None else new},
    )


def add(name: str, *contents: str, new: list[str]) -> Call:
    """Add observations, of which some are new."""
    return Call(
        "add_observations",
        {"observations": [{"entityName": name, "contents": [*contents]}]},
        {"results": [{"entityName": name, "addedObservations": new}]},
    )


def holds(*entities: dict[str, Any], relations: tuple[dict[str, str], ...] = ()) -> Call:
    """Read the graph."""
    return Call("read_graph", {}, {"entities": [*entities], "relations": [*relations]})


def search(query: str, *entities: dict[str, Any], relations: tuple[dict[str, str], ...] = ()) -> Call:
    """Search for a text."""
    return Call("search_nodes", {"query": query}, {"entities": [*entities], "relations": [*relations]})


def names(*wanted: str, found: list[dict[str, Any]], relations: tuple[dict[str, str], ...] = ()) -> Call:
    """Open nodes by name."""
    return Call("open_nodes", {"names": [*wanted]}, {"entities": found, "relations": [*relations]})


def unobserve(name: str, *observations: str, says: str = "Observations deleted successfully") -> Call:
    """Delete observations."""
    return Call(
        "delete_observations",
        {"deletions": [{"entityName": name, "observations": [*observations]}]},
        {"success": True, "message": says},
    )


def delete(*gone: str, says: str = "Entities deleted successfully") -> Call:
    """Delete entities."""
    return Call("delete_entities", {"entityNames": [*gone]}, {"success": True, "message": says})


ANN, BEN, CY = entity("Ann Lee", "bakes"), entity("Ben"), entity("Cy", kind="cat")
A_B, B_C = relation("Ann Lee", "Ben"), relation("Ben", "Cy", "feeds")
WORK: Final = (
    create(entity("Ann Lee", "works at Mill", "bakes"), entity("Ben", "works in town")),
    create(entity("Mill", "grinds", kind="company")),
    relate(relation("Ann Lee", "Mill", "works at"), relation("Ben", "Mill", "buys from")),
)
AT_MILL, FROM_MILL = relation("Ann Lee", "Mill", "works at"), relation("Ben", "Mill", "buys from")
THREE: Final = (create(ANN, BEN, CY), relate(A_B, B_C))

RULES: Final[dict[str, tuple[Call, ...]]] = {
    "new entities": (create(ANN, BEN), holds(ANN, BEN)),
    "a known entity": (create(ANN), create(entity("Ann Lee", "x"), new=[]), holds(ANN)),
    "no entities": (create(), holds()),
    "new relations": (create(ANN, BEN), relate(A_B), holds(ANN, BEN, relations=(A_B,))),
    "a known relation": (
        create(ANN, BEN),
        relate(A_B),
        relate(A_B, new=[]),
        holds(ANN, BEN, relations=(A_B,)),
    ),
    "no relations": (relate(), holds()),
    "new observations": (
        create(ANN),
        add("Ann Lee", "sings", "runs", new=["sings", "runs"]),
        holds(entity("Ann Lee", "bakes", "sings", "runs")),
    ),
    "known observations": (
        create(ANN),
        add("Ann Lee", "sings", new=["sings"]),
        add("Ann Lee", "sings", "runs", new=["runs"]),
        holds(entity("Ann Lee", "bakes", "sings", "runs")),
    ),
    "observations about nobody": (
        Call(
            "add_observations",
            {"observations": [{"entityName": "Eve", "contents": ["x"]}]},
            "Entity with name Eve not found",
        ),
        holds(),
    ),
    "deleting an entity": (create(ANN, BEN), delete("Ann Lee"), holds(BEN)),
    "deleting an entity with relations": (*THREE, delete("Ben"), holds(ANN, CY)),
    "deleting nobody": (delete("Eve", says="Deleted 0 of 1 entities. Not found: Eve"), holds()),
    "deleting an observation": (
        create(entity("Ann Lee", "bakes", "sings")),
        unobserve("Ann Lee", "sings"),
        holds(ANN),
    ),
    "deleting observations about nobody": (
        unobserve("Eve", "x", says="Deleted 0 of 1 observations. Entities not found: Eve"),
        holds(),
    ),
    "deleting a relation": (
        create(ANN, BEN),
        relate(A_B, relation("Ann Lee", "Ben", "helps")),
        Call("delete_relations", {"relations": [A_B]}, {"message": "Relations deleted successfully"}),
        holds(ANN, BEN, relations=(relation("Ann Lee", "Ben", "helps"),)),
    ),
    "an empty graph": (holds(),),
    "a relation to itself": (
        create(ANN),
        relate(relation("Ann Lee", "Ann Lee", "is")),
        holds(ANN, relations=(relation("Ann Lee", "Ann Lee", "is"),)),
    ),
    "a search by name": (*WORK, search("ben", entity("Ben", "works in town"), relations=(FROM_MILL,))),
    "a search by type": (
        *WORK,
        search("company", entity("Mill", "grinds", kind="company"), relations=(AT_MILL, FROM_MILL)),
    ),
    "a search by observation": (
        *WORK,
        search("bake", entity("Ann Lee", "works at Mill", "bakes"), relations=(AT_MILL,)),
    ),
    "a search in capitals": (*WORK, search("BEN", entity("Ben", "works in town"), relations=(FROM_MILL,))),
    "a search shows relations with one end": (
        *WORK,
        search(
            "Mill",
            entity("Ann Lee", "works at Mill", "bakes"),
            entity("Mill", "grinds", kind="company"),
            relations=(AT_MILL, FROM_MILL),
        ),
    ),
    "a search shows relations to others": (
        *WORK,
        search("Lee", entity("Ann Lee", "works at Mill", "bakes"), relations=(AT_MILL,)),
    ),
    "a search for nothing": (*WORK, search("moon")),
    "opening some": (*THREE, names("Ann Lee", "Ben", found=[ANN, BEN], relations=(A_B, B_C))),
    "opening shows relations of both": (
        *THREE,
        names("Ben", "Ann Lee", found=[ANN, BEN], relations=(A_B, B_C)),
    ),
    "opening one shows all its relations": (*THREE, names("Ben", found=[BEN], relations=(A_B, B_C))),
    "opening shows relations to others": (*THREE, names("Ann Lee", found=[ANN], relations=(A_B,))),
    "opening shows relations from others": (*THREE, names("Cy", found=[CY], relations=(B_C,))),
    "opening nobody": (*THREE, names("Eve", found=[])),
    "opening no names": (*THREE, names(found=[])),
    "a relation before its entities": (
        relate(A_B),
        holds(relations=(A_B,)),
        create(ANN),
        names("Ann Lee", found=[ANN], relations=(A_B,)),
    ),
}
"""31 of its rules, and one that is in none of its tests: a relation may come before its entities."""


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """A store in a file."""
    async with holdfast.open(tmp_path / "state.db") as opened:
        yield opened


@pytest.fixture(params=["plugin", "project"])
def kv(store: Store, request: pytest.FixtureRequest) -> KV:
    """The keys of a memory."""
    return store.kv("notes") if request.param == "plugin" else store.semantic("acme", "web")


def graph_of(store: Store, kv: KV) -> KnowledgeGraph:
    """Return the graph of a memory, without the protocol around it."""
    return KnowledgeGraph(StoreCaller(store, kv), "importer")


async def follow(store: Store, kv: KV, *calls: Call) -> None:
    """Make calls as a client of the protocol, and compare what they answer."""
    caller = StoreCaller(store, kv)
    async with Client(MemoryHandlers(lambda ctx: caller).server()) as client:
        agent = Agent(client)
        for tool, arguments, answer in calls:
            if isinstance(answer, str):
                refused: Any = await agent.result(tool, **arguments)
                assert (refused.is_error, refused.content[0].text) == (True, answer)
                continue
            said = await agent.call(tool, **arguments)
            assert {name: said[name] for name in answer} == answer, tool


@pytest.mark.parametrize("rule", RULES)
async def test_rules_of_server_memory(store: Store, kv: KV, rule: str) -> None:
    """What the tools of server-memory do, these do."""
    await follow(store, kv, *RULES[rule])


async def test_another_server_finds_what_one_has_stored(tmp_path: Path) -> None:
    """What a client has stored is there for the next server on the same file."""
    for calls in (THREE, (holds(ANN, BEN, CY, relations=(A_B, B_C)),)):
        async with holdfast.open(tmp_path / "state.db") as store:
            await follow(store, store.kv("notes"), *calls)


FILE: Final = "\n".join(
    json.dumps(line, ensure_ascii=False)
    for line in (
        {"type": "entity", **entity("Ann Lee", "first line\u2028second\u0085third", "bakes")},
        {"type": "entity", **entity("Ben"), "note": "a field of a later version"},
        {"type": "relation", **relation("Ann Lee", "Eve")},
    )
)


async def test_a_file_is_imported(store: Store, kv: KV) -> None:
    """The tools show what a file held, without the word that its lines begin with."""
    lines = [*FILE.encode().split(b"\n"), b"", b"  "]
    graph = graph_of(store, kv)
    ann = entity("Ann Lee", "first line\u2028second\u0085third", "bakes")
    known = relation("Ann Lee", "Eve")
    assert await graph.import_lines(lines) == Imported(entities=2, relations=1)
    await follow(
        store,
        kv,
        holds(ann, BEN, relations=(known,)),
        search("bakes", ann, relations=(known,)),
        names("Ann Lee", found=[ann], relations=(known,)),
    )


async def test_a_file_that_has_grown_is_imported_again(store: Store, kv: KV) -> None:
    """A second import adds what is new, also to entities that are known, and takes nothing away."""
    graph = graph_of(store, kv)
    assert await graph.import_lines(FILE.encode().split(b"\n")) == Imported(entities=2, relations=1)
    await follow(store, kv, add("Ben", "sings", new=["sings"]))
    grown = [*FILE.encode().split(b"\n"), json.dumps({"type": "entity", **entity("Ben", "runs")}).encode()]
    assert await graph.import_lines(grown) == Imported(observations=1)
    await follow(store, kv, names("Ben", found=[entity("Ben", "sings", "runs")]))


@pytest.mark.parametrize(
    "line",
    [
        *(
            "no JSON",
            "[1]",
            "7",
            "null",
            '"text"',
            "{}",
            '{"type": "entity"}',
            '{"type": "other", "name": "x"}',
        ),
        '{"type": "entity", "name": 7, "entityType": "x", "observations": []}',
        '{"type": "entity", "name": "x", "entityType": "x", "observations": [1]}',
        '{"type": "relation", "from": "x", "to": "y"}',
        '{"type": "entity", "name": "\\ud800", "entityType": "x", "observations": []}',
        "[" * 100_000,
    ],
)
async def test_a_file_with_a_bad_line_imports_nothing(store: Store, kv: KV, line: str) -> None:
    """The line is named by its number, and what stands before it is not stored either."""
    with refusal(ValidationError, field="import_file", says="line 5 is no entity and no relation"):
        await graph_of(store, kv).import_lines([*FILE.encode().split(b"\n"), b"", line.encode()])
    await follow(store, kv, holds())


async def test_bytes_that_are_no_text_are_refused(store: Store, kv: KV) -> None:
    """A line that is not UTF-8 is named."""
    with refusal(ValidationError, field="import_file", says="line 1 is no entity"):
        await graph_of(store, kv).import_lines([b'{"type": "entity", "name": "\xff"}'])


async def test_a_line_that_the_store_refuses_is_named(store: Store, kv: KV) -> None:
    """A line that can't be stored ends the import, which says that what stands before it is stored."""
    large = json.dumps({"type": "entity", **entity("Cy", "x" * 70_000)}).encode()
    with refusal(ValueTooLarge, field="value", says="line 4: ") as caught:
        await graph_of(store, kv).import_lines([*FILE.encode().split(b"\n"), large])
    assert str(caught.value).endswith("the lines before it were stored")
    assert len((await graph_of(store, kv).read_graph())["entities"]) == 2


async def test_hostile_names(store: Store, kv: KV) -> None:
    """Whatever text a name is, it is a name of its own."""
    texts = [
        "",
        "a/b",
        "a%2Fb",
        "#" + "0" * 32,
        "..",
        "A",
        "a",
        "é",
        "e\u0301",
        "x" * 5_000,
        "\u202e",
        "\n",
        "*",
        "%",
    ]
    entities = [entity(text) for text in texts]
    relations = [relation(one, other) for one in texts for other in ("a/b", "b", "")]
    await follow(
        store, kv, create(*entities), relate(*relations), holds(*entities, relations=tuple(relations))
    )
    await follow(
        store,
        kv,
        delete("a/b"),
        names(
            "a%2Fb",
            found=[entity("a%2Fb")],
            relations=tuple(one for one in relations if "a%2Fb" in one.values() and one["to"] != "a/b"),
        ),
    )


async def test_foreign_entries_are_left_alone(store: Store, kv: KV) -> None:
    """Entries of another shape do not keep the memory from being read, and are not overwritten."""
    await follow(store, kv, create(ANN))
    [mine] = (await kv.list("entity/")).keys
    planted: list[Any] = [7, [], {"name": "Ann Lee"}, {**ANN, "observations": [1]}]
    for value in planted:
        await kv.set(mine, value)
        await kv.set(f"relation/{'0' * 32}", value)
        await follow(
            store,
            kv,
            create(BEN, new=None if value == 7 else []),
            holds(BEN),
            search("b", BEN),
            Call(
                "create_entities",
                {"entities": [ANN]},
                f"key {mine.removeprefix('tenant/acme/project/web/')!r} holds what another program "
                "has written, not a memory",
            ),
        )
        assert (await kv.get(mine)).value == value  # type: ignore[union-attr]


async def test_an_entity_with_very_many_relations_is_deleted(store: Store, kv: KV) -> None:
    """Relations of an entity are deleted with it, also more than one batch may hold."""
    graph = graph_of(store, kv)
    for part in range(3):
        writes = [
            {
                "key": graph._relation(Relation("Ann Lee", f"n{number}", "knows")),
                "value": relation("Ann Lee", f"n{number}"),
            }
            for number in range(part * 500, part * 500 + 500)
        ]
        await kv.batch(writes=writes)
    await follow(store, kv, create(ANN, BEN), relate(relation("Ben", "Ben")), delete("Ann Lee"))
    await follow(store, kv, holds(BEN, relations=(relation("Ben", "Ben"),)))
