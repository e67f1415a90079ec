"""`holdfast commands`: every command with its arguments, for programs that call this one.

Everything is read from the parser and from the commands' own functions, and so is the reference page.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from typing import TYPE_CHECKING, Any, Final

import docstring_parser
import msgspec

from holdfast.edges.cli.app import app, obey
from holdfast.edges.cli.confirmation import is_destructive
from holdfast.edges.cli.exit_codes import EXIT_CODES, INTERRUPTED, PIPE_CLOSED
from holdfast.edges.cli.output import document, rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cyclopts import App, Argument

MEANINGS: Final = {
    0: "done",
    1: "an error that a retry does not fix",
    2: "the command line is wrong, or asks for something that is not allowed",
    3: "there is no such key, table, item or index",
    4: "another writer came first: read again, then decide",
    5: "the same command may succeed later; after `OUTCOME_UNKNOWN` it may have been done already",
    6: "the caller may not do this",
    INTERRUPTED: "Ctrl-C",
    PIPE_CLOSED: "the reader of the output has gone, as in `holdfast list --all | head -1`",
}
"""The meaning of each exit code. All commands have the same ones; `lock run` passes on its program's."""


_OWN: Final = frozenset({"", "Arguments", "Parameters"})
"""The groups of options that belong to a single command."""


class KnownCommand(msgspec.Struct, frozen=True):
    """A command: its words, its aliases, and its entry in the parser."""

    path: tuple[str, ...]
    aliases: tuple[str, ...]
    app: App


class ShownArgument(msgspec.Struct, frozen=True, kw_only=True):
    """An argument or option of a command.

    Args:
        names: The names as typed, the long one first; for a positional argument its name in help.
        value: The placeholder for an option's value; None for a switch.
        positional: Whether it is given by position.
        required: Whether it must be given.
        choices: The allowed words, if they are limited.
        help: Its meaning.
        group: The name of a group of options that many commands share.
    """

    names: tuple[str, ...]
    value: str | None
    positional: bool
    required: bool
    choices: tuple[str, ...]
    help: str
    group: str | None


class ShownCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command.

    Args:
        command: The words after `holdfast` that call it.
        aliases: Other words that call it.
        help: Its effect.
        destroys: Whether it may destroy stored data.
        asks: Whether it asks for confirmation unless `--yes` is given.
        arguments: Its arguments and options.
    """

    command: str
    aliases: tuple[str, ...]
    help: str
    destroys: bool
    asks: bool
    arguments: tuple[ShownArgument, ...]


class ShownExitCode(msgspec.Struct, frozen=True, kw_only=True):
    """An exit code, its meaning, and the codes of the errors that lead to it."""

    code: int
    meaning: str
    errors: tuple[str, ...]


def commands(*, json: bool = False) -> None:
    """List every command, what it does, and whether it can delete stored data.

    Parameters
    ----------
    json
        Print one document with every command, its arguments and the exit codes.
    """
    if json:
        with _docstrings_parsed_once():
            shown = [shown_command(known) for known in known_commands(app)]
        document({"commands": shown, "exit_codes": exit_codes()})
    else:
        rows(("command", "effect", "what it does"), map(_row, known_commands(app)))


def known_commands(group: App, *path: str) -> Iterator[KnownCommand]:
    """Yield every command, ordered by name."""
    hidden = {*group.help_flags, *group.version_flags}
    known = group.resolved_commands()
    for name, command in sorted(known.items()):
        if name in hidden or name != command.name[0]:
            continue
        if command.default_command is not None:
            aliases = tuple(other for other, one in known.items() if one is command and other != name)
            yield KnownCommand((*path, name), aliases, command)
        yield from known_commands(command, *path, name)


def shown_command(known: KnownCommand) -> ShownCommand:
    """Return the description of a command for programs."""
    arguments = tuple(map(_shown, arguments_of(known.app)))
    return ShownCommand(
        command=" ".join(known.path),
        aliases=tuple(" ".join((*known.path[:-1], alias)) for alias in known.aliases),
        help=description(known.app),
        destroys=is_destructive(known.app.default_command),
        asks=any("--yes" in argument.names for argument in arguments),
        arguments=arguments,
    )


def exit_codes() -> list[ShownExitCode]:
    """Return the exit codes, in their order."""
    return [
        ShownExitCode(
            code=number,
            meaning=meaning,
            errors=tuple(code for code, ends_with in EXIT_CODES.items() if ends_with == number),
        )
        for number, meaning in MEANINGS.items()
    ]


def arguments_of(command: App) -> list[Argument]:
    """Return the arguments of a command that help shows."""
    return [one for one in command.assemble_argument_collection(parse_docstring=True) if one.show]


def group_of(argument: Argument) -> str:
    """Return the name of an argument's shared group; empty if it is the command's own."""
    groups: Any = argument.parameter.group
    return str(groups[0].name) if groups else ""


def description(command: App) -> str:
    """Return a command's documentation up to its parameters."""
    text = inspect.cleandoc(command.help)
    return text.partition("\n\nParameters\n")[0]


def value_of(argument: Argument) -> str | None:
    """Return the placeholder for an option's value; None for a switch or a positional argument."""
    if argument.is_positional_only() or argument.is_flag() or argument.parameter.negative:
        return None
    return str(argument.field_info.name).upper().replace("_", "-")


@contextlib.contextmanager
def _docstrings_parsed_once() -> Iterator[None]:
    """Keep parsed docstrings: cyclopts parses those of shared options from their source for every command."""
    parse = docstring_parser.parse_from_object
    docstring_parser.parse_from_object = functools.cache(parse)
    try:
        yield
    finally:
        docstring_parser.parse_from_object = parse


def _shown(argument: Argument) -> ShownArgument:
    return ShownArgument(
        names=(*(argument.parameter.name or ()), *(argument.parameter.negative or ())),
        value=value_of(argument),
        positional=argument.is_positional_only(),
        required=argument.required,
        choices=tuple(sorted(argument.get_choices() or ())),
        help=" ".join((argument.parameter.help or "").split()),
        group=group if (group := group_of(argument)) not in _OWN else None,
    )


def _row(known: KnownCommand) -> tuple[str, str | None, str]:
    effect = "destroys" if is_destructive(known.app.default_command) else None
    return " ".join(known.path), effect, description(known.app).partition("\n")[0]


def show_help(*command: str) -> int:
    """Show what a command does and which options it has; without one, list all commands.

    Parameters
    ----------
    command
        The words of the command.
    """
    return obey([*command, "--help"])
