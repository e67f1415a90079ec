"""A service whose requests are weighed: how long each holds the event loop, and how much memory it takes.

Law: the service and its store are the real ones; only the connection is a stand-in, so that what is measured
is the service and not a client beside it. Time is processor time of the loop's thread.
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
from holdfast.edges.nats.observer import Observer
from holdfast.edges.nats.service import NatsService, Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from holdfast.store import Store

MOST_BYTES: Final = 65_536
"""How large a request may be that is weighed."""


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

    async def drain(self) -> None:
        """See `Subscription.drain`."""

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


class Scales:
    """Weighs requests to one plugin of a service."""

    def __init__(self, store: Store, line: StandIn) -> None:
        self.store = store
        self._line = line

    async def weigh(self, family: str, verb: str, fields: dict[str, Any]) -> Weight:
        """Make a request and say what it came to. It is made twice, since memory is slow to count."""
        payload = json.dumps(fields, separators=(",", ":")).encode()
        assert len(payload) <= MOST_BYTES, f"the request has {len(payload)} bytes"
        with pieces() as timed:
            await self._answer(family, verb, payload)
            taken = list(timed)  # this very turn, in which the reply is looked at here, is not over
        gc.collect()
        tracemalloc.start()
        try:
            answer = await self._answer(family, verb, payload)
            memory = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        return Weight(answer, max(taken), sum(taken), memory)

    async def _answer(self, family: str, verb: str, payload: bytes) -> dict[str, Any]:
        async with asyncio.timeout(120):
            reply = await self._line.ask(f"db.{family}.attacker.{verb}", payload)
        answer: dict[str, Any] = json.loads(reply)
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
async def scales(url: str = "sqlite:///:memory:") -> AsyncIterator[Scales]:
    """A service with a plugin that has stored whatever makes requests dear."""
    async with holdfast.open(url, reap=False) as store:
        await hostile(store)
        line: Any = StandIn()
        service = NatsService(store, line, Settings(events=False), Observer(slow=1e9, slow_walk=1e9))
        await service.start()
        try:
            yield Scales(store, line)
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
KEYS: Final = 160
"""How many keys of 64 KB there are: more than one request may look at."""
ITEMS: Final = 24
"""How many items of nearly 400 KB there are beside the shapes, all with one value in an index."""


async def hostile(store: Store) -> None:
    """Store what makes requests dear."""
    kv, tables = store.kv("attacker"), store.tables("attacker")
    for number in range(KEYS):
        deep = json.loads("[" * 60 + "1" + "]" * 60)
        value = [deep] * 520 if number % 2 else "x" * 65_000
        await kv.set(f"k{number}", value, ttl=100_000 if number % 3 else None)
    await tables.create_table("t", partition_key=("p", "string"))
    for name, shape in SHAPES.items():
        await tables.put_item("t", {"p": name, "l": shape})
    await tables.create_table("large", partition_key=("p", "string"), ttl_attribute="until")
    await tables.create_index("large", "by", key=("tag", "string"))
    for number in range(ITEMS):
        await tables.put_item("large", {"p": f"i{number}", "tag": "x", "l": [[1]] * 99_000})
