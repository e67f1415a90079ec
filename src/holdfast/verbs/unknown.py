"""Refusal of unknown names in the objects that programs pass to handles, such as the items of `set_many`.

Only handles use `refuse_unknown`. Requests from outside may come from newer programs; their door decides
whether unknown fields are ignored or refused. The error is the same there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from holdfast.errors import ValidationError

_LONGEST: Final = 100
"""Maximum number of characters shown of a path."""


def refuse_unknown(members: object, known: frozenset[str], *, field: str) -> None:
    """Refuse an unknown name in any of the objects of a list. Anything else is left to the verb.

    Raises:
        ValidationError: The message names the closest known field.
    """
    if isinstance(members, Sequence):
        for position, member in enumerate(members):
            refuse_unknown_names(member, known, f"{field}[{position}]")


def unknown_field(path: str, known: Collection[str], spelled: Callable[[str], str] = str) -> ValidationError:
    """Return the error that refuses an unknown field. It names the closest known field, or else all."""
    names = sorted(known)
    near = get_close_matches(path.rpartition(".")[2], names, n=1)
    hint = f"did you mean {spelled(near[0])}?" if near else f"known are {', '.join(map(spelled, names))}"
    return ValidationError(f"unknown field {spelled(path)}; {hint}", field=path)


def plain(path: str) -> str:
    """Return a path for a message. Names come from callers: they are shown short and as ASCII."""
    return ascii(path[-_LONGEST:])[1:-1]


def refuse_unknown_names(member: Any, known: frozenset[str], where: str) -> None:
    """Refuse an unknown name in an object. Anything else is left to the verb.

    Raises:
        ValidationError: The message names the closest known field.
    """
    if isinstance(member, Mapping) and not known.issuperset(member):
        name = next(name for name in member if name not in known)
        raise unknown_field(plain(f"{where}.{name}"), known)
