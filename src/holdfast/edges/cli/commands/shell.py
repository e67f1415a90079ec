"""`holdfast shell`: commands at a prompt, or from the lines of stdin, on a store that stays open.

There is no second language. A line is split into words as a shell does, and the words are those of the
command line. An error in a command is reported as usual, and the next command runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from typing import Final, TextIO

from holdfast import extras, seams
from holdfast.edges.cli.app import app, command_first, obey_within
from holdfast.edges.cli.commands.commands import options_of
from holdfast.edges.cli.fast_parser import wants_json
from holdfast.edges.cli.output import INTERRUPTED, OK, complain, exit_code
from holdfast.edges.cli.target import HERE, KeptStore, Target, kept_by
from holdfast.errors import DatabaseError, HoldfastError, Unavailable, ValidationError

_LEAVE: Final = frozenset({"exit", "quit"})
_ELSEWHERE: Final = {
    "up": "holdfast up runs until Ctrl-C: run it in a terminal of its own",
    "shell": "this is holdfast shell already: type a command, or exit to leave",
}
"""Commands that cannot run within another."""
_ALONE: Final = frozenset({"migrate", "doctor"})
"""Commands that need the store to be closed."""


async def shell(*, target: Target = HERE) -> int:
    """Read commands from a prompt and run them on one store, which stays open until the end.

    Type commands without holdfast before them. The options that are given here apply to each of them. Tab
    completes commands, options, namespaces and keys. Ctrl-C clears the line or ends the running command;
    Ctrl-D or exit leaves. The lines are kept in a history that only its owner can read, except for lines
    that begin with a space.

    If stdin is not a terminal, each line of it is a command. All of them are run, and the exit code is that
    of the first one that failed. Empty lines, and lines that begin with #, are skipped.
    """
    by_hand = sys.stdin.isatty() and sys.stdout.isatty()
    kept = KeptStore(target.address)
    commands = Commands(kept, as_json=target.json, by_hand=by_hand)
    with _saying(target), kept_by(kept):
        try:
            return await (_by_hand(commands, target) if by_hand else _by_line(commands))
        finally:
            await kept.release()


class Commands:
    """Runs lines.

    Args:
        kept: The store that stays open.
        as_json: Whether commands print JSON if they can.
        by_hand: Whether Ctrl-C ends only the current command.
    """

    def __init__(self, kept: KeptStore, *, as_json: bool, by_hand: bool) -> None:
        self._kept = kept
        self._as_json = as_json
        self._by_hand = by_hand
        self.left = False
        """True once a line has asked to leave."""

    async def run(self, line: str) -> int:
        """Run the command in a line. Returns its exit code."""
        words: list[str] = []
        try:
            words = split(line)
            if words[:1] and words[0] in _LEAVE:
                self.left = True
                return OK
            code = await self._obey(words) if words else OK
            print(end="", flush=True)
            return code
        except HoldfastError as error:
            if isinstance(error, (DatabaseError, Unavailable)):
                await self._kept.release()  # reopening the store may fix it
            complain(error, as_json=self._as_json or wants_json(words))
            return exit_code(error)
        except KeyboardInterrupt:
            if not self._by_hand:
                raise
            return INTERRUPTED
        except SystemExit as ended:
            return ended.code if isinstance(ended.code, int) else OK

    async def _obey(self, words: list[str]) -> int:
        path, _, _ = app.parse_commands(command_first(words))
        if path and path[0] in _ELSEWHERE:
            raise ValidationError(_ELSEWHERE[path[0]], field="command")
        if path and path[0] in _ALONE:
            await self._kept.release()
        if self._as_json and not wants_json(words) and "--json" in options_of(path):
            words = ["--json", *words]
        return await (_interruptible(obey_within(words)) if self._by_hand else obey_within(words))


async def _interruptible(command: Coroutine[None, None, int]) -> int:
    """Run a command that Ctrl-C ends without ending the shell."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    before = signal.getsignal(signal.SIGINT)
    loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        return await command
    except asyncio.CancelledError:
        task.uncancel()
        return INTERRUPTED
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)


def split(line: str) -> list[str]:
    """Split a line into words; none if it holds no command.

    Raises:
        ValidationError: The line ends within a quote or after a backslash.
    """
    if line.lstrip().startswith("#"):
        return []
    try:
        words = shlex.split(line)
    except ValueError as error:
        what = "a quote is not closed" if "quotation" in str(error) else "nothing follows the last backslash"
        raise ValidationError(f"the line ends too early: {what}", field="command") from None
    return words[1:] if words[:1] == ["holdfast"] else words


async def _by_hand(commands: Commands, target: Target) -> int:
    with extras.needed("cli", "holdfast shell"):
        # late: optional driver
        from holdfast.edges.cli.prompt import typed

    async for line in typed(target):
        await commands.run(line)
        if commands.left:
            break
    return OK


async def _by_line(commands: Commands) -> int:
    """Run the lines of stdin, which is empty for the commands. Returns the first exit code that is not 0."""
    first, stdin = OK, sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO())
    try:
        async for line in _lines(stdin):
            code = await commands.run(line)
            first = first or code
            if commands.left or code == INTERRUPTED:
                break
    finally:
        sys.stdin = stdin
    return first


async def _lines(stream: TextIO) -> AsyncIterator[str]:
    """Yield the lines of a stream. A thread reads it, so that connections stay alive during a wait."""
    loop = asyncio.get_running_loop()
    while True:
        line: asyncio.Future[str] = loop.create_future()

        def read(line: asyncio.Future[str] = line) -> None:
            text = stream.readline()
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(_give, line, text)

        seams.Thread(target=read, name="holdfast stdin", daemon=True).start()
        text = await line
        if not text:
            return
        yield text.rstrip("\r\n")


def _give(line: asyncio.Future[str], text: str) -> None:
    if not line.done():
        line.set_result(text)


@contextlib.contextmanager
def _saying(target: Target) -> Iterator[None]:
    """Make the given store and namespace the default of every command."""
    variables: dict[str, str | None] = {}
    if target.url is not None:
        variables["HOLDFAST_URL"] = target.url
    elif target.context is not None:
        variables |= {"HOLDFAST_URL": None, "HOLDFAST_CONTEXT": target.context}
    if target.named or target.context is not None:
        names = ("HOLDFAST_PLUGIN", "HOLDFAST_TENANT", "HOLDFAST_PROJECT")
        variables |= dict(zip(names, target.chosen, strict=True))
    before = {name: os.environ.get(name) for name in variables}
    _set_variables(variables)
    try:
        yield
    finally:
        _set_variables(before)


def _set_variables(variables: Mapping[str, str | None]) -> None:
    for name, text in variables.items():
        if text is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = text
