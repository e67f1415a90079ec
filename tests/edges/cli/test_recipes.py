"""Recipes by hand: counters, flags, checkpoints and locks are those that programs use."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import holdfast
from tests.edges.cli.conftest import EVERYWHERE

if TYPE_CHECKING:
    import pytest

    from tests.edges.cli.conftest import Cli, Program


@EVERYWHERE
def test_counter(cli: Cli, url: str) -> None:
    """A counter by hand is that of programs."""
    assert cli.did("counter", "get", "visits").out == "0\n"
    assert cli.did("counter", "add", "visits").out == "1\n"
    assert cli.did("counter", "add", "visits", "-5", "--json").json == {"name": "visits", "value": -4}

    async def value() -> float:
        async with holdfast.open(url, reap=False) as store:
            return await store.kv("jobs").counter("visits").value()

    assert asyncio.run(value()) == -4


@EVERYWHERE
def test_flag(cli: Cli, url: str) -> None:
    """A flag that is not set says so; one that is set steers programs, until it is cleared."""
    assert cli("flag", "get", "dark").code == 3
    assert cli.did("flag", "set", "dark", "true").out == "1\n"
    assert cli.did("flag", "get", "dark").out == "true\n"

    async def value() -> bool:
        async with holdfast.open(url, reap=False) as store:
            return await store.kv("jobs").flag("dark", default=False).get()

    assert asyncio.run(value()) is True
    cli.did("flag", "set", "New.UI", '"blue"', "--variant", "b")
    assert cli.did("flag", "get", "New.UI", "--json").json == {
        "name": "New.UI",
        "value": "blue",
        "variant": "b",
    }
    assert cli.did("flag", "list").out == 'New.UI\t"blue"\ndark\ttrue\n'
    assert cli.did("flag", "ls", "--json").json == {"New.UI": "blue", "dark": True}
    assert cli("flag", "use", "New.UI", "a").code == 2
    assert cli.did("flag", "clear", "dark", "--yes").out == "cleared\n"
    assert cli.did("flag", "clear", "dark", "--yes", "--json").json == {"cleared": False}
    assert cli("flag", "set", "BAD NAME", "1").code == 2


@EVERYWHERE
def test_checkpoint(cli: Cli) -> None:
    """A checkpoint is moved from where it is."""
    assert cli("checkpoint", "get", "import").code == 3
    cli.did("checkpoint", "set", "import", '{"row": 5}')
    cli.did("checkpoint", "set", "import", "page-7", "--text")
    assert cli.did("checkpoint", "get", "import").out == '"page-7"\n'
    assert cli.did("checkpoint", "get", "import", "--json").json["semantics"]["purpose"] == "checkpoint"


@EVERYWHERE
def test_a_program_runs_while_a_lock_is_held(program: Program) -> None:
    """The program has the lock, its exit code is passed on, and the lock is free afterwards."""
    inside = (
        "import os, subprocess, sys; print(os.environ['HOLDFAST_LOCK_TOKEN'], flush=True); "
        "code = subprocess.run([sys.executable, '-m', 'holdfast', 'get', 'lock/nightly']).returncode; "
        "sys.exit(7 if code == 0 else 1)"
    )
    done = program("lock", "run", "nightly", "--", sys.executable, "-c", inside)
    assert done.returncode == 7, done.stderr
    assert done.stdout.splitlines()[0].isdigit()
    assert program("lock", "show", "nightly").returncode == 3
    assert program("lock", "run", "nightly").returncode == 2
    assert program("lock", "run", "nightly", "--", "/no/such/program").returncode == 2


def test_a_program_ends_when_its_lock_is_lost(cli: Cli, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program whose lock is gone is told to end, and killed if it does not listen; the command fails."""
    monkeypatch.setattr("holdfast.edges.cli.commands.recipes.GRACE", 0.1)
    inside = (
        "import signal, sqlite3, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        f"store = sqlite3.connect({url!r}, isolation_level=None, timeout=30); "
        "store.execute('DELETE FROM plugin_kv_storage'); time.sleep(600)"
    )
    ended = cli("lock", "run", "nightly", "--ttl", "1", "--", sys.executable, "-c", inside)
    assert (ended.code, ended.err) == (1, "holdfast: lock 'nightly' was lost: ending the program\n")


@EVERYWHERE
def test_a_lock_that_is_not_free(cli: Cli, url: str) -> None:
    """Who does not want to wait is told that it is taken, and by whom."""

    async def held() -> None:
        async with holdfast.open(url) as store, store.kv("jobs").lock("nightly", owner="robot"):
            shown = await asyncio.to_thread(cli.did, "lock", "show", "nightly", "--json")
            assert shown.json["holder"] == "robot"

    asyncio.run(held())
    assert cli("lock", "show", "nightly").code == 3
