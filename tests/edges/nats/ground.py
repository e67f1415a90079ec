"""A service in this process, callers on the same nats-server, and stores that stop when they are told to.

How the parts are put together for a test stands here; what must hold stands in the tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import holdfast
from holdfast.bus.connection import Connection
from holdfast.bus.login import Login
from holdfast.clock import ManualClock
from holdfast.edges.intake.request_log import Operation, RequestLog
from holdfast.edges.nats.service import NatsService, Settings
from holdfast.engines.memory import MemoryEngine
from holdfast.store import Store
from tests.nats import library_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from holdfast.clock import Clock
    from holdfast.commands import Command
    from holdfast.decide import Outcome
    from holdfast.engine import Engine, Scan, Scanned

PATIENCE = 60.0
"""How many seconds a reply may take before a test gives up."""
START = "2023-11-14T22:13:20Z"
"""The time at which a manual clock begins, as replies show it."""


class Answer(NamedTuple):
    """A reply: its fields, its headers, and which of all that came to this caller it was."""

    fields: dict[str, Any]
    headers: dict[str, str]
    position: int


class Caller:
    """Somebody with a connection who asks, waits, or only sends."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.inbox = client.new_inbox()
        self._arrived = 0
        self._number = 0
        self._awaited: dict[str, asyncio.Future[Answer]] = {}

    async def listen(self) -> None:
        """Take replies from now on."""
        await self.client.subscribe(f"{self.inbox}.*", cb=self._hear)
        await self.client.flush()

    async def send(self, subject: str, fields: dict[str, Any] | bytes = b"") -> None:
        """Send without a reply subject."""
        await self.client.publish(subject, _payload(fields))

    async def begin(self, subject: str, fields: dict[str, Any] | bytes = b"") -> asyncio.Future[Answer]:
        """Send a request; the future gets its reply."""
        self._number += 1
        reply = f"{self.inbox}.{self._number}"
        answer = self._awaited[reply] = asyncio.get_running_loop().create_future()
        await self.client.publish(subject, _payload(fields), reply=reply)
        return answer

    async def ask(self, subject: str, fields: dict[str, Any] | bytes = b"") -> dict[str, Any]:
        """The fields of the reply to a request."""
        return (await self.ask_all([(subject, fields)]))[0].fields

    async def ask_all(self, requests: Sequence[tuple[str, dict[str, Any] | bytes]]) -> list[Answer]:
        """The replies to requests that are all sent before the first reply is looked at, in their order."""
        begun = [await self.begin(subject, fields) for subject, fields in requests]
        async with asyncio.timeout(PATIENCE):
            return await asyncio.gather(*begun)

    async def _hear(self, message: Msg) -> None:
        self._arrived += 1
        future = self._awaited.pop(message.subject)
        if message.headers and message.headers.get("Status") == "503":
            future.set_exception(ConnectionError("nobody listens there"))
        else:
            future.set_result(Answer(json.loads(message.data), message.headers or {}, self._arrived))


def _payload(fields: dict[str, Any] | bytes) -> bytes:
    return fields if isinstance(fields, bytes) else json.dumps(fields).encode()


class Recorder:
    """Counts what the service tells of."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.drops: list[str] = []
        self.unknown: Counter[str] = Counter()

    def operation(self, operation: Operation) -> None:
        """See `OperationCounter.operation`."""
        self.operations.append(operation)

    def dropped(self, reason: str) -> None:
        """See `OperationCounter.dropped`."""
        self.drops.append(reason)

    def unknown_fields(self, owner: str, count: int) -> None:
        """See `OperationCounter.unknown_fields`."""
        self.unknown[owner] += count


class Gated(MemoryEngine):
    """An engine that writes and walks only while its gate is open, and counts what it was asked to write."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.groups: list[int] = []

    @property
    def executed(self) -> int:
        """How many commands it was asked to do."""
        return sum(self.groups)

    async def transact(self, commands: Sequence[Command], now: Callable[[], int]) -> Outcome:
        """Wait for the gate, then do it."""
        await self.gate.wait()
        self.groups.append(len(commands))
        return await super().transact(commands, now)

    async def scan(self, query: Scan, now: int) -> Scanned:
        """Wait for the gate, then do it."""
        await self.gate.wait()
        return await super().scan(query, now)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event of its own
            await asyncio.sleep(0.002)


class Running(NamedTuple):
    """A service that answers, and what is around it."""

    service: NatsService
    store: Store
    client: Connection
    recorder: Recorder


@contextlib.asynccontextmanager
async def serving(
    url: str,
    *,
    storage: str = "memory://",
    engine: Engine | None = None,
    clock: Clock | None = None,
    settings: Settings | None = None,
    **login: Any,
) -> AsyncIterator[Running]:
    """A service for the length of a block, at a standstill in time unless a clock is given."""
    clock = clock or ManualClock()
    store = (
        holdfast.open(storage, clock=clock, reap=False)
        if engine is None
        else Store(engine, clock=clock, reap=False)
    )
    settings = settings or Settings()
    recorder = Recorder()
    request_log = RequestLog(
        slow=settings.slow_seconds,
        slow_walk=settings.slow_walk_seconds,
        counter=recorder,
        kept=settings.slow_kept,
    )
    client = Connection()
    async with store:
        await client.reach(url, Login(**login))
        service = NatsService(store, client, settings, request_log)
        await service.start()
        try:
            yield Running(service, store, client, recorder)
        finally:
            if isinstance(engine, Gated):
                engine.gate.set()
            async with asyncio.timeout(PATIENCE):
                await service.stop()
            await client.close()


@contextlib.asynccontextmanager
async def calling(url: str) -> AsyncIterator[Caller]:
    """A caller for the length of a block."""
    async with library_client(url) as client:
        caller = Caller(client)
        await caller.listen()
        yield caller
