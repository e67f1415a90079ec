"""Detection of fields that a verb does not know, and the warnings and errors about them.

Messages are short, whatever was sent. Names come from the caller, so they are shown as ASCII without control
characters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final

import msgspec

from holdfast.edges.calls.catalogue import Shape, Verb
from holdfast.errors import ValidationError
from holdfast.verbs import unknown as verbs

MOST: Final = 100
"""Maximum number of unknown fields counted in one request."""
NAMED: Final = 5
"""Maximum number of unknown fields that a warning names."""


class Unknown(msgspec.Struct, frozen=True):
    """An unknown field: its path, such as `items[3].ttl_second`, and the shape of the object around it."""

    path: str
    shape: Shape


def unknown_fields(verb: Verb, fields: Mapping[str, Any]) -> list[Unknown]:
    """Return the fields of a request, including those of members, that its verb does not know."""
    return [Unknown(verbs.plain(path), shape) for path, shape in islice(verb.shape.unknown(fields), MOST)]


def warning(unknown: list[Unknown], spelled: Callable[[str], str]) -> str:
    """Return the warning about unknown fields, with names spelled as in the caller's dialect."""
    names = ", ".join(spelled(one.path) for one in unknown[:NAMED])
    more = f" and {len(unknown) - NAMED} more" if len(unknown) > NAMED else ""
    return f"unknown field{'s' if len(unknown) > 1 else ''} {names}{more}"


def unknown_field(found: Unknown, spelled: Callable[[str], str]) -> ValidationError:
    """Return the error that rejects an unknown field."""
    return verbs.unknown_field(found.path, found.shape.names, spelled)
