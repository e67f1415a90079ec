"""A program that stands for the interpreter: what it is told to run is forked from this process.

Law: what it runs has all that is imported here, which is why it costs next to nothing; all that is open here
is closed in it. It is called by a path, so that libraries and examples that start programs can be given it
instead of the interpreter. See `tests.forking`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import shlex
import signal
import socket
import sys
from typing import TYPE_CHECKING, NoReturn

from tests import launching
from tests.forking import answer, fork_bare

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NUMBERS = itertools.count()


@contextlib.contextmanager
def near_python(folder: Path) -> Iterator[str]:
    """For the length of a block, a program that runs `-m MODULE` or a file in a process that is forked.

    Args:
        folder: Where the program is written.

    Yields:
        Its path.
    """
    address = f"@holdfast-tests-{os.getpid()}-{next(_NUMBERS)}"
    here, there = socket.socketpair()
    with here, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(address.replace("@", "\0", 1))
        listening.listen()
        with there:
            forked = fork_bare([listening.fileno(), there.fileno()], lambda: _serve(listening, there))
        program = folder / "python"
        words = shlex.join([sys.executable, "-I", "-S", launching.__file__, address])
        program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        program.chmod(0o755)
        try:
            yield str(program)
        finally:
            here.close()
            os.waitpid(forked, 0)


def _serve(listening: socket.socket, end: socket.socket) -> NoReturn:
    """Fork a program for everybody who asks, until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while end not in select.select([listening, end], [], [])[0]:
        asked, _ = listening.accept()
        with asked:
            answer(asked, listening, end)
    os._exit(0)
