"""What commands take: shared options, values as JSON, and confirmation before something is destroyed.

Everything that the parsing library must know about more than one command is here, so that `target` does not
need it. A value that is not JSON is refused with a hint and never taken as text; the rules decide whether a
JSON value is allowed. A person at a terminal is asked before data is lost, and only a clear yes continues. A
script passes `--yes`, or nothing is done.
"""

from __future__ import annotations

import re
import select
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Annotated, Any, Final, NoReturn, TypeVar

import msgspec
from cyclopts import ArgumentCollection, Group, Parameter, Token

from holdfast.edges.cli.output import opened_input
from holdfast.edges.cli.target import SHORT, Place, Target
from holdfast.edges.screen import harmless
from holdfast.errors import MissingField, ValidationError
from holdfast.rules import MAX_DIGITS, MAX_NESTING
from holdfast.verbs.fields import Provenance


def number(_: object, tokens: Sequence[Token]) -> Any:
    """Parse a number as JSON, so that `1.5` reaches the rules unchanged and is not rounded."""
    text = tokens[0].value
    parsed = _number_in(text)
    if parsed is None:
        # An argument that may be negative accepts every word with a hyphen.
        raise ValueError(f"Unknown option: {text}." if text[:2] == "--" else f"{text!a} is not a number.")
    return parsed


def _number_in(text: str) -> float | None:
    try:
        parsed = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    return parsed if type(parsed) in (int, float) else None


_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)([smhdw])", re.ASCII)


def seconds(_: object, tokens: Sequence[Token]) -> Any:
    """Parse seconds, as a number or with units: `30s`, `90m`, `1h`, `2d`, `1w`, and `1h30m` for a sum."""
    text = tokens[0].value
    if (parsed := _number_in(text)) is not None:
        return parsed
    if not text or _PART.sub("", text):
        raise ValueError(
            f"{text!a} is not a duration; give seconds, or write it as 30s, 5m, 1h, 2d, 1w or 1h30m."
        )
    total = sum(Decimal(amount) * _UNITS[unit] for amount, unit in _PART.findall(text))
    return int(total) if total == int(total) else float(total)


def require_from_one(count: int, field: str) -> None:
    """Check that a number is a whole one, from 1.

    Raises:
        ValidationError: It is not.
    """
    if type(count) is not int or count < 1:
        raise ValidationError(f"{field} must be a whole number from 1", field=field)


def one_namespace(arguments: ArgumentCollection) -> None:
    """Refuse a plugin together with a tenant or project."""
    names = {argument.name for argument in arguments if argument.tokens}
    if "--plugin" in names and names & {"--tenant", "--project"}:
        raise ValueError("Give --plugin, or --tenant and --project, but not both.")


EVERY: Final = Parameter(negative=(), show_default=False)
"""The defaults of every option."""
WHERE: Final = Group("Store", sort_key=10, validator=one_namespace)
WHO: Final = Group("Provenance", sort_key=5)

Whole = Annotated[int, Parameter(converter=number)]
MaybeWhole = Annotated[int | None, Parameter(converter=number)]
Everything = Annotated[bool, Parameter(name="--all", help="All of them, page by page.")]
Key = Annotated[str, Parameter(help="The key.")]
IfVersion = Annotated[
    int | None,
    Parameter(
        converter=number, help="Write only if the entry has this version; 0 means that it must not exist."
    ),
]
Seconds = Annotated[int, Parameter(converter=seconds)]
MaybeSeconds = Annotated[int | None, Parameter(converter=seconds)]
Ttl = Annotated[
    int | None,
    Parameter(converter=seconds, help="Expire the entry after this long: seconds, or 30s, 1h, 2d."),
]
FullName = Annotated[
    str | None,
    Parameter(help="A full name, such as table/trivia, instead of --plugin, or --tenant and --project."),
]
Long = Parameter(alias="-l")
Why = Annotated[
    str | None, Parameter(help="Why you look at it. Required in a namespace with an audit, which records it.")
]
Viewer = Annotated[str | None, Parameter(help="Name of the person who looks; `cli` if not given.")]


@Parameter(name="*", group=WHO)
@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """The provenance of a write."""

    writer: str | None = None
    """Name to record as the entry's last writer; `cli` if not given."""

    request_id: str | None = None
    """Identifies this write. Sending it again with the same content returns the first answer
    and changes nothing."""

    once: str | None = None
    """Identifies what you intend. If this id is known, the first answer is returned and nothing
    is changed, whatever else is given."""

    spec_ref: str | None = None
    """Reference to the governing document."""

    fence: str | None = None
    """Refuse the write once another holder has taken this lock: NAME:TOKEN, with the token of the
    holding. NAME:TOKEN:live also refuses it when the lock is no longer held."""

    @property
    def fields(self) -> Provenance:
        """The keyword arguments for the verbs."""
        return {
            "writer": self.writer,
            "request_id": self.request_id,
            "once": self.once,
            "spec_ref": self.spec_ref,
            "fence": None if self.fence is None else _fence(self.fence),
        }


