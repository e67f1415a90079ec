"""Text for a terminal: whether it may have colours, and escaping so that it sends no commands.

Code that displays text from other sources escapes it here. Control characters (C0, DEL and C1), line
separators, and marks that change the direction of text become `\\u` and their code, which JSON reads as the
same text.
"""

from __future__ import annotations

import os
import re
from typing import Final, TextIO

_ABOVE: Final = r"\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
HARMFUL: Final = re.compile(rf"[\x00-\x1f{_ABOVE}]")
_IN_LINES: Final = re.compile(rf"[\x00-\x08\x0b-\x1f{_ABOVE}]")


def harmless(text: str, *, lines: bool = False) -> str:
    """Escape text so that a terminal displays it and executes nothing. `lines` keeps tabs and line ends."""
    return (_IN_LINES if lines else HARMFUL).sub(_code, text)


def colours(stream: TextIO) -> bool:
    """Return whether a stream is a terminal that shows colours, and the user has not disabled them."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _code(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
