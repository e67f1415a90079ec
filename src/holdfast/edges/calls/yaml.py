"""A writer of YAML for documents generated from the catalogue.

Law: objects and lists are written in block style, and every scalar as JSON, which is valid YAML. So writing
needs no package.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_PLAIN: Final = re.compile(r"(?!(?:true|false|null|yes|no|on|off|y|n)$)[A-Za-z_][\w-]*", re.IGNORECASE)
"""Names that need no quotes."""


def document_text(document: dict[str, Any]) -> str:
    """Return a document as YAML."""
    return "".join(f"{line}\n" for line in _object(document))


def _object(content: dict[str, Any]) -> Iterator[str]:
    for name, value in content.items():
        yield from _placed(f"{name if _PLAIN.fullmatch(name) else json.dumps(name)}:", value)


def _placed(before: str, value: Any) -> Iterator[str]:
    """Yield the lines of a value after a name or a dash: on the same line, or on the lines below."""
    if value and isinstance(value, dict):
        yield before
        yield from (f"  {line}" for line in _object(value))
    elif value and isinstance(value, list):
        yield before
        yield from (f"  {line}" for member in value for line in _member(member))
    else:
        yield f"{before} {json.dumps(value)}"


def _member(member: Any) -> Iterator[str]:
    if not (member and isinstance(member, dict)):
        yield f"- {json.dumps(member)}"
        return
    first, *rest = _object(member)
    yield f"- {first}"
    yield from (f"  {line}" for line in rest)