def _fence(text: str) -> dict[str, Any]:
    """Return the fence that an option names. A lock's name may hold colons, a token is a number."""
    held = text.removesuffix(":live")
    lock, _, token = held.rpartition(":")
    if not lock or not (token.isascii() and token.isdecimal()):
        raise ValidationError(
            f"--fence must be NAME:TOKEN or NAME:TOKEN:live, with the number of a holding, not {text!a}",
            field="fence",
        )
    return {"lock": lock, "token": int(token), "live": held != text}


UNNAMED: Final = WriteOptions()


AnyPage = TypeVar("AnyPage", bound=Any)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Paging:
    """The part of a listing to print."""

    limit: Annotated[int | None, Parameter(converter=number)] = None
    """Return at most this many, 1 to 10000; 1000 if not given. With --all, the size of a page."""

    cursor: str | None = None
    """Continue after an earlier page; the cursor is in its JSON."""

    everything: Everything = False

    async def pages(self, read: Callable[..., Awaitable[AnyPage]]) -> AsyncIterator[AnyPage]:
        """Yield the pages that `read` returns: one, or all that follow."""
        cursor = self.cursor
        while True:
            page = await read(limit=self.limit, cursor=cursor)
            yield page
            cursor = page.cursor
            if cursor is None or not self.everything:
                return


FIRST_PAGE: Final = Paging()
ALL_PAGES: Final = Paging(everything=True)


@Parameter(name="*", group=WHERE)
@dataclass(frozen=True, kw_only=True)
class Owner(Place):
    """A plugin, which has tables and blobs."""

    plugin: Annotated[str | None, Parameter(alias="-p")] = None
    """The plugin. If not given: $HOLDFAST_PLUGIN."""

    @property
    def plugin_name(self) -> str:
        """The name of the plugin, from the option, a variable or a context."""
        plugin = self._default_names().plugin if self.plugin is None else self.plugin
        if not plugin:
            raise MissingField("which plugin? Give --plugin NAME (or set HOLDFAST_PLUGIN)", field="plugin")
        return plugin


OWNER: Final = Owner()


def _are_options(kind: type[Place]) -> None:
    """Make the fields of a class options of every command that takes one."""
    Parameter(name="*", group=WHERE)(kind)
    for field in fields(kind):
        short = field.metadata.get(SHORT)
        if short is not None and field.name in kind.__annotations__:
            meant = bool if field.default is False else str | None
            kind.__annotations__[field.name] = Annotated[meant, Parameter(alias=short)]


_are_options(Place)
_are_options(Target)


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


TEXT: Final = "write text in double quotes within single ones, as in '\"hello\"', or add --text"
"""The hint for a command whose values may be text."""


def read_value(argument: str, *, text: bool, hint: str = TEXT) -> Any:
    """Return the value that an argument stands for.

    Args:
        argument: The value itself, `-` for stdin, or `@` and the name of a file.
        text: Take it as a string. One line break at the end of stdin or a file is removed.
        hint: Advice for the error about a value that is not JSON.
    """
    if argument == "-":
        content = _decoded(sys.stdin.buffer.read(), "what is on stdin")
    elif argument.startswith("@"):
        with opened_input(argument[1:], field="value") as file:
            content = _decoded(file.read(), argument[1:])
    else:
        return argument if text else parse(argument, hint=hint)
    return content.removesuffix("\n") if text else parse(content, hint=hint)


def parse(text: str, *, hint: str = TEXT) -> Any:
    """Parse JSON.

    The fast decoder rejects some JSON that cannot be a value, such as 1e400, without a reason. The slow one
    passes it on to the rules, which give one.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return _parse_slowly(text, hint)
    except RecursionError:
        raise _too_deep() from None


def _parse_slowly(text: str, hint: str) -> Any:
    # late: it takes 2 ms, and such values are rare
    import json

    def refuse(constant: str) -> NoReturn:
        raise json.JSONDecodeError(constant, "", 0)

    try:
        return json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError:
        excerpt = ascii(text[:40]) + ("..." if len(text) > 40 else "")
        raise ValidationError(f"value {excerpt} is not JSON: {hint}", field="value") from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError:
        raise ValidationError(
            f"value holds an integer with more than {MAX_DIGITS} digits", field="value"
        ) from None


def _too_deep() -> ValidationError:
    return ValidationError(f"value is nested deeper than {MAX_NESTING} levels", field="value")


def _decoded(content: bytes, where: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ValidationError(f"{where} is not UTF-8", field="value") from None
