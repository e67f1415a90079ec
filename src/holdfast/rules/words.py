"""The form in which messages show what a caller gave.

Law: a message stays short whatever the length of the input, and has nothing that may be private.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from holdfast.rules.limits import MAX_VERSION

_WORDS: Final = {None: "null", True: "true", False: "false"}
_KINDS: Final[dict[type, str]] = {
    str: "text",
    int: "a number",
    float: "a number",
    bytes: "bytes",
    type(None): "null",
}


def shown(given: object) -> str:
    """Return a short form for messages, whatever the length of the input."""
    if isinstance(given, str):
        return ascii(given[:40]) + ("..." if len(given) > 40 else "")
    if given is None or isinstance(given, bool):
        return _WORDS[given]
    if isinstance(given, float) or (isinstance(given, int) and abs(given) <= MAX_VERSION):
        return str(given)
    return kind_of(given)


def kind_of(value: object) -> str:
    """Return the kind of a value in JSON terms, for messages. The value itself may be private."""
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, (list, tuple)):
        return "a list"
    return _KINDS.get(type(value), f"a {type(value).__name__}")
