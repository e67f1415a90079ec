"""More stores that are tortured: those of A2A and ADK, and ours for them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import holdfast
from tools.torture.contestants import LEASE, Contestant, module

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
    appends = True

    def __init__(self, store: Any) -> None:
        self.store = store

    @staticmethod
    def call() -> Any:
        """Return the context of a call."""
        return module("a2a.server.context").ServerCallContext()

    async def turn(self, mark: str, pause: Pause) -> None:
        """Get the task and save it with another message."""
        call = self.call()
        task = await self.grown(mark, call, pause)
        await self.store.save(task, call)

    async def twice(self, mark: str) -> None:
        """Save the task with another message, and again."""
        call = self.call()
        task = await self.grown(mark, call)
        for _ in range(2):
            await self.store.save(task, call)

    async def grown(self, mark: str, call: Any, pause: Pause | None = None) -> Any:
        """Get the task, pause, and return it with another message."""
        types = module("a2a.types.a2a_pb2")
        task = await self.store.get("shared", call) or types.Task(id="shared", context_id="c")
        if pause is not None:
            await pause()
        task.history.append(types.Message(message_id=mark, role=types.ROLE_AGENT))
        return task

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


# ADK

SHARED: Any = {"app_name": "desk", "user_id": "ada"}
SESSION: Any = {**SHARED, "session_id": "shared"}


class AdkContestant(Contestant):
    """A session service with one session: each turn gets it and appends an event."""

    packages = ("google-adk",)
    appends = True

    def __init__(self, service: Any) -> None:
        self.service = service

    @classmethod
    def imported(cls) -> None:
        """Import ADK's services."""
        module("google.adk.events.event")
        module("google.adk.sessions.database_session_service")
        module("aiosqlite")

    @classmethod
    async def prepared(cls, where: str) -> None:
        """Make the session."""
        async with cls.opened(where) as contestant:
            await contestant.service.create_session(**SESSION)

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, where: str) -> AsyncIterator[Any]:
        """Open the database."""
        services = module("google.adk.sessions.database_session_service")
        async with services.DatabaseSessionService(sqlalchemy_url(where)) as service:
            yield cls(service)

    @staticmethod
    def event(mark: str, state: dict[str, Any] | None = None) -> Any:
        """Return an event whose id is the mark."""
        actions = module("google.adk.events.event_actions").EventActions(state_delta=state or {})
        return module("google.adk.events.event").Event(
            id=mark, invocation_id=mark, author="user", actions=actions
        )

    async def turn(self, mark: str, pause: Pause) -> None:
        """Get the session and append an event."""
        session = await self.service.get_session(**SESSION)
        await pause()
        await self.service.append_event(session, self.event(mark))

    async def twice(self, mark: str) -> None:
        """Append an event, and again from the session as it was."""
        sessions = [await self.service.get_session(**SESSION) for _ in range(2)]
        for session in sessions:
            await self.service.append_event(session, self.event(mark))

    async def marks(self) -> list[str]:
        """Return the ids of the events."""
        session = await self.service.get_session(**SESSION)
        return [event.id for event in session.events]


class AdkSqlite(AdkContestant):
    """ADK's service on SQLite."""

    name = "ADK DatabaseSessionService, SQLite"


class AdkPostgres(AdkContestant):
    """ADK's service on PostgreSQL."""

    name = "ADK DatabaseSessionService, PostgreSQL"
    needs_postgres = True


class AdkUserState(AdkContestant):
    """ADK's service on PostgreSQL, with the marks in the state of a user, which many sessions set."""

    name = "ADK DatabaseSessionService, PostgreSQL, user: state"
    needs_postgres = True
    appends = False
    note = "read, changed, put back; the interface has no other way"

    async def turn(self, mark: str, pause: Pause) -> None:
        """Create a session and set the marks in it."""
        session = await self.service.create_session(**SHARED)
        marks = session.state.get("user:marks", [])
        await pause()
        await self.service.append_event(session, self.event(mark, {"user:marks": [*marks, mark]}))

    async def marks(self) -> list[str]:
        """Return the marks in the user's state."""
        return list((await self.service.get_user_state(**SHARED)).get("marks", []))


class OurAdk(AdkContestant):
    """Our session service, in turns."""

    name = "Holdfast HoldfastSessionService with turn"
    ours = True

    @classmethod
    def imported(cls) -> None:
        """Import the service."""
        module("holdfast.integrations.adk")

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, where: str) -> AsyncIterator[Any]:
        """Open the store."""
        async with holdfast.open(where) as store:
            yield cls(module("holdfast.integrations.adk").HoldfastSessionService(store.kv("agents")))

    async def turn(self, mark: str, pause: Pause) -> None:
        """Get the session and append an event, in a turn."""
        async with self.service.turn(**SESSION, ttl=LEASE):
            await super().turn(mark, pause)


class OurAdkUserState(OurAdk):
    """Our session service, with the marks in the state of a user."""

    name = "Holdfast HoldfastSessionService, update_state"
    appends = False

    async def turn(self, mark: str, pause: Pause) -> None:
        """Update the marks."""
        await self.marks()
        await pause()
        await self.service.update_state("user:marks", lambda marks: [*(marks or []), mark], **SHARED)

    async def marks(self) -> list[str]:
        """Return the marks in the user's state."""
        return list((await self.service.get_user_state(**SHARED)).get("marks", []))


CONTESTANTS: tuple[type[Contestant], ...] = (
    *(A2aPostgres, A2aSqlite, AdkPostgres, AdkSqlite, AdkUserState),
    *(OurTasks, OurAdk, OurAdkUserState),
)
