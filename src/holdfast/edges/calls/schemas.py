"""JSON schemas of requests and replies, from the structs that declare their fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.edges.calls.fields import RULES

if TYPE_CHECKING:
    from collections.abc import Iterable

SCHEMAS: Final = "#/components/schemas/"
_UNNEEDED: Final = frozenset({"title", "default"})


def schemas_of(structs: Iterable[type[msgspec.Struct]]) -> dict[str, Any]:
    """Return the schemas of structs and of everything they contain, by name."""
    _, components = msgspec.json.schema_components(
        list(dict.fromkeys(structs)), ref_template=SCHEMAS + "{name}"
    )
    return {name: neat(schema) | RULES.get(name, {}) for name, schema in components.items()}


def neat(schema: Any) -> Any:
    """Return a schema without the parts of msgspec's output that readers do not need.

    A reference stands alone, because many tools ignore its siblings. Unknown names stay allowed, because
    schemas are combined with others; `RULES` says where they are not.
    """
    if isinstance(schema, list):
        return [neat(member) for member in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        name: _part(name, part)
        for name, part in schema.items()
        if name not in _UNNEEDED and part != [] and not (name == "additionalProperties" and not part)
    }
    if "$ref" in kept and len(kept) > 1:
        kept["allOf"] = [{"$ref": kept.pop("$ref")}]
    return kept


def _part(name: str, part: Any) -> Any:
    if name == "properties":
        return {field: neat(told) for field, told in part.items()}
    return neat(part)
