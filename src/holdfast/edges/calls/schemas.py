"""JSON schemas of requests and replies, from the structs that declare their fields."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from holdfast.forms import GRAMMARS, RULES, SCHEMAS

_UNNEEDED: Final = frozenset({"title", "default"})


def schemas_of(structs: Iterable[type[msgspec.Struct]]) -> dict[str, Any]:
    """Return the schemas of structs and of everything they contain, by name."""
    _, components = msgspec.json.schema_components(
        list(dict.fromkeys(structs)), ref_template=SCHEMAS + "{name}"
    )
    return with_grammars({name: neat(schema) | RULES.get(name, {}) for name, schema in components.items()})


def with_grammars(schemas: dict[str, Any]) -> dict[str, Any]:
    """Return schemas by name, with the grammars that they refer to."""
    names = _referred(schemas) & GRAMMARS.keys() - schemas.keys()
    return with_grammars(schemas | {name: GRAMMARS[name] for name in sorted(names)}) if names else schemas


def _referred(schema: Any) -> set[str]:
    """Return the names of the schemas that a schema refers to."""
    if isinstance(schema, list):
        return set().union(*map(_referred, schema))
    if not isinstance(schema, dict):
        return set()
    names = set().union(*map(_referred, schema.values()))
    ref = schema.get("$ref")
    return names | {ref.rpartition("/")[2]} if isinstance(ref, str) else names


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
        return {field: neat(content) for field, content in part.items()}
    return neat(part)
