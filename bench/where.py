"""Where the time goes: a sampling profile of a service that is under load, by the part that was at work.

py-spy looks at the process from outside, and only at threads that have work; the service is as it comes.
A sample belongs to the innermost frame that a part claims.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final

from bench.book import HOLDFAST
from bench.client import Plan, Task, clients
from bench.machine import package
from bench.run import Run
from bench.sides import OWN_DURABILITY, PLUGINS
from tests.edges.running import started_up

PARTS: Final = {
    "commit": ("Writer._finish (",),
    "SQL": ("holdfast/engines/sqlite/", "holdfast/engines/postgres/"),
    "decide": ("holdfast/decide/", "holdfast/tables/", "holdfast/audit"),
    "encode": ("holdfast/wire/replies", "holdfast/wire/errors", "Replies.answer ("),
    "decode": (
        "holdfast/wire/",
        "holdfast/edges/nats/calls",
        "holdfast/verbs",
        "holdfast/rules",
        "holdfast/verbs/fields",
    ),
    "count and log": (
        "holdfast/edges/monitoring/metrics",
        "holdfast/edges/monitoring/counters",
        "holdfast/edges/monitoring/labels",
        "holdfast/edges/monitoring/logs",
        "holdfast/edges/intake/request_log",
        "structlog/",
        "logging/",
    ),
    "loop and sockets": ("Session._send (", "uvloop/", "asyncio/", "concurrent/", "threading"),
    "bus": ("holdfast/bus/", "holdfast/edges/nats/link"),
    "queue": (
        "holdfast/edges/intake/",
        "holdfast/edges/nats/",
        "holdfast/pipeline/batcher",
        "holdfast/pipeline/executor",
        "holdfast/pipeline/pipeline",
        "holdfast/store",
        "holdfast/pipeline/rates",
        "holdfast/clock",
    ),
}
WAITING: Final = (
    "Writer._waited (",
    "ReaderThread._work (",
    "NamespaceBells._listen (",
    "_worker (concurrent/futures/thread.py",
)
"""Threads that have nothing to do, though it does not always look like it from outside."""
RATE: Final = 200
LEAST_SECONDS: Final = 4.0


async def where(run: Run) -> None:
    """The shares of set and of get over NATS with 128 in flight that each part of the service takes."""
    program = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if program is None:
        run.book.left_out["where the time goes"] = "there is no py-spy here"
        return
    run.book.versions.setdefault("py-spy", package("py-spy"))
    run.book.durability[HOLDFAST] = OWN_DURABILITY[HOLDFAST]
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        async with (
            started_up(Path(folder)) as up,
            clients(Plan(door="nats", url=up.url, plugins=PLUGINS)) as asking,
        ):
            await asking.work(Task(gets=0, seconds=0, in_flight=64, fill=True))
            for verb, gets in (("set", 0.0), ("get", 1.0)):
                seconds = max(LEAST_SECONDS, run.seconds)
                load = asyncio.create_task(asking.work(Task(gets=gets, seconds=seconds + 1, in_flight=128)))
                stacks = await _sampled(program, up.pid, Path(folder) / verb, seconds)
                await load
                if stacks is None:
                    run.book.left_out["where the time goes"] = "py-spy may not look at processes here"
                    return
                for part, share in shares(stacks).items():
                    run.book.add(f"where.{verb}", part, share, unit="%")


async def _sampled(program: str, pid: int, path: Path, seconds: float) -> str | None:
    """Stacks, outermost frame first, with how often each was seen; None where that is forbidden."""
    options = ["--pid", str(pid), "--duration", f"{seconds:.0f}", "--rate", str(RATE), "--format", "raw"]
    process = await asyncio.create_subprocess_exec(
        *(program, "record", *options, "--output", str(path)),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    await process.wait()
    return await asyncio.to_thread(_read, path)


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def shares(stacks: str) -> dict[str, float]:
    """The percentage of the samples at work by part, the largest first."""
    found: Counter[str] = Counter()
    for line in stacks.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = stack.split(";")
        if not frames[-1].startswith(WAITING):
            found[part_of(frames)] += int(count)
    total = sum(found.values())
    return {part: 100 * count / total for part, count in found.most_common()}


def part_of(frames: list[str]) -> str:
    """The part that the innermost known frame belongs to."""
    for frame in reversed(frames):
        for part, claimed in PARTS.items():
            if any(claim in frame for claim in claimed):
                return part
    return "other"
