"""The memory of agents as a graph of entities, relations and observations, as nine MCP tools.

Names and shapes are those of `server-memory`, the reference server of the protocol, so that a model that
knows that one knows this one. Each entity and each relation is an entry. A call is one batch that names the
versions that it was computed from, and is computed anew if another client was faster: a model need not know
of versions to lose nothing. The last writer of an entry is the client that wrote it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from hashlib import blake2b
from operator import itemgetter
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import quote

import mcp_types as types
import msgspec
from mcp.server import Server
from mcp.shared.exceptions import MCPError
from msgspec import field

import holdfast
from holdfast import rules, seams
from holdfast.edges.mcp.callers import SEMANTIC, ToolCaller
from holdfast.edges.mcp.server import Context, client_name, follow_traces
from holdfast.errors import (
    DatabaseError,
    HoldfastError,
    KeyNotFound,
    PermissionDenied,
    ValidationError,
    ValueTooLarge,
    VersionConflict,
)

INSTRUCTIONS: Final = (
    "This is a memory that you share with other agents: entities with observations about them, and relations "
    "between entities. Search it before you answer, and add what you learn. Several agents may write at "
    "once; nothing of what they write is lost."
)
_ENTITIES: Final = "entity/"
_RELATIONS: Final = "relation/"
_LONGEST_NAME: Final = 64
_MOST_RACES: Final = 1_000
_RACES_AT_ONCE: Final = 8
_LONGEST_PAUSE: Final = 0.05
_MOST_QUERY: Final = 2_048
_MOST_ANSWER: Final = 4_194_304
"""Characters of the entities in an answer, and of the relations."""
_OF_A_VALUE: Final = 200
"""Characters for which an entity or a relation counts beside its texts."""
T = TypeVar("T")
Graph: TypeAlias = dict[str, list[dict[str, Any]]]
Place: TypeAlias = tuple[datetime, int]
"""Where an entry comes in an answer: when it was made, and its version."""


class Entity(msgspec.Struct):
    """Something that is known."""

    name: str
    entityType: str  # noqa: N815 - the tools' name
    observations: list[str]


class Relation(msgspec.Struct):
    """A connection of two entities, which need not be known."""

    start: str = field(name="from")
    end: str = field(name="to")
    kind: str = field(name="relationType")


class EntityLine(Entity, tag_field="type", tag="entity"):
    """An entity in a file of `server-memory`."""


class RelationLine(Relation, tag_field="type", tag="relation"):
    """A relation in a file of `server-memory`."""


class Additions(msgspec.Struct):
    """Observations to add to an entity."""

    entityName: str  # noqa: N815 - the tools' name
    contents: list[str]


class Deletions(msgspec.Struct):
    """Observations to remove from an entity."""

    entityName: str  # noqa: N815 - the tools' name
    observations: list[str]


class Imported(msgspec.Struct):
    """What an import has stored."""

    entities: int = 0
    relations: int = 0
    observations: int = 0
    """Those of entities that were known before."""


Known: TypeAlias = "Mapping[str, dict[str, Any] | None]"
"""The values of keys; None for one without an entry."""
Writes: TypeAlias = list[dict[str, Any]]


class KnowledgeGraph:
    """The graph in a namespace.

    Args:
        caller: The caller of the tools, who reads and writes the namespace.
        writer: The name of the client, for the entries that it writes.
    """

    def __init__(self, caller: ToolCaller, writer: str | None = None) -> None:
        self._caller = caller
        self._provenance: dict[str, Any] = {} if writer is None else {"last_writer": writer}

    async def create_entities(self, entities: list[Entity]) -> list[dict[str, Any]]:
        """Store the entities whose names are new, and return them."""
        by_key: dict[str, Entity] = {}
        for entity in entities:
            by_key.setdefault(self._entity(entity.name), entity)
        return await self._create(by_key)

    async def create_relations(self, relations: list[Relation]) -> list[dict[str, Any]]:
        """Store the relations that are new, and return them."""
        return await self._create({self._relation(relation): relation for relation in relations})

    async def add_observations(self, additions: list[Additions]) -> list[dict[str, Any]]:
        """Add observations that their entities do not have yet, and return which these were.

        Raises:
            KeyNotFound: There is no such entity. Nothing was written.
        """

        def change(known: Known) -> tuple[Writes, list[dict[str, Any]]]:
            changed: dict[str, dict[str, Any]] = {}
            there: dict[str, set[str]] = {}
            added = []
            for one in additions:
                key = self._entity(one.entityName)
                if key not in changed:
                    entity = known[key]
                    if entity is None:
                        raise KeyNotFound(f"Entity with name {one.entityName} not found")
                    changed[key] = {**entity, "observations": [*entity["observations"]]}
                    there[key] = set(entity["observations"])
                new = [text for text in dict.fromkeys(one.contents) if text not in there[key]]
                changed[key]["observations"] += new
                there[key].update(new)
                added.append({"entityName": one.entityName, "addedObservations": new})
            return _altered(changed, known), added

        return await self._change([self._entity(one.entityName) for one in additions], change)

    async def delete_entities(self, names: list[str]) -> str:
        """Remove entities and their relations, and return a sentence about it.

        What does not fit into one batch is removed in several, the entities last.
        """
        gone = set(names)
        relations = [
            self._relation(relation)
            async for _, relation in self._entries(_RELATIONS, Relation)
            if relation.start in gone or relation.end in gone
        ]

        def change(known: Known) -> tuple[Writes, list[str]]:
            writes: Writes = [{"key": key, "delete": True} for key in known if known[key] is not None]
            return writes, [name for name in names if known.get(self._entity(name), ()) is None]

        keys, missing = list(dict.fromkeys([*relations, *map(self._entity, names)])), list[str]()
        for start in range(0, len(keys), rules.MAX_BATCH):
            missing += await self._change(keys[start : start + rules.MAX_BATCH], change)
        if not missing:
            return "Entities deleted successfully"
        deleted = len(names) - len(missing)
        return f"Deleted {deleted} of {len(names)} entities. Not found: {', '.join(missing)}"

    async def delete_observations(self, deletions: list[Deletions]) -> str:
        """Remove observations, and return a sentence about it."""
        named = sum(len(one.observations) for one in deletions)

        def change(known: Known) -> tuple[Writes, tuple[int, list[str]]]:
            changed: dict[str, dict[str, Any]] = {}
            dropped: dict[str, set[str]] = {}
            count, missing = 0, []
            for one in deletions:
                key = self._entity(one.entityName)
                if known[key] is None:
                    missing.append(one.entityName)
                else:
                    dropped.setdefault(key, set()).update(one.observations)
            for key, texts in dropped.items():
                entity = known[key]
                assert entity is not None
                kept = [text for text in entity["observations"] if text not in texts]
                count += len(entity["observations"]) - len(kept)
                changed[key] = {**entity, "observations": kept}
            return _altered(changed, known), (count, missing)

        count, missing = await self._change([self._entity(one.entityName) for one in deletions], change)
        if count == named:
            return "Observations deleted successfully"
        rest = f" Entities not found: {', '.join(missing)}" if missing else ""
        return f"Deleted {count} of {named} observations.{rest}"

    async def delete_relations(self, relations: list[Relation]) -> str:
        """Remove relations, and return a sentence about it."""

        def change(known: Known) -> tuple[Writes, int]:
            there = [key for key in known if known[key] is not None]
            return [{"key": key, "delete": True} for key in there], len(there)

        count = await self._change([self._relation(relation) for relation in relations], change)
        if count == len(relations):
            return "Relations deleted successfully"
        return f"Deleted {count} of {len(relations)} relations. The rest matched nothing."

    async def read_graph(self) -> Graph:
        """Return all entities and all relations, in the order of their creation.

        Raises:
            ValueTooLarge: They are too many for an answer.
        """
        return await self._part(None)

    async def search_nodes(self, query: str) -> Graph:
        """Return the entities with a text in their name, type or observations, and their relations."""
        if len(query) > _MOST_QUERY:
            raise ValidationError(f"a query has at most {_MOST_QUERY} characters", field="query")
        text = query.lower()

        def meets(entity: Entity) -> bool:
            texts = (entity.name, entity.entityType, *entity.observations)
            return any(text in one.lower() for one in texts)

        return await self._part(meets)

    async def open_nodes(self, names: list[str]) -> Graph:
        """Return the entities of these names, and their relations."""
        chosen = set(names)
        return await self._part(lambda entity: entity.name in chosen)

    async def import_lines(self, lines: Iterable[bytes]) -> Imported:
        """Store what the file of a `server-memory` holds, as far as it is new, and return how much that was.

        An entity that is known gets the observations that it does not have.

        Raises:
            ValidationError: A line is neither an entity nor a relation, and nothing was stored.
            HoldfastError: A line was refused. What stands before it was stored.
        """
        records = [
            (number, _record(number, line)) for number, line in enumerate(lines, start=1) if line.strip()
        ]
        imported = Imported()
        for number, record in records:
            try:
                await self._import(record, imported)
            except HoldfastError as error:
                error.message = f"line {number}: {error.message}; the lines before it were stored"
                error.args = (error.message,)
                raise
        return imported

    async def _import(self, record: EntityLine | RelationLine, imported: Imported) -> None:
        if isinstance(record, RelationLine):
            relation = Relation(record.start, record.end, record.kind)
            imported.relations += len(await self.create_relations([relation]))
            return
        entity = Entity(record.name, record.entityType, record.observations)
        if await self.create_entities([entity]):
            imported.entities += 1
            return
        [added] = await self.add_observations([Additions(entity.name, entity.observations)])
        imported.observations += len(added["addedObservations"])

    async def _create(self, by_key: Mapping[str, Entity | Relation]) -> list[dict[str, Any]]:
        """Store what is new, and return that."""

        def change(known: Known) -> tuple[Writes, list[dict[str, Any]]]:
            new = {key: msgspec.to_builtins(one) for key, one in by_key.items() if known[key] is None}
            return [{"key": key, "value": value} for key, value in new.items()], [*new.values()]

        return await self._change(by_key, change)

    async def _part(self, chosen: Callable[[Entity], bool] | None) -> Graph:
        """Return the entities that a function chooses, and their relations, read a page at a time.

        Without a function that is everything.
        """
        entities, relations, included = _Answer(), _Answer(), set[str]()
        async for place, entity in self._entries(_ENTITIES, Entity):
            if chosen is None or chosen(entity):
                included.add(entity.name)
                entities.add(place, entity, (entity.name, entity.entityType, *entity.observations))
        async for place, one in self._entries(_RELATIONS, Relation):
            if chosen is None or one.start in included or one.end in included:
                relations.add(place, one, (one.start, one.end, one.kind))
        return {"entities": entities.values(), "relations": relations.values()}

    async def _entries(self, prefix: str, kind: type[T]) -> AsyncIterator[tuple[Place, T]]:
        """Yield what is below a prefix. What another program has put there is left out.

        Others get their turns in between.
        """
        cursor: str | None = None
        while True:
            page = await self._caller.call("list", {"prefix": prefix, "values": True, "cursor": cursor})
            for entry in page["entries"]:
                try:
                    value = msgspec.convert(entry["value"], kind)
                except msgspec.ValidationError:
                    continue
                yield (datetime.fromisoformat(entry["created_at"]), entry["version"]), value
            if (cursor := page["cursor"]) is None:
                return

    async def _change(self, keys: Iterable[str], change: Callable[[Known], tuple[Writes, T]]) -> T:
        """Write what a function makes of entries, all or none, and anew if another client was faster."""
        pending, lost = list(dict.fromkeys(keys)), 0
        while True:
            reply = await self._caller.call("get_many", {"keys": pending}) if pending else {"results": []}
            known: dict[str, Any] = {}
            checks = []
            for key, entry in zip(pending, reply["results"], strict=True):
                if not entry["success"]:
                    raise DatabaseError(entry["message"])
                known[key] = _checked(key, entry["value"]) if entry["exists"] else None
                checks.append({"key": key, "version": entry["version"] if entry["exists"] else 0})
            writes, result = change(known)
            if not writes:
                return result
            try:
                await self._caller.call("batch", {"checks": checks, "writes": writes, **self._provenance})
            except VersionConflict:
                lost += 1
                if lost == _MOST_RACES:
                    raise
                if lost > _RACES_AT_ONCE:
                    await asyncio.sleep(seams.uniform() * _LONGEST_PAUSE)
            else:
                return result

    def _entity(self, name: str) -> str:
        """Return the key of an entity."""
        return self._key(_ENTITIES, name)

    def _relation(self, relation: Relation) -> str:
        """Return the key of a relation."""
        return self._key(_RELATIONS, relation.start, relation.end, relation.kind)

    def _key(self, prefix: str, *names: str) -> str:
        """Return the key for names. Those of a project must be short and plain, so it is a digest there."""
        if self._caller.family == SEMANTIC:
            return prefix + _digest(json.dumps(names))
        return prefix + "/".join(map(_readable, names))


def _record(number: int, line: bytes) -> EntityLine | RelationLine:
    """Return what a line of a file says."""
    try:
        return _LINE.decode(line)
    except (ValueError, RecursionError) as error:
        raise ValidationError(
            f"line {number} is no entity and no relation, so nothing was stored: {error}", field="import_file"
        ) from None


_LINE: Final[msgspec.json.Decoder[EntityLine | RelationLine]] = msgspec.json.Decoder(
    EntityLine | RelationLine
)


def _altered(changed: dict[str, dict[str, Any]], known: Known) -> Writes:
    """Return writes of the entities that are other than before."""
    return [{"key": key, "value": entity} for key, entity in changed.items() if entity != known[key]]


class _Answer:
    """Values for an answer, which is held in memory whole and sent whole."""

    def __init__(self) -> None:
        self._found: list[tuple[Place, Entity | Relation]] = []
        self._room = _MOST_ANSWER

    def add(self, place: Place, value: Entity | Relation, texts: Iterable[str]) -> None:
        """Add a value with these texts in it."""
        self._room -= sum(map(len, texts), start=_OF_A_VALUE)
        if self._room < 0:
            raise ValueTooLarge(
                f"the answer would have more than {_MOST_ANSWER} characters. Ask for less, with search_nodes "
                "or open_nodes"
            )
        self._found.append((place, value))

    def values(self) -> list[dict[str, Any]]:
        """Return the values, the oldest first."""
        self._found.sort(key=itemgetter(0))
        return [msgspec.to_builtins(value) for _, value in self._found]


def _checked(key: str, value: Any) -> dict[str, Any]:
    """Return the value of an entry, if it is one of a memory."""
    kind: Any = Entity if key.startswith(_ENTITIES) else Relation
    try:
        known: dict[str, Any] = msgspec.to_builtins(msgspec.convert(value, kind))
    except msgspec.ValidationError:
        raise ValidationError(f"key {key!r} holds what another program has written, not a memory") from None
    return known


def _readable(name: str) -> str:
    """Return a part of a key for a name: the name itself if it is short and plain, else a digest."""
    plain = quote(name, safe=" !$&'()*+,:;=@~", errors="surrogatepass")
    return plain if plain and len(plain) <= _LONGEST_NAME else "#" + _digest(name)


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


_TEXT: Final = {"type": "string"}
_TEXTS: Final = {"type": "array", "items": _TEXT}
_OBSERVATIONS: Final = {"type": "array", "items": _TEXT, "description": "What is known about the entity."}


def _object(**members: Any) -> dict[str, Any]:
    return {"type": "object", "properties": members, "required": list(members)}


def _list_of(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item}


_ENTITY: Final = _object(name=_TEXT, entityType=_TEXT, observations=_OBSERVATIONS)
_RELATION: Final = _object(**{"from": _TEXT, "to": _TEXT, "relationType": _TEXT})
_GRAPH: Final = _object(entities=_list_of(_ENTITY), relations=_list_of(_RELATION))
_DONE: Final = _object(success={"type": "boolean"}, message=_TEXT)
_ADDITION: Final = _object(entityName=_TEXT, contents=_TEXTS)
_DELETION: Final = _object(entityName=_TEXT, observations=_TEXTS)
_ADDED: Final = _object(entityName=_TEXT, addedObservations=_TEXTS)


class MemoryTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool: what it takes, by name and type, and what it gives."""

    help: str
    inputs: dict[str, Any]
    """The one argument with its schema, or nothing."""
    kind: Any = None
    """The type of the argument."""
    output: dict[str, Any]
    result: str = ""
    """The name of the list in the structured result, if the tool returns a list."""
    writes: bool = True
    destroys: bool = False


