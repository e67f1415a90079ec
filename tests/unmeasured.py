"""Coverage is measured where it tells something new, since tracing makes Python three to four times as slow.

Law: nothing here changes what a test does or asserts. Collecting the tests is not measured, nor are the
folders named here, nor tests marked `unmeasured`. They repeat for long what other tests cover, or they start
processes only to kill them, and a killed process leaves no measurement behind. In some folders only the first
case of a parametrized test is measured, in others a test that runs on every engine is measured on one, and
processes measure themselves only for the files that are about processes.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
from typing import TYPE_CHECKING, Any, Final

import pytest
from coverage import Coverage

import holdfast

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

MARK: Final = "unmeasured"
FOLDERS: Final = {
    *("acceptance", "clocks", "deploy", "distribution", "docs", "linear", "machine", "robustness", "tools"),
}
"""The folders of `tests` that are not measured."""
FIRST_CASE: Final = {"calls", "cli", "compat", "integrations", "nats", "security"}
"""The folders in which the further cases of a parametrized test are not measured."""
ONE_ENGINE: Final = {"conformance"}
"""The folders in which a test that several classes inherit is measured in one of them, in each in turn."""
PROCESSES: Final = {"test_process.py", "test_recipes.py", "test_terminal.py", "test_try.py", "test_up.py"}
"""The files whose tests are measured also in the processes that they start."""
_VARIABLE: Final = "COVERAGE_PROCESS_CONFIG"
"""With this in its environment a new Python process measures itself."""


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line("markers", f"{MARK}: run without coverage, also in the processes it starts")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, Any, Any]:
    """Import the library while coverage is measured, and collect the tests while it is not.

    The process that starts the workers collects nothing.
    """
    if Coverage.current() is not None and not session.config.pluginmanager.hasplugin("dsession"):
        with unmeasured():
            from hypothesis import strategies

            strategies.characters(exclude_categories=["Cs"])  # has Hypothesis read its table of characters
        _import_everything()
    with unmeasured():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Run a test of these folders, or one that is marked, without coverage; its fixtures included."""
    with unmeasured() if _is_left_out(item) else _only_here(item):
        return (yield)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the further cases of parametrized tests, and the further engines of tests that run on several."""
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
        engines = sorted(shared[name], key=lambda item: item.nodeid)
        for item in engines:
            if item is not engines[number % len(engines)]:
                item.add_marker(MARK)


def _is_left_out(item: pytest.Item) -> bool:
    return item.path.parent.name in FOLDERS or item.get_closest_marker(MARK) is not None


@contextlib.contextmanager
def _only_here(item: pytest.Item) -> Iterator[None]:
    """Measure coverage in this process, and in others only if the file is about processes."""
    named = None if item.path.name in PROCESSES else os.environ.pop(_VARIABLE, None)
    try:
        yield
    finally:
        if named is not None:
            os.environ[_VARIABLE] = named


@contextlib.contextmanager
def unmeasured() -> Iterator[None]:
    """Measure no coverage for the length of a block, in this process and in those that it starts.

    A worker has two measurements, one inside the other: stopping the inner one alone would resume the outer.
    """
    stopped, named = [], os.environ.pop(_VARIABLE, None)
    while (running := Coverage.current()) is not None:
        running.stop()
        stopped.append(running)
    try:
        yield
    finally:
        for measurement in reversed(stopped):
            measurement.start()
        os.environ.pop(_VARIABLE, None)  # a measurement that starts sets it
        if named is not None:
            os.environ[_VARIABLE] = named


def _import_everything() -> None:
    """Import the library, since only the first import of a module runs its definitions.

    Programs are left out, and the migrations, which Alembic loads by itself.
    """
    for found in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        if not found.name.endswith("__main__") and ".migrations." not in found.name:
            importlib.import_module(found.name)
