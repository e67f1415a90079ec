"""Values on a command line: JSON in the argument, on stdin or in a file.

Invalid JSON is refused with a hint and never taken as text. The rules decide whether a JSON value is allowed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec

from holdfast.edges.cli.output import file_trouble
from holdfast.errors import ValidationError
from holdfast.rules import MAX_DIGITS, MAX_NESTING

TEXT: Final = "write text in double quotes within single ones, as in '\"hello\"', or add --text"
"""The hint for a command whose values may be text."""


def read_value(given: str, *, text: bool, hint: str = TEXT) -> Any:
    """Return the value that an argument stands for.

    Args:
        given: The value itself, `-` for stdin, or `@` and the name of a file.
        text: Take it as a string. One line break at the end of stdin or a file is removed.
        hint: Advice for the error about a value that is not JSON.
    """
    if given == "-":
        found = _decoded(sys.stdin.buffer.read(), "what is on stdin")
    elif given.startswith("@"):
        found = _decoded(_content(given[1:]), given[1:])
    else:
        return given if text else parse(given, hint=hint)
    return found.removesuffix("\n") if text else parse(found, hint=hint)


def parse(text: str, *, hint: str = TEXT) -> Any:
    """Parse JSON.

    The fast decoder rejects some JSON that cannot be a value, such as 1e400, without a reason. The slow one
    passes it on to the rules, which give one.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return _parse_slowly(text, hint)
    except RecursionError:
        raise _too_deep() from None


def _parse_slowly(text: str, hint: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError:
        shown = ascii(text[:40]) + ("..." if len(text) > 40 else "")
        raise ValidationError(f"value {shown} is not JSON: {hint}", field="value") from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError:
        raise ValidationError(
            f"value holds an integer with more than {MAX_DIGITS} digits", field="value"
        ) from None


def _refuse(constant: str) -> NoReturn:
    raise json.JSONDecodeError(constant, "", 0)


def _too_deep() -> ValidationError:
    return ValidationError(f"value is nested deeper than {MAX_NESTING} levels", field="value")


def _content(name: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise file_trouble(error, name, field="value") from None


def _decoded(content: bytes, where: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ValidationError(f"{where} is not UTF-8", field="value") from None
