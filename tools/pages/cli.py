"""The reference page of the command line, from the commands themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.edges.cli.app import app
from holdfast.edges.cli.commands.commands import (
    arguments_of,
    description,
    exit_codes,
    group_of,
    known_commands,
    value_of,
)
from holdfast.edges.cli.options import WHERE, WHO

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cyclopts import Argument

    from holdfast.edges.cli.commands.commands import KnownCommand

_INTRODUCTION: Final = """\
# The command line

`holdfast` comes with `pip install 'holdfast-kv[cli]'`. This page is made from the commands themselves;
`holdfast --help` and `holdfast COMMAND --help` say the same.

Data goes to stdout, everything else to stderr. On a terminal, rows are drawn as a table; elsewhere a row is a
line with tabs between its cells, without a heading, and `-` for what there is not. A key with a line break or
another control character in it is shown as a JSON string. A value of an entry is always JSON, unless `--raw`
asks for its text; on a terminal it is set out over several lines. Errors and levels have colours on a
terminal, unless the variable `NO_COLOR` is set. A table that does not fit the screen leaves out its last
columns and says which.

The options about the store may also stand before the command: `holdfast --url state.db list`. A time to live,
like any other length of time, is a number of seconds or has units: `30s`, `5m`, `1h`, `2d`, `1w`, `1h30m`.
"""

_ABOUT: Final = {
    "Store": "Commands about the keys of a namespace take all of these; those about tables take `--url`,\n"
    "`--context`, `--json` and `--plugin`, and those about a whole store `--url`, `--context` and\n"
    "`--json`. The user's own store is that of `holdfast up`.",
    "Provenance": "Commands that write to a key or a table take these.",
}
_SHARED: Final = {"Store": "The store", "Provenance": "Where a write comes from"}
"""The groups of options that many commands share, and the headings under which they are described."""


def reference() -> str:
    """Return the page."""
    return "\n".join([_INTRODUCTION, *_shared_sections(), *_exit_codes(), "## Commands", "", *_commands()])


def _commands() -> Iterator[str]:
    """Yield a section for every command, ordered by name."""
    for known in known_commands(app):
        yield from _command(known)


def _command(known: KnownCommand) -> Iterator[str]:
    arguments, path, aliases = arguments_of(known.app), known.path, known.aliases
    own = [argument for argument in arguments if group_of(argument) not in _SHARED]
    yield from (f"### holdfast {' '.join(path)}", "")
    yield from (f"`{_usage(path, own)}`", "")
    yield from (description(known.app), "")
    if aliases:
        calls = ", ".join(f"`{' '.join(('holdfast', *path[:-1], alias))}`" for alias in aliases)
        yield from (f"The same as {calls}.", "")
    if own:
        yield from (*_table(own), "")
    shared = dict.fromkeys(group_of(argument) for argument in arguments if group_of(argument) in _SHARED)
    if shared:
        links = " and ".join(f"[{_SHARED[name].lower()}](#{_anchor(_SHARED[name])})" for name in shared)
        yield from (f"Also the options about {links}.", "")


def _usage(path: tuple[str, ...], own: list[Argument]) -> str:
    """Return the usage line of a command, with its own options."""
    parts = [
        _shown(argument) if argument.required else f"[{_shown(argument)}]"
        for argument in sorted(own, key=lambda argument: not argument.is_positional_only())
    ]
    return " ".join(["holdfast", *path, *parts])


def _shared_sections() -> Iterator[str]:
    """Yield the shared options, taken from a command that has all of them."""
    arguments = arguments_of(app["set"])
    for group in (WHERE, WHO):
        yield from (f"## {_SHARED[str(group.name)]}", "", _ABOUT[str(group.name)], "")
        yield from (*_table([argument for argument in arguments if group_of(argument) == group.name]), "")


def _exit_codes() -> Iterator[str]:
    yield from ("## Exit codes", "", "| code | meaning | errors |", "|---|---|---|")
    for one in exit_codes():
        codes = ", ".join(f"`{code}`" for code in one["errors"])
        meaning = one["meaning"].replace("|", "\\|")
        yield f"| {one['code']} | {meaning} | {codes} |"
    yield ""


def _table(arguments: list[Argument]) -> Iterator[str]:
    yield from ("| argument | meaning |", "|---|---|")
    for argument in arguments:
        choices = ", ".join(f"`{choice}`" for choice in sorted(argument.get_choices() or ()))
        details = [
            " ".join((argument.parameter.help or "").split()),
            choices and f"One of {choices}.",
        ]
        meaning = " ".join(detail for detail in details if detail)
        yield f"| `{_shown(argument)}` | {meaning} |"


def _shown(argument: Argument) -> str:
    """Return an argument as it is typed: its names and its value."""
    opposite = argument.parameter.negative or ()
    names = "/".join((*(argument.parameter.name or ()), *opposite))
    value = value_of(argument)
    return names if value is None else f"{names} {value}"


def _anchor(heading: str) -> str:
    return heading.lower().replace(" ", "-")
