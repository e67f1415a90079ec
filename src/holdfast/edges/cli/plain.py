"""Reads the plain forms of the commands that scripts call most, without the library that reads all others.

Law: it takes only what it is certain of. Everything else (help, unknown options, doubles, a conflict of
options, odd words) goes to the full parser, so that there is one place that says what is wrong.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.edges.cli import reading
from holdfast.edges.cli.target import VARIABLE, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

COMMANDS: Final[dict[tuple[str, ...], Any]] = {
    ("get",): reading.get,
    ("ttl", "get"): reading.get_ttl,
}
"""The commands that are read here, each a function of arguments, options of its own and a target."""

_SHARED: Final = {field.name: field.default for field in fields(Target)}
_VARIABLES: Final = {
    field.name: field.metadata[VARIABLE] for field in fields(Target) if VARIABLE in field.metadata
}


class Call(NamedTuple):
    """A command, and what it is given."""

    command: Callable[..., Coroutine[Any, Any, None]]
    arguments: list[str]
    options: dict[str, Any]


def plain_call(words: Sequence[str], environment: Mapping[str, str]) -> Call | None:
    """What the words of a command line ask for, or None if the full parser must say it."""
    for name, command in COMMANDS.items():
        if tuple(words[: len(name)]) == name:
            try:
                return _call(command, words[len(name) :], environment)
            except _InDoubtError:
                return None
    return None


class _InDoubtError(Exception):
    """The full parser must look at this."""


def _call(command: Any, words: Sequence[str], environment: Mapping[str, str]) -> Call:
    arguments, given = _split(words, {**command.__kwdefaults__, **_SHARED})
    if len(arguments) != command.__code__.co_posonlyargcount:
        raise _InDoubtError
    shared = {name: given.pop(name) for name in _SHARED if name in given}
    return Call(command, arguments, given | {"target": _target(shared, environment)})


def _split(words: Sequence[str], defaults: Mapping[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """The arguments, and the options by name: one that is off by default takes no value, the others text."""
    arguments: list[str] = []
    given: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        name, equals, value = word.removeprefix("--").partition("=")
        default = defaults.get(name, ...)
        if not word.startswith("--"):
            arguments.append(_certain(word))
        elif name in given:
            raise _InDoubtError
        elif default is False and not equals:
            given[name] = True
        elif default is None:
            given[name] = _certain(value if equals else next(rest, ""))
        else:
            raise _InDoubtError
    return arguments, given


def _target(given: dict[str, Any], environment: Mapping[str, str]) -> Target:
    if "plugin" in given and ("tenant" in given or "project" in given):
        raise _InDoubtError
    for name, variable in _VARIABLES.items():
        if name not in given and variable in environment:
            given[name] = _certain(environment[variable])
    return Target(**given)


def _certain(word: str) -> str:
    """A word that means itself wherever it stands."""
    if not word or word.startswith("-"):
        raise _InDoubtError
    return word
