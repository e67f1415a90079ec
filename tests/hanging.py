"""A test that hangs ends its process soon after its time limit, so that a run never hangs.

Law: only this. pytest-timeout ends a test by raising an error wherever the main thread is. If that is a task
of an event loop, the error ends the task and the test goes on waiting. The watchdog depends on nothing that
runs in the test: it writes the stack of every thread to stderr and ends the process. With workers, the run
reports the test as failed and goes on in a new worker.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Generator
from typing import Any, Final

import pytest

VARIABLE: Final = "HOLDFAST_TEST_GRACE"
GRACE: Final = 30.0
"""Seconds that a test has to end by itself after its time limit, and to clean up."""


_SECONDS: Final = pytest.StashKey[float]()
_STDERR: Final = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Keep the real stderr; while a test runs, pytest captures what is written to it."""
    config.stash[_STDERR] = os.dup(2)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close it."""
    os.close(config.stash[_STDERR])


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Generator[None, Any, Any]:
    """Start the watchdog with the timer of pytest-timeout; a test without a limit has neither."""
    item.stash[_SECONDS] = settings.timeout + float(os.environ.get(VARIABLE, GRACE))
    _watch(item)
    return (yield)


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """Start it again when a test has failed, for its cleaning up: pytest stops every timer at this moment."""
    _watch(node)


def pytest_runtest_logfinish() -> None:
    """Stop it when the test has ended and its fixtures have cleaned up."""
    faulthandler.cancel_dump_traceback_later()


def _watch(node: pytest.Item | pytest.Collector) -> None:
    if _SECONDS in node.stash and not node.config.getoption("usepdb"):
        faulthandler.dump_traceback_later(node.stash[_SECONDS], exit=True, file=node.config.stash[_STDERR])
