"""How fast our stores for agents are beside those that frameworks ship, measured in turn in the same run.

One caller makes one call after the other. The rounds of two stores follow each other, and the medians of
their ratios are told, since the machine's speed varies from minute to minute. The CPU time of a call, of this
process with its threads, varies less.

All of these stores are synced before a call returns: the frameworks' SQLite files have a write-ahead log and
`synchronous=FULL`, which is the driver's default. They store the item or the checkpoint alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import holdfast
from tools.torture import ordeals
from tools.torture.contestants import OpenAISqlite, OurSession, module

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.postgres import Server
    from tools.torture.contestants import Contestant

    Work = Callable[[int], Awaitable[object]]

ROUNDS, CALLS = 7, 60
BAR = 0.8
"""The least share of the other store's speed that ours must have."""


CROWD, CROWD_ROUNDS, APPENDS = 10, 5, 5
"""Processes that append at once, how often that is measured, and how many items each appends."""


class Compared(NamedTuple):
    """What was done, beside whom, our calls in a second, the ratio to theirs, and the least that will do.

    `cpu` is the CPU time of a call in microseconds, of ours and of theirs.
    """

    what: str
    other: str
    rate: float
    ratio: float
    cpu: tuple[float, float]
    bar: float = BAR


class Round(NamedTuple):
    """What a store took for each call of a round, in seconds: of the clock, and of CPU time."""

    clock: float
    cpu: float


class Pair(NamedTuple):
    """What ours and another store do, with the name of the other one."""

    what: str
    other: str
    ours: Work
    theirs: Work


def crowded() -> Compared:
    """Measure processes that append to one session at once. Call it without a loop: it forks."""
    for contestant in (OurSession, OpenAISqlite):
        contestant.imported()
    rounds = [(_crowd(OurSession), _crowd(OpenAISqlite)) for _ in range(CROWD_ROUNDS)]
    what = f"{APPENDS} turns with an append by each of {CROWD} processes"
    return _compared(what, OpenAISqlite.name, rounds, bar=1.0)


def _crowd(contestant: type[Contestant]) -> Round:
    """Let a crowd append. Its CPU time includes that of opening and closing the store in each process."""
    before = _children()
    with tempfile.TemporaryDirectory(prefix="holdfast-speed-") as folder:
        seconds = ordeals.crowd(contestant, str(Path(folder) / "state.db"), CROWD, APPENDS).seconds
    return Round(seconds / (CROWD * APPENDS), (_children() - before) / (CROWD * APPENDS))


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _compared(what: str, other: str, rounds: list[tuple[Round, Round]], bar: float = BAR) -> Compared:
    cpu = [statistics.median(both[side].cpu for both in rounds) * 1e6 for side in (0, 1)]
    return Compared(
        what,
        other,
        1 / statistics.median(ours.clock for ours, _ in rounds),
        statistics.median(theirs.clock / ours.clock for ours, theirs in rounds),
        (cpu[0], cpu[1]),
        bar,
    )


async def compared(server: Server | None) -> list[Compared]:
    """Measure every pair of calls."""
    results = []
    with tempfile.TemporaryDirectory(prefix="holdfast-speed-") as folder:
        async with contextlib.AsyncExitStack() as stack:
            pairs = await _pairs(stack, Path(folder), server)
            for pair in pairs:
                rounds = [
                    (await _round(pair.ours, number), await _round(pair.theirs, number))
                    for number in range(ROUNDS)
                ]
                results.append(_compared(pair.what, pair.other, rounds[1:]))
    return results


def told(results: list[Compared]) -> str:
    """Return the results as a Markdown table."""
    lines = [
        "| call | beside | ours, calls/s | ratio | at least | CPU of a call in µs, ours | theirs |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {one.what} | {one.other} | {one.rate:.0f} | {one.ratio:.2f} | {one.bar} "
        f"| {one.cpu[0]:.0f} | {one.cpu[1]:.0f} |"
        for one in results
    ]
    return "\n".join(lines)


async def _round(work: Work, number: int) -> Round:
    clock, cpu = time.perf_counter(), time.process_time()
    for call in range(CALLS):
        await work(number * CALLS + call)
    return Round((time.perf_counter() - clock) / CALLS, (time.process_time() - cpu) / CALLS)


async def _pairs(stack: contextlib.AsyncExitStack, folder: Path, server: Server | None) -> list[Pair]:
    enter = stack.enter_async_context
    store = await enter(holdfast.open(folder / "ours.db"))
    kv = store.kv("agents")
    session = module("agents").SQLiteSession("shared", folder / "session.db")
    stack.callback(session.close)
    item = {"role": "user", "content": "x" * 200}

    async def added(number: int) -> None:
        await session.add_items([item])

    beside = "OpenAI SQLiteSession.add_items"
    ours = module("holdfast.integrations.langgraph").HoldfastSaver
    sqlite = module("langgraph.checkpoint.sqlite.aio").AsyncSqliteSaver
    saver = await enter(sqlite.from_conn_string(str(folder / "saver.db")))
    await saver.setup()
    pairs = [
        Pair("append", beside, lambda number: kv.append("log", item), added),
        Pair("append, once", beside, lambda number: kv.append("other", item, once=f"o{number}"), added),
        *_savers("AsyncSqliteSaver", ours(store), saver),
    ]
    if server is not None:
        postgres = module("langgraph.checkpoint.postgres.aio").AsyncPostgresSaver
        peer = await enter(postgres.from_conn_string(await asyncio.to_thread(server.create_database)))
        await peer.setup()
        url = await asyncio.to_thread(server.create_database)
        pairs += _savers("AsyncPostgresSaver", ours(await enter(holdfast.open(url))), peer)
    return pairs


def _savers(name: str, ours: Any, theirs: Any) -> list[Pair]:
    return [
        Pair("saver put", name, _putting(ours), _putting(theirs)),
        Pair("saver get", name, _getting(ours), _getting(theirs)),
    ]


def _putting(saver: Any) -> Work:
    """Return a call that puts the next checkpoint of a thread."""
    base = module("langgraph.checkpoint.base")
    latest = _thread()

    async def put(number: int) -> None:
        nonlocal latest
        checkpoint = {
            **base.empty_checkpoint(),
            "channel_values": {"messages": ["x" * 200] * 5},
            "channel_versions": {"messages": number + 1},
        }
        metadata = {"source": "loop", "step": number, "parents": {}}
        latest = await saver.aput(latest, checkpoint, metadata, {"messages": number + 1})

    return put


def _getting(saver: Any) -> Work:
    """Return a call that gets the latest checkpoint of that thread."""

    async def get(number: int) -> None:
        assert await saver.aget_tuple(_thread()) is not None

    return get


def _thread() -> Any:
    return {"configurable": {"thread_id": "speed", "checkpoint_ns": ""}}
