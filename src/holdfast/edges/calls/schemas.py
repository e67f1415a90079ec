"""JSON schemas of requests, replies and refusals, in the spelling of each dialect.

Law: the schema of fields comes from the struct that declares them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.errors import error_classes
from holdfast.forms import RULES
from holdfast.wire.dialects import SEMANTIC

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


def camel_schemas(schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the same schemas in the spelling of the semantic dialect, each named `Semantic…`."""
    return {f"Semantic{name}": _camel(schema) for name, schema in schemas.items()}


def _camel(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_camel(member) for member in schema]
    if not isinstance(schema, dict):
        return schema
    return {name: _camel_part(name, part) for name, part in schema.items()}


def _camel_part(name: str, part: Any) -> Any:
    match name:
        case "properties":
            return {SEMANTIC.spelled(field): _camel(told) for field, told in part.items()}
        case "required":
            return [SEMANTIC.spelled(field) for field in part]
        case "$ref":
            return part.replace(SCHEMAS, f"{SCHEMAS}Semantic")
        case _:
            return _camel(part)


def refusals() -> dict[str, str]:
    """Return the messages that refuse a request, and the schemas of their payloads."""
    return {
        "refusal": "Refusal",
        "payload_refusal": "PayloadRefusal",
        "semantic_refusal": "SemanticRefusal",
    }


def envelopes() -> dict[str, Any]:
    """Return the schemas of the envelopes around a verb's fields."""
    codes = [error.code for error in error_classes()]
    text = {"type": "string"}
    time = {"type": "string", "description": "The service's time in milliseconds since 1970."}
    warned = {"type": "string", "description": "Names fields that the verb does not know."}
    headers = {"Holdfast-Time": time, "Holdfast-Warning": warned}
    refused = _refused("error_code", codes)
    nested = _refused("code", codes)
    return {
        "PluginName": _object({"plugin_name": text}, "plugin_name"),
        "Success": _object({"success": {"const": True}}, "success"),
        "ReplyHeaders": _object(headers),
        "RefusalHeaders": _object(
            headers
            | {
                "Nats-Service-Error": text | {"description": "The message."},
                "Nats-Service-Error-Code": text | {"description": "A number, as NATS services have it."},
                "Holdfast-Error-Code": {"enum": codes},
            }
        ),
        "Refusal": _object({"success": {"const": False}, **refused}, "success", *_REQUIRED, "error_code"),
        "PayloadRefusal": _object(
            {"success": {"const": False}, "error": _object(nested, "code", *_REQUIRED)}, "success", "error"
        ),
        "SemanticRefusal": _camel(
            _object(
                {"success": {"const": False}, **_refused("error_code", [code.lower() for code in codes])},
                "success",
                *_REQUIRED,
                "error_code",
            )
        ),
    }


_REQUIRED: Final = ("message", "retryable")


def _refused(code: str, codes: list[str]) -> dict[str, Any]:
    anything = {"type": ["object", "null"], "description": "What is there instead of what was expected."}
    return {
        code: {"enum": codes},
        "message": {"type": "string", "description": "What was wrong and what to do."},
        "retryable": {"type": "boolean", "description": "Whether the same request may succeed later."},
        "field": {"type": "string", "description": "The field that was wrong."},
        "retry_after": {"type": "number", "description": "Seconds to wait before a retry."},
        "reason": {"type": "string", "description": "Why a version conflicts."},
        "current": anything,
        "conflicts": {"type": "array", "items": {"type": "object"}, "description": "All that failed."},
    }


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    told: dict[str, Any] = {"type": "object", "properties": properties}
    return told | ({"required": list(required)} if required else {})
