"""The tables of the reference page about MCP, from the declarations of tools and prompts."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

from holdfast.edges.mcp.prompts import PROMPTS
from holdfast.edges.mcp.schemas import input_schema, own_properties
from holdfast.edges.mcp.tools import TOOLS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.edges.mcp.tools import Tool

WIDTH: Final = 120
"""Maximum number of characters of a line of text."""


def _overview() -> Iterator[str]:
    yield from ("| tool | effect | idempotent | verbs that a token must allow |", "|---|---|---|---|")
    for tool in TOOLS.values():
        verbs = ", ".join(f"`{verb}`" for verb in tool.verbs)
        repeatable = "yes" if tool.idempotent or not tool.writes else "no"
        yield f"| [`{tool.name}`](#{tool.name}) | {_effect(tool)} | {repeatable} | {verbs} |"


def _effect(tool: Tool) -> str:
    return "destructive" if tool.destroys else "writes" if tool.writes else "read-only"


def _tools() -> Iterator[str]:
    for tool in TOOLS.values():
        yield from (f"### {tool.name}", "", *wrap(tool.help, WIDTH), "")
        schema = input_schema(tool.arguments)
        if schema["properties"]:
            yield from ("| argument | type | |", "|---|---|---|")
            required = schema.get("required", [])
            for name, part in schema["properties"].items():
                shown = f"**`{name}`**" if name in required else f"`{name}`"
                yield f"| {shown} | {_kind(part)} | {_cell(part['description'])} |"
            yield ""
        yield from ("| result | |", "|---|---|")
        for name, part in own_properties(tool.reply).items():
            yield f"| `{name}` | {_cell(part.get('description', ''))} |"
        yield ""


def _kind(part: dict[str, Any]) -> str:
    if "anyOf" in part:
        return " or ".join(dict.fromkeys(_kind(one) for one in part["anyOf"]))
    if "allOf" in part or "$ref" in part:
        return "object"
    named: str = part.get("type", "any JSON")
    return {"string": "text", "array": "list"}.get(named, named)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _prompts() -> Iterator[str]:
    yield from ("| prompt | arguments | |", "|---|---|---|")
    for prompt in PROMPTS.values():
        arguments = ", ".join(
            f"**`{one.name}`**" if one.required else f"`{one.name}`" for one in prompt.arguments
        )
        yield f"| `{prompt.name}` | {arguments} | {prompt.help} |"


BLOCKS: Final = {"mcp_overview": _overview, "mcp_tools": _tools, "mcp_prompts": _prompts}
"""The lines of each block."""
