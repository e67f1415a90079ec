"""The reference page of the command line, made from the commands themselves.

    python -m holdfast.edges.cli.reference > docs/reference/cli.md

Law: nothing that a command declares is written down here a second time.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

from holdfast.edges.cli.app import app
from holdfast.edges.cli.exit_codes import EXIT_CODES, INTERRUPTED, PIPE_CLOSED
from holdfast.edges.cli.options import WHERE, WHO

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cyclopts import App, Argument

_INTRODUCTION: Final = """\
# The command line

`holdfast` comes with `pip install 'holdfast-kv[cli]'`. This page is made from the commands themselves;
`holdfast --help` and `holdfast COMMAND --help` say the same.

Data goes to stdout, everything else to stderr. On a terminal, rows are drawn as a table; elsewhere a row is a
line with tabs between its cells, without a heading, and `-` for what there is not. A key with a line break or
another control character in it is shown as a JSON string. A value of an entry is always JSON, unless `--raw`
asks for its text; on a terminal it is set out over several lines.

The options about the store may also stand before the command: `holdfast --url state.db list`. A time to live,
like any other length of time, is a number of seconds or has units: `30s`, `5m`, `1h`, `2d`, `1w`, `1h30m`.
"""

_MEANINGS: Final = {
    0: "done",
    1: "an error that a retry does not fix",
    2: "the command line is wrong, or asks for something that is not allowed",
    3: "there is no such key, table, item or index",
    4: "another writer came first: read again, then decide",
    5: "the same command may succeed later; what `OUTCOME_UNKNOWN` means is in [the errors](errors.md)",
    6: "the caller may not do this",
    INTERRUPTED: "Ctrl-C",
    PIPE_CLOSED: "the reader of the output has gone, as in `holdfast list --all \\| head -1`",
}

_ABOUT: Final = {
    "Store": "Commands about the keys of a namespace take all of these; those about tables take `--url`,\n"
    "`--context`, `--json` and `--plugin`, and those about a whole store `--url`, `--context` and\n"
    "`--json`. The user's own store is that of `holdfast up`.",
    "Provenance": "Commands that write to a key or a table take these.",
}
_SHARED: Final = {"Store": "The store", "Provenance": "Where a write comes from"}
"""The groups of options that many commands have, and the headings under which they are described."""


def reference() -> str:
    """The page."""
    return "\n".join([_INTRODUCTION, *_shared_sections(), *_exit_codes(), "## Commands", "", *_commands(app)])


def _commands(group: App, *path: str) -> Iterator[str]:
    """A section for every command, in the order of their names."""
    hidden = {*group.help_flags, *group.version_flags}
    known = group.resolved_commands()
    for name, command in sorted(known.items()):
        if name in hidden or name != command.name[0]:
            continue
        if command.default_command is not None:
            aliases = [other for other, one in known.items() if one is command and other != name]
            yield from _command(command, (*path, name), aliases)
        yield from _commands(command, *path, name)


def _command(command: App, path: tuple[str, ...], aliases: list[str]) -> Iterator[str]:
    arguments = _arguments(command)
    own = [argument for argument in arguments if _group(argument) not in _SHARED]
    yield from (f"### holdfast {' '.join(path)}", "")
    yield from (f"`{_usage(path, own)}`", "")
    yield from (_description(command), "")
    if aliases:
        calls = ", ".join(f"`{' '.join(('holdfast', *path[:-1], alias))}`" for alias in aliases)
        yield from (f"The same as {calls}.", "")
    if own:
        yield from (*_table(own), "")
    shared = dict.fromkeys(_group(argument) for argument in arguments if _group(argument) in _SHARED)
    if shared:
        links = " and ".join(f"[{_SHARED[name].lower()}](#{_anchor(_SHARED[name])})" for name in shared)
        yield from (f"Also the options about {links}.", "")


def _usage(path: tuple[str, ...], own: list[Argument]) -> str:
    """How a command is called, the options of its own included."""
    parts = [
        _shown(argument) if argument.required else f"[{_shown(argument)}]"
        for argument in sorted(own, key=lambda argument: not argument.is_positional_only())
    ]
    return " ".join(["holdfast", *path, *parts])


def _description(command: App) -> str:
    """What a command's documentation says before it comes to the parameters."""
    text = inspect.cleandoc(command.help)
    return text.partition("\n\nParameters\n")[0]


def _shared_sections() -> Iterator[str]:
    """The options that many commands have, from a command that has them all."""
    arguments = _arguments(app["set"])
    for group in (WHERE, WHO):
        yield from (f"## {_SHARED[str(group.name)]}", "", _ABOUT[str(group.name)], "")
        yield from (*_table([argument for argument in arguments if _group(argument) == group.name]), "")


def _exit_codes() -> Iterator[str]:
    yield from ("## Exit codes", "", "| code | meaning | errors |", "|---|---|---|")
    for number, meaning in _MEANINGS.items():
        codes = ", ".join(f"`{code}`" for code, exit_code in EXIT_CODES.items() if exit_code == number)
        yield f"| {number} | {meaning} | {codes} |"
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


def _arguments(command: App) -> list[Argument]:
    return [one for one in command.assemble_argument_collection(parse_docstring=True) if one.show]


def _group(argument: Argument) -> str:
    groups: Any = argument.parameter.group
    return str(groups[0].name) if groups else ""


def _shown(argument: Argument) -> str:
    """An argument as it is typed: its names, and what follows them."""
    opposite = argument.parameter.negative or ()
    names = "/".join((*(argument.parameter.name or ()), *opposite))
    if argument.is_positional_only() or argument.is_flag() or opposite:
        return names
    return f"{names} {argument.field_info.name.upper().replace('_', '-')}"


def _anchor(heading: str) -> str:
    return heading.lower().replace(" ", "-")


if __name__ == "__main__":
    print(reference(), end="")
