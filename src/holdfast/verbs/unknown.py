"""Refusal of unknown names in the objects that programs pass to handles, such as the items of `set_many`.

Only handles use `refuse_unknown`. Requests from outside may come from newer programs; their door decides
whether unknown fields are ignored or refused. The error is the same there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from holdfast.errors import ValidationError

ITEM_KEY: Final = frozenset({"partition_key", "sort_key"})
_EXPECTING: Final = frozenset({"table", "expected_version", "condition", "return_values"})
ITEM_WRITES: Final[Mapping[str, frozenset[str]]] = {
    "put": _EXPECTING | {"item", "binary"},
    "update": _EXPECTING | ITEM_KEY | {"set", "remove", "add"},
    "delete": _EXPECTING | ITEM_KEY,
    "check": _EXPECTING | ITEM_KEY,
}
"""The names in a write of items, by its kind."""
_LONGEST: Final = 100
"""Maximum number of characters shown of a path."""


def refuse_unknown(members: object, known: frozenset[str], *, field: str) -> None:
    """Refuse an unknown name in any of the objects of a list. Anything else is left to the verb.

    Raises:
        ValidationError: The message names the closest known field.
    """
    if isinstance(members, Sequence):
        for position, member in enumerate(members):
            _refuse(member, known, f"{field}[{position}]")


def refuse_unknown_writes(writes: object, *, field: str) -> None:
    """Refuse an unknown name in any of several writes of items."""
    if isinstance(writes, Sequence):
        for position, write in enumerate(writes):
            if isinstance(write, Mapping):
                for kind in write.keys() & ITEM_WRITES.keys():
                    _refuse(write[kind], ITEM_WRITES[kind], f"{field}[{position}].{kind}")


def unknown_field(path: str, known: Collection[str], spelled: Callable[[str], str] = str) -> ValidationError:
    """Return the error that refuses an unknown field. It names the closest known field, or else all."""
    names = sorted(known)
    near = get_close_matches(path.rpartition(".")[2], names, n=1)
    told = f"did you mean {spelled(near[0])}?" if near else f"known are {', '.join(map(spelled, names))}"
    return ValidationError(f"unknown field {spelled(path)}; {told}", field=path)


def plain(path: str) -> str:
    """Return a path for a message. Names come from callers: they are shown short and as ASCII."""
    return ascii(path[-_LONGEST:])[1:-1]


def _refuse(member: Any, known: frozenset[str], where: str) -> None:
    if isinstance(member, Mapping) and not known.issuperset(member):
        name = next(name for name in member if name not in known)
        raise unknown_field(plain(f"{where}.{name}"), known)
