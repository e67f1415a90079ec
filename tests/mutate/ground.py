"""A copy of the library and its tests, in which a bug is planted and the tests are run.

Law: the working tree is read, never written. What is imported is the copy, and that is made sure of.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.mutate.plant import LIBRARY, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.mutate.plant import Plant

PYTEST: Final = ("-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=no", "--timeout=30")
"""Each test has 30 s: a bug that makes one wait for ever is found by that."""
COPIED: Final = ("src", "tests", "bench", "docs", "ops", "tools", "pyproject.toml", "README.md")
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
_NOTHING_RAN: Final = 5
"""The exit code of pytest when it has found no test."""


class Run(NamedTuple):
    """What became of a run of tests: the first that failed or None, how long it took, and what was said."""

    failed: str | None
    seconds: float
    output: str


class Ground:
    """One copy, for one bug at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        ignore = shutil.ignore_patterns("__pycache__", "results", "*.egg-info")
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=ignore)
            elif source.exists():
                shutil.copy(source, folder / name)
        # A compiled module counts only if it is of the source that is there: a bug comes and goes in less
        # time than the file system can tell.
        compiled = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "src"]
        subprocess.run(compiled, cwd=folder, check=True)
        self._require_copy()

    @contextlib.contextmanager
    def with_bug(self, plant: Plant) -> Iterator[None]:
        """The copy has a bug for the length of a block."""
        path = self._folder / LIBRARY / plant.file
        source = path.read_text()
        path.write_text(plant.planted(source))
        try:
            yield
        finally:
            path.write_text(source)

    def test(self, tests: Sequence[str], *, seconds: float) -> Run:
        """Run tests until the first failure. More than so many seconds are a failure as well."""
        began = time.monotonic()
        command = [sys.executable, "-m", "pytest", *PYTEST, *tests]
        process = subprocess.Popen(
            command,
            cwd=self._folder,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            output = _end(process)
            failed: str | None = f"nothing: {seconds:.0f} s had passed"
        else:
            failed = None if process.returncode == 0 else _first(output, process.returncode)
        return Run(failed, time.monotonic() - began, output)

    def _environment(self) -> dict[str, str]:
        return os.environ | {"PYTHONPATH": str(self._folder / "src")}

    def _require_copy(self) -> None:
        """Make sure that the copy is what the tests see, also those in processes of their own."""
        found = subprocess.run(
            [sys.executable, "-c", "import holdfast; print(holdfast.__file__)"],
            cwd=self._folder,
            env=self._environment(),
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        if not found.startswith(str(self._folder)):
            raise SystemExit(f"mutate: the tests would import {found}, not the copy in {self._folder}")


def _first(output: str, code: int) -> str:
    if code == _NOTHING_RAN:
        raise SystemExit(f"mutate: pytest has found no test to run\n{output}")
    found = _FAILED.search(output)
    return found[1] if found else f"pytest, with exit code {code}"


def _end(process: subprocess.Popen[str]) -> str:
    """End a run and whatever it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return process.communicate()[0]
