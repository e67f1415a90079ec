"""Run the suite in several processes that are forked when all tests have been collected.

Law: nothing here changes what a test does. Importing and collecting the suite takes longer than most of its
folders run, so that one process does it, and those that run the tests begin with what it has. They take the
tests by files, and very long files by pieces. Long ones come first, so that all processes end at about the
same time. Then a process stays in a folder as long as it can, since the tests of a folder share servers and
what was worked out once. A process that dies fails the test that it ran, and another one takes its place.
"""

from __future__ import annotations

import atexit
import itertools
import os
import signal
import sys
import tempfile
import traceback
from collections import defaultdict, deque
from multiprocessing import connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import pytest
from _pytest.capture import FDCapture

from tests import measuring

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

RECORD: Final = Path(__file__).with_name("seconds.txt")
"""The seconds that the tests of a file take, for the files that take long."""
WHOLE: Final = 12.0
"""The seconds of a piece, about. A file that takes longer is taken by pieces."""
LONG: Final = 5.0
"""A piece that takes more seconds than this is begun before all others."""
_GUESS: Final = 0.05
"""Seconds that a test takes in a file that the record does not have."""


class Hooks:
    """What other plugins can do in the processes that run tests."""

    def pytest_forked(self, config: pytest.Config) -> None:
        """Begin, before the first test of a process."""

    def pytest_forked_ends(self, config: pytest.Config) -> None:
        """End, after its last test."""


_FORKED: Final = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Make the option known, and the hooks."""
    pluginmanager.add_hookspecs(Hooks)
    parser.addoption("--spread", type=int, default=0, metavar="N", help="run the tests in N forked processes")


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """The folder for files that all processes of a run share."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if request.config.stash.get(_FORKED, False) else folder


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run all tests in forked processes, if that was asked for."""
    count = session.config.getoption("spread")
    if not count or session.testsfailed or session.config.option.collectonly:
        return None
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.showfspath = False  # results of many files come mixed
    spread = Spread(session)
    spread.run(count)
    if measuring.VARIABLE in os.environ:
        write(RECORD, spread.seconds)
    return True


def read(record: Path) -> dict[str, float]:
    """The seconds by file, empty if there is no record."""
    lines = record.read_text().split("\n") if record.exists() else []
    return {file: float(seconds) for file, seconds in (line.split() for line in lines if line)}


def write(record: Path, seconds: Mapping[str, float], least: float = 0.5) -> None:
    """Write the seconds of the files that take at least some."""
    lines = [f"{file} {took:.1f}\n" for file, took in sorted(seconds.items()) if took >= least]
    record.write_text("".join(lines))


class Piece(NamedTuple):
    """Tests that one process takes at once."""

    seconds: float
    folder: str
    tests: range


def pieces(files: Sequence[str], seconds: Mapping[str, float]) -> list[Piece]:
    """Divide tests into pieces, the one that takes longest first.

    Args:
        files: The file of each test, in the order in which the tests were collected.
        seconds: The seconds that files take.
    """
    found, end = [], 0
    for file, tests in itertools.groupby(files):
        start, end = end, end + len([*tests])
        took = seconds.get(file, _GUESS * (end - start))
        parts = min(end - start, max(1, round(took / WHOLE)))
        marks = [start + (end - start) * part // parts for part in range(parts + 1)]
        folder = file.rpartition("/")[0]
        found += [Piece(took / parts, folder, range(*bounds)) for bounds in itertools.pairwise(marks)]
    return sorted(found, key=lambda piece: -piece.seconds)


class Pieces:
    """The pieces that no process has taken yet."""

    def __init__(self, found: Sequence[Piece]) -> None:
        self._long = deque(piece for piece in found if piece.seconds > LONG)
        self._begun: set[str] = set()
        self._folders: dict[str, deque[Piece]] = defaultdict(deque)
        for piece in found:
            if piece.seconds <= LONG:
                self._folders[piece.folder].append(piece)

    def __bool__(self) -> bool:
        return bool(self._long or self._folders)

    def take(self, folder: str) -> Piece | None:
        """Take a long piece, or one of a folder, or else one of the folder that has most left.

        A process keeps to the long pieces of its folder, and then to a folder that no other has begun: each
        starts the servers and the browser of a folder anew.
        """
        if self._long:
            piece = min(self._long, key=lambda one: (one.folder != folder, one.folder in self._begun))
            self._long.remove(piece)
            self._begun.add(piece.folder)
            return piece
        if not self._folders:
            return None
        if folder not in self._folders:
            folder = max(self._folders, key=lambda name: sum(piece.seconds for piece in self._folders[name]))
        piece = self._folders[folder].popleft()
        if not self._folders[folder]:
            del self._folders[folder]
        return piece

    def put_back(self, piece: Piece) -> None:
        """Put back what a process that died had left."""
        self._folders[piece.folder].appendleft(piece)


class Forked:
    """A process that runs tests, as the one that forked it sees it."""

    def __init__(self, pid: int, number: int, pipe: connection.Connection) -> None:
        self.pid = pid
        self.number = number
        self.pipe = pipe
        self.folder = ""
        self.left = range(0)
        """The tests that it has not ended; it runs the first of them."""


class Spread:
    """The processes of a run, and what is left to do."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        files = [item.nodeid.partition("::")[0] for item in session.items]
        self._left = Pieces(pieces(files, read(RECORD)))
        self._running: dict[connection.Connection, Forked] = {}
        self.seconds: dict[str, float] = defaultdict(float)

    def run(self, count: int) -> None:
        """Run everything in some processes."""
        try:
            for number in range(count):
                self._fork(number)
            while self._running:
                for ready in connection.wait(list(self._running)):
                    self._hear(self._running[ready])  # type: ignore[index]
                    self._stop_if_asked()
        finally:
            for process in self._running.values():
                os.kill(process.pid, signal.SIGINT)
                os.waitpid(process.pid, 0)

    def _fork(self, number: int) -> None:
        here, there = connection.Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            for other in (here, *self._running):
                other.close()
            Worker(self._session, there, number).run()
        there.close()
        self._running[here] = Forked(pid, number, here)

    def _hear(self, process: Forked) -> None:
        try:
            item, reports = process.pipe.recv()
        except (EOFError, ConnectionResetError):
            self._lose(process)
            return
        if reports is None:
            self._hand_out(process)
        else:
            process.left = range(item + 1, process.left.stop)
            self._report(self._session.items[item], map(self._unpacked, reports))

    def _hand_out(self, process: Forked) -> None:
        piece = self._left.take(process.folder)
        if piece is not None:
            process.folder, process.left = piece.folder, piece.tests
        process.pipe.send(process.left)

    def _lose(self, process: Forked) -> None:
        """Take note of the end of a process; one that had something to do is followed by another."""
        del self._running[process.pipe]
        process.pipe.close()
        code = os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1])
        if process.left:
            item = self._session.items[process.left.start]
            reason = f"the process that ran {item.nodeid} crashed, with exit code {code}"
            self._report(item, [pytest.TestReport(item.nodeid, item.location, {}, "failed", reason, "call")])
            if rest := process.left[1:]:
                self._left.put_back(Piece(0.0, process.folder, rest))
            if self._left:
                self._fork(process.number)
        elif code:
            pytest.exit(f"a process that ran tests ended with exit code {code}", 1)

    def _unpacked(self, data: dict[str, Any]) -> pytest.TestReport:
        hook = self._session.config.hook
        report: pytest.TestReport = hook.pytest_report_from_serializable(
            config=self._session.config, data=data
        )
        return report

    def _report(self, item: pytest.Item, reports: Iterable[pytest.TestReport]) -> None:
        hook = self._session.config.hook
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in reports:
            self.seconds[item.nodeid.partition("::")[0]] += report.duration
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _stop_if_asked(self) -> None:
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)


