"""The stores that are tortured: ours, and those that frameworks ship, each used as its documentation shows.

A turn reads what is there, pauses, and adds a mark. Afterwards every mark that was acknowledged must be there
once. Where an interface can only be used by reading, changing and putting back, that is what a turn does: the
loss is then the caller's, and the interface leaves the caller no other way.
"""

from __future__ import annotations

import contextlib
import operator
from abc import ABC, abstractmethod
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypedDict

import holdfast

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Pause = Callable[[], Awaitable[None]]

THREAD: Any = {"configurable": {"thread_id": "shared"}}
LEASE = 5
"""Seconds after which the turn of a stopped worker is over."""


def module(name: str) -> Any:
    """Import a module of a project that may not be installed. Raises ImportError."""
    return import_module(name)


class Contestant(ABC):
    """A store, opened in a worker."""

    state: ClassVar[str]
    """What it keeps. The tables put the stores of one kind of state together."""
    name: ClassVar[str]
    """The project, and the store's name there."""
    packages: ClassVar[tuple[str, ...]]
    """The distributions whose versions the table names."""
    ours: ClassVar[bool] = False
    needs_postgres: ClassVar[bool] = False
    appends: ClassVar[bool] = False
    """Whether a write adds to what is there, so that one that is sent twice could be there twice."""
    note: ClassVar[str] = ""

    @classmethod
    @abstractmethod
    def imported(cls) -> None:
        """Import what a worker needs, before workers are forked. Raises ImportError if it is not there."""

    @classmethod
    def versions(cls) -> dict[str, str]:
        """Return the version of each package."""
        return {package: version(package) for package in cls.packages}

    @classmethod
    async def prepared(cls, where: str) -> None:
        """Make the tables that it needs."""
        del where

    @classmethod
    @abstractmethod
    def opened(cls, where: str) -> contextlib.AbstractAsyncContextManager[Contestant]:
        """Open the store at a file's path or at a PostgreSQL URL."""

    @abstractmethod
    async def turn(self, mark: str, pause: Pause) -> None:
        """Read, pause, and add a mark. Raise if that was refused."""

    @abstractmethod
    async def marks(self) -> list[str]:
        """Return the marks that are there."""

    async def twice(self, mark: str) -> None:
        """Add a mark with a write that is sent twice."""
        raise NotImplementedError

    async def again(self, mark: str, pause: Pause) -> None:
        """Add a mark after a turn whose answer was lost: look whether it is there, and if not, add it."""
        if mark not in await self.marks():
            await self.turn(mark, pause)

    async def forks(self) -> int:
        """Return how many states two others follow."""
        return 0


# LangGraph


class State(TypedDict):
    """The state of the graph."""

    marks: Annotated[list[str], operator.add]


class GraphContestant(Contestant):
    """A graph of one node that adds the mark, with a checkpointer."""

    state = "LangGraph threads"

    def __init__(self, saver: Any) -> None:
        self.saver = saver

    @classmethod
    def imported(cls) -> None:
        """Import LangGraph."""
        module("langgraph.graph")

    async def turn(self, mark: str, pause: Pause) -> None:
        """Run the graph."""
        await self.run(mark, pause)

    async def run(self, mark: str, pause: Pause) -> None:
        """Run the graph once."""
        graphs = module("langgraph.graph")

        async def add(state: State) -> State:
            await pause()
            return {"marks": [mark]}

        builder = graphs.StateGraph(State)
        builder.add_node("add", add)
        builder.add_edge(graphs.START, "add")
        await builder.compile(checkpointer=self.saver).ainvoke({"marks": []}, THREAD)

    async def marks(self) -> list[str]:
        """Read the latest state."""
        latest = await self.saver.aget_tuple(THREAD)
        return [] if latest is None else list(latest.checkpoint["channel_values"].get("marks", []))

    async def forks(self) -> int:
        """Count the checkpoints with two children."""
        parents = [
            saved.parent_config["configurable"]["checkpoint_id"]
            async for saved in self.saver.alist(THREAD)
            if saved.parent_config
        ]
        return len({parent for parent in parents if parents.count(parent) > 1})


