"""A service whose requests are weighed: how long each holds the event loop, and how much memory it takes.

The service, its HTTP door and its store are the real ones; only connections are stand-ins, so that what
is measured is the service and not a client beside it. Time is processor time of the loop's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import time
import tracemalloc
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import holdfast
from holdfast.bus.protocol import Message
from holdfast.edges.http.api import Api
from holdfast.edges.http.guard import TokenGuard
from holdfast.edges.intake.request_log import RequestLog
from holdfast.edges.nats.service import NatsService, Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence

    from holdfast.rows import Record
    from holdfast.store import Store

MOST_BYTES: Final = 65_536
"""How large a request may be that is weighed."""


PATIENCE_MS: Final = 100_000
"""For how long an answer is waited for: a busy machine is no reason to refuse a request."""


class Weight(NamedTuple):
    """What a request came to: its answer, milliseconds of the loop in one piece and in all, and bytes."""

    answer: dict[str, Any]
    piece: float
    total: float
    memory: int

    def __str__(self) -> str:
        end = self.answer.get("error_code", "done")
        return (
            f"{self.piece:.1f} ms in one piece, {self.total:.1f} ms in all, {self.memory / 1e6:.1f} MB: {end}"
        )


class StandIn:
    """A connection that goes nowhere: requests are handed in, and replies are kept."""

    max_payload = 1_048_576

    def __init__(self) -> None:
        self._heard: dict[str, Callable[[Message], None]] = {}
        self._awaited: dict[str, asyncio.Future[bytes]] = {}
        self._number = 0

    def listen(self, pattern: str, take: Callable[[Message], None], *, queue: str = "") -> StandIn:
        """See `Connection.listen`."""
        self._heard[pattern] = take
        return self

    async def drain(self, *subscriptions: StandIn) -> None:
        """See `Connection.drain`."""

    def cancel(self) -> None:
        """See `Subscription.cancel`."""

    async def flush(self) -> None:
        """See `Connection.flush`."""

    def send(self, subject: str, payload: bytes, *, head: bytes = b"", patient: bool = False) -> bool:
        """Keep a reply for whoever waits for it."""
        if (waiting := self._awaited.pop(subject, None)) is not None:
            waiting.set_result(payload)
        return True

    def ask(self, subject: str, payload: bytes) -> asyncio.Future[bytes]:
        """Hand in a request as if it had just come in."""
        self._number += 1
        reply = f"_INBOX.{self._number}"
        answer = self._awaited[reply] = asyncio.get_running_loop().create_future()
        prefix, family = subject.split(".")[:2]
        [take] = [take for pattern, take in self._heard.items() if pattern.startswith(f"{prefix}.{family}.")]
        asyncio.get_running_loop().call_soon(take, Message("1", subject, reply, payload))
        return answer


class HttpStandIn:
    """A connection over HTTP that goes nowhere: requests are handed to the door, and responses are kept.

    Args:
        api: The door.
    """

    def __init__(self, api: Api) -> None:
        self._api = api

    async def ask(self, path: str, payload: bytes) -> bytes:
        """Hand in a request as if it had just come in."""
        sent: list[bytes] = []
        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(b"host", b"localhost"), (b"content-length", str(len(payload)).encode())],
            "client": ("127.0.0.1", 1),
        }

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": payload, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message.get("body", b""))

        # A task, so that the door's own turns of the loop are timed.
        await asyncio.create_task(self._api(scope, receive, send))
        return b"".join(sent)


class Scales:
    """Weighs requests to one plugin of a service, over NATS or over HTTP."""

    def __init__(self, ground: Ground, line: StandIn, web: HttpStandIn) -> None:
        self._ground = ground
        self._line = line
        self._web = web
        self.door = "nats"

    async def weigh(self, family: str, verb: str, fields: dict[str, Any], *, timed: bool = True) -> Weight:
        """Make a request and say what it came to. It is made twice, since memory is slow to count.

        What it changes is put back each time, so that the next request finds as much.

        Args:
            family: The family of the verb.
            verb: The verb.
            fields: What is asked.
            timed: Whether its time is wanted; if not, it is made once and has taken none.
        """
        payload = json.dumps({"deadline_ms": PATIENCE_MS} | fields, separators=(",", ":")).encode()
        assert len(payload) <= MOST_BYTES, f"the request has {len(payload)} bytes"
        taken = await self._taken(family, verb, payload) if timed else [0.0]
        gc.collect()
        tracemalloc.start()
        try:
            answer = await self._answer(family, verb, payload)
            memory = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        await self._ground.restore()
        return Weight(answer, max(taken), sum(taken), memory)

    async def _taken(self, family: str, verb: str, payload: bytes) -> list[float]:
        with pieces() as timed:
            await self._answer(family, verb, payload)
            taken = list(timed)  # this very turn, in which the reply is looked at here, is not over
        await self._ground.restore()
        return taken

    async def _answer(self, family: str, verb: str, payload: bytes) -> dict[str, Any]:
        async with asyncio.timeout(120):
            if self.door == "http":
                reply = await self._web.ask(f"/v1/{family}/attacker:{verb}", payload)
            else:
                reply = await self._line.ask(f"db.{family}.attacker.{verb}", payload)
        answer: dict[str, Any] = json.loads(reply)
        if "code" in answer:  # of a refusal over HTTP
            answer["error_code"] = answer["code"]
        return answer


@contextlib.contextmanager
def pieces() -> Iterator[list[float]]:
    """How many milliseconds of processor time each turn of the loop took, one callback after the other."""
    taken: list[float] = [0.0]
    kind: Any = asyncio.Handle
    run = kind._run

    def timed(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        taken.append((time.thread_time() - began) * 1000)

    kind._run = timed
    try:
        yield taken
    finally:
        kind._run = run


@contextlib.asynccontextmanager
async def scales(*, tables: Collection[str] | None = None) -> AsyncIterator[Scales]:
    """A service with a plugin that has stored whatever makes requests expensive.

    Args:
        tables: The tables that requests are about; by default all.
    """
    async with holdfast.open("sqlite:///:memory:", reap=False) as store:
        ground = Ground(store, tables)
        await ground.lay()
        gc.collect()
        gc.freeze()  # as a service does: the lists of this test are large to go through again and again
        line: Any = StandIn()
        service = NatsService(store, line, Settings(events=False), RequestLog(slow=1e9, slow_walk=1e9))
        await service.start()
        api = Api(TokenGuard(store.tokens(), open_mode=True), store)
        api.service = service.requests
        try:
            yield Scales(ground, line, HttpStandIn(api))
        finally:
            await service.stop()


SHAPES: Final[dict[str, Any]] = {
    "ints": [1] * 190_000,
    "floats": [0.5] * 95_000,
    "words": ["ab"] * 75_000,
    "lists": [[]] * 125_000,
    "objects": [{"": 1}] * 50_000,
    "deep": [json.loads("[" * 61 + "]" * 61)] * 3_000,
    "text": "a" * 380_000,
    "page": "a" * 29_999,
    "names": {str(number): 1 for number in range(34_000)},
}
"""Attributes of items of nearly 400 KB, each of another kind."""
TWINS: Final[dict[str, Any]] = {
    "ints": [1] * 20_000,
    "lists": [[]] * 18_000,
    "objects": [{"": []}] * 6_000,
    "members": {str(number): [] for number in range(5_000)},
}
"""Values that fit into a request, each stored as well, so that a comparison has to look at all of both."""
INDEXABLE: Final = [{"name": name, "type": "string"} for name in ("tag", "p", "l")]
"""The attributes of large items that an index may be about."""
KEYS: Final = 160
"""How many keys of 64 KB there are: more than one request may look at."""
ITEMS: Final = 24
"""How many items of nearly 400 KB there are beside the shapes, all with one value in an index."""
MINE: Final = "ground"
"""Who has written what an attack finds."""


class Ground:
    """What makes requests expensive, stored for a plugin, and stored again where a request has changed it.

    Args:
        store: Where it is stored.
        tables: The tables that are stored, `large` among them; by default all.
    """

    def __init__(self, store: Store, tables: Collection[str] | None = None) -> None:
        self._kv, self._tables = store.kv("attacker"), store.tables("attacker")
        self._store = store
        self._values = {f"k{number}": _value(number) for number in range(KEYS)} | {"spare": 1}
        self._items = {name: items for name, items in _items().items() if tables is None or name in tables}
        self._changed: set[tuple[str, str]] = set()

    async def lay(self) -> None:
        """Store all of it."""
        await self._store.set_policy(self._kv.namespace, {"trash": True})
        await asyncio.gather(*map(self._set, self._values))
        for table in self._items:
            await self._create(table, ("by", "old") if table == "large" else ())
        self._store.pipeline.listen(self._note)

    async def restore(self) -> None:
        """Store what has been changed since."""
        for _ in range(3):  # changes are told of a little later than callers are answered
            await asyncio.sleep(0)
        changed, self._changed = self._changed, set()
        await asyncio.gather(*(self._set(name) for space, name in changed if self._is_mine(space, name)))
        for namespace, name in changed:
            table, _, key = name.partition(":")
            if namespace == self._tables.namespace and table in self._items:
                [partition] = json.loads(key)
                await self._put(table, partition)
        await self._restore_tables()

    async def _restore_tables(self) -> None:
        there = await self._tables.list_tables()
        if "gone" in self._items and "gone" not in there:
            await self._create("gone")
        if "new" in there:
            await self._tables.drop_table("new")
        indexes = {index["name"] for index in (await self._tables.describe_table("large"))["indexes"]}
        if "new" in indexes:
            await self._tables.drop_index("large", "new")
        if "old" not in indexes:
            await self._tables.create_index("large", "old", key=("tag", "string"))

    def _is_mine(self, namespace: str, key: str) -> bool:
        return namespace == self._kv.namespace and key in self._values

    def _note(self, journal: list[Record]) -> None:
        self._changed |= {
            (record.namespace, record.key)
            for record in journal
            if record.op != "set" or record.last_writer != MINE
        }

    async def _set(self, key: str) -> None:
        ttl = 100_000 if key[-1] in "369" else None
        await self._kv.set(key, self._values[key], ttl=ttl, writer=MINE)

    async def _create(self, table: str, indexes: Sequence[str] = ()) -> None:
        await self._tables.create_table(table, partition_key=("p", "string"), ttl_attribute="until")
        for index in indexes:  # filling one takes as long as the puts that keep it
            await self._tables.create_index(table, index, key=("tag", "string"))
        for partition in self._items[table]:
            await self._put(table, partition)

    async def _put(self, table: str, partition: str) -> None:
        if (item := self._items[table].get(partition)) is not None:
            await self._tables.put_item(table, item, writer=MINE)
        else:
            await self._tables.delete_item(table, partition, writer=MINE)


def _value(number: int) -> Any:
    return [json.loads("[" * 60 + "1" + "]" * 60)] * 520 if number % 2 else "x" * 65_000


def _items() -> dict[str, dict[str, dict[str, Any]]]:
    """The items of each table, by their key."""
    tables: dict[str, dict[str, Any]] = {
        "t": {name: {"l": shape} for name, shape in SHAPES.items()},
        "large": {f"i{number}": {"tag": "x", "l": [[1]] * 99_000} for number in range(ITEMS)},
        "twins": {name: {"l": twin} for name, twin in TWINS.items()}
        | {f"many {name}": {"l": [_altered(twin)] * 6} for name, twin in TWINS.items()},
        "gone": {f"i{number}": {"l": [[1]] * 99_000} for number in range(4)},
        "due": {f"i{number}": {"until": 1, "l": [[1]] * 99_000} for number in range(ITEMS)},
    }
    return {
        table: {partition: {"p": partition, **item} for partition, item in items.items()}
        for table, items in tables.items()
    }


def _altered(twin: Any) -> Any:
    """A value that differs from another at its very end."""
    return {**twin, "": 0} if isinstance(twin, dict) else [*twin[:-1], 0]
