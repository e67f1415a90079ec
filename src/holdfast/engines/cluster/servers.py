"""Checks of the NATS servers: who answers, which version they have, and whether they wait for the disk.

A server's own words decide. One that can't be asked counts as one that may lose writes, unless the URL
says that this is accepted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from holdfast import masking
from holdfast.bus.login import Server, server_at
from holdfast.engines.cluster.address import ClusterAddress
from holdfast.errors import Unsupported

_log = logging.getLogger("holdfast.cluster")

LEAST_VERSION: Final = (2, 15)
"""The first nats-server that waits for the disk once per entry of its own log."""
LOOK_SECONDS: Final = 1.0
LONGEST_REPLY: Final = 1024 * 1024

ACCEPTED: Final = "allow_lazy_sync=true"
"""The option of a URL that accepts servers which do not wait for the disk."""
LAZY: Final = (
    "acknowledged writes could be lost in a power failure. Set sync_interval: always in the jetstream block "
    "of its configuration, or accept that risk: with "
    f"{ACCEPTED} in the URL, or --allow-lazy-sync of holdfast up"
)
RISK: Final = "writes of the last minutes that were acknowledged are lost if all machines lose power at once"
"""What is risked with servers that do not wait for the disk."""


def require_version(version: str, where: str) -> None:
    """Refuse a server that is too old.

    Raises:
        Unsupported: It is older than `LEAST_VERSION`, or does not say which version it has.
    """
    words = version.partition("-")[0].split(".")
    numbers = tuple(int(word) for word in words if word.isdecimal())
    if numbers < LEAST_VERSION:
        least = ".".join(map(str, LEAST_VERSION))
        raise Unsupported(
            f"a cluster needs nats-server {least} or newer; the one at {where} is {version or 'unknown'}: "
            "upgrade it, one server after the other"
        )


async def require_sync(address: ClusterAddress) -> None:
    """Refuse servers that acknowledge before the disk has the message.

    Every server that answers is asked, also for its version; at least one must answer. One that is down is
    asked when it is back and this node starts again.

    A URL with `allow_lazy_sync` accepts servers that do not wait, or do not say so; the log names the risk.

    Raises:
        Unsupported: A server does not wait for the disk or is too old, or none says whether it is.
    """
    servers = [server_at(url) for url in address.servers]
    ports = _ports(address)
    infos = await asyncio.gather(*map(_server_info, servers, ports))
    for server, info in zip(servers, infos, strict=True):
        if info is None:
            continue
        require_version(info.version, _shown(server))
        if not (info.sync_always or address.allow_lazy_sync):
            raise Unsupported(f"nats-server at {_shown(server)} does not wait for the disk: {LAZY}")
    if address.allow_lazy_sync:
        _log.warning("%s may acknowledge before the disk has a write: %s", address.shown, RISK)
    elif not any(infos):
        raise Unsupported(
            f"no server of {address.shown} says at its monitoring port ({', '.join(map(str, ports))}) "
            f"whether it waits for the disk; name the port as monitor=PORT in the URL. If it does not, {LAZY}"
        )


async def names(address: ClusterAddress) -> set[str]:
    """Return the names of the servers in the URL that answer at their monitoring ports, and of those that
    they have routes to.
    """
    servers = [server_at(url) for url in address.servers]
    names_beside = await asyncio.gather(*map(_names_beside, servers, _ports(address)))
    return set().union(*names_beside)


async def _names_beside(server: Server, port: int) -> set[str]:
    """Return the names of a server and of those that it has routes to; none if it can't be asked."""
    with contextlib.suppress(OSError, TimeoutError, ValueError):
        async with asyncio.timeout(LOOK_SECONDS):
            routez = await _fetched(server.host, port, "/routez")
        routes = routez.get("routes") or []
        return {
            str(routez.get("server_name", "")),
            *(str(route.get("remote_name", "")) for route in routes),
        } - {""}
    return set()


def _ports(address: ClusterAddress) -> tuple[int, ...]:
    """Return the monitoring port of each server."""
    return address.monitor if len(address.monitor) > 1 else address.monitor * len(address.servers)


async def missing(urls: Sequence[str]) -> list[str]:
    """Return the servers that do not greet a new connection, as host and port."""
    servers = [server_at(url) for url in urls]
    greeted = await asyncio.gather(*map(_greets, servers))
    return [_shown(server) for server, there in zip(servers, greeted, strict=True) if not there]


async def missing_of(address: ClusterAddress) -> list[str]:
    """Return the servers of a cluster that do not greet a new connection."""
    return list(dict.fromkeys(await missing([*address.servers, *address.peers])))


def other_servers(address: ClusterAddress) -> list[str]:
    """Return the servers that a node was told of, without logins; not those of its own machine."""
    own = [url for url in address.servers if not _is_loopback(server_at(url).host)]
    others = [server_at(url) for url in (*own, *address.peers)]
    return [f"{'tls' if one.secure else 'nats'}://{one.host}:{one.port}" for one in others]


def _is_loopback(host: str) -> bool:
    return host == "localhost" or host.startswith("127.") or host == "::1"


async def no_quorum(address: ClusterAddress, what: str) -> str:
    """Return a message that says what did not happen, and which servers are missing."""
    gone = await missing_of(address)
    if not gone:
        return f"{what}: the NATS servers at {address.shown} are there but do not agree yet; try again"
    servers = "server" if len(gone) == 1 else "servers"
    return f"{what}: no answer from the NATS {servers} {', '.join(gone)}"


async def elected(port: int) -> bool:
    """Return whether the server of this machine, with this monitoring port, sees a leader of JetStream."""
    with contextlib.suppress(OSError, TimeoutError, ValueError):
        async with asyncio.timeout(LOOK_SECONDS):
            jsz = await _fetched("127.0.0.1", port, "/jsz")
        return bool((jsz.get("meta_cluster") or {}).get("leader"))
    return False


async def _greets(server: Server) -> bool:
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(LOOK_SECONDS):
            reader, writer = await asyncio.open_connection(server.host, server.port)
            try:
                # One that begins with TLS says nothing before the handshake.
                return server.secure or bool(await reader.read(1))
            finally:
                writer.close()
    return False


class ServerInfo(msgspec.Struct, frozen=True):
    """What a server says about itself at its monitoring port."""

    version: str
    sync_always: bool


async def _server_info(server: Server, port: int) -> ServerInfo | None:
    """Return what a server says about itself; None if it can't be asked."""
    with contextlib.suppress(OSError, TimeoutError, ValueError):
        async with asyncio.timeout(LOOK_SECONDS):
            varz = await _fetched(server.host, port, "/varz")
        config = (varz.get("jetstream") or {}).get("config") or {}
        return ServerInfo(str(varz.get("version", "")), bool(config.get("sync_always")))
    return None


async def _fetched(host: str, port: int, path: str) -> dict[str, Any]:
    reader, writer = await asyncio.open_connection(host, port, limit=LONGEST_REPLY)
    try:
        writer.write(f"GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
        data = await reader.read(LONGEST_REPLY)
        while more := await reader.read(LONGEST_REPLY):
            data += more
    finally:
        writer.close()
    return msgspec.json.decode(data.partition(b"\r\n\r\n")[2], type=dict[str, Any])


def _shown(server: Server) -> str:
    return masking.hosts(f"{server.host}:{server.port}")
