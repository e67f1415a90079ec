"""More stores that are tortured: those of A2A, ADK, agno and Strands, and ours for them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import holdfast
from tools.torture.contestants import Contestant, module

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tools.torture.contestants import Pause


def sqlalchemy_url(where: str) -> str:
    """Return the address of a file or of a database as SQLAlchemy wants it."""
    driver, _, rest = where.partition("://")
    return f"postgresql+asyncpg://{rest}" if driver == "postgresql" else f"sqlite+aiosqlite:///{where}"


# A2A


class TaskContestant(Contestant):
    """A task store with one task: each turn is a call that gets it, adds a message and saves it."""

    packages = ("a2a-sdk",)

    def __init__(self, store: Any) -> None:
        self.store = store

    @staticmethod
    def call() -> Any:
        """Return the context of a call."""
        return module("a2a.server.context").ServerCallContext()

    async def turn(self, mark: str, pause: Pause) -> None:
        """Get the task and save it with another message."""
        types, call = module("a2a.types.a2a_pb2"), self.call()
        task = await self.store.get("shared", call) or types.Task(id="shared", context_id="c")
        await pause()
        task.history.append(types.Message(message_id=mark, role=types.ROLE_AGENT))
        await self.store.save(task, call)

    async def marks(self) -> list[str]:
        """Return the ids of the messages."""
        task = await self.store.get("shared", self.call())
        return [] if task is None else [message.message_id for message in task.history]


class A2aSqlite(TaskContestant):
    """The SDK's store on SQLite."""

    name = "A2A DatabaseTaskStore, SQLite"
    note = "the interface saves a task whole"

    @classmethod
    def imported(cls) -> None:
        """Import the store."""
        module("a2a.server.tasks.database_task_store")
        module("aiosqlite")

    @classmethod
    async def prepared(cls, where: str) -> None:
        """Make its tables."""
        async with cls.opened(where) as contestant:
            await contestant.store.initialize()

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, where: str) -> AsyncIterator[Any]:
        """Open the database."""
        engine = module("sqlalchemy.ext.asyncio").create_async_engine(sqlalchemy_url(where))
        yield cls(module("a2a.server.tasks.database_task_store").DatabaseTaskStore(engine))
        await engine.dispose()


class A2aPostgres(A2aSqlite):
    """The SDK's store on PostgreSQL."""

    name = "A2A DatabaseTaskStore, PostgreSQL"
    needs_postgres = True


class OurTasks(TaskContestant):
    """Our task store."""

    name = "Holdfast HoldfastTaskStore"
    ours = True

    @classmethod
    def imported(cls) -> None:
        """Import the store."""
        module("holdfast.integrations.a2a")

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, where: str) -> AsyncIterator[Any]:
        """Open the store."""
        async with holdfast.open(where) as store:
            yield cls(module("holdfast.integrations.a2a").HoldfastTaskStore(store.kv("agents")))


CONTESTANTS: tuple[type[Contestant], ...] = (A2aPostgres, A2aSqlite, OurTasks)
