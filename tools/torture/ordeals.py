"""What is done to a store: a crowd of workers, a worker that is stopped, one that is killed, a write twice.

Workers are processes, forked from this one, which has no threads and no loop. A worker tells what was sent,
acknowledged and refused through a pipe, as it happens, so that one that is killed has told all that it was
told.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from typing import IO, TYPE_CHECKING, NamedTuple

from tools.torture.proxy import CuttingProxy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from tools.torture.contestants import Contestant

PATIENCE = 120
"""Seconds after which an ordeal that does not end is a failure."""


class Worker:
    """A process with the store open, which begins to work when it is told to."""

    def __init__(self, work: Callable[[Tell], Awaitable[None]]) -> None:
        told, tell = os.pipe()
        begin, let_begin = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(told)
            os.close(let_begin)
            _live(work, tell, begin)
        os.close(tell)
        os.close(begin)
        self._told = os.fdopen(told)
        self._let_begin = let_begin
        self.reports: list[dict[str, str]] = []

    def ready(self) -> None:
        """Wait until it has the store open."""
        self._told.readline()

    def begin(self) -> None:
        """Let it work."""
        os.write(self._let_begin, b".")

    def stopped(self) -> bool:
        """Wait until it has stopped itself, and return False if it has ended instead."""
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        return os.WIFSTOPPED(status)

    def finish(self) -> list[dict[str, str]]:
        """Wait for its end and return what it has told."""
        self.reports = [json.loads(line) for line in self._told]
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        self._told.close()
        os.close(self._let_begin)
        return self.reports

    def kill(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)


class Tell:
    """The way of a worker to tell what happened."""

    def __init__(self, pipe: IO[str], begin: int) -> None:
        self._pipe = pipe
        self._begin = begin

    def __call__(self, what: str, mark: str, why: str = "") -> None:
        """Tell something."""
        self._pipe.write(json.dumps({"what": what, "mark": mark, "why": why}) + "\n")
        self._pipe.flush()

    def wait(self) -> None:
        """Wait until it may begin."""
        os.read(self._begin, 1)

    async def attempt(self, mark: str, work: Awaitable[None]) -> None:
        """Do something and tell how it ended."""
        self("sent", mark)
        try:
            async with asyncio.timeout(PATIENCE):
                await work
        except Exception as error:
            self("refused", mark, f"{type(error).__name__}: {error}"[:200])
        else:
            self("acknowledged", mark)


def _live(work: Callable[[Tell], Awaitable[None]], pipe: int, begin: int) -> None:
    code = 1
    try:
        with os.fdopen(pipe, "w") as tell:
            asyncio.run(_awaited(work, Tell(tell, begin)))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


async def _awaited(work: Callable[[Tell], Awaitable[None]], tell: Tell) -> None:
    await work(tell)


class Outcome(NamedTuple):
    """What an ordeal has shown."""

    sent: int = 0
    acknowledged: int = 0
    refused: int = 0
    lost: int = 0
    """Marks that were acknowledged and are not there."""
    doubled: int = 0
    """Marks that are there more than once."""
    forks: int = 0
    seconds: float = 0.0
    reasons: tuple[str, ...] = ()


async def _instant() -> None:
    """A pause of no length."""


def judged(
    contestant: type[Contestant], where: str, reports: Sequence[dict[str, str]], seconds: float = 0.0
) -> Outcome:
    """Compare what workers were told with what is there."""

    async def look() -> tuple[list[str], int]:
        async with contestant.opened(where) as store:
            return await store.marks(), await store.forks()

    def told(what: str) -> list[str]:
        return [report["mark"] for report in reports if report["what"] == what]

    marks, forks = asyncio.run(look())
    counts = Counter(marks)
    return Outcome(
        sent=len(told("sent")),
        acknowledged=len(told("acknowledged")),
        refused=len(told("refused")),
        lost=sum(mark not in counts for mark in told("acknowledged")),
        doubled=sum(count > 1 for count in counts.values()),
        forks=forks,
        seconds=seconds,
        reasons=tuple(report["why"] for report in reports if report["what"] == "refused"),
    )


def begun(contestant: type[Contestant], where: str) -> None:
    """Make the store, with one mark in it."""

    async def begin() -> None:
        await contestant.prepared(where)
        async with contestant.opened(where) as store:
            await store.turn("begin", _instant)

    asyncio.run(begin())


def crowd(contestant: type[Contestant], where: str, workers: int, turns: int) -> Outcome:
    """Let workers take turns at once, each as fast as it can."""
    begun(contestant, where)

    crew = [Worker(_turns(contestant, where, f"{number}", turns)) for number in range(workers)]
    for one in crew:
        one.ready()
    start = time.monotonic()
    for one in crew:
        one.begin()
    reports = [report for one in crew for report in one.finish()]
    return judged(contestant, where, reports, time.monotonic() - start)


def _turns(
    contestant: type[Contestant], where: str, name: str, turns: int
) -> Callable[[Tell], Awaitable[None]]:
    """Return the work of a worker that takes turns."""

    async def worker(tell: Tell) -> None:
        async with contestant.opened(where) as store:
            tell("ready", "")
            tell.wait()
            for turn in range(turns):
                mark = f"{name}.{turn}"
                await tell.attempt(mark, store.turn(mark, _breath))

    return worker


async def _breath() -> None:
    """The time that a model would take to answer, much shortened."""
    await asyncio.sleep(0.01)


def stopped(contestant: type[Contestant], where: str, times: int) -> int:
    """Stop a worker between reading and writing, let another one go through, and continue the first.

    Returns how often the first was told that it had succeeded although the other's work was gone then.
    """
    begun(contestant, where)
    stale = 0
    for number in range(times):

        async def stopping(tell: Tell, mark: str = f"stopped.{number}") -> None:
            async def stop() -> None:
                os.kill(os.getpid(), signal.SIGSTOP)

            async with contestant.opened(where) as store:
                tell.wait()
                await tell.attempt(mark, store.turn(mark, stop))

        async def passing(tell: Tell, mark: str = f"passed.{number}") -> None:
            async with contestant.opened(where) as store:
                tell.wait()
                await tell.attempt(mark, store.turn(mark, _instant))

        first, second = Worker(stopping), Worker(passing)
        first.begin()
        if not first.stopped():
            raise RuntimeError(f"a worker of {contestant.name} has ended: {first.finish()}")
        second.begin()
        ends = second.finish()
        first.kill(signal.SIGCONT)
        outcome = judged(contestant, where, [*first.finish(), *ends])
        accepted = any(report["what"] == "acknowledged" for report in first.reports)
        stale += accepted and outcome.lost > 0
    return stale


def killed(contestant: type[Contestant], where: str, times: int, seed: int = 7) -> Outcome:
    """Kill one of two workers in the middle of its turns, several times."""
    begun(contestant, where)
    chance, reports = random.Random(seed), list[dict[str, str]]()
    for number in range(times):
        victim = Worker(_turns(contestant, where, f"victim-{number}", 10_000))
        survivor = Worker(_turns(contestant, where, f"survivor-{number}", 3))
        victim.ready()
        survivor.ready()
        victim.begin()
        time.sleep(0.05 + chance.random() * 0.2)
        victim.kill(signal.SIGKILL)
        # The victim is dead before the survivor begins: what it was told must be there, whatever follows.
        reports += victim.finish()
        survivor.begin()
        reports += survivor.finish()
    return judged(contestant, where, reports)


def cut(contestant: type[Contestant], where: str, times: int) -> Outcome:
    """Lose the first answer after a pause, then the second, and so on, and let the worker repeat its turn."""
    begun(contestant, where)

    async def worker(tell: Tell) -> None:
        for number in range(times):
            mark = f"cut.{number}"
            tell("sent", mark)
            try:
                async with asyncio.timeout(PATIENCE):
                    await _repeated(contestant, proxy, mark, number + 1)
            except Exception as error:
                tell("refused", mark, f"{type(error).__name__}: {error}"[:200])
            else:
                tell("acknowledged", mark)

    with CuttingProxy(where) as proxy:
        one = Worker(worker)
        reports = one.finish()
    return judged(contestant, where, reports)


async def _repeated(contestant: type[Contestant], proxy: CuttingProxy, mark: str, number: int) -> None:
    """Take a turn whose answer is lost, and repeat it on a new connection."""

    async def arm() -> None:
        proxy.cut_at(number)

    try:
        async with contestant.opened(proxy.url) as store:
            await store.turn(mark, arm)
            proxy.cut_at(0)
            return
    except Exception:
        proxy.cut_at(0)
    async with contestant.opened(proxy.url) as store:
        await store.again(mark, _instant)


def twice(contestant: type[Contestant], where: str, times: int) -> Outcome:
    """Send every write twice."""
    begun(contestant, where)

    async def worker(tell: Tell) -> None:
        async with contestant.opened(where) as store:
            tell.wait()
            for number in range(times):
                await tell.attempt(f"twice.{number}", store.twice(f"twice.{number}"))

    one = Worker(worker)
    one.begin()
    return judged(contestant, where, one.finish())
