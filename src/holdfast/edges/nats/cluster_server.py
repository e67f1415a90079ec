"""The NATS server of a machine in a cluster: its configuration, and the URL of the node beside it.

Clients on this machine need no credentials, but the log, its subjects and JetStream are for the node alone.
It logs in with a password that is made at the first start. A configuration that tells plugins apart has
accounts. The node then gets one of its own: as soon as there are accounts, JetStream serves only those that
ask for it.

The server syncs every write, unless a setting accepts that it does not. It lets in other servers only
with the shared secret, and over a network only with TLS. Its name never changes, since the others know it by
that. No other user than the node can read the log, write to it or remove it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote

import msgspec

from holdfast import private, seams
from holdfast.bus.errors import BusError, LoginRefused
from holdfast.bus.protocol import Message
from holdfast.edges.nats import server
from holdfast.edges.nats.server import NatsServer
from holdfast.edges.settings.addresses import is_loopback
from holdfast.edges.settings.table import Config
from holdfast.engines.cluster.address import cluster_address
from holdfast.engines.cluster.jetstream import NODE_INBOX, ApiRefusal, NoMajority
from holdfast.engines.cluster.membership import LogExporter, export_log
from holdfast.engines.cluster.reports import Inbox
from holdfast.engines.cluster.servers import ACCEPTED, elected, missing, require_version
from holdfast.errors import PermissionDenied, Unavailable, ValidationError

ROUTE_PORT: Final = 6222
MONITOR_OFFSET: Final = 4000
"""How far the monitoring port is from the port for clients: 8222 beside 4222."""
LOOK_SECONDS: Final = 0.5
_USER: Final = "holdfast"
_SYSTEM_USER: Final = "holdfast-system"
NODE: Final = "holdfast-node"
"""The user of this machine's node."""
LOGIN: Final = "node.login"
"""The file with the node's user and password, in the folder of the server."""
_ANYBODY: Final = "holdfast-anybody"
"""The user that everybody is who gives no credentials."""
_NODES_OWN: Final = ("$JS.>", "$JSC.>", "$NRG.>", "$SYS.>", "hf.>", f"{NODE_INBOX}.>")
"""What no other user than the node may send to or listen to. The server answers some requests below `$SYS` at
any subject that they name, which could be one of the log.
"""
_GLOBAL: Final = "$G"
"""The account of users without one. JetStream serves it if there is no other."""
NODE_ACCOUNT: Final = "HOLDFAST_NODE"
_ACCOUNTS: Final = re.compile(r"^[ \t]*\"?accounts\"?[ \t]*[:=]?[ \t]*\{", re.MULTILINE)
_INCLUDE: Final = re.compile(r"^([ \t]*include[ \t]+)(\"[^\"]+\"|'[^']+'|\S+)", re.MULTILINE)


class StoppedEarly(Unavailable):
    """Holdfast is to stop before its cluster was there."""


def in_cluster(config: Config) -> Config:
    """Return the settings of a machine with the URL of its node, if it is part of a cluster.

    Raises:
        ValidationError: A setting is missing or contradicts another; `field` names it.
    """
    if config.cluster is None:
        if config.peers:
            raise ValidationError("peers needs the name of the cluster: give --cluster", field="peers")
        return _lazy(config) if config.allow_lazy_sync else config
    _require_agreeing(config)
    return msgspec.structs.replace(config, db=node_url(config))


def _lazy(config: Config) -> Config:
    """Return the settings of a node at servers of others, which may acknowledge before the disk."""
    if not config.db.startswith("cluster://"):
        raise ValidationError(
            "allow_lazy_sync is for a cluster alone: give --cluster NAME or --db cluster://HOST,HOST,HOST/NAME",
            field="allow_lazy_sync",
        )
    url, _, query = config.db.partition("?")
    options = [one for one in query.split("&") if one and not one.startswith("allow_lazy_sync=")]
    return msgspec.structs.replace(config, db=f"{url}?{'&'.join([*options, ACCEPTED])}")


