"""JSON Schemas of tools, in the 2020-12 dialect, each complete in itself.

The schema of arguments and results comes from the structs that declare them, with the rules about several
fields. Arguments that a tool does not have are refused, and its schema says so. A result is a success or a
refusal, and one schema describes both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.edges.calls.schemas import schemas_of
from holdfast.forms import SCHEMAS

if TYPE_CHECKING:
    from holdfast.edges.mcp.tools import Tool

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def input_schema(tool: Tool) -> dict[str, Any]:
    """Return the schema of a tool's arguments."""
    return {"$schema": DIALECT, **_object(tool.arguments), "additionalProperties": False}


def own_properties(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the schemas of a struct's own fields."""
    properties: dict[str, Any] = _object(struct)["properties"]
    return properties


def output_schema(tool: Tool) -> dict[str, Any]:
    """Return the schema of a tool's result."""
    schema = _object(tool.reply)
    schema["properties"] = {**_refusal(), **schema["properties"], "success": _SUCCESS}
    return {"$schema": DIALECT, **schema, "required": ["success"]}


_SUCCESS: Final = {"type": "boolean", "description": "Whether it was done; if not, error_code says why."}


def _refusal() -> dict[str, Any]:
    return {
        "error_code": {"type": "string", "description": "Why it was refused, as a word."},
        "message": {"type": "string", "description": "What was wrong."},
        "next": {"type": "string", "description": "What to do next."},
        "retryable": {"type": "boolean", "description": "Whether the same call may succeed later."},
        "field": {"type": "string", "description": "The argument that was wrong."},
        "retry_after": {"type": "number", "description": "Seconds to wait before trying again."},
        "reason": {"type": "string", "description": "Why a version conflicts."},
        "current": {
            "type": ["object", "null"],
            "description": "After a conflict, the entry or item that is there now; null if there is none.",
        },
        "conflicts": {"type": "array", "items": {"type": "object"}, "description": "All that failed."},
    }


def _object(struct: type[msgspec.Struct]) -> dict[str, Any]:
    parts = _within(schemas_of([struct]))
    schema: dict[str, Any] = parts.pop(struct.__name__)
    schema.pop("description", None)  # it describes the struct, not the tool
    if parts:
        schema["$defs"] = parts
    return schema


def _within(schema: Any) -> Any:
    """Return a schema whose references lead to definitions within the schema of the tool."""
    if isinstance(schema, list):
        return [_within(member) for member in schema]
    if not isinstance(schema, dict):
        return schema.replace(SCHEMAS, "#/$defs/") if isinstance(schema, str) else schema
    return {name: _within(part) for name, part in schema.items()}
