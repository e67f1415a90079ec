"""Servers of the Model Context Protocol that are tortured: the memory of `server-memory`, and ours.

Each worker is a client with a server of its own, on one file, as clients of the protocol start them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from tools.torture.contestants import Contestant, module

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tools.torture.contestants import Pause

SERVERS: Final = Path(__file__).resolve().parents[2] / ".dev" / "tools" / "npm" / "node_modules"
SHARED: Final = {"name": "shared", "entityType": "thing", "observations": []}


def _nowhere() -> IO[str]:
    """Return a file for what servers say beside the protocol."""
    return Path(os.devnull).open("w")


class McpContestant(Contestant):
    """A memory with one entity, to which each turn adds an observation."""

    state = "MCP memory"
    appends = True

    def __init__(self, client: Any) -> None:
        self.client = client

    @classmethod
    def imported(cls) -> None:
        """Import the client."""
        module("mcp")

    @classmethod
    def server(cls, where: str) -> tuple[list[str], dict[str, str]]:
        """Return the command that starts a server on a file, and its variables."""
        raise NotImplementedError

    @classmethod
    async def prepared(cls, where: str) -> None:
        """Create the entity."""
        async with cls.opened(where) as contestant:
            await contestant.call("create_entities", entities=[SHARED])

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, where: str) -> AsyncIterator[Any]:
        """Start a server and connect to it."""
        sdk = module("mcp")
        [program, *arguments], variables = cls.server(where)
        parameters = sdk.StdioServerParameters(
            command=program, args=arguments, env={**os.environ, **variables}
        )
        with _nowhere() as nowhere:
            transport = module("mcp.client.stdio").stdio_client(parameters, errlog=nowhere)
            async with sdk.Client(transport) as client:
                yield cls(client)

    async def call(self, tool: str, /, **arguments: Any) -> Any:
        """Call a tool."""
        result = await self.client.call_tool(tool, arguments)
        if result.is_error:
            raise RuntimeError(result.content[0].text)
        return result.structured_content

    async def turn(self, mark: str, pause: Pause) -> None:
        """Read the memory and add an observation."""
        await self.marks()
        await pause()
        await self.call("add_observations", observations=[{"entityName": "shared", "contents": [mark]}])

    async def twice(self, mark: str) -> None:
        """Add an observation, and again."""
        for _ in range(2):
            await self.call("add_observations", observations=[{"entityName": "shared", "contents": [mark]}])

    async def marks(self) -> list[str]:
        """Read the observations."""
        graph = await self.call("read_graph")
        return [text for entity in graph["entities"] for text in entity["observations"]]


class ServerMemory(McpContestant):
    """The reference server of the protocol, which keeps its memory in a file of lines of JSON."""

    name = "MCP server-memory"
    packages = ("@modelcontextprotocol/server-memory",)

    @classmethod
    def imported(cls) -> None:
        """Look for the server."""
        super().imported()
        if shutil.which("node") is None or not cls.folder().exists():
            raise ImportError("node or the package of server-memory is not there")

    @classmethod
    def folder(cls) -> Path:
        """Return the folder of its package."""
        return SERVERS / cls.packages[0]

    @classmethod
    def versions(cls) -> dict[str, str]:
        """Return the version that its package names."""
        return {cls.packages[0]: json.loads((cls.folder() / "package.json").read_text())["version"]}

    @classmethod
    def server(cls, where: str) -> tuple[list[str], dict[str, str]]:
        """Start it with node."""
        return ["node", str(cls.folder() / "dist" / "index.js")], {"MEMORY_FILE_PATH": f"{where}.jsonl"}


class OurMemory(McpContestant):
    """Our memory."""

    name = "Holdfast mcp --memory"
    packages = ("mcp",)
    ours = True

    @classmethod
    def imported(cls) -> None:
        """Import the server."""
        super().imported()
        module("holdfast.edges.mcp.memory")

    @classmethod
    def server(cls, where: str) -> tuple[list[str], dict[str, str]]:
        """Start it with this Python."""
        words = ["-m", "holdfast", "mcp", "--memory", "--plugin", "notes", "--url", where]
        return [sys.executable, *words], {}


CONTESTANTS: tuple[type[Contestant], ...] = (ServerMemory, OurMemory)
