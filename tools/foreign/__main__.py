"""Runs the tests that another project has for its own interface with our adapter in place of its own.

    python -m tools.foreign NAME [--source FOLDER] [ARGUMENTS]

Law: another project's tests are fetched or given, never copied into this repository. What is left out is
named in the suite's module with the reason, and printed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

from tools.published import fetch

ROOT: Final = Path(__file__).resolve().parents[2]
PLACE: Final = ROOT / ".dev" / "foreign"
SITE: Final = PLACE / "site"
"""Packages that only these tests need; `./dev foreign` installs them."""


class Suite(NamedTuple):
    """The tests of a project: what to run, and the source package that has them, if one is published."""

    arguments: tuple[str, ...]
    file: str | None = None
    sha256: str = ""


SUITES: Final = {
    "keyvalue": Suite(
        (
            "tests/stores/memory",
            "tests/stores/wrappers",
            "--ignore=tests/stores/wrappers/test_passthrough_cache.py",
        )
    ),
    "limits": Suite(
        ("tests/aio/test_storage.py", "tests/aio/test_strategy.py", "-k", "in-memory"),
        "limits-5.8.0.tar.gz",
        "c9e0d74aed837e8f6f50d1fcebcf5fd8130957287206bc3799adaee5092655da",
    ),
}


def main() -> int:
    """Run a suite and return pytest's exit code."""
    parser = argparse.ArgumentParser(prog="./dev foreign", description="Run another project's own tests.")
    parser.add_argument("name", choices=sorted(SUITES), help="the integration")
    parser.add_argument("--source", type=Path, help="a checkout of the project, instead of what it publishes")
    known, more = parser.parse_known_args()
    suite: Suite = SUITES[known.name]
    if known.source is None and suite.file is None:
        parser.error(f"{known.name} publishes no tests: name a checkout with --source FOLDER")
    folder = known.source or fetch(str(suite.file), suite.sha256, PLACE)
    path = os.pathsep.join([str(SITE), str(ROOT / "tools" / "foreign")])
    command = [sys.executable, "-m", "pytest", "-p", f"with_{known.name}", "-p", "no:cacheprovider", "-q"]
    settings = (
        "addopts=",
        "asyncio_mode=auto",
        "asyncio_default_fixture_loop_scope=function",
        "filterwarnings=",
    )
    options = ["-rs", "--timeout=60", *(part for one in settings for part in ("-o", one))]
    env = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    command += [*options, *suite.arguments, *more]
    return subprocess.run(command, cwd=folder, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
