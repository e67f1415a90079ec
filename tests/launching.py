"""A program for shells that has another one forked and stands for it: what starts it sees no difference.

    python -I -S tests/launching.py WHERE MODULE ARGUMENT...
    python -I -S tests/launching.py WHERE -m MODULE ARGUMENT...
    python -I -S tests/launching.py WHERE FILE ARGUMENT...

The program is asked for at a descriptor, or at an address that begins with `@`.

Law: the standard library alone and little of it, so that starting it costs next to nothing. The program gets
the arguments, streams, folder and variables of this one and its signals, and this one ends as it did. See
`tests.forking`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def script(path: Path, module: str) -> int:
    """Write a program that has a module forked.

    Args:
        path: Where it is written.
        module: The module, of the library or of its tests.

    Returns:
        The descriptor that whoever runs the program has to pass on to it.
    """
    words, number = command(module)
    path.write_text(f'#!/bin/sh\nexec {" ".join(words)} "$@"\n')
    path.chmod(0o755)
    return number


def command(module: str) -> tuple[list[str], int]:
    """The words before the arguments with which a module is forked, and the descriptor to pass on."""
    from tests.forking import descriptor

    number = descriptor()
    return [sys.executable, "-I", "-S", __file__, str(number), module], number


def ask(where: str, module: str, arguments: list[str]) -> int:
    """Have a program forked that has the streams of this one; where its number and its end are told."""
    wanted = {"module": module, "arguments": arguments, "env": dict(os.environ), "cwd": os.getcwd()}
    reader, writer = os.pipe()
    with _reached(where) as asked:
        socket.send_fds(asked, [json.dumps(wanted).encode()], [0, 1, 2, writer])
    os.close(writer)
    return reader


def _reached(where: str) -> socket.socket:
    if not where.startswith("@"):
        return socket.socket(fileno=int(where))
    asked = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    asked.connect(where.replace("@", "\0", 1))
    return asked


def stand_for(status: int) -> int:
    """Pass on signals until a program has ended: its exit code, or the negative number of a signal."""
    with open(status, encoding="ascii") as told:
        pid = int(told.readline())
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: os.kill(pid, number))
        return int(told.readline() or -signal.SIGKILL)


def end(code: int) -> None:
    """End with an exit code, or by a signal."""
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    _, _where, *_words = sys.argv
    _module, *_arguments = _words[1:] if _words[0] == "-m" else _words
    end(stand_for(ask(_where, _module, _arguments)))