def _require_agreeing(config: Config) -> None:
    if config.nats is not None:
        raise ValidationError(
            "cluster starts a NATS server of its own; to use servers that run already, give "
            "--db cluster://HOST,HOST,HOST/NAME instead",
            field="cluster",
        )
    if len(config.peers) == 1:
        raise ValidationError("peers must name at least two other machines, or none", field="peers")
    if config.peers and config.cluster_secret is None:
        raise ValidationError(
            "cluster_secret is missing: set HOLDFAST_CLUSTER_SECRET to the same secret on each machine",
            field="cluster_secret",
        )
    far = [peer for peer in config.peers if not is_loopback(peer.partition(":")[0])]
    tls = (config.cluster_tls_ca, config.cluster_tls_cert, config.cluster_tls_key)
    if (far or any(tls)) and not all(tls):
        raise ValidationError(
            "cluster_tls_ca, cluster_tls_cert and cluster_tls_key are needed, because everything that is "
            f"written passes over the network to {', '.join(far) or 'the other machines'}",
            field="cluster_tls_cert",
        )


def require_new_server() -> None:
    """Refuse a program on this machine that is too old for a cluster, before it is started.

    Raises:
        Unsupported: There is no nats-server, or it is too old.
    """
    program = server.find()
    require_version(".".join(map(str, server.version(program))), str(program))


def peers_of(config: Config) -> list[str]:
    """Return the other machines, each with the port of its routes."""
    return [peer if ":" in peer else f"{peer}:{ROUTE_PORT}" for peer in config.peers]


def _routes_of(config: Config) -> list[str]:
    """Return the URLs of the other machines' routes. With TLS they do not greet."""
    scheme = "nats" if config.cluster_tls_cert is None else "tls"
    return [f"{scheme}://{peer}" for peer in peers_of(config)]


def monitor_port(config: Config) -> int:
    """Return the port of the server's HTTP monitoring."""
    port = config.nats_port + MONITOR_OFFSET
    return port if port < 65_536 else config.nats_port - MONITOR_OFFSET


def _replicas(config: Config) -> int:
    """Return how many servers keep a new log: an odd number, since a fourth one lets no more of them fail."""
    return 5 if len(config.peers) >= 4 else 3


def node_url(config: Config) -> str:
    """Return the URL of the node on this machine."""
    data = quote(str(_replica(config)), safe="/")
    url = (
        f"cluster://127.0.0.1:{config.nats_port}/{config.cluster}?data={data}&monitor={monitor_port(config)}"
    )
    url += f"&login={quote(str(login_file(config)), safe='/')}{_trust(config)}"
    if config.allow_lazy_sync:
        url += f"&{ACCEPTED}"
    if config.peers:
        url += f"&replicas={_replicas(config)}&peers={','.join(_routes_of(config))}"
    return url


def _trust(config: Config) -> str:
    """Return the options of the node's URL for a server that a configuration lets encrypt its connections."""
    if config.nats_config is None:
        return ""
    files = {
        "tls_ca": config.nats_tls_ca,
        "tls_cert": config.nats_tls_cert,
        "tls_key": config.nats_tls_key,
    }
    options = {name: quote(file, safe="/") for name, file in files.items() if file is not None}
    if config.nats_tls_first:
        options["tls_first"] = "true"
    return "".join(f"&{name}={value}" for name, value in options.items())


def is_new(config: Config) -> bool:
    """Return whether this machine has no replica yet."""
    return not (_replica(config) / "shard-0.db").exists()


async def joined(config: Config, say: Callable[[str], None], stop: asyncio.Event, *, first: bool) -> None:
    """Wait until most servers of the cluster are there, or all at the first start; say for which it waits.

    Args:
        config: The settings of this machine.
        say: Prints a line for the person who started it.
        stop: Set when Holdfast is to stop.
        first: Whether this is the first start.

    Raises:
        StoppedEarly: Holdfast is to stop before that.
    """
    told: list[str] = []
    while config.peers:
        gone = await missing(_routes_of(config))
        if await elected(monitor_port(config)) and not (first and gone):
            return
        if gone and gone != told:
            say(f"Waiting for the other machines of {config.cluster}: no answer from {', '.join(gone)}")
            told = gone
        await pause(stop, LOOK_SECONDS, f"stopped before most machines of {config.cluster} were there")


