"""How fast our stores for agents are beside those that frameworks ship, measured in turn in the same run.

One caller makes one call after the other. The rounds of two stores follow each other, and the medians of
their ratios are told, since the machine's speed varies from minute to minute.
"""

from __future__ import annotations

import asyncio
import contextlib
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
    """What was done, beside whom, our calls in a second, the ratio to theirs, and the least that will do."""

    what: str
    other: str
    rate: float
    ratio: float
    bar: float = BAR


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
    taken = [(_crowd(OurSession), _crowd(OpenAISqlite)) for _ in range(CROWD_ROUNDS)]
    ours = statistics.median(mine for mine, _ in taken)
    ratio = statistics.median(theirs / mine for mine, theirs in taken)
    what = f"{APPENDS} turns with an append by each of {CROWD} processes"
    return Compared(what, OpenAISqlite.name, CROWD * APPENDS / ours, ratio, bar=1.0)


def _crowd(contestant: type[Contestant]) -> float:
    with tempfile.TemporaryDirectory(prefix="holdfast-speed-") as folder:
        return ordeals.crowd(contestant, str(Path(folder) / "state.db"), CROWD, APPENDS).seconds


async def compared(server: Server | None) -> list[Compared]:
    """Measure every pair of calls."""
    results = []
    with tempfile.TemporaryDirectory(prefix="holdfast-speed-") as folder:
        async with contextlib.AsyncExitStack() as stack:
            pairs = await _pairs(stack, Path(folder), server)
            for pair in pairs:
                rates = [
                    (await _rate(pair.ours, number), await _rate(pair.theirs, number))
                    for number in range(ROUNDS)
                ]
                ratio = statistics.median(ours / theirs for ours, theirs in rates[1:])
                rate = statistics.median(ours for ours, _ in rates[1:])
                results.append(Compared(pair.what, pair.other, rate, ratio))
    return results


def told(results: list[Compared]) -> str:
    """Return the results as a Markdown table."""
    lines = ["| call | beside | ours, calls/s | ratio | at least |", "|---|---|---|---|---|"]
    lines += [
        f"| {one.what} | {one.other} | {one.rate:.0f} | {one.ratio:.2f} | {one.bar} |" for one in results
    ]
    return "\n".join(lines)


async def _rate(work: Work, number: int) -> float:
    start = time.perf_counter()
    for call in range(CALLS):
        await work(number * CALLS + call)
    return CALLS / (time.perf_counter() - start)


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
