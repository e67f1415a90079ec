"""`./dev mutate`: plants one bug after the other and has the suite find it.

Law: a bug that nothing finds is a test that is missing, unless a sentence proves that nobody can notice it.
The tests must pass without a bug, or nothing that they say of one counts.
"""

from __future__ import annotations

import argparse
import os
import queue
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.mutate.ground import Ground
from tests.mutate.plants import FAST, PLANTS
from tests.postgres import new_home, shared_server

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.mutate.ground import Run
    from tests.mutate.plant import Plant

LEAST_SECONDS: Final = 60.0
SLOWER: Final = 5
"""A run that takes longer than that, and so many times as long as without a bug, is ended: a bug that makes
tests wait for ever is found by that."""
MOST_SECONDS: Final = 1_800.0


class Verdict(NamedTuple):
    """What became of a bug: killed, survived, equivalent or noticed (though it was said to be equivalent)."""

    plant: Plant
    word: str
    by: str
    seconds: float


class Campaign:
    """Plants bugs in copies of the library, several at a time."""

    def __init__(self, grounds: Sequence[Ground]) -> None:
        self._free: queue.SimpleQueue[Ground] = queue.SimpleQueue()
        self._usual: dict[tuple[str, ...], float] = {}
        self._checking = Lock()
        for ground in grounds:
            self._free.put(ground)

    def require_sound(self, plants: Sequence[Plant]) -> None:
        """Run the tests that these bugs are looked for with, without a bug: they must pass."""
        selections = dict.fromkeys(plant.tests for plant in plants)
        with ThreadPoolExecutor(self._free.qsize()) as pool:
            for tests, run in zip(selections, pool.map(self._clean, selections), strict=True):
                self._note(tests, run)

    def judge(self, plant: Plant) -> Verdict:
        """Plant a bug and say what became of it."""
        ground = self._free.get()
        try:
            run = self._planted(ground, plant, plant.tests)
            seconds = run.seconds
            if run.failed is None and plant.equivalent is None:
                with self._checking:
                    if FAST not in self._usual:
                        self._note(FAST, ground.test(FAST, seconds=MOST_SECONDS))
                run = self._planted(ground, plant, FAST)
                seconds += run.seconds
        finally:
            self._free.put(ground)
        return Verdict(plant, _word(plant, run), run.failed or plant.equivalent or "", seconds)

    def _planted(self, ground: Ground, plant: Plant, tests: tuple[str, ...]) -> Run:
        with ground.with_bug(plant):
            return ground.test(tests, seconds=max(LEAST_SECONDS, SLOWER * self._usual[tests]))

    def _clean(self, tests: tuple[str, ...]) -> Run:
        ground = self._free.get()
        try:
            return ground.test(tests, seconds=MOST_SECONDS)
        finally:
            self._free.put(ground)

    def _note(self, tests: tuple[str, ...], run: Run) -> None:
        """Remember how long tests take, if they pass."""
        if run.failed is not None:
            raise SystemExit(f"mutate: {' '.join(tests)} fails without any bug: {run.failed}\n{run.output}")
        self._usual[tests] = run.seconds


def _word(plant: Plant, run: Run) -> str:
    if plant.equivalent is not None:
        return "equivalent" if run.failed is None else "noticed"
    return "survived" if run.failed is None else "killed"


def main() -> int:
    """Run the campaign; 1 if a bug survived, or one was noticed that nobody should notice."""
    arguments = _arguments()
    plants = [plant for plant in PLANTS if not arguments.names or plant.name in arguments.names]
    if arguments.list:
        for plant in plants:
            print(f"{plant.name:<44} {plant.file}{'  (equivalent)' if plant.equivalent else ''}")
        return 0
    with tempfile.TemporaryDirectory(prefix="holdfast-mutate-") as folder, new_home() as home:
        os.environ["HOLDFAST_TEST_PG_HOME"] = str(home)
        shared_server(Path(home))
        grounds = [Ground(Path(folder, str(number))) for number in range(arguments.jobs)]
        return _run(Campaign(grounds), plants, arguments.jobs)


def _run(campaign: Campaign, plants: Sequence[Plant], jobs: int) -> int:
    began = time.monotonic()
    campaign.require_sound(plants)
    print(f"mutate: the tests pass without a bug; planting {len(plants)}", flush=True)
    verdicts = []
    with ThreadPoolExecutor(jobs) as pool:
        for verdict in pool.map(campaign.judge, plants):
            verdicts.append(verdict)
            print(
                f"{verdict.word:<10} {verdict.plant.name:<44} {verdict.seconds:6.1f} s  {verdict.by}",
                flush=True,
            )
    counts = dict.fromkeys(("killed", "equivalent", "survived", "noticed"), 0)
    for verdict in verdicts:
        counts[verdict.word] += 1
    told = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    print(f"mutate: {len(verdicts)} bugs in {time.monotonic() - began:.0f} s: {told}")
    return int(bool(counts["survived"] or counts["noticed"]))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev mutate", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="the bugs to plant; without one, all")
    parser.add_argument("--list", action="store_true", help="say which there are, and plant none")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2, help="how many at a time")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - {plant.name for plant in PLANTS}:
        parser.error(f"unknown bug: {', '.join(sorted(unknown))}")
    if arguments.jobs < 1:
        parser.error("there must be at least one job")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