async def pause(stop: asyncio.Event, seconds: float, words: str) -> None:
    """Wait for so many seconds.

    Raises:
        StoppedEarly: Holdfast is to stop; with these words.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()
    if stop.is_set():
        raise StoppedEarly(words)


def cluster_config(config: Config, folder: Path, more: str | Path | None) -> str:
    """Return the configuration of the server, whose files are in a folder, with a further part or file.

    Raises:
        ValidationError: The file has no accounts, so that the node can't have one.
    """
    system = _system_account(config)
    if isinstance(more, Path):
        text = _admitting_node(more, folder, port=config.nats_port, system=system)
    else:
        told_apart = _node_alone(folder)
        text = "\n".join([more or "", *told_apart, *([f"accounts {{ {system} }}"] if system else [])])
    sync = "" if config.allow_lazy_sync else ", sync_interval: always"
    lines = [
        text,
        f'http: "127.0.0.1:{monitor_port(config)}"',
        f'jetstream {{ store_dir: "{_quoted(folder.absolute())}/jetstream"{sync} }}',
    ]
    if config.peers:
        login = f"{_USER}:{config.cluster_secret}"
        routes = ", ".join(f'"nats://{login}@{peer}"' for peer in peers_of(config))
        lines += [
            "cluster {",
            f'  name: "{config.cluster}"',
            f'  listen: "{config.cluster_host}:{config.cluster_port}"',
            f'  authorization {{ user: "{_USER}", password: "{config.cluster_secret}", timeout: 5 }}',
            f"  routes: [{routes}]",
            *_tls(config),
            "}",
        ]
    return "\n".join([*lines, ""])


def system_login(secret: str) -> tuple[str, str]:
    """Return user and password of the system account of servers that share a secret."""
    return _SYSTEM_USER, hmac.digest(secret.encode(), _SYSTEM_USER.encode(), "sha256").hex()


def _system_account(config: Config) -> str:
    """Return the account of the user who may remove servers; empty for a machine alone."""
    if not config.peers or config.cluster_secret is None:
        return ""
    user, password = system_login(config.cluster_secret)
    return f'"$SYS": {{ users: [{{ user: "{user}", password: "{password}" }}] }}'


def login_file(config: Config) -> Path:
    """Return the file with the login of this machine's node."""
    return Path(config.data_dir).absolute() / "nats" / LOGIN


def node_password(folder: Path) -> str:
    """Return the password of this machine's node, chosen at the first start."""
    private.make_folder(folder)
    path = folder / LOGIN
    if not path.exists():
        made = path.with_name(f"{LOGIN}.{seams.token(4)}")
        with open(private.create(made), "w", encoding="utf-8") as file:
            file.write(f"{NODE}:{seams.token(24)}\n")
        os.replace(made, path)  # whole or not at all
    user, _, password = path.read_text(encoding="utf-8").strip().partition(":")
    if user != NODE or not password:
        raise ValidationError(
            f"{path} does not hold the login of the node: remove the file, and a new one is made",
            field="data_dir",
        )
    return password


def _node_alone(folder: Path) -> list[str]:
    """Return the users of a server without accounts: the node, and everybody else."""
    denied = f"{{ deny: {json.dumps(_NODES_OWN)} }}"
    return [
        "authorization {",
        "  users: [",
        f"    {_node_user(folder)}",
        f'    {{ user: "{_ANYBODY}", password: "{seams.token(24)}"',
        f"      permissions: {{ publish: {denied}, subscribe: {denied} }} }}",
        "  ]",
        "}",
        f'no_auth_user: "{_ANYBODY}"',
    ]


def _node_user(folder: Path) -> str:
    return f'{{ user: "{NODE}", password: "{node_password(folder)}" }}'


def _admitting_node(file: Path, folder: Path, *, port: int, system: str) -> str:
    """Return the text of a configuration that has accounts, with one for the node."""
    text = file.read_text(encoding="utf-8")
    blocks = _ACCOUNTS.findall(text)
    if len(blocks) != 1:
        raise ValidationError(
            f"nats_config: {file} must have one block accounts {{ }}, so that the node of the cluster can "
            "have an account of its own: make the file with holdfast nats config",
            field="nats_config",
        )
    accounts = [f'"{NODE_ACCOUNT}": {{ jetstream: enabled, users: [ {_node_user(folder)} ] }}']
    if system and "$SYS" not in re.sub(r"\$SYS\.", "", text):
        accounts.append(system)

    def moved(include: re.Match[str]) -> str:
        path = file.parent / include[2].strip("\"'")
        return f'{include[1]}"{os.path.relpath(path, folder / str(port))}"'

    text = _INCLUDE.sub(moved, text)
    return _ACCOUNTS.sub(lambda block: "\n".join([block[0], *(f"  {one}" for one in accounts)]), text)


