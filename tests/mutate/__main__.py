"""`./dev mutate`: plants one bug after the other and runs the tests that must find it.

A bug is found if a test fails with it and passes without it. The processes that run tests are forked from
this one, which has imported the library: that saves most of the time that narrow tests take.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
import traceback
from collections import Counter, deque
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

import pytest

from tests.mutate.planting import Patches, all_bugs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.mutate.planting import Bug

_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


class Run(NamedTuple):
    """Tests that run in a process: those of a bug, or without any bug the test that has found it."""

    bug: Bug
    began: float
    output: Path
    by: str = ""


class Campaign:
    """Looks for bugs, a few at a time."""

    def __init__(self, bugs: Iterable[Bug], jobs: int, folder: Path) -> None:
        self._waiting = deque(bugs)
        self._folder = folder
        self._jobs = jobs
        self._running: dict[int, Run] = {}
        self._sound: set[str] = set()
        """The tests that are known to pass without a bug."""
        self.counts: Counter[str] = Counter()

    def run(self) -> None:
        """Plant every bug and print what became of it."""
        while self._waiting or self._running:
            while self._waiting and len(self._running) < self._jobs:
                bug = self._waiting.popleft()
                self._start(Run(bug, time.monotonic(), self._folder / bug.name))
            pid, status = os.wait()
            self._end(self._running.pop(pid), os.waitstatus_to_exitcode(status))

    def _start(self, run: Run) -> None:
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            _test(run)
        self._running[pid] = run

    def _end(self, run: Run, code: int) -> None:
        output = run.output.read_text()
        failed = _FAILED.search(output)
        if run.by and code == 0:
            self._sound.add(run.by)
            self._tell(run, "found", run.by)
        elif run.by:
            self._tell(run, "broken", f"{run.by} fails without the bug, too")
        elif code == 0:
            self._tell(run, "survived", " ".join(run.bug.tests))
        elif code != 1 or failed is None:
            self._tell(run, "broken", output[-2_000:])
        elif failed[1] in self._sound:
            self._tell(run, "found", failed[1])
        else:
            self._start(run._replace(by=failed[1]))

    def _tell(self, run: Run, word: str, by: str) -> None:
        self.counts[word] += 1
        seconds = time.monotonic() - run.began
        print(f"{word:<8} {run.bug.name:<60} {seconds:5.1f} s  {by}", flush=True)


def _test(run: Run) -> NoReturn:
    """Run the tests in this process, which was forked for them."""
    code = 70
    try:
        output = os.open(run.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for standard in (1, 2):
            os.dup2(output, standard)
        if not run.by:
            run.bug.plant(Patches())
        tests = (run.by,) if run.by else run.bug.tests
        code = pytest.main(["-x", "-q", "--assert=plain", "-p", "no:cacheprovider", *tests])
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def main() -> int:
    """Plant the bugs that were named, or all; return 1 unless every one was found."""
    bugs = all_bugs()
    arguments = _arguments(list(bugs))
    chosen = [bug for name, bug in bugs.items() if not arguments.names or name in arguments.names]
    if arguments.list:
        for bug in chosen:
            print(f"{bug.name}\n    {bug.rule}")
        return 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="holdfast-mutate-") as folder:
        campaign = Campaign(chosen, arguments.jobs, Path(folder))
        campaign.run()
    told = ", ".join(f"{count} {word}" for word, count in campaign.counts.items())
    print(f"mutate: {len(chosen)} bugs in {time.monotonic() - began:.0f} s: {told}")
    return int(campaign.counts["found"] < len(chosen))


def _arguments(names: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev mutate", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="the bugs to plant; all if none is named")
    parser.add_argument("--list", action="store_true", help="print the bugs and the rules that they break")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2, help="how many at a time")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(names):
        parser.error(f"unknown bug: {', '.join(sorted(unknown))}")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
