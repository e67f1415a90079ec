"""`holdfast commands`, `help`, `completion` and `--install-completion`: the command line about itself.

Everything is read from the parser and from the commands' own functions, and so is the reference page. In
bash, zsh and fish the completion script asks `holdfast complete`, so keys come from the store that the line
names. PowerShell completes commands and options alone. Names chosen by others are quoted, so that a line has
each as one word, and escaped for display on a terminal.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import shlex
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import docstring_parser
import msgspec
from cyclopts import App, Argument
from cyclopts.completion.detect import ShellDetectionError, detect_shell

from holdfast.edges.cli.app import app, obey
from holdfast.edges.cli.fast_parser import leading
from holdfast.edges.cli.options import EVERY, is_destructive
from holdfast.edges.cli.output import (
    EXIT_CODES,
    INTERRUPTED,
    PIPE_CLOSED,
    document,
    file_trouble,
    line,
    require_free,
    rows,
    say,
    shown_key,
)
from holdfast.edges.cli.target import HERE, Target
from holdfast.errors import HoldfastError, ValidationError

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


def commands(*, json: bool = False) -> None:
    """List every command, what it does, and whether it can delete stored data.

    Parameters
    ----------
    json
        Print one document with every command, its arguments and the exit codes.
    """
    if json:
        with _docstrings_parsed_once():
            described = [shown_command(known) for known in known_commands(app)]
        document({"commands": described, "exit_codes": exit_codes()})
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


def shown_command(known: KnownCommand) -> dict[str, Any]:
    """Describe a command for programs. `asks` says whether it asks for confirmation without `--yes`."""
    arguments = [_shown(argument) for argument in arguments_of(known.app)]
    return {
        "command": " ".join(known.path),
        "aliases": [" ".join((*known.path[:-1], alias)) for alias in known.aliases],
        "help": description(known.app),
        "destroys": is_destructive(known.app.default_command),
        "asks": any("--yes" in argument["names"] for argument in arguments),
        "arguments": arguments,
    }


def exit_codes() -> list[dict[str, Any]]:
    """Describe the exit codes, in their order, each with the codes of the errors that lead to it."""
    errors = {number: [code for code, one in EXIT_CODES.items() if one == number] for number in MEANINGS}
    return [
        {"code": number, "meaning": meaning, "errors": errors[number]} for number, meaning in MEANINGS.items()
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


def _shown(argument: Argument) -> dict[str, Any]:
    """Describe an argument or option for programs.

    Its names are as typed, the long one first; `value` is the placeholder for an option's value, and `group`
    the name of a group of options that many commands share.
    """
    group = group_of(argument)
    return {
        "names": [*(argument.parameter.name or ()), *(argument.parameter.negative or ())],
        "value": value_of(argument),
        "positional": argument.is_positional_only(),
        "required": argument.required,
        "choices": sorted(argument.get_choices() or ()),
        "help": " ".join((argument.parameter.help or "").split()),
        "group": None if group in _OWN else group,
    }


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


Shell = Literal["bash", "zsh", "fish", "powershell"]

_BASH: Final = r"""_holdfast() {
    local line="${COMP_LINE:0:COMP_POINT}" word
    COMPREPLY=()
    while IFS= read -r word; do
        COMPREPLY+=("$(printf %q "$word")")
    done < <(holdfast complete -- "$line" 2>/dev/null)
    # Readline takes what follows a colon for a new word.
    local typed="${line##* }"
    if [[ $typed == *:* && $COMP_WORDBREAKS == *:* ]]; then
        COMPREPLY=("${COMPREPLY[@]#"${typed%"${typed##*:}"}"}")
    fi
}
complete -o default -F _holdfast holdfast
"""
_ZSH: Final = r"""#compdef holdfast
_holdfast() {
    local -a offered
    offered=("${(@f)$(holdfast complete -- "$LBUFFER" 2>/dev/null)}")
    offered=("${(@)offered:#}")
    if (( $#offered )); then
        compadd -a offered
    else
        _files
    fi
}
if [ "$funcstack[1]" = "_holdfast" ]; then _holdfast "$@"; else compdef _holdfast holdfast; fi
"""
_FISH: Final = r"""function __holdfast_complete
    set -l offered (holdfast complete -- (commandline -cp) 2>/dev/null)
    if test (count $offered) -gt 0
        printf '%s\n' $offered
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c holdfast -f -a '(__holdfast_complete)'
"""
_SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def completion(shell: Shell | None = None, /) -> None:
    """Print the script that completes commands, options and keys.

    Parameters
    ----------
    shell
        The shell it is for; the one that this runs in if not given.
    """
    line(_script(_known(shell)))


def install(*, shell: Shell | None = None, output: Path | None = None, force: bool = False) -> None:
    """Install the script that completes commands, options and keys.

    Parameters
    ----------
    shell
        The shell it is for; the one that this runs in if not given.
    output
        Where to put the script instead of the shell's own place.
    force
        Replace the file that --output names if it exists.
    """
    require_free(output, force=force, field="output")
    known = _known(shell)
    try:
        path = app.install_completion(shell=known, output=output)
        path.write_text(_script(known), encoding="utf-8")
    except OSError as error:
        raise file_trouble(error, error.filename, field="output") from None
    say(f"completion is installed in {path}: start a new shell to use it")


async def complete(text: str, /) -> None:
    """Print completions of the last word of a command line, one per line.

    Parameters
    ----------
    text
        The command line up to the cursor.
    """
    for offer in await offers(text, HERE):
        [word] = shlex.split(offer.text) or [""]
        if word.isprintable():
            line(word)


def _script(shell: Shell) -> str:
    return _SCRIPTS.get(shell) or app.generate_completion(shell=shell)


def _known(shell: Shell | None) -> Shell:
    try:
        return shell or detect_shell()
    except ShellDetectionError:
        raise ValidationError("which shell? Name bash, zsh, fish or powershell", field="shell") from None


MOST: Final = 100
"""Maximum number of names that are offered."""
PATIENCE: Final = 2.0
"""Seconds to wait for a store; a user does not wait longer for completion."""
_SHORT: Final = {"-p": "--plugin", "-c": "--context"}
_OWNERS: Final = ("--plugin", "--tenant", "--project")
_KEYS: Final = frozenset({"key", "prefix", "--prefix"})
_NAMESPACES: Final = frozenset({"namespace", "--namespace", "full_name"})


class Offer(NamedTuple):
    """A completion of a word: the text inserted into the line, and the text displayed."""

    text: str
    shown: str


class Typed(NamedTuple):
    """A line up to the cursor: its complete words, the word being typed, and the position of that word."""

    words: list[str]
    word: str
    start: int


def typed(text: str) -> Typed:
    """Split a line that may end within quotes."""
    words: list[str] = []
    word, start, quote, escaped, within = "", len(text), "", False, False
    for position, letter in enumerate(text):
        if not within and not letter.isspace():
            within, start = True, position
        if escaped:
            word, escaped = word + letter, False
        elif letter == "\\" and quote != "'":
            escaped = True
        elif quote:
            word, quote = (word, "") if letter == quote else (word + letter, quote)
        elif letter in "'\"":
            quote = letter
        elif not letter.isspace():
            word += letter
        elif within:
            words.append(word)
            word, within, start = "", False, len(text)
    return Typed(words[1:] if words[:1] == ["holdfast"] else words, word, start)


async def offers(text: str, place: Target) -> list[Offer]:
    """Return completions of the last word of a line; none if the store does not answer in time."""
    words, word, _ = typed(text)
    _, after = leading(words)
    path, groups, rest = app.parse_commands(after)
    last = words[-1] if words else ""
    valued = options_of(path).get(last) or _SHORT.get(last, last) in _OWNERS
    if word.startswith("-") and not valued:
        return _named(options_of(path), word)
    within = [name for name in groups[-1] if not name.startswith("-")]
    if not rest and not valued and (commands := _named(within, word)):
        return commands
    kind = _SHORT.get(last, last) if valued else _argument(groups[-1], rest, path)
    try:
        async with asyncio.timeout(PATIENCE):
            return await _stored(kind, word, _narrowed(place, words))
    except (HoldfastError, TimeoutError):
        return []


async def _stored(kind: str, word: str, target: Target) -> list[Offer]:
    """Return completions from the names in a store."""
    if kind in _KEYS:
        async with target.look() as store:
            page = await target.keys(store).list(word, limit=MOST)
        return [Offer(shlex.quote(key), shown_key(key)) for key in page.keys]
    if kind not in _OWNERS and kind not in _NAMESPACES:
        return []
    async with target.look() as store:
        names = [one.namespace for one in await store.namespaces()]
    if kind in _OWNERS:
        names = [owner for name in names if (owner := _owner(name, kind)) is not None]
    return _named(names, word)


@lru_cache
def options_of(path: tuple[str, ...]) -> dict[str, bool]:
    """Return the options of a command, and for each whether a value follows it."""
    _, groups, _ = app.parse_commands(path)
    command = groups[-1]
    known = dict.fromkeys(command.help_flags, False)
    if command.default_command is None:
        return known
    for argument in command.assemble_argument_collection(default_parameter=EVERY, parse_docstring=True):
        names = (name for name in argument.names if name.startswith("-"))
        known |= dict.fromkeys(names, argument.hint is not bool)
    return known


def _argument(command: App, rest: Sequence[str], path: tuple[str, ...]) -> str:
    """Return the name of the argument that the next word without a dash would be; empty if there is none."""
    if command.default_command is None:
        return ""
    count, after, options = 0, iter(rest), options_of(path)
    for word in after:
        if not word.startswith("-"):
            count += 1
        elif options.get(word):
            next(after, None)
    places = inspect.signature(command.default_command).parameters.values()
    free = [place.name for place in places if place.kind is place.POSITIONAL_ONLY]
    return free[count] if count < len(free) else ""


def _narrowed(place: Target, rest: Sequence[str]) -> Target:
    """Return the target that a line names, or else the default one."""
    options = {_SHORT.get(option, option): value for option, value in pairwise(rest)}
    if options.keys().isdisjoint({"--url", "--context", *_OWNERS}):
        return place
    return Target(
        url=options.get("--url"),
        context=options.get("--context"),
        plugin=options.get("--plugin"),
        tenant=options.get("--tenant"),
        project=options.get("--project"),
    )


def _owner(namespace: str, option: str) -> str | None:
    match namespace.split("/"):
        case [_, plugin] if option == "--plugin":
            return plugin
        case [_, tenant, project] if option != "--plugin":
            return tenant if option == "--tenant" else project
        case _:
            return None


def _named(names: Iterable[str], word: str) -> list[Offer]:
    matching = sorted({name for name in names if name.startswith(word)})[:MOST]
    return [Offer(shlex.quote(name), shown_key(name)) for name in matching]