class LangGraphSqlite(GraphContestant):
    """LangGraph's checkpointer on SQLite."""

    name = "LangGraph AsyncSqliteSaver"
    packages = ("langgraph", "langgraph-checkpoint-sqlite")

    @classmethod
    def imported(cls) -> None:
        """Import the checkpointer."""
        super().imported()
        module("langgraph.checkpoint.sqlite.aio")

    @classmethod
    async def prepared(cls, where: str) -> None:
        """Make its tables."""
        async with cls.opened(where) as contestant:
            await contestant.saver.setup()

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, where: str) -> AsyncIterator[Any]:
        """Open the file."""
        async with module("langgraph.checkpoint.sqlite.aio").AsyncSqliteSaver.from_conn_string(
            where
        ) as saver:
            yield cls(saver)


class LangGraphPostgres(GraphContestant):
    """LangGraph's checkpointer on PostgreSQL."""

    name = "LangGraph AsyncPostgresSaver"
    packages = ("langgraph", "langgraph-checkpoint-postgres")
    needs_postgres = True

    @classmethod
    def imported(cls) -> None:
        """Import the checkpointer."""
        super().imported()
        module("langgraph.checkpoint.postgres.aio")

    @classmethod
    async def prepared(cls, where: str) -> None:
        """Make its tables."""
        async with cls.opened(where) as contestant:
            await contestant.saver.setup()

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, where: str) -> AsyncIterator[Any]:
        """Connect."""
        async with module("langgraph.checkpoint.postgres.aio").AsyncPostgresSaver.from_conn_string(
            where
        ) as saver:
            yield cls(saver)


class OurSaver(GraphContestant):
    """Our checkpointer, which refuses a run that was overtaken."""

    name = "Holdfast HoldfastSaver"
    packages = ("langgraph",)
    ours = True

    @classmethod
    def imported(cls) -> None:
        """Import the checkpointer."""
        super().imported()
        module("holdfast.integrations.langgraph")

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, where: str) -> AsyncIterator[Any]:
        """Open the store."""
        async with holdfast.open(where) as store:
            yield cls(module("holdfast.integrations.langgraph").HoldfastSaver(store))


class OurSaverWithTurns(OurSaver):
    """Our checkpointer, with a turn around each run."""

    name = "Holdfast HoldfastSaver with turn"

    async def turn(self, mark: str, pause: Pause) -> None:
        """Wait for the turn, then run the graph."""
        async with self.saver.turn("shared", ttl=LEASE):
            await self.run(mark, pause)


class OurSaverPostgres(OurSaverWithTurns):
    """The same on PostgreSQL."""

    name = "Holdfast HoldfastSaver with turn, PostgreSQL"
    needs_postgres = True


class MemoryContestant(Contestant):
    """A store of LangGraph with one item that has the marks: read, changed, put back."""

    state = "LangGraph memories"
    note = "read, changed, put back"

    def __init__(self, memories: Any) -> None:
        self.memories = memories

    async def turn(self, mark: str, pause: Pause) -> None:
        """Get the item and put it with the mark."""
        marks = await self.marks()
        await pause()
        await self.memories.aput(("shared",), "item", {"marks": [*marks, mark]})

    async def marks(self) -> list[str]:
        """Get the item."""
        item = await self.memories.aget(("shared",), "item")
        return [] if item is None else list(item.value["marks"])


class LangGraphSqliteStore(MemoryContestant):
    """LangGraph's store on SQLite."""

    name = "LangGraph AsyncSqliteStore"
    packages = ("langgraph", "langgraph-checkpoint-sqlite")

    @classmethod
    def imported(cls) -> None:
        """Import the store."""
        module("langgraph.store.sqlite.aio")

    @classmethod
    async def prepared(cls, where: str) -> None:
        """Make its tables."""
        async with cls.opened(where) as contestant:
            await contestant.memories.setup()

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, where: str) -> AsyncIterator[Any]:
        """Open the file."""
        async with module("langgraph.store.sqlite.aio").AsyncSqliteStore.from_conn_string(where) as memories:
            yield cls(memories)


