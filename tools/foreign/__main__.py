"""Runs the tests that another project has for its own interface with our adapter in place of its own.

    python -m tools.foreign NAME [--source FOLDER] [--reach] [ARGUMENTS]

With `--reach` the tests run twice, the second time with an adapter whose methods raise. Those that pass then
too do not reach it.

Another project's tests are fetched or given, never copied into this repository. What is left out is
named in the suite's module with the reason, and printed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
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
    plugin: str = ""
    """The end of the name of the module here, if the suite's own name is not that."""
    adapters: tuple[str, ...] = ()
    """The classes of `holdfast.integrations` that take the place of the project's, as `module:Class`."""
    ours: bool = False
    """Whether the tests are functions that a test of ours calls; the checkout then has the functions."""


SUITES: Final = {
    "a2a": Suite(
        ("tests/server/tasks/test_inmemory_task_store.py", "tests/server/tasks/test_database_task_store.py"),
        adapters=("a2a:HoldfastTaskStore",),
    ),
    "adk": Suite(
        ("tests/unittests/sessions/test_session_service.py",),
        adapters=("adk:HoldfastSessionService",),
    ),
    "agno": Suite(
        (
            "tests/integration/db/sqlite/test_session.py",
            "tests/integration/db/sqlite/test_session_isolation.py",
            "tests/integration/db/sqlite/test_memory.py",
        ),
        adapters=("agno:HoldfastDb",),
    ),
    "django": Suite(
        (
            *("tests/cache/tests.py", "tests/sessions_tests/tests.py", "-k"),
            "LocMemCache or CacheUtils or CacheHEAD or CacheI18n or CacheMiddleware or CustomCacheKey"
            " or NonExpiring or TemplateResponse or FragmentKey or CacheHandler"
            " or CacheSessionTests or SessionMiddlewareTests",
        ),
        "django-5.2.19.tar.gz",
        "ad03d8abc51dbff95ebf34b27123cf0c26a3b62db7ba0cd520783686362533d1",
        adapters=("django.cache:HoldfastCache", "django.sessions:SessionStore"),
    ),
    "keyvalue": Suite(
        ("tests/stores/memory", "tests/stores/wrappers"),
        adapters=("keyvalue:HoldfastStore",),
    ),
    "langgraph": Suite(
        ("tests", "--ignore=tests/test_prune_postgres.py"),
        "langgraph-1.2.22.tar.gz",
        "32700dc34b5cf9ebb397258c2e56392f017d4dbc51c9591339225c3c1b7b5126",
        adapters=("langgraph:HoldfastSaver", "langgraph:HoldfastGraphStore"),
    ),
    "langgraph-conformance": Suite(
        ("tests/integrations/test_langgraph.py", "-k", "conformance", "-rP"), ours=True
    ),
    "langgraph-store": Suite(
        ("tests/test_store.py", "tests/test_async_store.py", "tests/test_ttl.py"),
        "langgraph_checkpoint_sqlite-3.1.2.tar.gz",
        "4e3f376fa6f192d6ad2a1a4643b039986f1593552ef870e9e45281575de6fbf2",
        adapters=("langgraph:HoldfastGraphStore",),
    ),
    "langgraph-store-memory": Suite(
        ("tests/test_store.py",),
        "langgraph_checkpoint-4.3.1.tar.gz",
        "625e7c78a72b33e7c47f7e87ca051060fb90aa66f5fd551c472c08376fb669cb",
        plugin="langgraph_store",
        adapters=("langgraph:HoldfastGraphStore",),
    ),
    "limits": Suite(
        (
            *("tests/test_storage.py", "tests/test_strategy.py"),
            *("tests/aio/test_storage.py", "tests/aio/test_strategy.py"),
            *("-k", "in-memory"),
        ),
        "limits-5.8.0.tar.gz",
        "c9e0d74aed837e8f6f50d1fcebcf5fd8130957287206bc3799adaee5092655da",
        adapters=("limits:Windows",),
    ),
    "mcp": Suite(
        (
            *("tests/interaction/transports/test_hosting_resume.py", "tests/shared/test_streamable_http.py"),
            *(
                "-k",
                "resum or replay or event or reconnect or polling or priming",
                "-o",
                "asyncio_mode=strict",
            ),
        ),
        "mcp-2.3.0.tar.gz",
        "8b147a50441cf059dc88c684e0aeed3687f0aa0f39c6cde7b90330effd2b34d8",
        adapters=("mcp:HoldfastEventStore",),
    ),
    "openai-agents": Suite(
        (
            *("tests/memory/test_session.py", "tests/memory/test_session_limit.py"),
            *("tests/test_soft_cancel.py", "tests/test_max_turns.py"),
        ),
        "openai_agents-0.24.0.tar.gz",
        "4b4b285f4fed81fdf1b4ac426a9101658d9cd29b4fb1aaeee18f639b77e704e3",
        adapters=("openai_agents:HoldfastSession",),
    ),
    "openfeature": Suite(
        ("specification/assets/gherkin/evaluation_v2.feature",),
        adapters=("openfeature:HoldfastProvider",),
    ),
    "strands": Suite(
        ("tests/strands/session/test_repository_session_manager.py",),
        "strands_agents-1.62.0.tar.gz",
        "8732c87f9c1ceb6ef4c5c4bd6d96b4cdf1bbfde095f1537ec2ac6fddb8d5a066",
        adapters=("strands:HoldfastSessionRepository",),
    ),
}


