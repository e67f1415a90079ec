"""Programs of the library as processes of their own, forked from one that has imported it already.

A forked program has its own environment, folder, arguments and streams, can be signalled and ends with an
exit code, as one that was started. Only the start of the interpreter and the imports are left out, which cost
more than most commands: `holdfast get` takes 0.21 s of CPU when it is started and 0.05 s when it is forked,
`holdfast doctor` 0.45 s and 0.14 s. What a test says about exactly these is tested with a process that was
started. A program that needs a large library is forked from the process that asks, if that has imported the
library: all that is open there is closed in it.
"""

from __future__ import annotations

import array
import asyncio
import atexit
import contextlib
import functools
import gc
import importlib
import io
import itertools
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_LIMIT = 1 << 20
_STREAMS = 3
_LEFT_OUT = ("__main__", ".mcp", ".migrate", ".reference")
"""Modules that are not imported before a program needs them, by a part of their names."""


class Forked:
    """A program that runs, or has ended."""

    def __init__(self, status: int, watcher: int | None = None) -> None:
        self._watcher = watcher
        self._status = open(status, "rb", buffering=0)  # noqa: SIM115 - closed when the program has ended
        self.pid = int(self._status.readline())
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; the exit code, or the negative number of the signal that ended it.

        Raises:
            TimeoutError: It goes on.
        """
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise TimeoutError(f"process {self.pid} goes on after {timeout} s")
            self.returncode = int(self._status.readline() or b"-9")
            self._status.close()
            if self._watcher is not None:
                os.waitpid(self._watcher, 0)
        return self.returncode

    def poll(self) -> int | None:
        """The exit code, or None as long as it goes on."""
        with contextlib.suppress(TimeoutError):
            self.wait(0)
        return self.returncode

    def fileno(self) -> int:
        """What can be read from when it has ended."""
        return self._status.fileno()

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it was seen to have ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)


def fork(
    module: str,
    arguments: Sequence[str],
    *,
    env: Mapping[str, str],
    streams: tuple[int, int, int],
    cwd: str | Path = ".",
    near: bool = False,
) -> Forked:
    """Run a module as `python -m` would, or a file as `python` would, in a process of its own.

    Args:
        module: The module, of the library or of its tests, or the path of a file.
        arguments: What the program is called with.
        env: Its environment.
        streams: The descriptors of its stdin, stdout and stderr; they stay open here too.
        cwd: Its folder.
        near: Whether it is forked from this very process, with all that is imported here.
    """
    wanted = {
        "module": module,
        "arguments": list(arguments),
        "env": dict(env),
        "cwd": str(Path(cwd).resolve()),
    }
    reader, writer = os.pipe()
    try:
        if near:
            fds = [*streams, writer]
            return Forked(reader, _fork_here(fds, lambda: _watch(wanted, fds)))
        socket.send_fds(_parent(), [json.dumps(wanted).encode()], [*streams, writer])
    finally:
        os.close(writer)
    return Forked(reader)


class ForkedProcess:
    """A program that runs, with what of an asyncio process is used by tests."""

    def __init__(self, forked: Forked, stdout: asyncio.StreamReader, stdin: IO[bytes] | None = None) -> None:
        self.stdout = stdout
        self.stdin = stdin
        self.pid = forked.pid
        self.send_signal = forked.send_signal
        self.kill = forked.kill
        self._forked = forked

    @classmethod
    async def start(
        cls,
        module: str,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        cwd: str | Path = ".",
        stderr: int = 2,
        told: bool = False,
        near: bool = False,
    ) -> ForkedProcess:
        """Fork it; what it prints can be read.

        Args:
            module: The module, of the library or of its tests, or the path of a file.
            *arguments: What the program is called with.
            env: Its environment; by default that of this process.
            cwd: Its folder.
            stderr: The descriptor of its stderr.
            told: Whether it is told something: then `stdin` can be written to.
            near: Whether it is forked from this very process; see `fork`.
        """
        reader, writer = os.pipe()
        input_end, told_end = os.pipe() if told else (0, None)
        try:
            given = os.environ if env is None else env
            forked = fork(
                module, arguments, env=given, cwd=cwd, streams=(input_end, writer, stderr), near=near
            )
        finally:
            os.close(writer)
            if told:
                os.close(input_end)
        stdout = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stdout), os.fdopen(reader, "rb", buffering=0)
        )
        return cls(forked, stdout, None if told_end is None else os.fdopen(told_end, "wb", buffering=0))

    @property
    def returncode(self) -> int | None:
        """The exit code, or None as long as it runs."""
        return self._forked.poll()

    async def wait(self) -> int:
        """Wait for its end; the exit code."""
        if self._forked.poll() is None:
            loop, ended = asyncio.get_running_loop(), asyncio.Event()
            loop.add_reader(self._forked, ended.set)
            try:
                await ended.wait()
            finally:
                loop.remove_reader(self._forked)
        return self._forked.wait()

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    async def communicate(self, given: bytes = b"") -> tuple[bytes, None]:
        """Tell it the rest, and wait for its end; what else it printed."""
        if self.stdin is not None and not self.stdin.closed:
            self.stdin.write(given)
            self.stdin.close()
        rest = await self.stdout.read()
        await self.wait()
        return rest, None


def completed(
    module: str,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    cwd: str | Path = ".",
    given: str = "",
    timeout: float = 60.0,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; its exit code and what it printed.

    Args:
        module: The module, of the library or of its tests, or the path of a file.
        *arguments: What the program is called with.
        env: Its environment; by default that of this process.
        cwd: Its folder.
        given: What it reads from stdin.
        timeout: The seconds that are waited for its end.
    """
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(_STREAMS)]
        files[0].write(given.encode())
        files[0].seek(0)
        stdin, stdout, stderr = (file.fileno() for file in files)
        environment = os.environ if env is None else env
        forked = fork(module, arguments, env=environment, cwd=cwd, streams=(stdin, stdout, stderr))
        code = forked.wait(timeout)
        for file in files:
            file.seek(0)
        out, err = (file.read().decode() for file in files[1:])
        return subprocess.CompletedProcess([module, *arguments], code, out, err)


