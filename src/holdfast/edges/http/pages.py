"""A generator for the tables of the reference page about HTTP.

    python -m holdfast.edges.http.pages docs/reference/http.md

Law: only the text between two markers of the page is generated, from the catalogue and the table of codes.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.edges.calls import FAMILIES
from holdfast.edges.http.openapi import PATHS
from holdfast.edges.http.spoken import HEADERS
from holdfast.wire.errors import NUMBERS

if TYPE_CHECKING:
    from collections.abc import Iterator

_BETWEEN: Final = re.compile(r"<!-- begin http (\w+):.*?<!-- end http \1 -->", re.DOTALL)
_BEGIN: Final = "<!-- begin http {}: made by python -m holdfast.edges.http.pages -->"
_END: Final = "<!-- end http {} -->"


def page(text: str) -> str:
    """Return the page with the text between its markers made anew."""
    return _BETWEEN.sub(lambda found: _block(found[1]), text)


def _block(name: str) -> str:
    return "\n".join([_BEGIN.format(name), "", *BLOCKS[name](), "", _END.format(name)])


def _verbs() -> Iterator[str]:
    yield from ("| path of the POST | verbs |", "|---|---|")
    for family, (path, _) in PATHS.items():
        verbs = ", ".join(f"`{verb}`" for verb in FAMILIES[family])
        yield f"| `{path}:<verb>` | {verbs} |"


def _headers() -> Iterator[str]:
    yield from ("| header | field |", "|---|---|")
    for header, field in HEADERS.items():
        meant = "expected_version" if field.startswith("if_") else field
        yield f"| `{header.decode()}` | `{meant}` |"


def _statuses() -> Iterator[str]:
    yield from ("| status | codes |", "|---|---|")
    for status in sorted(set(NUMBERS.values())):
        codes = ", ".join(f"`{code}`" for code, number in NUMBERS.items() if number == status)
        yield f"| {status} | {codes} |"


BLOCKS: Final = {"verbs": _verbs, "headers": _headers, "statuses": _statuses}
"""The generated text for each marker name."""


if __name__ == "__main__":
    where = Path(sys.argv[1])
    where.write_text(page(where.read_text(encoding="utf-8")), encoding="utf-8")
