"""The record of the tests that coverage is measured of: those that add to what cheaper ones run already.

Law: no code is left out of the report, and no new test is left out of the measurement. The record has a line
for every file, with a digest of its tests, and below it a line for every test that adds a line or branch,
with the numbers of the cases that do so if it is not the first alone. A file that the record does not have,
or that has other tests by now, is measured whole. `./dev test --measure-all` ignores the record and then
writes it anew, by this module.
"""

from __future__ import annotations

import base64
import contextlib
import heapq
import json
import os
import sqlite3
import sys
import time
import zlib
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from coverage import Coverage
from coverage.python import PythonFileReporter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pytest

ROOT: Final = Path(__file__).parents[1]
RECORD: Final = Path(__file__).with_name("measured.txt")
VARIABLE: Final = "HOLDFAST_MEASURE_ALL"
"""Names the folder that a run which ignores the record leaves its costs in."""
PROCESSES: Final = "COVERAGE_PROCESS_CONFIG"
"""With this in its environment a new Python process measures itself."""
WHOLE: Final = ("decide", "rules", "errors", "engines/sql/orm")
"""The parts that have to be covered whole: each of their lines is measured in two tests, if two reach it."""
DEAREST: Final = 0.2
"""Seconds that measuring a line or branch may cost. What costs more counts as missing, though a test runs it,
unless it has to be covered whole.
"""
_LEAST: Final = 0.001
"""Seconds that even the cheapest test costs."""


class Known(NamedTuple):
    """What the record has of a file. A test is named as by `numbered`."""

    digest: str
    adding: frozenset[str]


class Cost(NamedTuple):
    """The seconds of processor that a test took, and whether it was measured."""

    test: str
    seconds: float
    measured: bool


def numbered(items: Iterable[pytest.Item]) -> Iterator[tuple[str, pytest.Item]]:
    """Each test with its name and the number of its case, such as tests/unit/test_x.py::test_rule[3].

    The text of a case may be long, and another in the next run.
    """
    counts: dict[str, int] = defaultdict(int)
    for item in items:
        test = item.nodeid.partition("[")[0]
        yield f"{test}[{counts[test]}]", item
        counts[test] += 1


def digest_of(names: Iterable[str]) -> str:
    """A digest of the names of the tests of a file."""
    return f"{zlib.crc32(' '.join(sorted(set(names))).encode()):08x}"


def read(record: Path) -> dict[str, Known]:
    """The record by file, empty if there is none."""
    known: dict[str, Known] = {}
    for line in record.read_text().splitlines() if record.exists() else ():
        first, *more = line.split()
        if line.startswith(" "):
            file, before = known.popitem()
            cases = (f"{file}::{first}[{number}]" for number in more or ["0"])
            known[file] = before._replace(adding=before.adding.union(cases))
        else:
            known[first] = Known(more[0], frozenset())
    return known


def that_add_nothing(items: Sequence[pytest.Item], record: Mapping[str, Known]) -> Iterator[pytest.Item]:
    """The tests of which the record knows that they add nothing."""
    files: dict[str, dict[str, pytest.Item]] = defaultdict(dict)
    for name, item in numbered(items):
        files[name.partition("::")[0]][name] = item
    for file, found in files.items():
        known = record.get(file)
        if known is not None and known.digest == digest_of(found):
            yield from (item for name, item in found.items() if name not in known.adding)


@contextlib.contextmanager
def noted(name: str) -> Iterator[None]:
    """Keep apart what a test runs, also in the processes that it starts, and note its cost."""
    running = Coverage.current()
    # What processes cost is known when they have been waited for, so that the time that passes stands for it.
    clock = time.process_time if PROCESSES not in os.environ else time.perf_counter
    began = clock()
    if running is not None:
        running.switch_context(name)
    if (config := os.environ.get(PROCESSES)) is not None:
        of_processes = json.loads(base64.b64decode(config)) | {"context": name}
        os.environ[PROCESSES] = base64.b64encode(json.dumps(of_processes).encode()).decode()
    try:
        yield
    finally:
        if config is not None:
            os.environ[PROCESSES] = config
        if running is not None:
            running.switch_context("")
        cost = Cost(name, clock() - began, running is not None)
        with (Path(os.environ[VARIABLE]) / f"{os.getpid()}.costs").open("a") as file:
            print(json.dumps(cost), file=file)


def choose(reached: Mapping[str, int], costs: Mapping[str, float], *, twice: int) -> list[str]:
    """Choose tests that together reach what all of them reach: the next one is the cheapest per new bit.

    Args:
        reached: What each test reaches, one bit for each line or branch.
        costs: What each test costs.
        twice: The bits that two tests shall reach, where two do.
    """
    once, again = _reached_by(reached.values())
    again &= twice

    def price(test: str) -> float:
        new = reached[test] & (once | again)
        return (costs.get(test, 0.0) + _LEAST) / new.bit_count() if new else float("inf")

    chosen, waiting = [], [(price(test), test) for test in sorted(reached)]
    heapq.heapify(waiting)
    while waiting:
        _, test = heapq.heappop(waiting)
        now = price(test)
        if waiting and now > waiting[0][0]:  # others took a part of it; what costs nothing more comes first
            if now < float("inf"):
                heapq.heappush(waiting, (now, test))
        elif now < float("inf"):
            chosen.append(test)
            once, again = once & ~reached[test], again & (once | ~reached[test])
    return without_dear(without_spare(chosen, reached, costs, twice=twice), reached, costs, twice=twice)


