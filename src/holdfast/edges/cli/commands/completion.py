"""`holdfast completion` and `--install-completion`: Tab completion of commands, options, namespaces and keys.

In bash, zsh and fish the script asks `holdfast complete`, so keys come from the store that the line names.
PowerShell completes commands and options alone. Names chosen by others are quoted, so that a line has each as
one word, and escaped for display on a terminal.
"""

from __future__ import annotations

import asyncio
import inspect
import shlex
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from cyclopts.completion.detect import ShellDetectionError, detect_shell

from holdfast.edges.cli.app import app
from holdfast.edges.cli.fast_parser import leading
from holdfast.edges.cli.files import require_free
from holdfast.edges.cli.options import EVERY
from holdfast.edges.cli.output import file_trouble, line, say, shown_key
from holdfast.edges.cli.target import HERE, Target
from holdfast.errors import HoldfastError, ValidationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cyclopts import App

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
_OWNERS: Final = {"--plugin": 0, "--tenant": 1, "--project": 2}
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
    if not rest and not valued and (commands := _named(_within(groups[-1]), word)):
        return commands
    wanted = _SHORT.get(last, last) if valued else _argument(groups[-1], rest, path)
    try:
        async with asyncio.timeout(PATIENCE):
            return await _stored(wanted, word, _narrowed(place, words))
    except (HoldfastError, TimeoutError):
        return []


async def _stored(wanted: str, word: str, target: Target) -> list[Offer]:
    """Return completions from the names in a store."""
    if wanted in _KEYS:
        async with target.look() as store:
            page = await target.keys(store).list(word, limit=MOST)
        return [Offer(shlex.quote(key), shown_key(key)) for key in page.keys]
    if wanted not in _OWNERS and wanted not in _NAMESPACES:
        return []
    async with target.look() as store:
        found = [one.namespace for one in await store.namespaces()]
    if wanted in _OWNERS:
        found = [owner for name in found if (owner := _owner(name, wanted)) is not None]
    return _named(found, word)


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


def _within(group: App) -> list[str]:
    """Return the commands of a group and their aliases."""
    return [name for name in group if not name.startswith("-")]


def _argument(command: App, rest: Sequence[str], path: tuple[str, ...]) -> str:
    """Return the name of the argument that the next word without a dash would be; empty if there is none."""
    if command.default_command is None:
        return ""
    given, after, options = 0, iter(rest), options_of(path)
    for word in after:
        if not word.startswith("-"):
            given += 1
        elif options.get(word):
            next(after, None)
    places = inspect.signature(command.default_command).parameters.values()
    free = [place.name for place in places if place.kind is place.POSITIONAL_ONLY]
    return free[given] if given < len(free) else ""


def _narrowed(place: Target, rest: Sequence[str]) -> Target:
    """Return the target that a line names, or else the default one."""
    said = {_SHORT.get(option, option): value for option, value in pairwise(rest)}
    if said.keys().isdisjoint({"--url", "--context", *_OWNERS}):
        return place
    return Target(
        url=said.get("--url"),
        context=said.get("--context"),
        plugin=said.get("--plugin"),
        tenant=said.get("--tenant"),
        project=said.get("--project"),
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
    found = sorted({name for name in names if name.startswith(word)})[:MOST]
    return [Offer(shlex.quote(name), shown_key(name)) for name in found]