def lone_server_config(folder: Path, store: Path) -> str:
    """Return the configuration of a server that serves the files of a log to this machine's node alone."""
    lines = [f'jetstream {{ store_dir: "{_quoted(store.absolute())}", sync_interval: always }}']
    if any((store / "jetstream" / NODE_ACCOUNT).glob("streams/HF_*")):
        lines.append(
            f'accounts {{ "{NODE_ACCOUNT}": {{ jetstream: enabled, users: [ {_node_user(folder)} ] }} }}'
        )
    else:
        lines.append(f"authorization {{ users: [ {_node_user(folder)} ] }}")
    return "\n".join([*lines, ""])


def keep_log(config: Config, folder: Path) -> None:
    """Let the server find the log when plugins are told apart for the first time, or no longer.

    JetStream keeps the files of a stream by account. A server that runs alone finds them in another place.

    Raises:
        ValidationError: Several servers keep the log, so that no one of them can move it.
    """
    store = folder / "jetstream" / "jetstream"
    wanted, other = _GLOBAL, NODE_ACCOUNT
    if config.nats_config is not None:
        wanted, other = other, wanted
    log = f"HF_{config.cluster}"
    if (store / wanted / "streams" / log).exists() or not (store / other / "streams" / log).exists():
        return
    if any(store.glob("*/_js_/_meta_")):
        was, way = ("without", "with") if config.nats_config is not None else ("with", "without")
        raise ValidationError(
            f"the machines of {config.cluster} began to keep its log {was} nats_config, and none of them can "
            f"change that alone. To go on {way} it: make a backup with holdfast backup, stop all machines, "
            f"move {folder / 'jetstream'} and {_replica(config)} away on each, start them {way} nats_config, "
            "and run holdfast restore",
            field="nats_config",
        )
    private.make_folder(store / wanted / "streams")
    for stream in (f"{log}_SNAPSHOTS", log):
        if (store / other / "streams" / stream).exists():
            os.rename(store / other / "streams" / stream, store / wanted / "streams" / stream)


def _replica(config: Config) -> Path:
    return Path(config.data_dir).absolute() / "replica"


def server_name(config: Config, folder: Path) -> str:
    """Return the name of this machine's server, chosen at the first start."""
    private.make_folder(folder)
    path = folder / "server-name"
    if not path.exists():
        with open(private.create(path), "w", encoding="utf-8") as file:
            file.write(f"{config.cluster}-{seams.token(4)}")
    return path.read_text(encoding="utf-8").strip()


def _tls(config: Config) -> list[str]:
    if config.cluster_tls_cert is None:
        return []
    files = {
        "cert_file": config.cluster_tls_cert,
        "key_file": config.cluster_tls_key,
        "ca_file": config.cluster_tls_ca,
    }
    told = ", ".join(f'{name}: "{_quoted(Path(str(file)).absolute())}"' for name, file in files.items())
    return [f"  tls {{ {told}, verify: true, timeout: 5 }}"]


def _quoted(path: Path) -> str:
    return str(path).replace("\\", "\\\\").replace('"', '\\"')


ANSWER_SECONDS: Final = 1.0
"""How long the other machines are given to answer."""
ASIDE: Final = "jetstream-alone"
BROUGHT: Final = "jetstream-brought"


class MachineAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine says to the others: its server's name, and whether it brings a log."""

    server: str
    brings: bool


def set_aside(config: Config, folder: Path) -> bool:
    """Set the files of a server that ran alone aside, if this machine has peers now.

    Returns:
        Whether there is a log to bring.
    """
    if not config.peers:
        return False
    store, aside = folder / "jetstream", folder / ASIDE
    kept = store / "jetstream"
    if any(kept.glob(f"*/streams/HF_{config.cluster}")) and not any(kept.glob("*/_js_/_meta_")):
        os.rename(store, aside)
    return aside.exists()


