"""Decoding of payloads to fields.

A payload that is not JSON is `INVALID_JSON`. JSON that can't be a value, and JSON with NaN or Infinity,
is left to the rules, which name the field. So the same input gets the same error at every entry point.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from holdfast.errors import InvalidJson, ValidationError
from holdfast.rules import MAX_NESTING

_DECODE: Final = msgspec.json.Decoder().decode


def fields_of(payload: bytes) -> dict[str, Any]:
    """Return the fields of a request. An empty payload has none. Null fields except `value` are dropped."""
    if not payload:
        return {}
    try:
        decoded = _DECODE(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        decoded = decode(payload)
    if not isinstance(decoded, dict):
        raise ValidationError("the payload must be a JSON object")
    if None not in decoded.values():
        return decoded
    return {name: field for name, field in decoded.items() if field is not None or name == "value"}


def decode(payload: bytes) -> Any:
    """Decode the JSON of a payload."""
    try:
        return msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _decoded_slowly(payload)
    except RecursionError:
        raise ValidationError(
            f"the payload is nested deeper than {MAX_NESTING} levels", field="value"
        ) from None


def _decoded_slowly(payload: bytes) -> Any:
    """Decode a payload that the fast decoder refuses but that may still be intended as JSON.

    It may hold lone surrogates, numbers that don't fit a double, or NaN and Infinity, which many encoders
    write although JSON does not have them. The rules refuse these and name the field.
    """
    try:
        return json.loads(payload.decode())
    except UnicodeDecodeError as error:
        raise _invalid(payload[: error.start].decode()) from None
    except json.JSONDecodeError as error:
        raise _invalid(error.doc[: error.pos]) from None
    except RecursionError:
        raise ValidationError(
            f"the payload is nested deeper than {MAX_NESTING} levels", field="value"
        ) from None
    except ValueError:
        raise ValidationError("the payload holds an integer with too many digits", field="value") from None


def _invalid(legal: str) -> InvalidJson:
    """Return the error for a payload that is valid JSON up to here, with line and column counted from 1."""
    line, column = legal.count("\n") + 1, len(legal) - legal.rfind("\n")
    return InvalidJson(f"the payload is not valid JSON: see line {line}, column {column}")