class LangGraphPostgresStore(MemoryContestant):
    """LangGraph's store on PostgreSQL."""

    name = "LangGraph AsyncPostgresStore"
    packages = ("langgraph", "langgraph-checkpoint-postgres")
    needs_postgres = True

    @classmethod
    def imported(cls) -> None:
        """Import the store."""
        module("langgraph.store.postgres.aio")

    @classmethod
    async def prepared(cls, where: str) -> None:
        """Make its tables."""
        async with cls.opened(where) as contestant:
            await contestant.memories.setup()

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, where: str) -> AsyncIterator[Any]:
        """Connect."""
        async with module("langgraph.store.postgres.aio").AsyncPostgresStore.from_conn_string(
            where
        ) as memories:
            yield cls(memories)


class OurGraphStore(MemoryContestant):
    """Our store of LangGraph, with `aput` by version: what was overtaken is refused."""

    name = "Holdfast HoldfastGraphStore, aput by version"
    packages = ("langgraph",)
    ours = True
    note = ""

    @classmethod
    def imported(cls) -> None:
        """Import the store."""
        module("holdfast.integrations.langgraph")

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, where: str) -> AsyncIterator[Any]:
        """Open the store."""
        async with holdfast.open(where) as store:
            yield cls(module("holdfast.integrations.langgraph").HoldfastGraphStore(store))

    async def turn(self, mark: str, pause: Pause) -> None:
        """Get the item and put it with the mark, if it is still the same."""
        item = await self.memories.aget(("shared",), "item")
        marks = [] if item is None else item.value["marks"]
        await pause()
        value, version = {"marks": [*marks, mark]}, 0 if item is None else item.version
        await self.memories.aput(("shared",), "item", value, expected_version=version)


class OurGraphStoreUpdate(OurGraphStore):
    """Our store of LangGraph, with `aupdate`."""

    name = "Holdfast HoldfastGraphStore, aupdate"

    async def turn(self, mark: str, pause: Pause) -> None:
        """Update the item."""
        await self.marks()
        await pause()
        await self.memories.aupdate(
            ("shared",), "item", lambda value: {"marks": [*(value or {"marks": []})["marks"], mark]}
        )


# OpenAI Agents


class SessionContestant(Contestant):
    """A session of the OpenAI Agents SDK, to which each turn adds an item."""

    state = "OpenAI Agents sessions"
    appends = True

    def __init__(self, session: Any) -> None:
        self.session = session

    async def turn(self, mark: str, pause: Pause) -> None:
        """Read the items and add one."""
        await self.session.get_items()
        await pause()
        await self.session.add_items([_message(mark)])

    async def twice(self, mark: str) -> None:
        """Add an item, and again."""
        for _ in range(2):
            await self.session.add_items([_message(mark)])

    async def marks(self) -> list[str]:
        """Read the items."""
        return [mark for item in await self.session.get_items() for mark in item["content"].split()]


def _message(*marks: str) -> Any:
    return {"role": "user", "content": " ".join(marks)}


class OpenAISqlite(SessionContestant):
    """The SDK's session on SQLite."""

    name = "OpenAI SQLiteSession, append"
    packages = ("openai-agents",)

    @classmethod
    def imported(cls) -> None:
        """Import the SDK."""
        module("agents")

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, where: str) -> AsyncIterator[Any]:
        """Open the file."""
        session = module("agents").SQLiteSession("shared", where)
        yield cls(session)
        session.close()


class OpenAISqliteCompaction(OpenAISqlite):
    """The SDK's session on SQLite, whose history each turn replaces as its interface allows."""

    name = "OpenAI SQLiteSession, compaction by clear and add"
    appends = False
    note = "clear_session and add_items, the only calls of the public interface"

    async def turn(self, mark: str, pause: Pause) -> None:
        """Add an item and join all items into one."""
        await self.session.add_items([_message(mark)])
        marks = await self.marks()
        await pause()
        await self.session.clear_session()
        await self.session.add_items([_message(*marks)])


