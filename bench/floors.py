"""The floors: every figure that was asked for at the beginning, measured over NATS as a plugin sees it.

Latencies are of an open loop, at the rate that the floor for the verb asks to sustain. A burst has 512 in
flight. That 1,000 plugins cost no more than 10 is judged with a tenth for the noise of the machine.
Coverage is what the last `./dev cover` found: the suite takes longer than this may.

A floor is low. What is compared with others is in the other scenarios.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.book import HOLDFAST
from bench.client import Plan, Task, clients
from bench.doors import NatsDoor, value
from bench.measure import Window, closed_loop, open_loop
from bench.over_nats import turned
from bench.sides import OWN_DURABILITY, PLUGINS
from tests.edges.running import started_up

if TYPE_CHECKING:
    from bench.client import Clients
    from bench.run import Run

RATES: Final = {"set": (0.0, 1_000), "get": (1.0, 2_000), "mixed": (0.7, 1_500)}
DELETES: Final = 500
KEYS_IN_ALL: Final = 10_000
LISTED: Final = (100, 1_000, 10_000)
COVERAGE: Final = Path(__file__).resolve().parents[1] / ".dev" / "coverage.json"
VERBS: Final = (
    "handles/kv.py",
    "verbs/caller.py",
    "verbs/keys.py",
    "commands.py",
    "declare.py",
    "pipeline/listing.py",
)
WHOLE: Final = ("decide/", "rules.py", "errors.py")


async def floors(run: Run) -> None:
    """Latencies, sustained and burst rates, many plugins, lists, errors; cleanup and memory are beside."""
    run.book.durability[HOLDFAST] = OWN_DURABILITY[HOLDFAST]
    async with contextlib.AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-"))
        up = await stack.enter_async_context(started_up(Path(folder)))
        plan = Plan(door="nats", url=up.url, plugins=PLUGINS)
        few = await stack.enter_async_context(clients(plan))
        await few.work(Task(gets=0, seconds=0, in_flight=64, fill=True))
        door = NatsDoor()
        await door.open(up.url, ["listed"])
        stack.push_async_callback(door.close)
        for start in range(0, max(LISTED), 500):
            await door.ask(0, "set_many", {"items": [_numbered(start + step) for step in range(500)]})
        for _ in run.rounds():
            await _rates(run, few)
            await _deletes(run, door)
            await _lists(run, door)
        await _plugins(run, up.url)
    coverage(run)


def _numbered(number: int) -> dict[str, Any]:
    return {"key": f"key:{number:08}", "value": value(number)}


async def _rates(run: Run, few: Clients) -> None:
    for verb, (gets, rate) in RATES.items():
        window = await few.work(Task(gets=gets, seconds=run.seconds, per_second=rate))
        _percentiles(run, verb, window)
        run.book.add("floors.errors", HOLDFAST, window.error_rate, unit="")
        for name, in_flight in (("sustained", 32), ("burst", 512)):
            if (verb, name) == ("mixed", "burst"):
                continue
            window = await few.work(Task(gets=gets, seconds=run.seconds, in_flight=in_flight))
            run.book.add(f"floors.{verb}.{name}", HOLDFAST, window.per_second, unit="/s")
            run.book.add("floors.errors", HOLDFAST, window.error_rate, unit="")


async def _deletes(run: Run, door: NatsDoor) -> None:
    """Every key that goes was put first, outside the window."""
    count = int(DELETES * run.seconds)
    for start in range(0, count, 500):
        await door.ask(0, "set_many", {"items": [_gone(start + step) for step in range(500)]})
    window = await open_loop(
        lambda number: door.ask(0, "delete", {"key": _gone(number)["key"]}),
        per_second=DELETES,
        seconds=run.seconds,
    )
    _percentiles(run, "delete", window)


def _gone(number: int) -> dict[str, Any]:
    return {"key": f"~gone:{number:08}", "value": value(number)}


async def _lists(run: Run, door: NatsDoor) -> None:
    for count in LISTED:
        window = await closed_loop(partial(_list, door, count), in_flight=1, seconds=run.seconds / 2)
        _percentiles(run, f"list-{count}", window)


async def _list(door: NatsDoor, count: int, _: int) -> None:
    await door.ask(0, "list", {"limit": count})


async def _set_as(door: NatsDoor, names: list[str], chance: random.Random, number: int) -> None:
    """Set one of the plugin's keys. However many plugins there are, they have the same number in all."""
    key = f"key:{chance.randrange(KEYS_IN_ALL // len(names)):08}"
    await door.ask_as(number % 10, names[number % len(names)], "set", {"key": key, "value": value(number)})


async def _plugins(run: Run, url: str) -> None:
    """Sets of 10 and of 1,000 plugins over as many connections: a subject says who asks."""
    door = NatsDoor()
    await door.open(url, ["unused"] * 10)
    chance = random.Random(1)
    names = {f"{count:,} plugins": [f"many{number}" for number in range(count)] for count in (10, 1_000)}
    try:
        for number in itertools.chain([-1], run.rounds()):
            for side in turned(list(names), number):
                window = await closed_loop(
                    partial(_set_as, door, names[side], chance), in_flight=128, seconds=run.seconds
                )
                if number >= 0:
                    run.book.add("floors.plugins", side, window.per_second, unit="/s")
    finally:
        await door.close()


def _percentiles(run: Run, verb: str, window: Window) -> None:
    for name, taken in window.percentiles().items():
        run.book.add(f"floors.{verb}.{name}", HOLDFAST, taken, unit="ms")


def coverage(run: Run, report: Path = COVERAGE) -> None:
    """What `./dev cover` measured last, if it was run."""
    if not report.exists():
        run.book.left_out["coverage"] = "./dev cover has not been run here"
        return
    files = json.loads(report.read_text(encoding="utf-8"))["files"]
    parts = {
        "lines": [files[name] for name in files],
        "verbs": [
            files[name] for name in files if name.endswith(tuple(f"holdfast/{part}" for part in VERBS))
        ],
        "whole": [files[name] for name in files if any(f"holdfast/{part}" in name for part in WHOLE)],
    }
    for part, found in parts.items():
        known = sum(one["summary"]["num_statements"] for one in found)
        covered = sum(one["summary"]["covered_lines"] for one in found)
        run.book.add(f"floors.coverage.{part}", HOLDFAST, 100 * covered / max(1, known), unit="%")