def main() -> int:
    """Run a suite and return pytest's exit code."""
    parser = argparse.ArgumentParser(prog="./dev foreign", description="Run another project's own tests.")
    parser.add_argument("name", choices=sorted(SUITES), help="the integration")
    parser.add_argument("--reach", action="store_true", help="say how many of the tests reach the adapter")
    parser.add_argument("--source", type=Path, help="a checkout of the project, instead of what it publishes")
    known, more = parser.parse_known_args()
    suite: Suite = SUITES[known.name]
    if known.source is None and suite.file is None:
        parser.error(f"{known.name} publishes no tests: name a checkout with --source FOLDER")
    folder = known.source or fetch(str(suite.file), suite.sha256, PLACE)
    plugin = f"with_{suite.plugin or known.name.replace('-', '_')}"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q"]
    if suite.ours:
        path, folder = [str(folder.resolve())], ROOT
    else:
        path = [str(SITE), str(ROOT / "tools" / "foreign")]
        command += ["-p", plugin]
    if known.reach and not suite.adapters:
        parser.error(f"{known.name} has no adapter whose methods could raise")
    settings = ("addopts=", "asyncio_mode=auto", "filterwarnings=")
    options = ["-rs", "--timeout=60", *(part for one in settings for part in ("-o", one))]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": "1"}
    command += [*options, *suite.arguments, *more]
    if known.reach:
        return reach(suite, [*command, "-p", "outcomes"], folder, env)
    return subprocess.run(command, cwd=folder, env=env, check=False).returncode


def reach(suite: Suite, command: list[str], folder: Path, env: dict[str, str]) -> int:
    """Run a suite as it is and with an adapter that can't be reached, and print how many tests reach it."""
    passed: list[set[str]] = []
    codes: list[int] = []
    for adapters in ("", " ".join(suite.adapters)):
        options = ["--tb=no", "-r", "N", "--timeout=10"] if adapters else []
        with tempfile.NamedTemporaryFile(prefix="holdfast-passed-") as file:
            noting = {"HOLDFAST_PASSED": file.name, "HOLDFAST_UNREACHABLE": adapters}
            done = subprocess.run([*command, *options], cwd=folder, env=env | noting, check=False)
            codes.append(done.returncode)
            passed.append(set(Path(file.name).read_text().splitlines()))
    there, without = passed
    print(f"{len(there)} passed, of which {len(there - without)} reach the adapter")
    return codes[0]


if __name__ == "__main__":
    sys.exit(main())