def without_spare(
    chosen: Sequence[str], reached: Mapping[str, int], costs: Mapping[str, float], *, twice: int
) -> list[str]:
    """Leave out the tests of which others, that were chosen later, reach everything; the dearest first."""
    all_once, all_again = _reached_by(reached[test] for test in chosen)

    def is_spare(_: str, once: int, again: int) -> bool:
        return once == all_once and again & twice == all_again & twice

    return _without(is_spare, chosen, reached, costs)


def without_dear(
    chosen: Sequence[str], reached: Mapping[str, int], costs: Mapping[str, float], *, twice: int
) -> list[str]:
    """Leave out the tests that cost more than it is worth to measure what they alone reach; see `DEAREST`."""
    _, all_again = _reached_by(reached[test] for test in chosen)

    def is_dear(test: str, once: int, again: int) -> bool:
        alone = reached[test] & ~once
        needed = alone & twice or all_again & ~again & twice
        return not needed and costs.get(test, 0.0) > DEAREST * alone.bit_count()

    return _without(is_dear, chosen, reached, costs)


def _without(
    is_left_out: Callable[[str, int, int], bool],
    chosen: Sequence[str],
    reached: Mapping[str, int],
    costs: Mapping[str, float],
) -> list[str]:
    """Leave out tests, the dearest first, by what those that are still kept reach once and twice."""
    kept = list(chosen)
    for test in sorted(chosen, key=lambda test: -costs.get(test, 0.0)):
        if is_left_out(test, *_reached_by(reached[other] for other in kept if other != test)):
            kept.remove(test)
    return kept


def _reached_by(tests: Iterable[int]) -> tuple[int, int]:
    """What some tests reach, and what two of them reach."""
    once, again = 0, 0
    for bits in tests:
        again |= once & bits
        once |= bits
    return once, again


class Source:
    """What the report counts of a file: its lines, and the branches of those that have several."""

    def __init__(self, file: str) -> None:
        self._reporter = PythonFileReporter(file, Coverage())
        self._lines = self._reporter.lines()
        exits = self._reporter.exit_counts()
        self._branches = {way for way in self._reporter.arcs() if exits.get(way[0], 0) > 1}
        _, _, inside = file.rpartition("src/holdfast/")
        self.whole = any(inside == f"{part}.py" or inside.startswith(f"{part}/") for part in WHOLE)

    def counted(self, start: int, end: int) -> set[int | tuple[int, int]]:
        """What counts of a way from a line to the next."""
        lines = self._reporter.translate_lines([line for line in (start, end) if line > 0])
        return {*self._lines & lines, *self._branches & self._reporter.translate_arcs([(start, end)])}


class Reached:
    """What the tests of a run reached, from the data of coverage."""

    def __init__(self) -> None:
        self._sources: dict[str, Source] = {}
        self._numbers: dict[tuple[str, object], int] = {}
        self._bits: dict[tuple[str, int, int], int] = {}
        self.tests: dict[str, int] = defaultdict(int)
        self.twice = 0

    def add(self, data: Path) -> None:
        """Add what a file of data holds."""
        query = (
            "SELECT context.context, file.path, fromno, tono FROM arc"
            " JOIN context ON context.id = context_id JOIN file ON file.id = file_id"
        )
        with contextlib.closing(sqlite3.connect(data)) as connection:
            for test, *way in connection.execute(query):
                self.tests[test] |= self._bits_of(*way)

    def _bits_of(self, file: str, start: int, end: int) -> int:
        if (file, start, end) not in self._bits:
            if file not in self._sources:
                self._sources[file] = Source(file)
            bits = 0
            for counted in self._sources[file].counted(start, end):
                bits |= 1 << self._numbers.setdefault((file, counted), len(self._numbers))
            self._bits[file, start, end] = bits
            self.twice |= bits if self._sources[file].whole else 0
        return self._bits[file, start, end]


def lines_of(costs: Sequence[Cost], adding: Iterable[str]) -> list[str]:
    """The record of the files that have a measured test."""
    names, chosen = defaultdict(set), set(adding)
    for cost in costs:
        names[cost.test.partition("::")[0]].add(cost.test)
    measured = {cost.test.partition("::")[0] for cost in costs if cost.measured}
    return [_line(file, names[file], names[file] & chosen) for file in sorted(measured)]


def _line(file: str, names: Iterable[str], adding: Iterable[str]) -> str:
    cases = defaultdict(list)
    for name in adding:
        test, _, number = name.removeprefix(f"{file}::").rstrip("]").partition("[")
        cases[test].append(int(number))
    told = (" ".join([test, *map(str, sorted(cases[test]))]).removesuffix(" 0") for test in sorted(cases))
    return "\n    ".join([f"{file} {digest_of(names)}", *told])


def main(folder: Path, *files: str) -> None:
    """Write the record from the costs in a folder and the data of coverage."""
    costs = [
        Cost(*json.loads(line)) for file in folder.glob("*.costs") for line in file.read_text().splitlines()
    ]
    seconds: dict[str, float] = defaultdict(float)
    for cost in costs:
        seconds[cost.test] += cost.seconds if cost.measured else 0.0
    reached = Reached()
    for file in files:
        reached.add(Path(file))
    free = reached.tests.pop("", 0)  # runs whatever is measured, such as the definitions
    tests = {test: bits & ~free for test, bits in reached.tests.items()}
    adding = choose(tests, seconds, twice=reached.twice)
    RECORD.write_text("\n".join(lines_of(costs, adding)) + "\n")
    took, all_took = sum(seconds[test] for test in adding), sum(seconds.values())
    print(f"measured from now on: {len(adding)} of {len(tests)} tests, {took:.0f} of {all_took:.0f} s")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