class OurSession(SessionContestant):
    """Our session, whose calls have request ids."""

    name = "Holdfast HoldfastSession, append"
    packages = ("openai-agents",)
    ours = True

    @classmethod
    def imported(cls) -> None:
        """Import the session."""
        module("holdfast.integrations.openai_agents")

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, where: str) -> AsyncIterator[Any]:
        """Open the store."""
        async with holdfast.open(where) as store:
            yield cls(
                module("holdfast.integrations.openai_agents").HoldfastSession("shared", store.kv("agents"))
            )

    async def turn(self, mark: str, pause: Pause) -> None:
        """Read the items and add one."""
        await self.session.get_items()
        await pause()
        await self.session.add_items([_message(mark)], request_id=mark)

    async def again(self, mark: str, pause: Pause) -> None:
        """Add the item again without looking: the call has the same request id."""
        await self.turn(mark, pause)

    async def twice(self, mark: str) -> None:
        """Add an item, and again."""
        for _ in range(2):
            await self.session.add_items([_message(mark)], request_id=mark)


class OurSessionPostgres(OurSession):
    """The same on PostgreSQL."""

    name = "Holdfast HoldfastSession, append, PostgreSQL"
    needs_postgres = True


class OurSessionCompaction(OurSession):
    """Our session, whose history each turn replaces."""

    name = "Holdfast HoldfastSession, compaction by replace_items"
    appends = False

    async def turn(self, mark: str, pause: Pause) -> None:
        """Add an item and join all items into one, unless they were replaced meanwhile."""
        await self.session.add_items([_message(mark)], request_id=mark)
        snapshot = await self.session.snapshot()
        await pause()
        marks = [mark for item in snapshot.items for mark in item["content"].split()]
        with contextlib.suppress(holdfast.VersionConflict):
            await self.session.replace_items([_message(*marks)], since=snapshot.head)


# py-key-value


class KeyValueContestant(Contestant):
    """A store of py-key-value with one value that has the marks: read, changed, put back."""

    state = "py-key-value entries"
    packages = ("py-key-value-aio",)
    note = "read, changed, put back"

    def __init__(self, store: Any) -> None:
        self.store = store

    async def turn(self, mark: str, pause: Pause) -> None:
        """Get the value and put it with the mark."""
        marks = await self.marks()
        await pause()
        await self.store.put("shared", {"marks": [*marks, mark]})

    async def marks(self) -> list[str]:
        """Get the value."""
        value = await self.store.get("shared")
        return [] if value is None else list(value["marks"])


class KeyValueDisk(KeyValueContestant):
    """py-key-value's store on disk."""

    name = "py-key-value DiskStore"

    @classmethod
    def imported(cls) -> None:
        """Import the store."""
        module("key_value.aio.stores.disk")

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, where: str) -> AsyncIterator[Any]:
        """Open the folder."""
        async with module("key_value.aio.stores.disk").DiskStore(directory=Path(f"{where}.disk")) as store:
            yield cls(store)


class OurKeyValue(KeyValueContestant):
    """Our store of py-key-value, with `update`."""

    name = "Holdfast HoldfastStore, update"
    ours = True
    note = ""

    @classmethod
    def imported(cls) -> None:
        """Import the store."""
        module("holdfast.integrations.keyvalue")

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, where: str) -> AsyncIterator[Any]:
        """Open the store."""
        async with holdfast.open(where) as store:
            yield cls(module("holdfast.integrations.keyvalue").HoldfastStore(store.kv("agents")))

    async def turn(self, mark: str, pause: Pause) -> None:
        """Update the value."""
        await self.marks()
        await pause()
        await self.store.update("shared", lambda value: {"marks": [*(value or {"marks": []})["marks"], mark]})


CONTESTANTS: tuple[type[Contestant], ...] = (
    *(LangGraphPostgres, LangGraphSqlite, LangGraphPostgresStore, LangGraphSqliteStore),
    *(OpenAISqlite, OpenAISqliteCompaction, KeyValueDisk),
    *(OurSaver, OurSaverWithTurns, OurSaverPostgres, OurGraphStore, OurGraphStoreUpdate),
    *(OurSession, OurSessionPostgres, OurSessionCompaction, OurKeyValue),
)
