"""A process with many clients that use a few keys together and note what they are told.

It says on standard output how many operations have ended, a number a line, and leaves its history in a
file when it is done. It goes on through every fault, and decides nothing about what is right.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import time
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

import holdfast
from tests.forking import ForkedProcess
from tests.linear.history import Operation, save
from tests.linear.speakers import Hurried, Own, Speaker

PLUGINS: Final = ("linear-a", "linear-b")
KEYS: Final = 16
"""How many keys of each plugin are in use at a time."""
KEY_SECONDS: Final = 4.0
"""For how long a key is in use: longer than a pause, so that a late effect meets somebody."""
TASKS: Final = 32
HURRIED: Final = 4
"""How many of the tasks speak for themselves, with a deadline that is shorter than their patience."""
REPEATED: Final = 0.25
"""The share of writes that have a request id, and are sent again when their outcome is unknown."""
LARGE: Final = 0.05
"""The share of sets that are made by a call which also writes many other keys. A call of that size is
executed in a group of its own."""
BESIDE: Final = 110
"""The number of other keys of such a call, each with a value of a kilobyte."""
PAUSE_SECONDS: Final = 0.02
"""After a refusal, before the next call."""
STEP: Final = 1000
"""How far apart the values of two sets are, so that increments don't make one of the other."""
REPORT_EVERY: Final = 25


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What one such process is to do."""

    url: str
    path: str
    number: int
    seed: int
    operations: int
    start: int
    """The instant that the names of keys count from, the same for all processes."""
    timeout: float
    """After how many seconds a call is given up."""


class Clients:
    """All clients of this process."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._left = plan.operations
        self._values = plan.number * 1_000_000_000_000
        self._versions: dict[tuple[str, str], int] = {}
        self.history: list[Operation] = []

    async def run(self, speaker: Speaker, number: int) -> None:
        """Be one client until enough operations have ended."""
        chance = random.Random(f"{self._plan.seed} {number}")
        while self._left > 0:
            operation = await self._operate(speaker, number, self._request(chance))
            self.history.append(operation)
            if operation.outcome == "refused":
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            self._left -= 1
            if self._left % REPORT_EVERY == 0:
                print(self._plan.operations - self._left, flush=True)

    async def _operate(self, speaker: Speaker, number: int, asked: dict[str, Any]) -> Operation:
        call = time.monotonic_ns()
        told = await speaker.ask(asked)
        end = time.monotonic_ns()
        if told.get("version") is not None:
            self._versions[asked["namespace"], asked["key"]] = told["version"]
        return Operation(client=number, call=call, end=end, **asked, **told)

    def _request(self, chance: random.Random) -> dict[str, Any]:
        """What to ask for next."""
        asked: dict[str, Any] = {"namespace": chance.choice(PLUGINS), "key": self._key(chance)}
        verb = chance.choices(["get", "set", "incr", "delete"], [38, 40, 15, 7])[0]
        asked["verb"] = verb
        if verb == "set":
            self._values += STEP
            asked["argument"] = self._values
            if chance.random() < LARGE:
                asked["beside"] = BESIDE
        elif verb == "incr":
            asked["argument"] = 1
        if verb != "get" and chance.random() < 0.5:
            seen = self._versions.get((asked["namespace"], asked["key"]), 0)
            asked["expected"] = chance.choices([seen, 0], [70, 30])[0]
        if verb != "get" and chance.random() < REPEATED:
            asked["request_id"] = f"{self._plan.number}-{len(self.history)}-{chance.getrandbits(32)}"
        return asked

    def _key(self, chance: random.Random) -> str:
        """One of the keys in use; they are replaced one by one, in all processes at the same time."""
        number = chance.randrange(KEYS)
        age = (time.monotonic_ns() - self._plan.start) / 1e9 / KEY_SECONDS
        return f"{number}:{int(age + number / KEYS)}"


async def run(plan: Plan) -> None:
    """Do what the plan says, and leave the history in its file."""
    clients = Clients(plan)
    async with contextlib.AsyncExitStack() as stack:
        store = await stack.enter_async_context(holdfast.open(f"{plan.url}?timeout={plan.timeout}"))
        own = Own(store, plan.timeout)
        hurried = await stack.enter_async_context(Hurried.open(plan.url))
        async with asyncio.TaskGroup() as group:
            for task in range(TASKS):
                speaker = hurried if task < HURRIED else own
                group.create_task(clients.run(speaker, plan.number * 100 + task))
    save(Path(plan.path), clients.history)


async def launch(plan: Plan) -> ForkedProcess:
    """Start such a process."""
    return await ForkedProcess.start("tests.linear.load", msgspec.json.encode(plan).decode())


if __name__ == "__main__":
    uvloop.run(run(msgspec.json.decode(sys.argv[1], type=Plan)))
