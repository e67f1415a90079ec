"""A payload as the fields that it holds.

Law: what is not JSON is `INVALID_JSON`; what is JSON, or would be but for NaN and Infinity, and can't be a
value goes on to the rules, which name the field. So the same input gets the same error at every door.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from holdfast.errors import InvalidJson, ValidationError
from holdfast.rules import MAX_NESTING


def fields_of(payload: bytes) -> dict[str, Any]:
    """The fields of a request: an empty payload has none, and those that are null are absent but `value`."""
    if not payload:
        return {}
    decoded = decode(payload)
    if not isinstance(decoded, dict):
        raise ValidationError("the payload must be a JSON object")
    if None not in decoded.values():
        return decoded
    return {name: field for name, field in decoded.items() if field is not None or name == "value"}


def decode(payload: bytes) -> Any:
    """What JSON a payload is."""
    try:
        return msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _decoded_slowly(payload)
    except RecursionError:
        raise ValidationError(
            f"the payload is nested deeper than {MAX_NESTING} levels", field="value"
        ) from None


def _decoded_slowly(payload: bytes) -> Any:
    """What the fast decoder refuses may be meant as JSON still.

    Lone surrogates, numbers that no double holds, and NaN and Infinity, which many encoders write though JSON
    has no word for them: the rules refuse them by the field that holds them.
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
        raise ValidationError("the payload holds an integer of too many digits", field="value") from None


def _invalid(legal: str) -> InvalidJson:
    """The error of a payload that is JSON as far as this, counted as people count in a text."""
    line, column = legal.count("\n") + 1, len(legal) - legal.rfind("\n")
    return InvalidJson(f"the payload is not valid JSON: see line {line}, column {column}")
