"""The key ranges of queries: a table, a partition, or the part of it that meets a sort key condition.

Law: a condition on a sort key is one range of bytes, so a query reads no row that it does not return.
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
    """Return the least bytes that are greater than all with this prefix; None if there are none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None


def beginning_with(prefix: bytes) -> Range:
    """Return all keys with this prefix; with an empty one, every key of the space."""
    return Range(prefix, successor(prefix))


def sort_range(
    partition: bytes, kind: KeyType, condition: object, *, field: str = "sort_key_condition"
) -> Range:
    """Return the keys of a partition whose sort key meets a condition such as `{"gte": 1, "lt": 9}`.

    Operators are `eq lt lte gt gte between begins_with`; if there are several, all must hold. If no key can
    match, the range is empty: it stops before it starts.

    Raises:
        ValidationError: It is not such a condition, or a value in it is not of the sort key's type.
    """
    if not isinstance(condition, Mapping) or not condition:
        raise ValidationError(f'{field} must be an object such as {{"gt": 5}}', field=field)
    ranges = [beginning_with(partition)]
    for operator, operand in condition.items():
        if operator not in _RANGES:
            raise ValidationError(
                f"{field} has no operator {rules.shown(operator)}; it has {', '.join(_RANGES)}", field=field
            )
        ranges.append(_RANGES[operator](partition, kind, operand, field))
    stops = [found.stop for found in ranges if found.stop is not None]
    return Range(max(found.start for found in ranges), min(stops, default=None))


def _equal(partition: bytes, kind: KeyType, operand: Any, field: str) -> Range:
    key = partition + encode_key(operand, kind, field=field)
    return Range(key, key + b"\x00")


def _below(partition: bytes, kind: KeyType, operand: Any, field: str) -> Range:
    return Range(b"", _equal(partition, kind, operand, field).start)


def _up_to(partition: bytes, kind: KeyType, operand: Any, field: str) -> Range:
    return Range(b"", _equal(partition, kind, operand, field).stop)


def _above(partition: bytes, kind: KeyType, operand: Any, field: str) -> Range:
    key = _equal(partition, kind, operand, field).start
    return Range(key + b"\x00", None)


def _from(partition: bytes, kind: KeyType, operand: Any, field: str) -> Range:
    return Range(_equal(partition, kind, operand, field).start, None)


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
    # Without its terminator, an encoded string is a prefix of all strings that begin with it.
    return beginning_with(partition + escaped(plain_bytes(operand, kind, field=field), field=field))


_Range: TypeAlias = Callable[[bytes, KeyType, Any, str], Range]
_RANGES: Final[dict[str, _Range]] = {
    "eq": _equal,
    "lt": _below,
    "lte": _up_to,
    "gt": _above,
    "gte": _from,
    "between": _between,
    "begins_with": _beginning,
}
