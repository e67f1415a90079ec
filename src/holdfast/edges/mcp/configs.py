"""The blocks that MCP clients want in their settings, to start this server or to reach a service.

Law: no secret of a token is printed: a client asks for it or takes it from its environment. A path is
absolute, because clients start servers in folders of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

TOKEN: Final = "HOLDFAST_TOKEN"
"""The variable from which clients take the token of a service."""


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """A client: where its settings are, the name of their section, and how a variable is written in them."""

    file: str
    section: str
    variable: str


CLIENTS: Final = {
    "claude": Client(
        file=".mcp.json of a project, or claude_desktop_config.json", section="mcpServers", variable="${%s}"
    ),
    "cursor": Client(file=".cursor/mcp.json", section="mcpServers", variable="${env:%s}"),
    "vscode": Client(file=".vscode/mcp.json", section="servers", variable="${env:%s}"),
}
"""The clients whose settings are known."""


def block(client: Client, owner: str, server: Mapping[str, Any]) -> str:
    """Return the block for a client, as JSON to paste."""
    name = "holdfast-" + owner.replace("/", "-")
    encoded = msgspec.json.encode({client.section: {name: server}})
    return msgspec.json.format(encoded, indent=2).decode()


def started(command: str, arguments: list[str], variables: Mapping[str, str]) -> dict[str, Any]:
    """Return the server that a client starts as a process."""
    return {"type": "stdio", "command": command, "args": arguments, "env": dict(variables)}


def reached(client: Client, url: str) -> dict[str, Any]:
    """Return the server that a client reaches over HTTP, with a token from its environment."""
    return {"type": "http", "url": url, "headers": {"Authorization": f"Bearer {client.variable % TOKEN}"}}
