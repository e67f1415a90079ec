"""`holdfast mcp`: serve one plugin or project to an agent, over stdin and stdout.

The command chooses whom it serves before anything is opened; the agent can't reach beyond that. The settings
that it prints for MCP clients hold no secret of a token: a client asks for it or takes it from its
environment. Paths in them are absolute, because clients start servers in folders of their own.
"""

from __future__ import annotations

import codecs
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit, urlunsplit

import msgspec
from cyclopts import Parameter

import holdfast
from holdfast import extras
from holdfast.edges.cli.output import line, opened_input, say
from holdfast.edges.cli.target import HERE, Target

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


async def mcp(
    *,
    read_only: bool = False,
    writer: str | None = None,
    memory: bool = False,
    import_file: Path | None = None,
    print_config: Annotated[Literal["claude", "cursor", "vscode"] | None, Parameter(negative=())] = None,
    target: Target = HERE,
) -> None:
    """Serve one plugin, or a tenant's project, to an agent as MCP tools and resources over stdin and stdout.

    An MCP client starts this command; --print-config prints what to put into its settings. A running service
    offers the same over HTTP at /mcp. With --memory the plugin is a memory of entities, relations and
    observations, with the nine tools of server-memory; a running service offers that at /mcp/memory.

    Parameters
    ----------
    read_only
        Offer only tools that write nothing.
    writer
        Name to record as the last writer, such as reviewer:pr-12; the name of the client if not given.
    memory
        Offer the nine tools of server-memory instead. Several agents may share a memory.
    import_file
        With --memory: store what this file of server-memory holds, as far as it is new, and end.
    print_config
        Print the block for the settings of this client instead of serving.
    """
    target = whole(target)
    if print_config is not None:
        print_block(print_config, target, read_only=read_only, writer=writer, memory=memory)
        return
    if import_file is not None and not memory:
        raise holdfast.ValidationError("--import-file needs --memory", field="import_file")
    with extras.needed("mcp", "holdfast mcp"):
        # late: optional package, which takes a second to import
        from holdfast.edges.mcp.bypass import SdkBypass
        from holdfast.edges.mcp.callers import StoreCaller
        from holdfast.edges.mcp.memory import KnowledgeGraph
        from holdfast.edges.mcp.stdio import serve_stdio
    async with target.look() if read_only else target.open() as store:
        keys = target.keys(store)
        if import_file is not None:
            done = await KnowledgeGraph(StoreCaller(store, keys), writer).import_lines(_lines(import_file))
            say(
                f"new entities: {done.entities}, new relations: {done.relations}, "
                f"new observations of known entities: {done.observations}"
            )
            return
        caller = StoreCaller(store, keys, read_only=read_only, writer=writer, bypass=SdkBypass())
        say(f"serving {caller.owner} over stdin and stdout; Ctrl-C ends it")
        signal = await serve_stdio(caller, memory=memory)
    if signal is not None:
        os._exit(128 + signal)  # see serve_stdio; the store is closed by now


def _lines(file: Path) -> list[bytes]:
    """Read the lines of a file. Only a line feed ends one: text may hold the other line ends of Unicode."""
    with opened_input(file, field="import_file") as opened:
        return opened.read().removeprefix(codecs.BOM_UTF8).split(b"\n")


def whole(target: Target) -> Target:
    """Return the target with its project apart from its tenant, which `--project acme/web` names together."""
    if target.project is None or "/" not in target.project:
        return target
    tenant, _, project = target.project.partition("/")
    if target.tenant not in (None, tenant):
        raise holdfast.ValidationError(
            f"--tenant {target.tenant} and --project {target.project} name two tenants", field="project"
        )
    return replace(target, tenant=tenant, project=project)


def print_block(name: str, target: Target, *, read_only: bool, writer: str | None, memory: bool) -> None:
    """Print the block for a client's settings on stdout, and where it belongs on stderr."""
    client = CLIENTS[name]
    owner, arguments = owner_of(target)
    server: dict[str, Any]
    if target.address.startswith(("http://", "https://")):
        headers = {"Authorization": f"Bearer {client.variable % TOKEN}"}
        server = {"type": "http", "url": _mcp_url(target, memory=memory), "headers": headers}
        say(f"set {TOKEN} to the token of holdfast token create {' '.join(arguments)}")
    else:
        options = [*(["--memory"] if memory else []), *(["--read-only"] if read_only else [])]
        options += ["--writer", writer] if writer else []
        server = {
            "type": "stdio",
            "command": _command(),
            "args": ["mcp", *arguments, *options],
            "env": {"HOLDFAST_URL": _url(target)},
        }
    block = msgspec.json.encode({client.section: {"holdfast-" + owner.replace("/", "-"): server}})
    line(msgspec.json.format(block, indent=2).decode())
    say(f"paste it into {client.file}")


def owner_of(target: Target) -> tuple[str, list[str]]:
    """Return the plugin or `tenant/project` of a target, and the options that name it."""
    plugin, tenant, project = target.chosen
    if tenant and project:
        return f"{tenant}/{project}", ["--tenant", tenant, "--project", project]
    if not plugin:
        raise holdfast.MissingField(
            "who is the server for? Give --plugin NAME, or --project TENANT/PROJECT", field="plugin"
        )
    return plugin, ["--plugin", plugin]


def _command() -> str:
    """Return the path of this program, which may not be on a client's PATH."""
    program = Path(sys.argv[0])
    return str(program.absolute()) if program.is_file() else "holdfast"


def _url(target: Target) -> str:
    address = target.address
    return address if "://" in address else str(Path(address).absolute())


def _mcp_url(target: Target, *, memory: bool) -> str:
    address = urlsplit(target.address)
    host = address.netloc.rpartition("@")[2]
    path = f"{address.path.rstrip('/')}/mcp{'/memory' if memory else ''}"
    return urlunsplit((address.scheme, host, path, "", ""))
