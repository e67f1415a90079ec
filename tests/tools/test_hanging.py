"""A run of the suite ends though a test of it hangs: see `tests.hanging`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

IN_A_TASK = """
import asyncio, time

def test_the_error_ends_only_a_task():
    async def busy():
        while True:
            time.sleep(0.01)

    async def hang():
        task = asyncio.create_task(busy())
        await asyncio.sleep(0)
        await asyncio.Event().wait()

    asyncio.run(hang())

def test_the_next_one():
    pass
"""

CLEANING_UP = """
import pytest, threading

@pytest.fixture
def ground():
    yield
    threading.Event().wait()

def test_it_fails_and_its_fixture_hangs(ground):
    assert False

def test_the_next_one():
    pass
"""

ENDED_FROM_OUTSIDE = """
import os, threading

def pytest_runtest_logstart():
    timer = threading.Timer(4.0, os._exit, [3])
    timer.daemon = True
    timer.start()
"""


def _run(folder: Path, test: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a file of tests below a time limit of two seconds."""
    (folder / "test_hanging.py").write_text(test)
    plugins = ["-p", "pytest_timeout", "-p", "tests.spreading", "-p", "no:cacheprovider", *options]
    command = [sys.executable, "-m", "pytest", "test_hanging.py", "-v", "--timeout=2", *plugins]
    quiet = {name: value for name, value in os.environ.items() if not name.startswith(("COV", "PYTEST"))}
    own = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "HOLDFAST_TEST_GRACE": "0.5"}
    return subprocess.run(
        command, cwd=folder, env=quiet | own, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("test", [IN_A_TASK, CLEANING_UP])
def test_a_run_ends_though_a_test_hangs(tmp_path: Path, test: str) -> None:
    """A worker whose test hangs is ended; the run names the test, runs the others and fails."""
    done = _run(tmp_path, test, "-p", "tests.hanging", "--spread=1")
    assert done.returncode == 1, done.stdout
    assert re.search("the process that ran test_hanging.py::test_.* crashed, with exit code 1", done.stdout)
    assert "test_hanging.py::test_the_next_one PASSED" in done.stdout
    assert "most recent call first" in done.stderr


def test_without_the_watchdog_it_hangs(tmp_path: Path) -> None:
    """Negative control: pytest-timeout alone does not end a test whose task took the error."""
    (tmp_path / "conftest.py").write_text(ENDED_FROM_OUTSIDE)
    done = _run(tmp_path, IN_A_TASK)
    assert done.returncode == 3, done.stdout