@functools.cache
def _parent() -> socket.socket:
    """The process that forks for this one, and ends with it."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (here, there):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LIMIT)
    with there:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.forking", str(there.fileno())],
            cwd=Path(__file__).resolve().parents[1],
            pass_fds=[there.fileno()],
            stdin=subprocess.DEVNULL,
        )

    def stop() -> None:
        here.close()
        process.wait()

    atexit.register(stop)
    return here


def _serve(asked: socket.socket) -> None:
    """Fork a program for every message, until nobody can ask any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    size = array.array("i").itemsize * (_STREAMS + 1)
    while True:
        content, passed, _, _ = asked.recvmsg(_LIMIT, socket.CMSG_SPACE(size))
        if not content:
            return
        fds = array.array("i")
        for _, _, data in passed:
            fds.frombytes(data)
        if os.fork() == 0:
            asked.close()
            _watch(json.loads(content), list(fds))
        for fd in fds:
            os.close(fd)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _fork_here(fds: Sequence[int], run: Callable[[], object]) -> int:
    """Fork this process, with nothing of what is open here but the streams and these; who runs that."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks beside threads
        forked = os.fork()
    if forked:
        return forked
    try:
        gc.freeze()  # nothing is closed that belongs to the process that was forked from
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        warnings.resetwarnings()
        warnings.simplefilter("ignore")
        kept = [0, 1, 2, *sorted({*fds} - {0, 1, 2}), os.sysconf("SC_OPEN_MAX")]
        for one, following in itertools.pairwise(kept):
            os.closerange(one + 1, following)
        run()
    finally:
        os._exit(1)


def _watch(wanted: dict[str, Any], fds: list[int]) -> NoReturn:
    """Run the program in a process, and tell its number and how it ended."""
    *streams, status = fds
    pid = os.fork()
    if pid == 0:
        os.close(status)
        _become(wanted, streams)
    for fd in streams:
        os.close(fd)
    with contextlib.suppress(BrokenPipeError):
        os.write(status, b"%d\n" % pid)
        os.write(status, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os._exit(0)


def _become(wanted: dict[str, Any], streams: list[int]) -> NoReturn:
    code: object = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, fd in enumerate(streams):
            os.dup2(fd, number)
        for fd in {*streams} - {0, 1, 2}:
            os.close(fd)
        _open_streams()
        os.chdir(wanted["cwd"])
        os.environ.clear()
        os.environ.update(wanted["env"])
        module = wanted["module"]
        sys.argv = [module, *wanted["arguments"]]
        if module.endswith(".py"):
            sys.path.insert(0, str(Path(module).parent))
            runpy.run_path(module, run_name="__main__")
        else:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        _end(code)


def _open_streams() -> None:
    """Open the standard streams as the interpreter does; those that they replace must not close them."""
    errors = sys.stdin.errors
    sys.stdin = open(0, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115 - open to the end
    for name, number in (("stdout", 1), ("stderr", 2)):
        at_once = name == "stderr" or os.isatty(number)
        opened = io.TextIOWrapper(
            open(number, "wb", closefd=False),  # noqa: SIM115 - open as long as the process
            encoding="utf-8",
            errors="backslashreplace" if name == "stderr" else errors,
            line_buffering=at_once,
        )
        setattr(sys, name, opened)


def _end(code: object) -> NoReturn:
    """End without taking the interpreter apart, which would cost more than most commands."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def _import_all() -> None:
    """Import what commands and services use, except for libraries that few of them do."""
    from holdfast import edges

    for found in pkgutil.walk_packages(edges.__path__, f"{edges.__name__}."):
        if not any(part in found.name for part in _LEFT_OUT):
            importlib.import_module(found.name)
    for engine in ("postgres", "sqlite"):
        importlib.import_module(f"holdfast.engines.{engine}")
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    _import_all()
    _serve(socket.socket(fileno=int(sys.argv[1])))
