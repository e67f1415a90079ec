"""Holdfast and its peers over a connection, in turn: closed loops, an open loop, and a lean client.

A round asks every side once, and the next round begins with another side, so that whoever goes first
after a pause is not always the same.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench import caller
from bench.book import HOLDFAST, OWN_CLIENT
from bench.client import Task
from bench.machine import sync_ms
from bench.measure import percentile
from bench.sides import EVERYBODY, PLUGINS, running

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.book import Book
    from bench.measure import Window
    from bench.run import Run
    from bench.sides import Sides

GETS: Final = {"get": 1.0, "set": 0.0, "mixed": 0.7}
RATE: Final = 1_500
SYNCS: Final = 20
LEAN: Final = (HOLDFAST, "echo")
BARRED: Final = {
    "get": (HOLDFAST, OWN_CLIENT, "echo", "jetstream", "redis"),
    "set": (HOLDFAST, OWN_CLIENT, "echo", "jetstream-sync", "redis"),
    "mixed": (HOLDFAST, "echo", "naive"),
}


def turned(names: Sequence[str], number: int) -> list[str]:
    """The names in the order of a round."""
    start = number % len(names)
    return [*names[start:], *names[:start]]


async def over_nats(run: Run) -> None:
    """The bars 1 to 4: 128 in flight, one in flight, ten plugins, a client process for each side."""
    names = [name for name in EVERYBODY if name != "holdfast-postgres"]
    async with running(names, run.book) as sides:
        for number in run.rounds():
            for verb, barred in BARRED.items():
                for side in turned(sides.among(barred), number):
                    await _closed(run, sides, side, verb, in_flight=128)
            for verb in ("get", "set"):
                for side in turned(sides.among(LEAN), number):
                    await _closed(run, sides, side, verb, in_flight=1)
            # A set can't be quicker than this.
            sync = sync_ms(Path(tempfile.gettempdir()), SYNCS)
            run.book.add("nats.set.1.p50", "a sync of the disk", sync, unit="ms")
        await _lean(run, sides)


async def noise(run: Run) -> None:
    """The same service twice: how far from 1 a ratio is on this machine for no reason at all."""
    async with running(["echo", "echo again"], run.book) as sides:
        for number in run.rounds():
            for side in turned(list(sides.urls), number):
                window = await sides.clients[side, 1].work(Task(gets=1, seconds=run.seconds, in_flight=128))
                run.book.add("noise.get.128", side, window.per_second, unit="/s")


async def matrix(run: Run) -> None:
    """Set, get and mixed with 1, 32, 128 and 512 in flight from 1 and 3 client processes, for everybody."""
    async with running(EVERYBODY, run.book, processes=(1, 3)) as sides:
        for number in run.rounds():
            for verb in GETS:
                for in_flight in (1, 32, 128, 512):
                    for processes in (1, 3):
                        if in_flight < processes:
                            continue
                        for side in turned(sides.among(EVERYBODY), number):
                            await _closed(
                                *(run, sides, side, verb),
                                in_flight=in_flight,
                                processes=processes,
                                family="matrix",
                            )


async def open_loop(run: Run) -> None:
    """Latencies of 70/30 at 1,500 a second, whatever a side does; who can't keep up says so by them."""
    names = [name for name in EVERYBODY if name != "naive"]
    run.book.left_out["naive in the open loop"] = (
        "it does not keep up with the rate, and a backlog disturbs all"
    )
    async with running(names, run.book) as sides:
        for number in run.rounds():
            for side in turned(sides.among(names), number):
                window = await sides.clients[side, 1].work(
                    Task(gets=0.7, seconds=run.seconds, per_second=RATE)
                )
                told(run.book, window, f"open.mixed.{RATE}", side)
                for name, value in window.percentiles().items():
                    run.book.add(f"open.mixed.{RATE}.{name}", side, value, unit="ms")


async def fairness(run: Run) -> None:
    """The p99 of a plugin that asks 100 times a second: beside one with 1,000 in flight against alone."""
    async with running([HOLDFAST], run.book) as sides:
        url = sides.urls[HOLDFAST]
        async with (
            caller.calling(caller.Plan(url=url, plugins=["quiet"], per_second=100)) as quiet,
            caller.calling(caller.Plan(url=url, plugins=["busy"], in_flight=1_000)) as busy,
        ):
            await asyncio.gather(quiet.ask(1), busy.ask(1))
            for _ in run.rounds():
                alone = await quiet.ask(run.seconds)
                flood = asyncio.create_task(busy.ask(run.seconds + 2 * LEAD))
                await asyncio.sleep(LEAD)
                beside = await quiet.ask(run.seconds)
                await flood
                for side, window in (("alone", alone), ("beside a flood", beside)):
                    run.book.add("fairness.p99", side, percentile(window.all, 0.99), unit="ms")
                    if window.errors:
                        run.book.note(f"fairness: the quiet plugin was refused: {window.errors}")


LEAD: Final = 0.3
"""By how many seconds the flood begins before the window that is measured, and outlasts it."""


async def _closed(
    run: Run, sides: Sides, side: str, verb: str, *, in_flight: int, processes: int = 1, family: str = "nats"
) -> None:
    task = Task(gets=GETS[verb], seconds=run.seconds, in_flight=in_flight)
    before = sides.cpu_seconds(side)
    window = await sides.clients[side, processes].work(task)
    after = sides.cpu_seconds(side)
    name = f"{family}.{verb}.{in_flight}" + (f".{processes}-clients" if processes > 1 else "")
    told(run.book, window, name, side)
    run.book.add(name, side, window.per_second, unit="/s")
    for share, value in window.percentiles().items():
        if share in ("p50", "p99"):
            run.book.add(f"{name}.{share}", side, value, unit="ms")
    if before is not None and after is not None and window.latencies:
        run.book.add(f"{name}.cpu", side, (after - before) * 1e6 / len(window.latencies), unit="µs")


def told(book: Book, window: Window, scenario: str, side: str) -> None:
    """Note what was refused: a figure without it would flatter."""
    if window.errors:
        book.note(f"{scenario}: {side} refused or lost some: {', '.join(sorted(window.errors))}")


async def _lean(run: Run, sides: Sides) -> None:
    """Holdfast and the echo with a client that does as little as it can, so that the service weighs more."""
    for verb, share in GETS.items():
        plans = {
            side: caller.Plan(url=sides.urls[side], plugins=PLUGINS, in_flight=128, gets=share)
            for side in LEAN
        }
        async with caller.calling(plans[HOLDFAST]) as ours, caller.calling(plans["echo"]) as echo:
            callers = {HOLDFAST: ours, "echo": echo}
            for number in run.rounds():
                for side in turned(LEAN, number):
                    window = await callers[side].ask(run.seconds)
                    rate = len(window.all) / window.seconds
                    run.book.add(f"lean.{verb}.128", side, rate, unit="/s")