TOOLS: Final = {
    "create_entities": MemoryTool(
        help="Store new entities with what is known about them. Entities that are known stay as they are.",
        inputs={"entities": _list_of(_ENTITY)},
        kind=list[Entity],
        output=_object(entities=_list_of(_ENTITY)),
        result="entities",
    ),
    "create_relations": MemoryTool(
        help="Store new relations between entities that are known. Name them in the active voice.",
        inputs={"relations": _list_of(_RELATION)},
        kind=list[Relation],
        output=_object(relations=_list_of(_RELATION)),
        result="relations",
    ),
    "add_observations": MemoryTool(
        help="Add observations to entities that are known.",
        inputs={"observations": _list_of(_ADDITION)},
        kind=list[Additions],
        output=_object(results=_list_of(_ADDED)),
        result="results",
    ),
    "delete_entities": MemoryTool(
        help="Remove entities with all that is known about them, and their relations.",
        inputs={"entityNames": _TEXTS},
        kind=list[str],
        output=_DONE,
        destroys=True,
    ),
    "delete_observations": MemoryTool(
        help="Remove observations from entities.",
        inputs={"deletions": _list_of(_DELETION)},
        kind=list[Deletions],
        output=_DONE,
        destroys=True,
    ),
    "delete_relations": MemoryTool(
        help="Remove relations between entities.",
        inputs={"relations": _list_of(_RELATION)},
        kind=list[Relation],
        output=_DONE,
        destroys=True,
    ),
    "read_graph": MemoryTool(help="Read the whole memory.", inputs={}, output=_GRAPH, writes=False),
    "search_nodes": MemoryTool(
        help="Find entities by a text in their name, type or observations, with their relations.",
        inputs={"query": {"type": "string", "maxLength": _MOST_QUERY}},
        kind=str,
        output=_GRAPH,
        writes=False,
    ),
    "open_nodes": MemoryTool(
        help="Read the entities of these names, with their relations.",
        inputs={"names": _TEXTS},
        kind=list[str],
        output=_GRAPH,
        writes=False,
    ),
}


