"""What one key may do: the rule that a history of operations is held against.

A pure model, written from the contract. It imports nothing of Holdfast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tests.linear.history import Operation


class State(NamedTuple):
    """What is known of a key: its value, None if it is absent, and its version.

    The version of a write whose reply was lost is known only once somebody reads it. Until then `version` is
    the newest one before it, and `exact` is false.
    """

    value: int | None
    version: int
    exact: bool

    def __str__(self) -> str:
        if self.value is None:
            return f"absent (last version seen {self.version})"
        return f"{self.value}@{'' if self.exact else 'more than '}{self.version}"


NOTHING = State(None, 0, exact=False)
"""A key that was never written."""


def step(state: State, operation: Operation) -> State | None:
    """The state after an operation that ended as it did, or None if it can't have ended so in this state.

    An operation with an unknown outcome is taken to have had an effect here.
    """
    if operation.outcome == "conflict":
        seen = _shown(state, operation)
        return None if seen is None or _matches(seen, operation.expected) is not None else seen
    if operation.verb == "get":
        return _shown(state, operation)
    matched = _matches(state, operation.expected)
    if operation.verb == "delete":
        return _deleted(state, matched, operation)
    return None if matched is None else _written(matched, operation)


def _shown(state: State, operation: Operation) -> State | None:
    """The state as a reply shows it, or None if the reply does not fit."""
    if operation.version is None:
        return state if state.value is None else None
    if state.value is None or state.value != operation.found or not _may_be(state, operation.version):
        return None
    return state if state.exact else State(state.value, operation.version, exact=True)


def _may_be(state: State, version: int) -> bool:
    return version == state.version if state.exact else version > state.version


def _matches(state: State, expected: int | None) -> State | None:
    """The state if a check on its version passes, with what that tells; else None."""
    if expected is None:
        return state
    if expected == 0:
        return state if state.value is None else None
    if state.value is None or not _may_be(state, expected):
        return None
    return state if state.exact else State(state.value, expected, exact=True)


def _deleted(state: State, matched: State | None, operation: Operation) -> State | None:
    if operation.found is False:
        return state if state.value is None and matched is not None else None
    if matched is None or matched.value is None:
        return None
    return State(None, matched.version, exact=False)


def _written(state: State, operation: Operation) -> State | None:
    assert operation.argument is not None
    value = operation.argument
    if operation.verb == "incr":
        value += state.value or 0
    if operation.outcome == "unknown":
        return State(value, state.version, exact=False)
    assert operation.version is not None
    if operation.version <= state.version or operation.found != value:
        return None
    return State(value, operation.version, exact=True)
