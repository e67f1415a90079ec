"""Commands made from the declarations of verbs.

A verb has such a command unless one is written by hand. The method of the handle says which arguments are
given by position; the declaration says their types and help, what the command may do, and what it prints.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args, get_origin

import msgspec
from cyclopts import Parameter

import holdfast
from holdfast.declare import DECLARED, Members
from holdfast.edges.cli.options import (
    UNNAMED,
    IfVersion,
    Seconds,
    WriteOptions,
    Yes,
    destroys,
    number,
    read_value,
    require_yes,
    seconds,
)
from holdfast.edges.cli.output import NOT_FOUND, OK, document, line
from holdfast.edges.cli.target import HERE, Target
from holdfast.replies import EnvelopeReply

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.declare import Declaration

_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_SPELLINGS: Final[dict[str, tuple[str, Any]]] = {
    "expected_version": ("if_version", IfVersion),
    "ttl_seconds": (
        "seconds",
        Annotated[Seconds, Parameter(help="Time until the entry expires: seconds, or 30s, 1h, 2d.")],
    ),
    "ttl": (
        "ttl",
        Annotated[
            int | None,
            Parameter(
                converter=seconds,
                help="Expire the entry after this long, if this creates it: seconds, or 30s, 1h, 2d.",
            ),
        ],
    ),
}
"""Fields that the command line spells or describes in another way than messages do."""
_JSON: Final = " JSON; - reads it from stdin, @FILE from a file."
_PRINTS: Final = {"value": "Prints the new value.", "version": "Prints the entry's new version."}
"""What a command says about its output, by the field of the reply that it prints."""


def __getattr__(name: str) -> Callable[..., Any]:
    """Return the command of a verb. The parser asks for it by name when the command is called."""
    if name not in DECLARED:
        raise AttributeError(name)
    return command_of(DECLARED[name])


def command_of(declaration: Declaration) -> Callable[..., Any]:
    """Make the command of a verb on keys."""
    taken = inspect.signature(getattr(holdfast.KV, declaration.name)).parameters.values()
    forms = {name: form for name, (form, _) in declaration.own.items()}
    arguments = [_Argument(one, forms[one.name]) for one in taken if one.name in forms]

    async def command(*given: Any, **options: Any) -> int:
        values = dict(zip((one.name for one in arguments if one.positional), given, strict=False)) | options
        target, origin, yes = (
            values.pop("target", HERE),
            values.pop("origin", UNNAMED),
            values.pop("yes", False),
        )
        fields = {one.field: one.read(values[one.name]) for one in arguments if one.name in values}
        if declaration.destroys:
            named = " ".join(str(field) for field in given)
            require_yes(f"{declaration.name} {named} removes data of {target.owner}", yes=yes)
        if declaration.writes:
            fields |= origin.fields
        async with target.open() if declaration.writes else target.look() as store:
            result = await getattr(target.keys(store), declaration.name)(**fields)
        return _print(declaration, fields["key"], result, target)

    parameters = [one.parameter for one in arguments]
    if declaration.destroys:
        destroys(command)
        parameters.append(_option("yes", Yes, default=False))
    if declaration.writes:
        parameters.append(_option("origin", WriteOptions, default=UNNAMED))
    parameters.append(_option("target", Target, default=HERE))
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    command.__name__ = declaration.name
    command.__doc__ = _described(declaration)
    return command


def _described(declaration: Declaration) -> str:
    printed = [said for field, said in _PRINTS.items() if field in _fields(declaration)]
    return " ".join([declaration.help, *printed[:1]])


def _option(name: str, annotation: Any, *, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


class _Argument:
    """An argument or option of a command.

    Args:
        taken: The parameter of the handle's method.
        form: The type that the verb declares for the field, and its help.
    """

    def __init__(self, taken: inspect.Parameter, form: Any) -> None:
        self.field = taken.name
        self.positional = taken.kind in _POSITIONAL
        self.name, annotation = _SPELLINGS.get(taken.name, (taken.name, None))
        self._is_json = False
        if annotation is None:
            annotation = self._annotation(form, optional=taken.default is None)
        self.parameter = inspect.Parameter(
            self.name,
            inspect.Parameter.POSITIONAL_ONLY if self.positional else inspect.Parameter.KEYWORD_ONLY,
            default=taken.default,
            annotation=annotation,
        )

    def read(self, given: Any) -> Any:
        """Return the value that was given."""
        return read_value(given, text=False) if self._is_json and given is not None else given

    def _annotation(self, form: Any, *, optional: bool) -> Any:
        """Return the type and the help of an argument for the parser."""
        kind: Any = None
        if isinstance(form, Members):
            said = form.help
        else:
            metas = [one for one in get_args(form)[1:] if isinstance(one, msgspec.Meta)]
            said = next((meta.description for meta in metas if meta.description), "")
            kind = get_args(form)[0] if get_origin(form) is Annotated else form
        numeric = kind in (int, float) or set(get_args(kind)) == {int, float}
        if kind in (bool, str) or get_origin(kind) is Literal:
            return Annotated[kind | None if optional else kind, Parameter(help=said)]
        if numeric:
            known = Parameter(converter=number, allow_leading_hyphen=self.positional, help=said)
            return Annotated[float | None if optional else float, known]
        self._is_json = True
        return Annotated[
            str | None if optional else str,
            Parameter(allow_leading_hyphen=self.positional, help=said + _JSON),
        ]


def _print(declaration: Declaration, key: str, result: Any, target: Target) -> int:
    """Print the answer. If a read finds nothing, the exit code says so."""
    reply = _reply(declaration, result)
    there = all(field is not False for field in reply.values())
    if target.json:
        document({"key": key, **reply})
    elif "value" in reply:
        document(reply["value"])
    elif "version" in reply:
        line(reply["version"])
    elif declaration.writes:
        line(next(iter(reply)) if there else "not there")
    else:
        document(next(iter(reply.values())) if len(reply) == 1 else reply)
    return OK if there or declaration.writes else NOT_FOUND


def _reply(declaration: Declaration, result: Any) -> dict[str, Any]:
    """Return the fields of the declared reply, of what the handle has returned: an entry or a plain value."""
    names = _fields(declaration)
    if not isinstance(result, msgspec.Struct):
        return {names[0]: False if result is None else result}
    return {name: getattr(result, name, True) for name in names}


def _fields(declaration: Declaration) -> list[str]:
    """Return the fields of the declared reply, without those that only `envelope` adds."""
    fields = () if declaration.reply is None else msgspec.structs.fields(declaration.reply)
    envelope = EnvelopeReply.__struct_fields__
    return [field.name for field in fields if field.required or field.name not in envelope]
