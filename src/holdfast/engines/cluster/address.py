"""The address of a cluster: its NATS servers, its name, and how this node takes part.

The URL holds every option of a node. This module never reads the environment and opens nothing.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from holdfast import masking
from holdfast.bus.address import NatsAddress
from holdfast.errors import ValidationError

OPTIONS: Final = {
    "data": "the folder of this node's replica: by default NAME.replica in the current folder",
    "reads": "lease for reads that see every acknowledged write, local for this node's replica as it is",
    "replicas": "the number of servers that keep the log of a new store: 3 if as many are named, else 1",
    "peers": "further servers, as host and port, to name if they are missing; nothing connects to them",
    "shards": "the number of shards of a new store: 1 by default, at most 64",
    "timeout": "after how many seconds without an acknowledgement a write gives up: 10 by default",
    "snapshot_every": "the number of messages of the log after which a snapshot is made: 50000; 0 for never",
    "monitor": "the port of the servers' HTTP monitoring, or one for each, to ask for sync_interval: 8222",
    "allow_lazy_sync": "true to accept servers that may lose acknowledged writes in a power failure",
    "login": "a file with this node's user and password, as user:password",
    "creds": "a file with a JWT and its seed",
    "nkey": "a file with an nkey's seed",
    "tls_ca": "a file with the certificates to trust",
    "tls_cert": "a file with this node's certificate",
    "tls_key": "a file with the key of that certificate",
    "tls_first": "true for servers that begin with TLS (handshake_first)",
}
"""The query options of a `cluster://` URL."""

MOST_SHARDS: Final = 64
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,32}")
_LOGIN: Final = ("creds", "nkey", "tls_ca", "tls_cert", "tls_key")


class ClusterAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The servers and the login, the name of the store, and the options of this node."""

    remote: NatsAddress
    name: str
    data: Path
    local_reads: bool = False
    shards: int = 1
    replicas: int = 1
    peers: tuple[str, ...] = ()
    monitor: tuple[int, ...] = (8222,)
    snapshot_every: int = 50_000
    allow_lazy_sync: bool = False

    @property
    def servers(self) -> list[str]:
        """The URLs of the NATS servers."""
        return self.remote.servers

    @property
    def shown(self) -> str:
        """The servers, without passwords."""
        return self.remote.shown

    @property
    def timeout(self) -> float:
        """After how many seconds without an acknowledgement a write gives up."""
        return self.remote.timeout

    @property
    def stream(self) -> str:
        """The name of the stream that holds the log."""
        return f"HF_{self.name}"

    def subject(self, kind: str, shard: int | str) -> str:
        """Return a subject of a shard. The kind is `log` for the log itself."""
        return f"hf.{self.name}.{kind}.{shard}"


def cluster_address(url: str) -> ClusterAddress:
    """Parse a URL such as `cluster://h1,h2:4222,h3/NAME?data=/var/lib/holdfast`.

    Raises:
        ValidationError: It names no server or no store, or has an unknown option or an illegal value.
    """
    masking.require_escaped(url)
    where, _, query = url.removeprefix("cluster://").partition("?")
    hosts, _, name = where.partition("/")
    servers = [f"nats://{host.strip()}" for host in hosts.split(",") if host.strip()]
    if not servers:
        raise ValidationError("url names no NATS server: write cluster://HOST,HOST,HOST/NAME", field="url")
    if not _NAME.fullmatch(name):
        raise ValidationError(
            "url must name the store after the servers, as cluster://HOST,HOST,HOST/NAME: 1 to 32 letters, "
            "digits, hyphens and underscores",
            field="url",
        )
    options = dict(parse_qsl(query, keep_blank_values=True))
    for option in options:
        if option not in OPTIONS:
            what = masking.MASK if masking.MASK in masking.hosts(f"nats://{hosts}") else option
            raise ValidationError(
                f"url has the unknown option {what!r}; known are {', '.join(OPTIONS)}", field="url"
            )
    login: dict[str, Any] = {option: options[option] for option in _LOGIN if option in options}
    return ClusterAddress(
        remote=NatsAddress(
            servers=servers,
            timeout=_number(options, "timeout", 10, 1, 3600),
            tls_first=_choice(options, "tls_first", ("false", "true")) == "true",
            login_file=options.get("login"),
            **login,
        ),
        name=name,
        data=Path(options.get("data", f"{name}.replica")),
        local_reads=_choice(options, "reads", ("lease", "local")) == "local",
        shards=_number(options, "shards", 1, 1, MOST_SHARDS),
        replicas=_number(options, "replicas", 3 if len(servers) >= 3 else 1, 1, 5),
        peers=tuple(peer.strip() for peer in options.get("peers", "").split(",") if peer.strip()),
        snapshot_every=_number(options, "snapshot_every", 50_000, 0, 9_999_999),
        monitor=_ports(options.get("monitor", "8222"), len(servers)),
        allow_lazy_sync=_choice(options, "allow_lazy_sync", ("false", "true")) == "true",
    )


def _choice(options: dict[str, str], name: str, known: tuple[str, str]) -> str:
    """Return the value of an option that has two; the first by default."""
    value = options.get(name, known[0])
    if value not in known:
        raise ValidationError(f"{name} in url must be {known[0]} or {known[1]}", field="url")
    return value


def _ports(text: str, servers: int) -> tuple[int, ...]:
    """Return the monitoring ports: one for all servers, or one for each."""
    ports = tuple(_number({"monitor": port}, "monitor", 8222, 1, 65_535) for port in text.split(","))
    if len(ports) not in (1, servers):
        raise ValidationError("monitor in url must be one port, or one for each server", field="url")
    return ports


def _number(options: dict[str, str], name: str, usual: int, least: int, most: int) -> int:
    text = options.get(name, str(usual))
    if not text.isdecimal() or len(text) > 7 or not least <= int(text) <= most:
        raise ValidationError(f"{name} in url must be a whole number from {least} to {most}", field="url")
    return int(text)
