"""The declaration of a verb: its name, fields, reply and effect, and the function that answers it.

A verb is declared once, and every door, page and permission is derived from that. Nothing here knows a
particular verb or transport. Structs of fields only declare names and types: `holdfast.rules` validates
values, so that the same input gets the same error at every door.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any

import msgspec
from msgspec import inspect

from holdfast import rules
from holdfast.declare import Declaration


class Shape(msgspec.Struct, frozen=True):
    """The names that an object may have.

    Args:
        plain: The names of fields that need no further check.
        within: The shapes of objects in other fields, single or in a list.
        whole: The names of fields that are whole numbers.
        open: Whether any other name is allowed too.
    """

    plain: frozenset[str]
    within: dict[str, Shape] = {}
    whole: frozenset[str] = frozenset()
    open: bool = False

    @property
    def names(self) -> frozenset[str]:
        """All names."""
        return self.plain | self.within.keys()

    def make_whole(self, fields: dict[str, Any]) -> None:
        """Turn numbers such as 5.0, which JSON does not tell from 5, into whole ones where one is meant."""
        for name in self.whole:
            number = fields.get(name)
            if type(number) is float and number.is_integer():
                fields[name] = int(number)
        for name, inner in self.within.items():
            field = fields.get(name)
            if isinstance(field, dict):
                inner.make_whole(field)
            elif isinstance(field, list):
                for member in islice(field, rules.MAX_BATCH):
                    if isinstance(member, dict):
                        inner.make_whole(member)

    def unknown(self, fields: Mapping[str, Any], where: str = "") -> Iterator[tuple[str, Shape]]:
        """Yield the path of every unknown field, such as `items[3].ttl_second`, and the shape around it."""
        if self.open:
            return
        for name, field in fields.items():
            if name in self.plain or field is None:
                continue
            inner = self.within.get(name)
            if inner is None:
                yield where + name, self
            elif isinstance(field, dict):
                yield from inner.unknown(field, f"{where}{name}.")
            elif isinstance(field, list):
                yield from inner._unknown_of_several(field, where + name)

    def _unknown_of_several(self, members: list[Any], where: str) -> Iterator[tuple[str, Shape]]:
        # A longer list is rejected as a whole.
        for position, member in enumerate(islice(members, rules.MAX_BATCH)):
            if isinstance(member, dict) and not member.keys() <= self.plain:
                yield from self.unknown(member, f"{where}[{position}].")


class Verb(msgspec.Struct, frozen=True, kw_only=True):
    """A verb.

    Args:
        name: Its name in subjects, metrics and permissions.
        help: Its effect, in one sentence.
        fields: A struct with the fields of a call. Those without a default are required.
        reply: A struct with the fields of a successful reply.
        answer: Takes a handle of the family, a message and its deadline; see the module of the family. That
            of a verb for operators takes the store and the fields of a call.
        writes: Whether it may change anything.
        destroys: Whether it may remove existing data.
        in_order: Whether it is handed over before the next request of its connection starts, so that it takes
            effect in the order in which requests were sent.
        walks: Whether it may read many rows. It then has a higher threshold for counting as slow.
    """

    name: str
    help: str
    fields: type[msgspec.Struct]
    reply: type[msgspec.Struct]
    answer: Callable[..., Any]
    writes: bool = False
    destroys: bool = False
    in_order: bool = False
    walks: bool = False
    declaration: Declaration | None = None
    """The declaration of which it is made; None for a verb of operators."""
    shape: Shape = Shape(frozenset())
    plain: frozenset[str] = frozenset()
    """The fields of a request that need no further check. The same as `shape.plain`, with one lookup less."""

    @classmethod
    def of(cls, declaration: Declaration, answer: Callable[..., Any]) -> Verb:
        """Return the entry of a declared verb."""
        assert declaration.reply is not None
        return cls(
            name=declaration.name,
            help=declaration.help,
            fields=declaration.request,
            reply=declaration.reply,
            answer=answer,
            writes=declaration.writes,
            destroys=declaration.destroys,
            in_order=declaration.in_order,
            walks=declaration.walks,
            declaration=declaration,
        )

    def __post_init__(self) -> None:
        self._know(shape_of(self.fields))

    def call(self, handle: Any, fields: Mapping[str, Any]) -> Any:
        """Return the answer to a call with these fields, for a caller who has no bytes to decode."""
        if self.declaration is None:
            return self.answer(handle, fields)
        return self.answer(handle, self.declaration.of_fields(fields), fields.get("deadline"))

    def holds(self, field: str, verbs: Iterable[Verb]) -> None:
        """Note that a field holds the fields of any of several verbs."""
        shapes = [verb.shape for verb in verbs]
        held = Shape(
            plain=frozenset().union(*(shape.plain for shape in shapes)),
            within={name: inner for shape in shapes for name, inner in shape.within.items()},
            whole=frozenset().union(*(shape.whole for shape in shapes)),
            open=True,
        )
        known = msgspec.structs.replace(self.shape, plain=self.shape.plain - {field})
        self._know(msgspec.structs.replace(known, within=known.within | {field: held}))

    def _know(self, shape: Shape) -> None:
        msgspec.structs.force_setattr(self, "shape", shape)
        msgspec.structs.force_setattr(self, "plain", shape.plain)


def catalogue(*verbs: Verb) -> dict[str, Verb]:
    """Return the verbs of a family by name."""
    return {verb.name: verb for verb in verbs}


@cache
def shape_of(struct: type[msgspec.Struct]) -> Shape:
    """Return the names allowed in an object that a struct describes."""
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    return _shape(info)


def _shape(struct: inspect.StructType) -> Shape:
    held = {field.encode_name: _held(field.type) for field in struct.fields}
    return Shape(
        plain=frozenset(name for name, inner in held.items() if inner is None),
        within={name: _shape(inner) for name, inner in held.items() if inner is not None},
        whole=frozenset(field.encode_name for field in struct.fields if _is_whole(field.type)),
    )


def _is_whole(kind: inspect.Type) -> bool:
    """Return whether a field is a whole number, and never any other."""
    match kind:
        case inspect.Metadata(type=inner):
            return _is_whole(inner)
        case inspect.UnionType(types=types):
            return all(_is_whole(one) for one in types if not isinstance(one, inspect.NoneType))
        case _:
            return isinstance(kind, inspect.IntType)


def _held(kind: inspect.Type) -> inspect.StructType | None:
    """Return the struct that a field holds, single or in a list; None if it holds something else."""
    match kind:
        case inspect.Metadata(type=inner):
            return _held(inner)
        case inspect.UnionType(types=types):
            return next((struct for one in types if (struct := _held(one)) is not None), None)
        case inspect.ListType(item_type=inner) | inspect.VarTupleType(item_type=inner):
            return _held(inner)
        case inspect.StructType():
            return kind
        case _:
            return None
