"""Four processes that write to one SQLite file, beside one process with as many callers, and diskcache.

Each process pays its own sync within its turn, so the bars are for a disk whose sync is quick. If that of the
temporary folder is not, the files are kept in memory, and the book says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.bars import FILE_SET, FOUR, ONE
from bench.client import Clients, Plan, Task, client_process
from bench.machine import cpu_seconds, package, sync_ms
from bench.measure import percentile
from bench.over_nats import LEAD, told, turned
from bench.peers import diskcache
from bench.sides import OWN_DURABILITY

if TYPE_CHECKING:
    from bench.book import Book
    from bench.client import ClientProcess
    from bench.measure import Window
    from bench.run import Run

CALLERS: Final = 128
PROCESSES: Final = 4
KEYS: Final = 2_000
QUICK_MS: Final = 0.2
"""The bars are for a disk whose sync takes no longer."""
MEMORY: Final = Path("/dev/shm")
FAIR_SECONDS: Final = 10.0
"""For how long four processes write to be compared with each other."""


async def one_file(run: Run) -> None:
    """Durable sets of 4 processes x 32 callers, of 1 x 128, and of diskcache; fairness; a single set."""
    run.book.durability |= {ONE: OWN_DURABILITY["holdfast"], FOUR: OWN_DURABILITY["holdfast"]}
    run.book.durability["diskcache"] = diskcache.DURABILITY
    run.book.versions.setdefault("diskcache", package("diskcache"))
    async with contextlib.AsyncExitStack() as stack:
        folder = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=_disk(run.book))
        )
        sides: dict[str, list[ClientProcess]] = {}
        for side, (door, file, count) in {
            ONE: ("own", "one.db", 1),
            FOUR: ("own", "four.db", PROCESSES),
            "diskcache": ("diskcache", "cache", PROCESSES),
        }.items():
            plans = [
                Plan(door=door, url=f"{folder}/{file}", plugins=["bench"], keys=KEYS, seed=number)
                for number in range(count)
            ]
            sides[side] = [await stack.enter_async_context(client_process(plan)) for plan in plans]
            await sides[side][0].work(Task(gets=0, seconds=0, in_flight=64, fill=True))
            await Clients(sides[side]).work(Task(gets=0, seconds=LEAD, in_flight=CALLERS))
        await _rates(run, sides)
        for _ in run.rounds():
            await _lone_set(run, sides[FOUR])
        await _fairness(run, sides[FOUR])


async def _rates(run: Run, sides: dict[str, list[ClientProcess]]) -> None:
    for number in run.rounds():
        for side in turned(list(sides), number):
            before = _cpu_seconds(sides[side])
            window = await Clients(sides[side]).work(Task(gets=0, seconds=run.seconds, in_flight=CALLERS))
            spent = _cpu_seconds(sides[side]) - before
            told(run.book, window, FILE_SET, side)
            run.book.add(FILE_SET, side, window.per_second, unit="/s")
            for share in ("p50", "p99"):
                run.book.add(f"{FILE_SET}.{share}", side, window.percentiles()[share], unit="ms")
            if spent and window.latencies:
                run.book.add(f"{FILE_SET}.cpu", side, spent * 1e6 / len(window.latencies), unit="µs")


def _cpu_seconds(processes: list[ClientProcess]) -> float:
    """The CPU time that processes have used so far; 0 where that is not known."""
    return sum(cpu_seconds(process.pid) or 0.0 for process in processes)


async def _lone_set(run: Run, processes: list[ClientProcess]) -> None:
    """The sets of a process that does one at a time, alone and beside three with 32 callers each."""
    *busy, lone = processes
    single = Task(gets=0, seconds=run.seconds)
    _add_lone(run, "alone", await lone.work(single))
    flood = Task(gets=0, seconds=run.seconds + 2 * LEAD, in_flight=CALLERS // PROCESSES * len(busy))
    flooding = asyncio.create_task(Clients(busy).work(flood))
    await asyncio.sleep(LEAD)
    _add_lone(run, "beside three", await lone.work(single))
    await flooding


def _add_lone(run: Run, side: str, window: Window) -> None:
    told(run.book, window, "one_file.lone-set", side)
    for name, share in {"p50": 0.5, "p99": 0.99, "max": 1.0}.items():
        run.book.add(f"one_file.lone-set.{name}", side, percentile(window.latencies, share), unit="ms")


async def _fairness(run: Run, processes: list[ClientProcess]) -> None:
    """How many times as many sets as the slowest of the four the quickest has done."""
    windows = await Clients(processes).each(Task(gets=0, seconds=FAIR_SECONDS, in_flight=CALLERS))
    for window in windows:
        told(run.book, window, "one_file.fairness", FOUR)
    rates = [window.per_second for window in windows]
    run.book.add("one_file.fairness", FOUR, max(rates) / min(rates) if min(rates) else float("inf"), unit="")


def _disk(book: Book) -> Path:
    """Return a folder whose disk syncs quickly, and tell how long that takes."""
    folder = Path(tempfile.gettempdir())
    took = sync_ms(folder)
    book.add("one_file.sync", "temporary folder", took, unit="ms")
    where = f"A sync of {folder} takes {took:.3f} ms"
    if took > QUICK_MS and MEMORY.is_dir():
        folder = MEMORY
        where += f": the files are in {MEMORY}"
    print(where, flush=True)
    book.note(where)
    return folder
