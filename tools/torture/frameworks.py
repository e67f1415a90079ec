"""More stores that are tortured: those of A2A, ADK, agno and Strands, and ours for them."""

from __future__ import annotations

import contextlib
import logging
import time
import unittest.mock
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

    state = "A2A tasks"
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

    state = "Google ADK sessions"
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


# agno


class AgnoContestant(Contestant):
    """A database of agno with one session: each turn runs an agent that adds a mark to its state."""

    state = "agno sessions"
    packages = ("agno",)
    note = "agno reads the session when a run begins and puts it back when it ends"

    def __init__(self, db: Any) -> None:
        self.db = db

    @classmethod
    def imported(cls) -> None:
        """Import agno and its databases."""
        logging.getLogger("agno").setLevel(logging.CRITICAL)
        module("agno.agent")
        module("agno.db.postgres")
        module("agno.db.sqlite")
        module("aiosqlite")

    @classmethod
    async def prepared(cls, where: str) -> None:
        """Make the session."""
        async with cls.opened(where) as contestant:
            state: Any = {"session_state": {"marks": []}}
            session = module("agno.session").AgentSession(
                "shared", agent_id="desk", session_data=state, created_at=int(time.time())
            )
            await contestant.db.upsert_session(session)

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, where: str) -> AsyncIterator[Any]:
        """Open the database."""
        of_postgres = module("agno.db.postgres").AsyncPostgresDb
        db = (of_postgres if cls.needs_postgres else module("agno.db.sqlite").AsyncSqliteDb)(
            db_url=sqlalchemy_url(where)
        )
        yield cls(db)
        await db.close()

    @staticmethod
    def model() -> Any:
        """Return a model that gives one answer."""
        answer = module("agno.models.response").ModelResponse(role="assistant", content="Hello")

        async def answered(*_: Any, **__: Any) -> Any:
            return answer

        names = ("invoke", "invoke_stream", "ainvoke_stream", "_parse_provider_response")
        methods = dict.fromkeys((*names, "_parse_provider_response_delta"), lambda *_, **__: answer)
        parrot = type("Parrot", (module("agno.models.base").Model,), {**methods, "ainvoke": answered})
        return parrot(id="parrot")

    async def turn(self, mark: str, pause: Pause) -> None:
        """Run the agent."""
        await self.run(mark, pause)

    async def run(self, mark: str, pause: Pause) -> None:
        """Run the agent once."""

        async def add(run_context: Any) -> None:
            await pause()
            state = run_context.session_state
            state["marks"] = [*state.get("marks", []), mark]

        agent = module("agno.agent").Agent(
            id="desk", model=self.model(), db=self.db, pre_hooks=[add], telemetry=False
        )
        result = await agent.arun("Hello", session_id="shared")
        if result.status.value != "COMPLETED":
            raise RuntimeError(f"the run ended as {result.status.value}: {result.content}")

    async def marks(self) -> list[str]:
        """Return the marks in the state of the session."""
        session = await self.db.get_session("shared", module("agno.db.base").SessionType.AGENT)
        return list(session.session_data["session_state"]["marks"])


class AgnoSqlite(AgnoContestant):
    """agno's database on SQLite."""

    name = "agno AsyncSqliteDb, session state"


class AgnoPostgres(AgnoContestant):
    """agno's database on PostgreSQL."""

    name = "agno AsyncPostgresDb, session state"
    needs_postgres = True


class OurAgno(AgnoContestant):
    """Our database, which merges."""

    name = "Holdfast AsyncHoldfastDb, on_conflict=merge"
    ours = True
    note = ""
    on_conflict = "merge"

    @classmethod
    def imported(cls) -> None:
        """Import the database."""
        logging.getLogger("agno").setLevel(logging.CRITICAL)
        module("agno.agent")
        module("holdfast.integrations.agno")

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, where: str) -> AsyncIterator[Any]:
        """Open the store."""
        async with holdfast.open(where) as store:
            db = module("holdfast.integrations.agno").AsyncHoldfastDb
            yield cls(db(store, on_conflict=cls.on_conflict))

    async def run(self, mark: str, pause: Pause) -> None:
        """Run the agent once, and call a refusal an error."""
        try:
            await super().run(mark, pause)
        except module("holdfast.integrations.agno").NotSaved as error:
            raise RuntimeError(str(error)) from error


