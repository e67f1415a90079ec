"""The fields that all writes share, and those that are objects or lists of them.

This module knows how fields are combined; `holdfast.rules` knows what each may hold. A function that
takes several independent members keeps the error of one in its position and continues with the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, TypedDict, TypeVar

from holdfast import rules
from holdfast.declare import missing
from holdfast.errors import HoldfastError

T = TypeVar("T")
R = TypeVar("R")


class Provenance(TypedDict, total=False):
    """The fields that every writing verb takes besides its own.

    `timeout` is in seconds. If it passes before the write can be committed, nothing is written and `Timeout`
    is raised.
    """

    request_id: str | None
    writer: str | None
    spec_ref: str | None
    fence: Mapping[str, Any] | None
    once: str | None
    timeout: float | None


class Viewing(TypedDict, total=False):
    """The fields that a reveal takes besides its own: who looks, and the seconds after which it gives up."""

    writer: str | None
    timeout: float | None


class Several(Generic[T]):
    """The independent members of one call: the legal ones, and errors by position."""

    def __init__(self, legal: list[T], refused: dict[int, HoldfastError]) -> None:
        self.legal = legal
        self.refused = refused

    @classmethod
    def of(cls, make: Callable[[Any], T], given: Sequence[Any]) -> Several[T]:
        """Make each member of what is given, and keep the error of an illegal one in its position."""
        legal: list[T] = []
        refused: dict[int, HoldfastError] = {}
        for position, member in enumerate(given):
            try:
                legal.append(make(member))
            except HoldfastError as error:
                refused[position] = error
        return cls(legal, refused)

    def merge(self, results: Iterable[R]) -> list[R | HoldfastError]:
        """Return the results of the legal members and the errors of the others, in the order of the call."""
        if not self.refused:
            return [*results]
        rest = iter(results)
        return [
            self.refused[position] if position in self.refused else next(rest)
            for position in range(len(self.legal) + len(self.refused))
        ]


def required(fields: Mapping[str, Any], name: str) -> Any:
    """Return a required field."""
    if name not in fields:
        raise missing(name)
    return fields[name]


def ttl_field(fields: Mapping[str, Any]) -> object:
    """Return the ttl of an item, which may be given as `ttl`, `ttl_seconds` or `keep_ttl`."""
    return rules.one_ttl(fields.get("ttl"), fields.get("ttl_seconds"), fields.get("keep_ttl"))


_PROVENANCE: Final = frozenset({"request_id", "last_writer", "spec_ref", "fence", "once"})
"""The fields that identify the request and its writer. A service adds the `deadline` that it computed."""


def provenance(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the deadline of a call and, if the caller gives any of them, the other fields of provenance."""
    if _PROVENANCE.isdisjoint(fields):
        return {"deadline": fields.get("deadline")}
    return {
        "deadline": fields.get("deadline"),
        "request_id": fields.get("request_id"),
        "writer": fields.get("last_writer"),
        "spec_ref": fields.get("spec_ref"),
        "fence": fields.get("fence"),
        "once": fields.get("once"),
    }
