"""Encoding of item keys as bytes that sort in the order of their values, and the ranges of keys of queries.

    string, binary   its bytes, with 00 as 01 01 and 01 as 01 02, then 00
    number           1.f * 2**e: 8000 + bias + e in two bytes, then the bits of f in groups of seven, each
                     with a bit that says whether more follow; zero is 80 00; below zero all is inverted

An encoded value is never a prefix of another one of its type. So the values of a key need no separator, no
two keys have the same bytes, and every key that begins with a partition is in it. The encoding is stored:
changing it requires a migration. A condition on a sort key is one range of bytes, so a query reads no row
that it does not return.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from holdfast import rules
from holdfast.errors import ValidationError

KeyType: TypeAlias = Literal["string", "number", "binary"]
KEY_TYPES: Final[tuple[KeyType, ...]] = ("string", "number", "binary")

MAX_KEY_BYTES: Final = 1_024
"""Maximum size of an encoded value, without the byte that ends a string or a binary."""

_END: Final = b"\x00"
_ZERO: Final = b"\x80\x00"
_SIGN: Final = 0x8000
_BIAS: Final = 2_048
"""Offset that makes every exponent positive. The least is that of the least double, -1074."""
_TOO_LONG: Final = 10**rules.MAX_DIGITS
_INVERTED: Final = bytes(range(255, -1, -1))


def encode_key(value: object, kind: KeyType, *, field: str) -> bytes:
    """Return the encoded bytes of one value of a key.

    Args:
        value: The value from a caller or an item; a binary may be bytes or their base64.
        kind: The type that the table requires.
        field: The field that errors name.

    Raises:
        ValidationError: It is of another type, or larger than `MAX_KEY_BYTES`.
    """
    if kind == "number":
        return _encode_number(_number(value, field), field)
    return escaped(plain_bytes(value, kind, field=field), field=field) + _END


def json_key(value: object) -> object:
    """Return the value of a key as an item holds it, with bytes as base64."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def plain_bytes(value: object, kind: KeyType, *, field: str) -> bytes:
    """Return the bytes of a string or a binary, not escaped."""
    if kind == "string":
        return _text_bytes(value, field)
    if isinstance(value, bytes):
        return value
    try:
        if not isinstance(value, str):
            raise TypeError
        decoded = base64.b64decode(value, validate=True)
    except (TypeError, ValueError):
        raise _wrong(value, "binary: bytes, or their base64", field) from None
    if base64.b64encode(decoded).decode() != value:
        # Otherwise two spellings of the same bytes would be different attributes with the same key.
        raise ValidationError(f"{field} is base64 with stray bits at its end", field=field)
    return decoded


def escaped(plain: bytes, *, field: str) -> bytes:
    """Return bytes without 00, in the same order. Prefixes stay prefixes."""
    encoded = plain.replace(b"\x01", b"\x01\x02").replace(b"\x00", b"\x01\x01")
    return _sized(encoded, len(encoded), field)


def _text_bytes(value: object, field: str) -> bytes:
    if not isinstance(value, str):
        raise _wrong(value, "string", field)
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise ValidationError(
            f"{field} holds a lone surrogate, which is not valid UTF-8", field=field
        ) from None


def _number(value: object, field: str) -> int | float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _wrong(value, "number", field)
    if isinstance(value, float):
        if value - value != 0:
            raise ValidationError(f"{field} is NaN or Infinity, which JSON can't represent", field=field)
    elif abs(value) >= _TOO_LONG:
        raise ValidationError(f"{field} has more than {rules.MAX_DIGITS} digits", field=field)
    return value


def _encode_number(value: int | float, field: str) -> bytes:
    if value == 0:
        return _ZERO
    # Ints and floats are integer multiples of a power of two, so bits represent them exactly.
    digits, divisor = abs(value).as_integer_ratio()
    exponent = digits.bit_length() - divisor.bit_length()
    digits >>= (digits & -digits).bit_length() - 1
    bits = digits.bit_length() - 1
    groups = max(1, -(-bits // 7))
    _sized(b"", 2 + groups, field)
    fraction = (digits - (1 << bits)) << (groups * 7 - bits)
    tail = bytearray((fraction >> shift & 0x7F) << 1 | 1 for shift in range(7 * groups - 7, -1, -7))
    tail[-1] &= 0xFE
    encoded = (_SIGN + _BIAS + exponent).to_bytes(2, "big") + tail
    return encoded.translate(_INVERTED) if value < 0 else encoded


def _sized(encoded: bytes, size: int, field: str) -> bytes:
    if size > MAX_KEY_BYTES:
        raise ValidationError(
            f"{field} has {size} bytes encoded; at most {MAX_KEY_BYTES} are allowed", field=field
        )
    return encoded


def _wrong(value: object, wanted: str, field: str) -> ValidationError:
    return ValidationError(f"{field} must be a {wanted}, not {rules.kind_of(value)}", field=field)


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


def sort_range(partition: bytes, kind: KeyType, condition: object) -> Range:
    """Return the keys of a partition whose sort key meets a condition such as `{"gte": 1, "lt": 9}`.

    Operators are `eq lt lte gt gte between begins_with`; if there are several, all must hold. If no key can
    match, the range is empty: it stops before it starts.

    Raises:
        ValidationError: It is not such a condition, or a value in it is not of the sort key's type.
    """
    field = "sort_key_condition"
    if not isinstance(condition, Mapping) or not condition:
        raise ValidationError(f'{field} must be an object such as {{"gt": 5}}', field=field)
    ranges = [beginning_with(partition)]
    for operator, operand in condition.items():
        if operator not in _RANGES:
            raise ValidationError(
                f"{field} has no operator {rules.shown(operator)}; it has {', '.join(_RANGES)}", field=field
            )
        ranges.append(_RANGES[operator](partition, kind, operand, field))
    stops = [part.stop for part in ranges if part.stop is not None]
    return Range(max(part.start for part in ranges), min(stops, default=None))


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
