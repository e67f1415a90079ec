"""A node of a cluster of three servers beside the SQLite engine and JetStream's key-value bucket, in turn.

As in `embedded`. The servers sync every write, and keep both the log and the bucket three times.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

import holdfast
from bench.doors import JetStreamDoor, value
from bench.embedded import KEYS, fill, in_turn, key
from bench.measure import closed_loop
from bench.over_nats import told, turned
from holdfast.bus.connection import Connection, Requester
from tests.jetstream import servers_running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from bench.run import Run

    Call = Callable[[int], Awaitable[object]]

NAMESPACES: Final = 4
NODE: Final = "cluster"
SQLITE: Final = "sqlite"
BUCKET: Final = "jetstream-kv"
BARE: Final = "jetstream-kv-bare"
SECONDS: Final = 30.0
DURABILITY: Final = {
    NODE: "three nats-servers with sync_interval: always; two have each write on disk before it is answered",
    SQLITE: "SQLite, WAL, synchronous=FULL, with journal; a commit serves all who wait",
    BUCKET: "a bucket of three replicas on the same servers, through nats-py",
    BARE: "a second such bucket, over a connection of ours, which costs the caller less",
}


class Bucket:
    """A key-value bucket of JetStream with three replicas, over a connection of ours.

    Args:
        connection: The connection.
    """

    def __init__(self, connection: Connection) -> None:
        self._requests = Requester(connection)

    async def create(self) -> None:
        """Create the bucket as JetStream's own clients do."""
        body = {
            "name": "KV_bench",
            "subjects": ["$KV.bench.>"],
            "storage": "file",
            "num_replicas": 3,
            "max_msgs_per_subject": 1,
            "discard": "new",
            "allow_direct": True,
            "allow_rollup_hdrs": True,
            "deny_delete": True,
        }
        await self._asked("$JS.API.STREAM.CREATE.KV_bench", msgspec.json.encode(body))

    async def put(self, number: int) -> None:
        """Put a value and wait for the acknowledgement."""
        await self._asked(f"$KV.bench.{_name(number)}", msgspec.json.encode(value(number)))

    async def get(self, number: int) -> bytes:
        """Get a value from one of the replicas."""
        reply = await self._requests.ask(
            f"$JS.API.DIRECT.GET.KV_bench.$KV.bench.{_name(number)}", seconds=SECONDS
        )
        return reply.data

    async def _asked(self, subject: str, payload: bytes) -> None:
        reply = await self._requests.ask(subject, payload, seconds=SECONDS)
        told = msgspec.json.decode(reply.data)
        if "error" in told:
            raise RuntimeError(f"JetStream refuses: {told['error']}")


def _name(number: int) -> str:
    return key(number).replace(":", "-")


async def cluster(run: Run) -> None:
    """Sets and gets of a node that owns its shard, over four namespaces, and of a lone caller."""
    run.book.durability |= DURABILITY
    async with _sides() as (node, file, bucket, bare):
        nodes, files = ([store.kv(f"bench{n}") for n in range(NAMESPACES)] for store in (node, file))
        for kv in (*nodes, *files):
            await fill(kv, KEYS)
        for number in range(KEYS):
            await bucket.set(0, key(number), number)
            await bare.put(number)

        sets: dict[str, Call] = {
            NODE: lambda number: nodes[number % NAMESPACES].set(key(number), value(number)),
            SQLITE: lambda number: files[number % NAMESPACES].set(key(number), value(number)),
            BUCKET: lambda number: bucket.set(0, key(number), number),
            BARE: bare.put,
        }
        gets: dict[str, Call] = {
            NODE: lambda number: nodes[number % NAMESPACES].get(key(number)),
            SQLITE: lambda number: files[number % NAMESPACES].get(key(number)),
            BUCKET: lambda number: bucket.get(0, key(number)),
            BARE: bare.get,
        }
        for verb, calls in (("set", sets), ("get", gets)):
            await in_turn(run, f"cluster.{verb}.128", {side: (call, 128) for side, call in calls.items()})
            await _alone(run, f"cluster.{verb}.1", calls)


async def _alone(run: Run, scenario: str, calls: Mapping[str, Call]) -> None:
    """The rate and the median latency of a lone caller, side by side."""
    for number in run.rounds():
        for side in turned(list(calls), number):
            window = await closed_loop(calls[side], in_flight=1, seconds=run.seconds)
            told(run.book, window, scenario, side)
            run.book.add(scenario, side, window.per_second, unit="/s")
            run.book.add(f"{scenario}.p50", side, window.percentiles()["p50"], unit="ms")


@contextlib.asynccontextmanager
async def _sides() -> AsyncIterator[tuple[holdfast.Store, holdfast.Store, JetStreamDoor, Bucket]]:
    """A node, a store in a file, and two buckets, for the length of a block."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        folder = Path(name)
        async with (
            servers_running(3) as servers,
            holdfast.open(servers.url("bench", folder / "node", timeout=60), reap=False) as node,
            holdfast.open(folder / "store.db", reap=False) as file,
        ):
            url = f"nats://127.0.0.1:{servers.servers[0].port}"
            bucket, connection = JetStreamDoor(replicas=3), Connection(name="bench")
            try:
                await bucket.open(url, ["users"])
                await connection.reach([url])
                bare = Bucket(connection)
                await bare.create()
                yield node, file, bucket, bare
            finally:
                await bucket.close()
                await connection.close()
