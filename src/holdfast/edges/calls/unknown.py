"""Fields that a verb does not know: which they are, and what their caller is told.

Law: what is told is short, whatever was sent. Names come from a caller, so they are told as ASCII without
control characters.
"""

from __future__ import annotations

from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.edges.calls.catalogue import Shape, Verb

MOST: Final = 100
"""How many unknown fields of one request are counted."""
NAMED: Final = 5
"""How many of them are named."""
_LONGEST: Final = 100
"""How many characters of a name are told."""


class Unknown(msgspec.Struct, frozen=True):
    """An unknown field: its path, such as `items[3].ttl_second`, and what its neighbours may be."""

    path: str
    shape: Shape


def unknown_fields(verb: Verb, fields: Mapping[str, Any]) -> list[Unknown]:
    """The fields of a request, members included, that its verb does not know."""
    return [Unknown(_plain(path), shape) for path, shape in islice(verb.shape.unknown(fields), MOST)]


def warning(found: list[Unknown], spelled: Callable[[str], str]) -> str:
    """The warning about unknown fields, whose names are spelled as the caller's dialect does."""
    names = ", ".join(spelled(one.path) for one in found[:NAMED])
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return f"unknown field{'s' if len(found) > 1 else ''} {names}{more}"


def unknown_field(found: Unknown, spelled: Callable[[str], str]) -> ValidationError:
    """The error that refuses an unknown field and names the nearest known one, or all if none is near."""
    name, names = found.path.rpartition(".")[2], sorted(found.shape.names)
    near = get_close_matches(name, names, n=1)
    told = f"did you mean {spelled(near[0])}?" if near else f"known are {', '.join(map(spelled, names))}"
    return ValidationError(f"unknown field {spelled(found.path)}; {told}", field=found.path)


def _plain(path: str) -> str:
    return ascii(path[-_LONGEST:])[1:-1]
