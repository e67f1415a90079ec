"""Two real PostgreSQL servers: a primary that waits for its standby, and the standby that takes over.

Everything about the pair stands here, and nothing about Holdfast. A primary dies as a machine does: all
its processes are killed at once. The old primary comes back as a standby on a new copy of the data.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import shutil
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import asyncpg

from tests.ports import free_port
from tests.postgres import Cluster, Server, new_home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE: Final = 60.0
_COMMITTING: Final = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
_REQUIRE: Final = "ALTER SYSTEM SET synchronous_standby_names = '{}'"


class Node(Cluster):
    """A server of the pair. It keeps its port through all its lives."""

    port = 0

    def begin(self) -> Server:
        """Create the first primary and start it."""
        dsn = self.ensure()
        self.port = urlsplit(dsn).port or 0
        return Server(dsn)

    def follow(self, dsn: str) -> None:
        """Become a standby of the server at an address, on a new copy of its data."""
        shutil.rmtree(self._data, ignore_errors=True)
        user = self._packaged.system_user
        if user is not None:
            shutil.chown(self._home, user)
        self._run(
            "pg_basebackup",
            *(f"--dbname={dsn}", "--write-recovery-conf", "--wal-method=stream"),
            *("--checkpoint=fast", "--no-sync", "--no-manifest"),
        )
        self.port = self.port or free_port()
        with (self._data / "postgresql.conf").open("a") as settings:
            settings.write(f"port = {self.port}\n")
        self.start()

    def promote(self) -> None:
        """Become the primary."""
        self._run("pg_ctl", "promote", "--wait", "--timeout=60", "--silent")

    def kill(self) -> None:
        """Kill every process of the server at once."""
        pids = self.halt()
        _signal(pids, signal.SIGKILL)
        wait_until(lambda: not any(map(_lives, pids)))
        (self._data / "postmaster.pid").unlink()

    def halt(self) -> list[int]:
        """Stop every process of the server where it is, the postmaster first, so that it starts none."""
        postmaster = int((self._data / "postmaster.pid").read_text().split()[0])
        os.kill(postmaster, signal.SIGSTOP)
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        pids = [postmaster, *map(int, children)]
        _signal(pids, signal.SIGSTOP)
        return pids


class Pair:
    """A primary and its standby. `url` names both servers, and stays the same through every promotion."""

    def __init__(self, home: Path, other: Path) -> None:
        self.primary, self.standby = Node(home), Node(other)
        database = self.primary.begin().create_database()
        self._login, _, _ = urlsplit(database).netloc.rpartition("@")
        self._path = urlsplit(database).path
        # The copy gets this setting too: the standby must also wait for one once it is the primary.
        asked(self.primary_url, _REQUIRE.format("*"))
        self.standby.follow(self.primary_url)
        self.wait_for_standby("*")
        # The standby is named first, so that a client that takes the first server is wrong.
        self.url = self._at(self.standby, self.primary)

    def _at(self, *nodes: Node) -> str:
        places = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
        return f"postgresql://{self._login}@{places}{self._path}"

    @property
    def primary_url(self) -> str:
        """The address of the primary alone."""
        return self._at(self.primary)

    @property
    def standby_url(self) -> str:
        """The address of the standby alone."""
        return self._at(self.standby)

    def wait_for_standby(self, names: str) -> None:
        """Let commits wait until a standby of these names has them on disk; with no name, for none."""
        asked(self.primary_url, _REQUIRE.format(names))
        asked(self.primary_url, "SELECT pg_reload_conf()")
        states = "SELECT sync_state FROM pg_stat_replication"
        wait_until(lambda: not names or "sync" in asked(self.primary_url, states))

    def fail_over(self, *, amid_a_commit: bool = False) -> None:
        """Kill the primary, on request while a commit waits for the standby, and promote the standby."""
        halted = self.standby.halt() if amid_a_commit else []
        wait_until(lambda: not halted or bool(asked(self.primary_url, _COMMITTING)))
        self.primary.kill()
        _signal(halted, signal.SIGCONT)
        self.standby.promote()
        self.primary, self.standby = self.standby, self.primary

    def rebuild(self) -> None:
        """Make the old primary a standby of the new one, and wait until it follows."""
        self.standby.follow(self.primary_url)
        states = "SELECT state FROM pg_stat_replication"
        wait_until(lambda: "streaming" in asked(self.primary_url, states))


@contextlib.contextmanager
def pair_of_servers() -> Iterator[Pair]:
    """A pair of servers for the length of a block."""
    with new_home() as home, new_home() as other:
        yield Pair(home, other)


def asked(dsn: str, query: str) -> list[Any]:
    """The first column of what a server answers."""

    async def ask() -> list[Any]:
        connection = await asyncpg.connect(dsn)
        try:
            return [row[0] for row in await connection.fetch(query)]
        finally:
            await connection.close()

    # In a thread, because the caller's may have a running loop.
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, ask()).result()


def wait_until(true: Callable[[], bool]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _lives(pid: int) -> bool:
    """Whether a process runs. One that ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