class ClusterBootstrap:
    """The first meeting of the machines of a cluster, one of which may bring the log that it kept alone.

    A server that ran alone can't take its streams into a cluster. So its files are set aside, the machine
    starts with the others, and the streams are brought to all of them. No machine creates a log before every
    one has said that it brings none. The files that were set aside are kept, and only read.

    Args:
        config: The settings of this machine.
        folder: The folder of its NATS server.
        brings: Whether it brings a log.
        say: Prints a line for the person who started it.
        stop: Set when Holdfast is to stop.
    """

    def __init__(
        self, config: Config, folder: Path, *, brings: bool, say: Callable[[str], None], stop: asyncio.Event
    ) -> None:
        self._config = config
        self._folder = folder
        self._brings = brings
        self._say = say
        self._stop = stop
        self._address = cluster_address(config.db)
        self._subject = self._address.subject("machine", "all")
        self._server = server_name(config, folder)
        node_password(folder)
        self._exporter = LogExporter(self._address)
        self._last_line = ""

    async def __aenter__(self) -> Self:
        while True:
            try:
                await self._exporter.__aenter__()
                break
            except LoginRefused:
                raise PermissionDenied("the NATS server of this machine does not admit its node") from None
            except (OSError, BusError) as error:  # it is being started again
                self._tell(f"Waiting for the NATS server of this machine: {error}")
            await self._pause()
        self._exporter.connection.listen(self._subject, self._answer)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._exporter.__aexit__(kind, error, trace)

    async def end(self) -> None:
        """Bring the log that this machine kept alone, or wait until the one that does is done.

        Raises:
            HoldfastError: It can't be brought.
            StoppedEarly: Holdfast is to stop before that.
        """
        if not self._brings:
            if is_new(self._config):
                await self._agreed()
            return
        name = self._config.cluster
        self._say(f"Bringing the log of {name}, which this machine kept alone, to all machines")
        while self._brings:
            try:
                await self._bring()
            except NoMajority as error:
                self._tell(f"Waiting for the machines of {name}: {error.message}")
                await self._pause()

    async def _pause(self) -> None:
        await pause(
            self._stop, ANSWER_SECONDS, f"stopped before the machines of {self._config.cluster} agreed"
        )

    async def _bring(self) -> None:
        config = self._config
        aside = self._folder / ASIDE
        text = lone_server_config(self._folder, aside)
        async with NatsServer(self._folder / "alone", port=None, config=text, name=self._server) as server:
            login = quote(str(login_file(config)), safe="/")
            lone = cluster_address(f"cluster://127.0.0.1:{server.port}/{config.cluster}?login={login}")
            await export_log(lone, self._address)
        os.rename(aside, self._folder / BROUGHT)
        self._brings = False
        self._say(f"All machines have the log. What this one kept alone is in {self._folder / BROUGHT}")

    async def _agreed(self) -> None:
        """Wait until no machine brings a log: there is one, or all say so."""
        machines = len(self._config.peers) + 1
        while True:
            answers = await self._ask(machines)
            bringing = [one.server for one in answers if one.brings]
            if bringing:
                self._tell(f"Waiting for {bringing[0]}, which brings the log of {self._config.cluster}")
            elif len(answers) >= machines or await self._has_log():
                return
            else:
                self._tell(
                    f"Waiting for the machines of {self._config.cluster} to say whether they bring a log: "
                    f"{len(answers)} of {machines} have answered"
                )
            await self._pause()

    async def _ask(self, machines: int) -> set[MachineAnswer]:
        inbox = Inbox(self._exporter.connection)
        until = asyncio.get_running_loop().time() + ANSWER_SECONDS
        answers: set[MachineAnswer] = set()
        try:
            self._exporter.connection.send(self._subject, b"", reply=inbox.subject)
            while (
                len(answers) < machines
                and (reply := await inbox.next(MachineAnswer, until=until)) is not None
            ):
                answers.add(reply[1])
        finally:
            inbox.close()
        return answers

    async def _has_log(self) -> bool:
        with contextlib.suppress(ApiRefusal, TimeoutError, BusError):
            return await self._exporter.info(self._address.stream) is not None
        return False

    def _answer(self, message: Message) -> None:
        if message.reply:
            answer = MachineAnswer(server=self._server, brings=self._brings)
            self._exporter.connection.send(message.reply, msgspec.json.encode(answer))

    def _tell(self, line: str) -> None:
        if line != self._last_line:
            self._last_line = line
            self._say(line)
