"""Confirmation before a command destroys data.

A person at a terminal is asked, and only a clear yes continues. A script passes `--yes`, or nothing is done.
"""

from __future__ import annotations

import select
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final, TypeVar

from cyclopts import Parameter

from holdfast.edges.screen import harmless
from holdfast.errors import ValidationError

Command = TypeVar("Command", bound=Callable[..., Any])
Yes = Annotated[bool, Parameter(alias="-y", help="Do not ask for confirmation.")]
_DESTROYS: Final = "__holdfast_destroys__"
_AGREED: Final = frozenset({"y", "yes"})


def destroys(command: Command) -> Command:
    """Mark a command that may destroy stored data; `holdfast commands` reports the mark."""
    setattr(command, _DESTROYS, True)
    return command


def is_destructive(command: object) -> bool:
    """Return whether a command may destroy stored data."""
    return getattr(command, _DESTROYS, False)


def require_yes(what: str, *, yes: bool) -> None:
    """Continue only if the user confirms.

    Args:
        what: The loss, as a sentence without its full stop.
        yes: Whether `--yes` was given.

    Raises:
        ValidationError: The answer was no, or there is no terminal to ask at.
    """
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ValidationError(f"{what}: add --yes to do it", field="yes")
    if _answer(f"holdfast: {harmless(what)}. Go on? [y/N] ").strip().lower() not in _AGREED:
        raise ValidationError("nothing was done", field="yes")


def _answer(question: str) -> str:
    """Read a line from the terminal. Within a loop Ctrl-C would only be recorded while the read continues."""
    with _interrupting() as signals:
        print(question, end="", file=sys.stderr, flush=True)
        while sys.stdin not in select.select([sys.stdin, signals], [], [])[0]:
            signals.recv(64)
        return sys.stdin.readline()


@contextmanager
def _interrupting() -> Iterator[socket.socket]:
    """Make Ctrl-C raise KeyboardInterrupt. Yields a socket that is readable once a signal has arrived.

    A read does not end for a signal that arrives just before it, but `select` does for this socket. The
    socket stands in for that of a loop, which would take the signal for a Ctrl-C at its next prompt.
    """
    reader, writer = socket.socketpair()
    with reader, writer:
        writer.setblocking(False)
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        previous = signal.set_wakeup_fd(writer.fileno())
        try:
            yield reader
        finally:
            signal.set_wakeup_fd(previous)
            signal.signal(signal.SIGINT, handler)
