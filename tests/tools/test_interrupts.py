"""The suite can be started in the background, where SIGINT is ignored: see `tests.interrupts`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

INTERRUPTED = """
import subprocess, sys

def test_a_process_hears_ctrl_c():
    wait = "import os, signal; os.kill(os.getpid(), signal.SIGINT); print('heard nothing')"
    assert subprocess.run([sys.executable, "-c", wait], capture_output=True, text=True).stdout == ""
"""

IGNORING = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
os.execv(sys.executable, [sys.executable, "-m", "pytest", *sys.argv[1:]])
"""


def _run(folder: Path, *plugins: str) -> subprocess.CompletedProcess[str]:
    """Run a test that starts a process and interrupts it, below a process that ignores SIGINT."""
    test = folder / "test_interrupted.py"
    test.write_text(INTERRUPTED)
    command = [sys.executable, "-c", IGNORING, str(test), "-q", "-p", "no:cacheprovider", *plugins]
    quiet = {name: value for name, value in os.environ.items() if not name.startswith(("COV", "PYTEST"))}
    environment = quiet | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_processes_of_tests_end_by_sigint(tmp_path: Path) -> None:
    """Processes that tests start are ended by SIGINT though the one above the suite ignores it."""
    done = _run(tmp_path, "-p", "tests.interrupts")
    assert done.returncode == 0, done.stdout


def test_without_the_plugin_it_is_ignored(tmp_path: Path) -> None:
    """Negative control: without the plugin the same test fails, because its process hears nothing."""
    done = _run(tmp_path)
    assert done.returncode == 1, done.stdout
    assert "heard nothing" in done.stdout


def test_the_suite_has_the_plugin() -> None:
    """In this very process SIGINT is not ignored."""
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
