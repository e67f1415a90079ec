"""JSON values: what may be stored, and its compact form.

Law: as in `holdfast.rules`. A value that the encoder would turn into another one is refused.
"""

from __future__ import annotations

from array import array
from itertools import chain
from math import isfinite
from typing import Any, Final

import msgspec

from holdfast.errors import ValidationError, ValueTooLarge
from holdfast.rules.limits import (
    MAX_COMPARED_VALUE_BYTES,
    MAX_DIGITS,
    MAX_NESTING,
    MAX_RAISED_VALUE_BYTES,
    MAX_VALUE_BYTES,
)

_SURE_BITS: Final = 14_284  # integers with no more bits have at most 4,300 digits
_PLAIN: Final[frozenset[type]] = frozenset({str, bool, type(None)})
_SHORT: Final[frozenset[type]] = _PLAIN | {
    int
}  # in a value of less than `_LONG` bytes no integer has too many digits
_PLAIN_NAMES: Final[frozenset[type]] = frozenset({str})
_SCALAR: Final = _SHORT | {float}
_JSON: Final = _SCALAR | {list, dict}
_LONG: Final = 4_096
"""Size in bytes from which a value is checked level by level."""
_BEYOND: Final = f"; a policy can raise it to at most {MAX_RAISED_VALUE_BYTES} bytes"


def encode_value(value: Any, *, most: int = MAX_RAISED_VALUE_BYTES, field: str = "value") -> tuple[str, int]:
    """Return the compact form of a JSON value and its size in bytes, which is limited.

    By default that is the limit to which a policy can raise that of a namespace. A value that is a little
    larger is returned unchecked: `decide` knows the policy, and refuses the value with the limit in force.
    """
    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:
        require_json(value, MAX_NESTING, field=field)
        raise ValidationError(f"{field} holds text with a lone surrogate", field=field) from None
    except (TypeError, ValueError, OverflowError, RecursionError):
        require_json(value, MAX_NESTING, field=field)
        raise ValidationError(f"{field} is not JSON-serializable", field=field) from None
    size = len(encoded)
    if size > most:
        if most != MAX_RAISED_VALUE_BYTES:
            raise too_large(size, most, field=field)
        if size > MAX_COMPARED_VALUE_BYTES:
            raise too_large(size, MAX_VALUE_BYTES, field=field, hint=_BEYOND)
        return encoded.decode(), size
    if size < _LONG:  # only now: the value might have been far too large
        if type(value) not in _SHORT:
            require_json(value, MAX_NESTING, _SHORT, field=field)
    elif not _is_plain(value):
        require_json(value, MAX_NESTING, field=field)
    return encoded.decode(), size


def too_large(size: int, most: int, *, field: str = "value", hint: str = "") -> ValueTooLarge:
    """Return the refusal of a value that is larger than allowed."""
    return ValueTooLarge(
        f"{field.capitalize()} size ({size} bytes) exceeds {most // 1024}KB limit ({most} bytes){hint}",
        field=field,
    )


def _is_plain(value: Any) -> bool:
    """Return whether a large value is legal JSON, checking level by level. If not, `require_json` says why.

    A walk calls a function for each list and object, which takes 10 ms for a value of 64 KB.
    """
    level, room = [value], MAX_NESTING
    while level:
        kinds = set(map(type, level))
        if not kinds <= (_JSON if room else _SCALAR) or not _are_numbers(level, kinds):
            return False
        lists = level if kinds == {list} else [member for member in level if type(member) is list]
        objects = [member for member in level if type(member) is dict] if dict in kinds else []
        if not set(map(type, chain.from_iterable(objects))) <= {str}:
            return False
        level = [*chain.from_iterable(lists), *chain.from_iterable(map(dict.values, objects))]
        room -= 1
    return True


def _are_numbers(members: list[Any], kinds: set[type]) -> bool:
    """Return whether all numbers are finite, and all integers too small to need their digits counted."""
    try:
        if int in kinds:
            array("q", members if kinds == {int} else [one for one in members if type(one) is int])
    except OverflowError:
        return False
    return float not in kinds or all(map(isfinite, [one for one in members if type(one) is float]))


def require_json(value: Any, room: int, plain: frozenset[type] = _PLAIN, *, field: str = "value") -> None:
    """Refuse values that JSON can't represent and that the encoder would convert to something else.

    Members of the `plain` types are legal whatever they hold.
    """
    if isinstance(value, (dict, list, tuple)):
        if room == 0:
            raise ValidationError(f"{field} is nested deeper than {MAX_NESTING} levels", field=field)
        if isinstance(value, dict):
            if not _PLAIN_NAMES.issuperset(map(type, value)):
                _require_names(value, field)
            value = value.values()
        if plain.issuperset(map(type, value)):
            return
        for member in value:
            if type(member) not in plain:
                require_json(member, room - 1, plain, field=field)
    elif isinstance(value, int):
        if value.bit_length() > _SURE_BITS and abs(value) >= 10**MAX_DIGITS:
            raise ValidationError(f"{field} holds an integer with more than {MAX_DIGITS} digits", field=field)
    elif isinstance(value, float):
        if value - value != 0:
            raise ValidationError(f"{field} holds NaN or Infinity, which JSON can't represent", field=field)
    elif type(value) not in _PLAIN and not isinstance(value, str):
        raise ValidationError(
            f"{field} is not JSON-serializable: it holds a value of type {type(value).__name__}", field=field
        )


def _require_names(value: dict[Any, Any], field: str) -> None:
    for name in value:
        if not isinstance(name, str):
            raise ValidationError(
                f"{field} is not JSON-serializable: it has a name of type {type(name).__name__}", field=field
            )
