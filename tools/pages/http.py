"""The tables of the reference page about HTTP, from the catalogue and the table of codes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.edges.calls import FAMILIES
from holdfast.edges.http.openapi import PATHS
from holdfast.edges.http.requests import HEADERS
from holdfast.wire.errors import NUMBERS

if TYPE_CHECKING:
    from collections.abc import Iterator


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


BLOCKS: Final = {"http_verbs": _verbs, "http_headers": _headers, "http_statuses": _statuses}
"""The lines of each block."""