class Worker:
    """A process that runs tests, as it sees itself."""

    def __init__(self, session: pytest.Session, pipe: connection.Connection, number: int) -> None:
        self._session = session
        self._config = session.config
        self._pipe = pipe
        self._number = number
        self._last = 0
        self._reports: list[dict[str, Any]] = []

    def run(self) -> NoReturn:
        """Run what is handed out, until there is nothing left."""
        code = 1
        try:
            self._begin()
            try:
                self._run_pieces()
            finally:
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C would leave servers behind
                self._tear_down()
            self._config.hook.pytest_forked_ends(config=self._config)
            code = 0
        except (KeyboardInterrupt, EOFError, BrokenPipeError):
            pass  # the run ends early
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
        finally:
            atexit._run_exitfuncs()
            os._exit(code)

    def _begin(self) -> None:
        """Make this process's own what it must not share: output, the folder for files, measurements."""
        plugins = self._config.pluginmanager
        capturing: Any = plugins.get_plugin("capturemanager")
        for stream in (capturing._global_capturing.out, capturing._global_capturing.err):
            if isinstance(stream, FDCapture):
                # The file object stays, since modules may have kept it when they were imported.
                with tempfile.TemporaryFile(buffering=0) as own:
                    os.dup2(own.fileno(), stream.tmpfile.fileno())
        factory = self._config._tmp_path_factory  # type: ignore[attr-defined]
        factory._basetemp = factory.getbasetemp() / f"process{self._number}"
        factory._basetemp.mkdir(exist_ok=True)
        if (reporter := plugins.unregister(name="terminalreporter")) is not None:
            plugins.register(Quiet(reporter), "terminalreporter")
        plugins.register(self)
        self._config.stash[_FORKED] = True
        self._config.hook.pytest_forked(config=self._config)

    def _run_pieces(self) -> None:
        while piece := self._ask():
            for self._last in piece:
                item = self._session.items[self._last]
                # Behind the last one of a piece only fixtures of the whole session stay.
                following = self._session.items[self._last + 1] if self._last + 1 in piece else self._session
                self._config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                self._send()

    def _ask(self) -> range:
        self._pipe.send((None, None))
        piece: range = self._pipe.recv()
        return piece

    def _send(self) -> None:
        self._pipe.send((self._last, self._reports))
        self._reports = []

    def _tear_down(self) -> None:
        """End the fixtures of the session; what goes wrong is told as of the last test."""
        ended = pytest.CallInfo.from_call(lambda: self._session._setupstate.teardown_exact(None), "teardown")
        if ended.excinfo is not None:
            item = self._session.items[self._last]
            self.pytest_runtest_logreport(self._config.hook.pytest_runtest_makereport(item=item, call=ended))
            self._send()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep a report until its test has ended."""
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._reports.append(data)


class Quiet:
    """Stands for the reporter on the terminal, which writes in the process that forked this one."""

    def __init__(self, reporter: Any) -> None:
        self._tw = reporter._tw
