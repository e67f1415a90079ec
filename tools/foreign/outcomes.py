"""Notes which tests pass, as a plugin of pytest; and makes an adapter's methods raise, to see which reach it.

A test that still passes when they raise says nothing about the adapter.
"""

from __future__ import annotations

import importlib
import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

_passed: list[str] = []


class Unreachable(Exception):
    """Raised by every method of an adapter that must not be reached."""


def pytest_configure() -> None:
    """Make the methods of the classes raise that HOLDFAST_UNREACHABLE names; see `Suite.adapters`."""
    for name in os.environ.get("HOLDFAST_UNREACHABLE", "").split():
        module, _, kind = name.partition(":")
        close(getattr(importlib.import_module(f"holdfast.integrations.{module}"), kind))


def close(kind: type) -> None:
    """Make each method of a class raise that is ours and that a program calls, or a base of the project."""
    for name in dir(kind):
        owners = [base for base in kind.__mro__ if name in vars(base)]
        called = not name.startswith("_") or any(not _is_ours(base) for base in owners)
        dunder = name.startswith("__")
        method = inspect.getattr_static(kind, name)
        if _is_ours(owners[0]) and called and not dunder and inspect.isroutine(method):
            setattr(kind, name, _unreachable)


def _is_ours(kind: type) -> bool:
    return kind.__module__.startswith("holdfast.")


def _unreachable(*_: Any, **__: Any) -> Any:
    raise Unreachable


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note a test that has passed."""
    if report.when == "call" and report.passed:
        _passed.append(report.nodeid)


def pytest_sessionfinish() -> None:
    """Write the names of the tests that have passed, one in each line."""
    Path(os.environ["HOLDFAST_PASSED"]).write_text("\n".join(_passed))
