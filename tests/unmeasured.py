"""Coverage is measured where it tells something new, since tracing makes Python three to four times as slow.

Law: nothing here changes what a test does or asserts. Collecting the tests is not measured, nor are the
folders named here, nor tests marked `unmeasured`. They repeat for long what other tests cover, or they start
processes only to kill them, and a killed process leaves no measurement behind. In some folders only the first
case of a parametrized test is measured, in others a test that runs on every engine is measured on two, and
processes measure themselves only for the files that are about processes. Of what is left, tests that add
nothing to the others are not measured either: see `tests.measuring`.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
from coverage import Coverage

from tests import definitions, measuring

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

MARK: Final = "unmeasured"
FOLDERS: Final = {
    *("acceptance", "clocks", "cluster_proof", "deploy", "distribution", "docs", "linear", "machine"),
    *("robustness", "tools"),
}
"""The folders of `tests` that are not measured."""
FIRST_CASE: Final = {"calls", "cli", "compat", "integrations", "nats", "security"}
"""The folders in which the further cases of a parametrized test are not measured."""
ONE_ENGINE: Final = {"conformance"}
"""The folders in which a test that several classes inherit is measured in the cheapest and one other."""
CHEAPEST: Final = "test_memory.py"
"""The file in which such a test takes the least time; the others take turns."""
PROCESSES: Final = {"test_process.py", "test_recipes.py", "test_terminal.py", "test_try.py", "test_up.py"}
"""The files whose tests are measured also in the processes that they start."""
_DEFINITIONS: Final = pytest.StashKey[subprocess.Popen[bytes]]()
_STOPPED: Final = pytest.StashKey["Stopped"]()
_NAME: Final = pytest.StashKey[str]()
"""What a test is called in the record."""


class Stopped(NamedTuple):
    """The measurements of this process, the innermost first, and what lets processes measure themselves."""

    measurements: list[Coverage]
    processes: str | None


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known, and measure the definitions of the library in a process of their own."""
    config.addinivalue_line("markers", f"{MARK}: run without coverage, also in the processes it starts")
    if measuring.PROCESSES in os.environ:
        config.stash[_DEFINITIONS] = definitions.measured(dict(os.environ))


@pytest.hookimpl(optionalhook=True)
def pytest_forked(config: pytest.Config) -> None:
    """Measure the tests of this process apart from those of its neighbours."""
    stopped = config.stash[_STOPPED]
    if stopped.measurements:
        own = Coverage(config_file=config.getoption("cov_config"), data_suffix=True)
        config.stash[_STOPPED] = stopped._replace(measurements=[own])


@pytest.hookimpl(optionalhook=True)
def pytest_forked_ends(config: pytest.Config) -> None:
    """Leave what was measured for the process that puts it together."""
    for measurement in config.stash[_STOPPED].measurements:
        measurement.save()


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Measure nothing from now on but the tests that are measured."""
    session.config.stash[_STOPPED] = stop()


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, Any, Any]:
    """Wait for what the definitions left, before all measurements are put together."""
    result = yield
    if (process := session.config.stash.get(_DEFINITIONS, None)) is not None and process.wait():
        raise RuntimeError("the library could not be imported whole; the reason stands above the tests")
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Measure a test, unless it is of these folders or marked; its fixtures included."""
    with contextlib.ExitStack() as around:
        stopped = item.config.stash[_STOPPED]
        if stopped.measurements and not _is_left_out(item):
            start(stopped if item.path.name in PROCESSES else stopped._replace(processes=None))
            around.callback(stop)
        if measuring.VARIABLE in os.environ:
            around.enter_context(measuring.noted(item.stash[_NAME]))
        return (yield)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark further cases of parametrized tests, further engines, and tests that add nothing to the others."""
    for name, item in measuring.numbered(items):
        item.stash[_NAME] = name
    functions = [item for item in items if isinstance(item, pytest.Function)]
    seen = set()
    for item in functions:
        if item.path.parent.name in FIRST_CASE:
            test = (item.path, item.parent, item.originalname)
            if test in seen:
                item.add_marker(MARK)
            seen.add(test)
    shared: dict[str, list[pytest.Function]] = {}
    for item in functions:
        if item.path.parent.name in ONE_ENGINE and not _is_left_out(item):
            shared.setdefault(item.name, []).append(item)
    for number, name in enumerate(sorted(shared)):
        engines = sorted(shared[name], key=lambda item: (item.path.name != CHEAPEST, item.nodeid))
        for item in engines[1:]:
            if item is not engines[1 + number % (len(engines) - 1)]:
                item.add_marker(MARK)
    if measuring.VARIABLE not in os.environ:
        for known in measuring.that_add_nothing(functions, measuring.read(measuring.RECORD)):
            known.add_marker(MARK)


def _is_left_out(item: pytest.Item) -> bool:
    return item.path.parent.name in FOLDERS or item.get_closest_marker(MARK) is not None


def stop() -> Stopped:
    """Stop every measurement of this process, and let the processes that it starts begin none.

    A process may have two measurements, one inside the other: stopping the inner one alone resumes the outer.
    """
    stopped = Stopped([], os.environ.pop(measuring.PROCESSES, None))
    while (running := Coverage.current()) is not None:
        running.stop()
        stopped.measurements.append(running)
    return stopped


def start(stopped: Stopped) -> None:
    """Go on with what was stopped."""
    for measurement in reversed(stopped.measurements):
        measurement.start()
    os.environ.pop(measuring.PROCESSES, None)  # a measurement that starts sets it
    if stopped.processes is not None:
        os.environ[measuring.PROCESSES] = stopped.processes


@contextlib.contextmanager
def unmeasured() -> Iterator[None]:
    """Measure no coverage for the length of a block, in this process and in those that it starts."""
    stopped = stop()
    try:
        yield
    finally:
        start(stopped)
