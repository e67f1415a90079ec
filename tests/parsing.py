"""The libraries behind the command line, with less to do: tests wait for them longer than for our own code.

What never changes is worked out once; what a command is given is parsed anew each time. 322 tests of commands
took 13 s of CPU with this and 30 s without.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import sys
from typing import TYPE_CHECKING, Any, Final

import docstring_parser
import pytest
import rich.markdown
from cyclopts import (
    App,
    Argument,
    ArgumentCollection,
    Parameter,
    app_stack,
    core,
    group_extractors,
    parameter,
)
from markdown_it import MarkdownIt

from holdfast.edges.cli.commands import doctor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cyclopts import Group

ASSEMBLE: Final = App.assemble_argument_collection
"""The library's own way to read a signature."""


@contextlib.contextmanager
def quick_parser() -> Iterator[None]:
    """For the length of a block, read each docstring and signature once and make each completion once.

    The versions of installed packages, which `holdfast doctor` prints, are looked up once too. Where tests
    have imported pydantic, arguments are not validated by it besides.
    """
    scripts: dict[str | None, str] = {}
    read: dict[tuple[int, Parameter], tuple[App, object, ArgumentCollection]] = {}
    make, parse = App.generate_completion, App.parse_args

    def generate_completion(self: App, *, prog_name: str | None = None, shell: Any = None) -> str:
        if shell not in scripts:
            scripts[shell] = make(self, prog_name=prog_name, shell=shell)
        return scripts[shell]

    def parse_args(self: App, *words: Any, **options: Any) -> Any:
        with pytest.MonkeyPatch.context() as hidden:
            hidden.delitem(sys.modules, "pydantic", raising=False)  # commands do not have it
            return parse(self, *words, **options)

    def assemble_argument_collection(
        self: App, *, default_parameter: Parameter | None = None, parse_docstring: bool = False
    ) -> ArgumentCollection:
        # What an argument takes over from the apps around it depends on how the app was reached. What it
        # takes from the docstring is its help, which nobody minds who has not asked for it.
        place = id(self), Parameter.combine(self.app_stack.default_parameter, default_parameter)
        if place not in read or read[place][1] is not self.default_command:
            found = ASSEMBLE(self, default_parameter=default_parameter, parse_docstring=True)
            read[place] = self, self.default_command, found
        return _unparsed(read[place][2])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            docstring_parser, "parse_from_object", functools.cache(docstring_parser.parse_from_object)
        )
        for name in ("requires", "version"):
            patch.setattr(doctor, name, functools.cache(getattr(doctor, name)))
        patch.setattr(core, "validate_command", functools.cache(parameter.validate_command))
        patch.setattr(app_stack, "inverse_groups_from_app", _groups_found_once())
        patch.setattr(Argument, "names", property(_names_found_once()))
        patch.setattr(rich.markdown, "MarkdownIt", _markdown_read_once())
        patch.setattr(App, "generate_completion", generate_completion)
        patch.setattr(App, "parse_args", parse_args)
        patch.setattr(App, "assemble_argument_collection", assemble_argument_collection)
        yield


def _groups_found_once() -> Callable[[App], list[tuple[App, list[Group]]]]:
    """Find the groups of the commands of an app again only if more of them have been imported."""
    known: dict[int, tuple[int, App, list[tuple[App, list[Group]]]]] = {}
    find = group_extractors.inverse_groups_from_app

    def found(app: App) -> list[tuple[App, list[Group]]]:
        imported = sum(getattr(command, "is_resolved", True) for command in app._commands.values())
        if id(app) not in known or known[id(app)][0] != imported:
            known[id(app)] = imported, app, find(app)
        return known[id(app)][2]

    return found


def _names_found_once() -> Callable[[Argument], tuple[str, ...]]:
    """Find the names of an argument once for all its copies: they follow from its parameter and its field."""
    known: dict[tuple[int, int], tuple[Parameter, object, tuple[str, ...]]] = {}
    find: Callable[[Argument], tuple[str, ...]] = Argument.names.fget  # type: ignore[attr-defined]

    def found(argument: Argument) -> tuple[str, ...]:
        place = id(argument.parameter), id(argument.field_info)
        if place not in known:
            known[place] = argument.parameter, argument.field_info, find(argument)
        return known[place][2]

    return found


def _markdown_read_once() -> Callable[[], MarkdownIt]:
    """Make one parser of Markdown, which reads each text once; of what it has read nothing is changed."""
    parser = MarkdownIt()
    parser.parse = functools.cache(parser.parse)  # type: ignore[method-assign]
    return lambda: parser


def _unparsed(collection: ArgumentCollection) -> ArgumentCollection:
    """The same arguments, which have been given nothing yet."""
    made: dict[int, Argument] = {}

    def again(argument: Argument) -> Argument:
        if id(argument) not in made:
            one = made[id(argument)] = copy.copy(argument)
            one.tokens = []
            one.children = _collected(map(again, argument.children))
        return made[id(argument)]

    return _collected(map(again, collection))


def _collected(arguments: Iterable[Argument]) -> ArgumentCollection:
    collection = ArgumentCollection()  # type: ignore[no-untyped-call]
    collection.extend(arguments)
    return collection
