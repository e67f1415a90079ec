"""Which keys a query walks: a table, a partition, or what a condition on the sort key leaves of it.

Law: a condition on a sort key is one range of bytes, so that a query reads no row that it does not give.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from holdfast import rules
from holdfast.errors import ValidationError
from holdfast.tables.keys import KeyType, encode_key, escaped, plain_bytes


class Range(NamedTuple):
    """The keys from `start` to before `stop`; None is the end of the space."""

    start: bytes
    stop: bytes | None


def successor(prefix: bytes) -> bytes | None:
    """The least bytes that are greater than all that begin with these; None if there are none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None


def beginning_with(prefix: bytes) -> Range:
    """All keys that begin with these bytes; with none at all, every key of the space."""
    return Range(prefix, successor(prefix))


def sort_range(
    partition: bytes, kind: KeyType, condition: object, *, field: str = "sort_key_condition"
) -> Range:
    """The keys of a partition whose sort key meets a condition such as `{"gte": 1, "lt": 9}`.

    Operators are `eq lt lte gt gte between begins_with`; if there are several, all must hold. Where nothing
    can, the range is empty: it stops before it starts.

    Raises:
        ValidationError: It is no such condition, or a value in it is not of the sort key's type.
    """
    if not isinstance(condition, Mapping) or not condition:
        raise ValidationError(f'{field} must be an object such as {{"gt": 5}}', field=field)
    starts, stops = [partition], [successor(partition)]
    for operator, operand in condition.items():
        if operator not in _BOUNDS:
            raise ValidationError(
                f"{field} has no operator {rules.shown(operator)}; it has {', '.join(_BOUNDS)}", field=field
            )
        start, stop = _BOUNDS[operator](partition, kind, operand, field)
        starts.append(start)
        stops.append(stop)
    return Range(max(starts), min((stop for stop in stops if stop is not None), default=None))


def _equal(partition: bytes, kind: KeyType, operand: Any, field: str) -> Range:
    return beginning_with(partition + encode_key(operand, kind, field=field))


def _below(partition: bytes, kind: KeyType, operand: Any, field: str) -> Range:
    return Range(partition, _equal(partition, kind, operand, field).start)


def _up_to(partition: bytes, kind: KeyType, operand: Any, field: str) -> Range:
    return Range(partition, _equal(partition, kind, operand, field).stop)


def _above(partition: bytes, kind: KeyType, operand: Any, field: str) -> Range:
    return Range(_equal(partition, kind, operand, field).stop or partition, successor(partition))


def _from(partition: bytes, kind: KeyType, operand: Any, field: str) -> Range:
    return Range(_equal(partition, kind, operand, field).start, successor(partition))


def _between(partition: bytes, kind: KeyType, operand: Any, field: str) -> Range:
    if not isinstance(operand, (list, tuple)) or len(operand) != 2:
        raise ValidationError(f"{field}: between takes a list of two values", field=field)
    low, high = (_equal(partition, kind, bound, field) for bound in operand)
    return Range(low.start, high.stop)


def _beginning(partition: bytes, kind: KeyType, operand: Any, field: str) -> Range:
    if kind == "number":
        raise ValidationError(
            f"{field}: begins_with is for a string or a binary, not for a number", field=field
        )
    # Without its end, a string is the beginning of all that begin with it.
    return beginning_with(partition + escaped(plain_bytes(operand, kind, field=field), field=field))


_Bounds: TypeAlias = Callable[[bytes, KeyType, Any, str], Range]
_BOUNDS: Final[dict[str, _Bounds]] = {
    "eq": _equal,
    "lt": _below,
    "lte": _up_to,
    "gt": _above,
    "gte": _from,
    "between": _between,
    "begins_with": _beginning,
}
