"""`holdfast up`: one command opens the store, keeps it swept, and stops cleanly."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import holdfast

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

UP = [sys.executable, "-m", "holdfast", "up"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a user whose data folder is empty."""
    return os.environ | {"XDG_DATA_HOME": str(tmp_path)}


@pytest.fixture
def running(environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A running `holdfast up` that has said where its store is."""
    process = subprocess.Popen(UP, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate()


def test_up_opens_the_default_store_and_stops_on_sigterm(
    running: subprocess.Popen[str], tmp_path: Path
) -> None:
    """Without configuration the store is made in the user's data folder; SIGTERM ends it with code 0."""
    path = tmp_path / "holdfast" / "holdfast.db"
    assert _first_line(running) == f"Holdfast keeps 0 keys in 0 namespaces at {path}\n"
    assert path.exists()
    running.send_signal(signal.SIGTERM)
    said, complained = running.communicate(timeout=30)
    assert said.endswith("Holdfast has stopped.\n")
    assert (running.returncode, complained) == (0, "")


def test_a_second_up_says_who_has_the_store(
    running: subprocess.Popen[str], environment: dict[str, str]
) -> None:
    """One SQLite store has one service: the second says so in one line with the pid, and exits with 1."""
    _first_line(running)
    second = subprocess.run(UP, env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert second.returncode == 1
    assert re.fullmatch(rf"holdfast: .* by process {running.pid}: .*\n", second.stderr)


def test_up_sweeps_what_has_expired(running: subprocess.Popen[str], tmp_path: Path) -> None:
    """Entries whose deadline has passed are removed by the running service."""
    path = tmp_path / "holdfast" / "holdfast.db"
    _first_line(running)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=30)
    asyncio.run(_set_with_ttl(path))
    again = subprocess.Popen([*UP, "--db", str(path)], stdout=subprocess.PIPE, text=True)
    try:
        _first_line(again)
        assert asyncio.run(_expired(path)) == "expired"
    finally:
        again.terminate()
        again.communicate(timeout=30)


def test_help_lists_the_commands() -> None:
    """`--help` says what there is."""
    said = subprocess.run([*UP[:-1], "--help"], capture_output=True, text=True, check=True).stdout
    assert "up" in said


async def _set_with_ttl(path: Path) -> None:
    async with holdfast.open(path, reap=False) as store:
        await store.kv("p").set("k", 1, ttl=1)


async def _expired(path: Path) -> str:
    """The op of the change that follows the set, seen by another process."""
    async with holdfast.open(path) as store, asyncio.timeout(20):
        async for change in store.kv("p").watch(since=1):
            return change.op
    return "nothing"


def _first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()