class MemoryHandlers:
    """The handlers of a server with the tools of the memory alone.

    Args:
        caller_of: Returns the caller of a request.
    """

    def __init__(self, caller_of: Callable[[Context], ToolCaller]) -> None:
        self._caller = caller_of

    def close(self) -> None:
        """End what is left open, which is nothing here."""

    def server(self) -> Server[Any]:
        """Return the server."""
        server: Server[Any] = Server(
            "holdfast-memory",
            version=holdfast.__version__,
            title="Holdfast memory",
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )
        follow_traces(server)
        return server

    async def _list_tools(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        caller = self._caller(ctx)
        tools = [_shown(name, tool) for name, tool in TOOLS.items() if _allows(caller, tool)]
        return types.ListToolsResult(tools=tools)

    async def _call_tool(self, ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = TOOLS.get(params.name)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name[:60]!a}")
        caller = self._caller(ctx)
        try:
            if not _allows(caller, tool):
                raise PermissionDenied("this memory may be read but not changed by you")
            payload = caller.bypass.arguments(params.arguments or {})
            graph = KnowledgeGraph(caller, caller.writer or client_name(ctx))
            answer = await _called(graph, params.name, tool, payload)
        except HoldfastError as error:
            content = types.TextContent(text=error.message)
            return types.CallToolResult(content=[content], is_error=True)
        if isinstance(answer, str):
            text, structured = answer, {"success": True, "message": answer}
        else:
            text = json.dumps(answer, indent=2, ensure_ascii=False)
            structured = {tool.result: answer} if tool.result else answer
        return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=structured)


