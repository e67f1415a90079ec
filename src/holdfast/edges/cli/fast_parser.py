"""A fast parser for the plain forms of the commands that scripts call most, without the full library.

It accepts only what it is certain of. Everything else (help, unknown options, duplicates, conflicting
options, unusual words) goes to the full parser, so that one place reports errors. It is here because it makes
`holdfast get` a third cheaper: the median of 30 runs, taken in turn on a busy machine with two cores, was
158 ms of CPU time instead of 224 ms. If the full parser ever costs less than 30 ms more, this module can go.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import fields
from itertools import takewhile
from typing import Any, Final, NamedTuple

from holdfast.edges.cli.commands import get
from holdfast.edges.cli.target import SHORT, Target

COMMANDS: Final[dict[tuple[str, ...], Any]] = {
    ("get",): get.get,
    ("ttl", "get"): get.get_ttl,
}
"""The commands parsed here: functions of arguments, options of their own and a target."""

_SHARED: Final = {field.name: field.default for field in fields(Target)}
_SHORT: Final = {"-l": "--long"} | {
    field.metadata[SHORT]: f"--{field.name}" for field in fields(Target) if SHORT in field.metadata
}
_JSON: Final = frozenset({"--json", "-j", "-lj", "-jl"})


class Call(NamedTuple):
    """A command and its arguments."""

    command: Callable[..., Coroutine[Any, Any, None]]
    arguments: list[str]
    options: dict[str, Any]


def plain_call(words: Sequence[str]) -> Call | None:
    """Parse a command line, or return None if the full parser must do it."""
    before, rest = leading(words)
    for name, command in COMMANDS.items():
        if tuple(rest[: len(name)]) == name:
            try:
                return _call(command, [*before, *rest[len(name) :]])
            except _InDoubtError:
                return None
    return None


def leading(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split off the shared options before a command. Returns them and the rest, from the command on."""
    at = 0
    while at < len(words):
        name, equals, _ = _SHORT.get(words[at], words[at]).partition("=")
        default = _SHARED.get(name.removeprefix("--"), ...) if name.startswith("--") else ...
        if default is ...:
            break
        at += 1 if equals or default is False else 2
    return list(words[:at]), list(words[at:])


def wants_json(words: Sequence[str]) -> bool:
    """Return whether the output is to be JSON, and so any error, including one about these words."""
    return not _JSON.isdisjoint(takewhile(lambda word: word != "--", words))


class _InDoubtError(Exception):
    """The full parser must handle this."""


def _call(command: Any, words: Sequence[str]) -> Call:
    arguments, options = _split(words, {**command.__kwdefaults__, **_SHARED})
    if len(arguments) != command.__code__.co_posonlyargcount:
        raise _InDoubtError
    shared = {name: options.pop(name) for name in _SHARED if name in options}
    if "plugin" in shared and ("tenant" in shared or "project" in shared):
        raise _InDoubtError
    return Call(command, arguments, options | {"target": Target(**shared)})


def _split(words: Sequence[str], defaults: Mapping[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Split words into arguments and options by name. An option that is off by default takes no value."""
    arguments: list[str] = []
    options: dict[str, Any] = {}
    rest = iter(words)
    for given_word in rest:
        word = _SHORT.get(given_word, given_word)
        name, equals, value = word.removeprefix("--").partition("=")
        default = defaults.get(name, ...)
        if not word.startswith("--"):
            arguments.append(_certain(word))
        elif name in options:
            raise _InDoubtError
        elif default is False and not equals:
            options[name] = True
        elif default is None:
            options[name] = _certain(value if equals else next(rest, ""))
        else:
            raise _InDoubtError
    return arguments, options


def _certain(word: str) -> str:
    """Return a word that has no special meaning anywhere."""
    if not word or word.startswith("-"):
        raise _InDoubtError
    return word