class OurAgnoWithTurns(OurAgno):
    """Our database, which refuses, with a turn around each run."""

    name = "Holdfast AsyncHoldfastDb with turn"
    on_conflict = "refuse"

    async def turn(self, mark: str, pause: Pause) -> None:
        """Wait for the turn, then run the agent."""
        async with self.db.turn("shared", ttl=LEASE):
            await self.run(mark, pause)


# Strands


class StrandsContestant(Contestant):
    """A session manager of Strands with one session: each turn makes the agent and adds a message."""

    state = "Strands sessions"
    packages = ("strands-agents",)
    note = "two agents number their messages alike, and the second replaces the first's"

    def __init__(self, where: Any) -> None:
        self.where = where

    @classmethod
    def imported(cls) -> None:
        """Import Strands."""
        module("strands.session.file_session_manager")
        module("strands.agent.agent")
        module("strands.models")

    @classmethod
    async def prepared(cls, where: str) -> None:
        """Make the session."""
        async with cls.opened(where) as contestant:
            contestant.agent(contestant.manager())

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, where: str) -> AsyncIterator[Any]:
        """Name the folder."""
        yield cls(f"{where}.d")

    def manager(self) -> Any:
        """Return a session manager."""
        managers = module("strands.session.file_session_manager")
        return managers.FileSessionManager("shared", storage_dir=self.where)

    def agent(self, manager: Any) -> Any:
        """Return an agent of the session."""
        model = unittest.mock.Mock(spec=module("strands.models").Model, stateful=False)
        return module("strands.agent.agent").Agent(
            model=model, agent_id="desk", session_manager=manager, callback_handler=None
        )

    async def turn(self, mark: str, pause: Pause) -> None:
        """Make the agent and add a message, as its loop does."""
        await self.speak(self.manager(), mark, pause)

    async def speak(self, manager: Any, mark: str, pause: Pause) -> None:
        """Make the agent and add a message."""
        agent = self.agent(manager)
        await pause()
        manager.append_message({"role": "user", "content": [{"text": mark}]}, agent)

    async def marks(self) -> list[str]:
        """Return the texts of the messages."""
        messages = self.manager().session_repository.list_messages("shared", "desk")
        return [one.message["content"][0]["text"] for one in messages]


class StrandsFiles(StrandsContestant):
    """The SDK's manager with files."""

    name = "Strands FileSessionManager"


class OurStrands(StrandsContestant):
    """Our manager."""

    name = "Holdfast HoldfastSessionManager"
    ours = True
    note = ""

    @classmethod
    def imported(cls) -> None:
        """Import the manager."""
        super().imported()
        module("holdfast.integrations.strands")
        module("holdfast.sync")

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, where: str) -> AsyncIterator[Any]:
        """Open the store."""
        with module("holdfast.sync").open(where) as store:
            yield cls(store)

    def manager(self) -> Any:
        """Return a session manager."""
        return module("holdfast.integrations.strands").HoldfastSessionManager("shared", self.where)


class OurStrandsWithTurns(OurStrands):
    """Our manager, with a turn around each message."""

    name = "Holdfast HoldfastSessionManager with turn"

    async def turn(self, mark: str, pause: Pause) -> None:
        """Wait for the turn, then speak."""
        manager = self.manager()
        async with manager.turn(ttl=LEASE):
            await self.speak(manager, mark, pause)


CONTESTANTS: tuple[type[Contestant], ...] = (
    *(A2aPostgres, A2aSqlite, AdkPostgres, AdkSqlite, AdkUserState, AgnoPostgres, AgnoSqlite, StrandsFiles),
    *(OurTasks, OurAdk, OurAdkUserState, OurAgno, OurAgnoWithTurns, OurStrands, OurStrandsWithTurns),
)
