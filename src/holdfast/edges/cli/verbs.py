"""Commands made from the declarations of verbs.

A verb has such a command unless one is written by hand. The method of the handle says which arguments are
given by position; the declaration says their types and help, and what the command may do.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_origin

import msgspec
from cyclopts import Parameter

import holdfast
from holdfast.declare import DECLARED, Declaration, Members
from holdfast.edges.cli.options import (
    UNNAMED,
    IfVersion,
    MaybeSeconds,
    Seconds,
    WriteOptions,
    Yes,
    destroys,
    number,
    read_value,
    require_yes,
)
from holdfast.edges.cli.output import NOT_FOUND, OK, document, line
from holdfast.edges.cli.target import HERE
from holdfast.replies import EnvelopeReply

_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_OPTION: Final = inspect.Parameter.KEYWORD_ONLY
_THOUSANDS: Final = re.compile(r"(?<=\d),(?=\d{3})")
"""The commas in numbers, which help does not have: a number in it can be pasted."""
_JSON: Final = " Write it as JSON; - reads it from stdin, @FILE from a file."


class Spelling(NamedTuple):
    """How the command line has a field: its name, its type for the parser, and how its text is read."""

    name: str
    annotation: Any
    read: Callable[[Any], Any] = lambda given: given


class Family(NamedTuple):
    """Verbs whose commands are alike.

    Args:
        verbs: Their declarations, by name.
        handle: The class whose methods they are.
        opened: Returns the handle, of a place and an open store.
        place: The place where a command works unless options name another.
        spell: Says how the command line has a field, of its name and form; None for as messages have it.
        prints: What commands print, by the field of the reply of which that depends.
        keywords: Further fields that methods take, which their signatures show as one.
        hidden: Fields that the command line does not have.
        owner: Says whose data a place has.
        complete: Finishes the arguments of a call with what the store knows.
        show: Prints the answer, of the declaration, the arguments, the result and the place. Returns the
            exit code.
    """

    verbs: Mapping[str, Declaration]
    handle: type
    opened: Callable[[Any, holdfast.Store], Any]
    place: Any
    spell: Callable[[str, Any], Spelling | None]
    owner: Callable[[Any], str]
    show: Callable[[Declaration, dict[str, Any], Any, Any], int]
    prints: Mapping[str, str]
    keywords: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    complete: Callable[[Any, dict[str, Any]], Awaitable[dict[str, Any]]] | None = None

    def command(self, name: str) -> Callable[..., Any]:
        """Make the command of a verb."""
        declaration = self.verbs[name]
        arguments = list(self._arguments(declaration))

        async def command(*given: Any, **options: Any) -> int:
            names = [argument.name for argument in arguments if argument.parameter.kind is not _OPTION]
            values = dict(zip(names, given, strict=False)) | options
            place, origin = values.get("place", self.place), values.get("origin", UNNAMED)
            fields = {one.field: one.read(values[one.name]) for one in arguments if one.name in values}
            if declaration.destroys:
                effect = declaration.help[0].lower() + declaration.help[1:].rstrip(".")
                named = ", ".join(map(ascii, given))
                require_yes(f"{effect}: {named} of {self.owner(place)}", yes=values.get("yes", False))
            async with place.open() if declaration.writes else place.look() as store:
                handle = self.opened(place, store)
                if self.complete is not None:
                    fields = await self.complete(handle, fields)
                provenance = origin.fields if declaration.in_order else {}
                result = await getattr(handle, name)(**fields, **provenance)
            return self.show(declaration, fields, result, place)

        parameters = [argument.parameter for argument in arguments]
        if declaration.destroys:
            destroys(command)
            parameters.append(inspect.Parameter("yes", _OPTION, default=False, annotation=Yes))
        if declaration.in_order:
            parameters.append(inspect.Parameter("origin", _OPTION, default=UNNAMED, annotation=WriteOptions))
        parameters.append(
            inspect.Parameter("place", _OPTION, default=self.place, annotation=type(self.place))
        )
        parameters.sort(key=lambda parameter: parameter.kind)
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {one.name: one.annotation for one in parameters}
        command.__name__ = name
        printed = [said for field, said in self.prints.items() if field in _reply_fields(declaration)]
        command.__doc__ = " ".join([declaration.help, *printed[:1]])
        return command

    def _arguments(self, declaration: Declaration) -> Iterable[_Argument]:
        """Yield the arguments of a command. One that is needed after an optional argument is an option."""
        taken = inspect.signature(getattr(self.handle, declaration.name)).parameters
        optional = False
        for name in dict.fromkeys([*taken, *self.keywords]):
            form = declaration.own.get(name, (None, None))[0]
            spelling = self.spell(name, form)
            if name in self.hidden or (form is None and (spelling is None or name not in taken)):
                continue
            python = taken.get(name, inspect.Parameter(name, _OPTION, default=None))
            needed = name in declaration.needed or python.default is inspect.Parameter.empty
            by_position = python.kind in _POSITIONAL and not (needed and optional)
            optional = optional or not needed
            yield _Argument(python, form, spelling, by_position=by_position, needed=needed)


class _Argument:
    """An argument or option of a command.

    Args:
        python: The parameter of the handle's method.
        form: The type that the verb declares for the field, and its help.
        spelling: How the command line has the field, if not as messages do.
    """

    def __init__(
        self,
        python: inspect.Parameter,
        form: Any,
        spelling: Spelling | None,
        *,
        by_position: bool,
        needed: bool,
    ) -> None:
        self.field = python.name
        self._optional = not needed and python.default is None
        self._by_position = by_position
        self.name, annotation, self.read = spelling or self._spelling(form)
        self.parameter = inspect.Parameter(
            self.name,
            inspect.Parameter.POSITIONAL_ONLY if by_position else _OPTION,
            default=inspect.Parameter.empty if needed else python.default,
            annotation=annotation,
        )

    def _spelling(self, form: Any) -> Spelling:
        kind: Any = None
        if isinstance(form, Members):
            help = form.help
        else:
            metas = [one for one in get_args(form)[1:] if isinstance(one, msgspec.Meta)]
            help = next((meta.description for meta in metas if meta.description), "")
            kind = get_args(form)[0] if get_origin(form) is Annotated else form
        help = _THOUSANDS.sub("", help)
        if kind in (bool, str) or get_origin(kind) is Literal:
            return self._spelled(kind, Parameter(help=help))
        if kind in (int, float) or set(get_args(kind)) == {int, float}:
            return self._spelled(
                float, Parameter(converter=number, allow_leading_hyphen=self._by_position, help=help)
            )
        json = Parameter(allow_leading_hyphen=self._by_position, help=help + _JSON)
        return self._spelled(str, json)._replace(read=read_json)

    def _spelled(self, kind: Any, parameter: Parameter) -> Spelling:
        return Spelling(self.field, Annotated[kind | None if self._optional else kind, parameter])


def read_json(text: str | None) -> Any:
    """Return the JSON of an argument, or None if it is not given."""
    return None if text is None else read_value(text, text=False)


def _print(declaration: Declaration, fields: dict[str, Any], result: Any, place: Any) -> int:
    """Print what a verb on a key has returned. If a read finds nothing, the exit code says so."""
    names = _reply_fields(declaration)
    if isinstance(result, msgspec.Struct):
        reply = {name: getattr(result, name, True) for name in names}
    else:
        reply = {names[0]: False if result is None else result}
    there = all(field is not False for field in reply.values())
    if place.json:
        document(({"key": fields["key"]} if "key" in fields else {}) | reply)
    elif "number" in reply:
        line(reply["number"])
    elif "value" in reply:
        document(reply["value"])
    elif "version" in reply:
        line(reply["version"])
    elif declaration.writes:
        line(names[0] if there else "not there")
    else:
        document(reply[names[0]] if len(reply) == 1 else reply)
    return OK if there or declaration.writes else NOT_FOUND


def _reply_fields(declaration: Declaration) -> list[str]:
    """Return the fields of the declared reply, without those that only `envelope` adds."""
    fields = () if declaration.reply is None else msgspec.structs.fields(declaration.reply)
    envelope = EnvelopeReply.__struct_fields__
    return [field.name for field in fields if field.required or field.name not in envelope]


_SPELLINGS: Final = {
    "expected_version": Spelling("if_version", IfVersion),
    "ttl_seconds": Spelling(
        "seconds",
        Annotated[Seconds, Parameter(help="Time until the entry expires: seconds, or 30s, 1h, 2d.")],
    ),
    "ttl": Spelling(
        "ttl",
        Annotated[
            MaybeSeconds, Parameter(help="Expire a new entry after this long: seconds, or 30s, 1h, 2d.")
        ],
    ),
}
KEYS: Final = Family(
    verbs=DECLARED,
    handle=holdfast.KV,
    opened=lambda target, store: target.keys(store),
    place=HERE,
    spell=lambda name, form: _SPELLINGS.get(name),
    owner=lambda target: target.owner,
    show=_print,
    prints={
        "number": "Prints the item's number.",
        "value": "Prints the new value.",
        "version": "Prints the entry's new version.",
        "exists": "Prints true or false; if there is none, the exit code is 3.",
    },
)


def __getattr__(name: str) -> Callable[..., Any]:
    """Return the command of a verb on keys. The parser asks for it by name when the command is called."""
    if name not in DECLARED:
        raise AttributeError(name)
    return KEYS.command(name)
