"""The declaration of a verb: its name, fields, reply and effect, and the function that answers it.

Law: a verb is declared once, and every door, page and permission is made from that. Nothing here knows a verb
or a transport. Structs of fields are declarations: `holdfast.rules` judges what a field holds, so that the
same input gets the same error at every door.
"""

from __future__ import annotations

from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import inspect

from holdfast import rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


class Shape(msgspec.Struct, frozen=True):
    """The names that an object may have.

    Args:
        plain: The names of fields that need no further look.
        within: The shapes of the objects that other fields hold, alone or in a list.
    """

    plain: frozenset[str]
    within: dict[str, Shape] = {}

    @property
    def names(self) -> frozenset[str]:
        """All of them."""
        return self.plain | self.within.keys()

    def unknown(self, fields: Mapping[str, Any], where: str = "") -> Iterator[tuple[str, Shape]]:
        """Yield every field that has no known name: its path, such as `items[3].ttl_second`, and the shape
        of the object that it is in."""
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
        # A longer list is refused as a whole.
        for position, member in enumerate(islice(members, rules.MAX_BATCH)):
            if isinstance(member, dict) and not member.keys() <= self.plain:
                yield from self.unknown(member, f"{where}[{position}].")


class Verb(msgspec.Struct, frozen=True, kw_only=True):
    """A verb.

    Args:
        name: What it is called in subjects, metrics and permissions.
        help: What it does, in one sentence.
        fields: A struct with the fields of a call. Those without a default are required.
        reply: A struct with the fields of a successful reply.
        answer: Takes what the family's door hands it and the fields of a call, and gives the fields of the
            reply; see the module of the family.
        writes: Whether it may change anything.
        destroys: Whether it may remove something that was there.
        in_order: Whether it is handed over before the next request of its connection is begun, so that it
            takes effect in the order in which requests were sent.
        walks: Whether it may look at many rows, so that it may take longer before it counts as slow.
    """

    name: str
    help: str
    fields: type[msgspec.Struct]
    reply: type[msgspec.Struct]
    answer: Callable[[Any, Mapping[str, Any]], Any]
    writes: bool = False
    destroys: bool = False
    in_order: bool = False
    walks: bool = False
    shape: Shape = Shape(frozenset())
    plain: frozenset[str] = frozenset()
    """The fields that a request may have without a further look: `shape.plain`, a look-up nearer."""

    def __post_init__(self) -> None:
        shape = shape_of(self.fields)
        msgspec.structs.force_setattr(self, "shape", shape)
        msgspec.structs.force_setattr(self, "plain", shape.plain)


def catalogue(*verbs: Verb) -> dict[str, Verb]:
    """The verbs of a family by name."""
    return {verb.name: verb for verb in verbs}


@cache
def shape_of(struct: type[msgspec.Struct]) -> Shape:
    """The names that an object may have which a struct describes."""
    found = inspect.type_info(struct)
    assert isinstance(found, inspect.StructType)
    return _shape(found)


def _shape(struct: inspect.StructType) -> Shape:
    held = {field.encode_name: _held(field.type) for field in struct.fields}
    return Shape(
        plain=frozenset(name for name, inner in held.items() if inner is None),
        within={name: _shape(inner) for name, inner in held.items() if inner is not None},
    )


def _held(kind: inspect.Type) -> inspect.StructType | None:
    """The objects that a field holds, alone or in a list; None if it holds something else."""
    match kind:
        case inspect.Metadata(type=inner):
            return _held(inner)
        case inspect.UnionType(types=types):
            return next((found for one in types if (found := _held(one)) is not None), None)
        case inspect.ListType(item_type=inner) | inspect.VarTupleType(item_type=inner):
            return _held(inner)
        case inspect.StructType():
            return kind
        case _:
            return None
