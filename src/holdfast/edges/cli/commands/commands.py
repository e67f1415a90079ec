"""`holdfast commands`: every command with its arguments, for programs that call this one.

Law: all of it is read from the parser and from the commands' own functions. The reference page is made from
the same.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.edges.cli.asking import is_destructive
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
"""What each exit code means. Every command has the same ones; `lock run` passes on that of its program."""


_OWN: Final = frozenset({"", "Arguments", "Parameters"})
"""The groups of options that belong to one command alone."""


class Known(msgspec.Struct, frozen=True):
    """A command: the words that call it, its other names, and what the parser knows of it."""

    path: tuple[str, ...]
    aliases: tuple[str, ...]
    app: App


class ShownArgument(msgspec.Struct, frozen=True, kw_only=True):
    """An argument or option of a command.

    Args:
        names: As they are typed, the long one first; what stands for a positional argument in help.
        value: What follows an option; None for a switch.
        positional: Whether it is given by its place.
        required: Whether it must be given.
        choices: The words that it may be, if there are only some.
        help: What it means.
        group: The options that many commands share have a name together.
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
        help: What it does.
        destroys: Whether something that was stored may be lost by it.
        asks: Whether it then asks first, unless it is given `--yes`.
        arguments: What it takes.
    """

    command: str
    aliases: tuple[str, ...]
    help: str
    destroys: bool
    asks: bool
    arguments: tuple[ShownArgument, ...]


class ShownExitCode(msgspec.Struct, frozen=True, kw_only=True):
    """A number with which commands end, what it means, and the codes of the errors that lead to it."""

    code: int
    meaning: str
    errors: tuple[str, ...]


def commands(*, json: bool = False) -> None:
    """List every command, what it does, and whether it may lose what is stored.

    Parameters
    ----------
    json
        Print one document with every command, its arguments and the exit codes.
    """
    from holdfast.edges.cli.app import app

    if json:
        shown = [shown_command(known) for known in known_commands(app)]
        document({"commands": shown, "exit_codes": exit_codes()})
    else:
        rows(("command", "effect", "what it does"), map(_row, known_commands(app)))


def known_commands(group: App, *path: str) -> Iterator[Known]:
    """Every command, in the order of their names."""
    hidden = {*group.help_flags, *group.version_flags}
    known = group.resolved_commands()
    for name, command in sorted(known.items()):
        if name in hidden or name != command.name[0]:
            continue
        if command.default_command is not None:
            aliases = tuple(other for other, one in known.items() if one is command and other != name)
            yield Known((*path, name), aliases, command)
        yield from known_commands(command, *path, name)


def shown_command(known: Known) -> ShownCommand:
    """A command as a program reads of it."""
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
    """The exit codes, in their order."""
    return [
        ShownExitCode(
            code=number,
            meaning=meaning,
            errors=tuple(code for code, ends_with in EXIT_CODES.items() if ends_with == number),
        )
        for number, meaning in MEANINGS.items()
    ]


def arguments_of(command: App) -> list[Argument]:
    """What a command takes, as far as help shows it."""
    return [one for one in command.assemble_argument_collection(parse_docstring=True) if one.show]


def group_of(argument: Argument) -> str:
    """The name of the options that an argument is one of, empty if it is the command's own."""
    groups: Any = argument.parameter.group
    return str(groups[0].name) if groups else ""


def description(command: App) -> str:
    """A command's documentation up to its parameters."""
    text = inspect.cleandoc(command.help)
    return text.partition("\n\nParameters\n")[0]


def value_of(argument: Argument) -> str | None:
    """What follows the name of an option; None for a switch and for what is given by its place."""
    if argument.is_positional_only() or argument.is_flag() or argument.parameter.negative:
        return None
    return str(argument.field_info.name).upper().replace("_", "-")


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


def _row(known: Known) -> tuple[str, str | None, str]:
    effect = "destroys" if is_destructive(known.app.default_command) else None
    return " ".join(known.path), effect, description(known.app).partition("\n")[0]