def _allows(caller: ToolCaller, tool: MemoryTool) -> bool:
    return not tool.writes or caller.allows("batch")


def _called(graph: KnowledgeGraph, name: str, tool: MemoryTool, payload: bytes) -> Awaitable[Any]:
    """Call a tool with its arguments as JSON."""
    method = getattr(graph, name)
    arguments = json.loads(payload)
    for argument in tool.inputs:
        if not isinstance(arguments, dict) or argument not in arguments:
            raise ValidationError(f"the tool {name} needs {argument}", field=argument)
        try:
            value = msgspec.convert(arguments[argument], tool.kind)
        except msgspec.ValidationError as error:
            raise ValidationError(f"{argument} is not what {name} takes: {error}", field=argument) from None
        return method(value)  # type: ignore[no-any-return]
    return method()  # type: ignore[no-any-return]


def _shown(name: str, tool: MemoryTool) -> types.Tool:
    title = name.replace("_", " ").capitalize()
    return types.Tool(
        name=name,
        title=title,
        description=tool.help,
        input_schema=_object(**tool.inputs),
        output_schema=tool.output,
        annotations=types.ToolAnnotations(
            title=title,
            read_only_hint=not tool.writes,
            destructive_hint=tool.destroys,
            idempotent_hint=True,
            open_world_hint=False,
        ),
    )
