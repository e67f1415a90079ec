"""Every setting of a running Holdfast: its name, type, limits, default and sources.

This is the only table. The reader of the configuration, the flags of `holdfast up`, the reference page and
the example files are derived from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, inspect

from holdfast.wire.subjects import MOST_LINKS

Level = Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]
Port = Annotated[int, Meta(ge=1, le=65_535)]
Milliseconds = Annotated[int, Meta(ge=1, le=3_600_000)]
Seconds = Annotated[float, Meta(ge=0.1, le=3_600)]
Amount = Annotated[int, Meta(ge=1, le=2**40)]
Prefix = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_-]*(\.[a-z0-9][a-z0-9_-]*)*\Z")]
Plugin = Annotated[str, Meta(pattern=r"^[a-z0-9_-]{1,100}\Z")]
HostName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?\Z")]
MetricName = Annotated[str, Meta(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*\Z")]

SETTINGS: Final[dict[str, Setting]] = {}
"""Every setting by its name."""
_REQUIRED: Final = ("db", "data_dir")
"""The settings whose default is known only when they are read."""


class Setting(msgspec.Struct, frozen=True):
    """A row of the table.

    Args:
        path: Its place in a file: section and name.
        help: Its purpose, in one sentence.
        default: Its value if it is not given; None if that is not a fixed one.
        must_be: Its valid values, where the type alone does not describe them well.
        flag: Whether `holdfast up` takes it on the command line.
        also: A variable of NATS' own tools that is read if ours is not set.
        otherwise: The behaviour without the setting, where that is not a fixed value.
        name: Its name.
        kind: Its type.
    """

    path: str
    help: str
    default: Any = None
    must_be: str = ""
    flag: bool = False
    also: str | None = None
    otherwise: str = ""
    name: str = ""
    kind: Any = None

    @property
    def section(self) -> str:
        """The section of a file that the setting is in."""
        return self.path.partition(".")[0]

    @property
    def name_in_file(self) -> str:
        """The name of the setting within its section."""
        return self.path.partition(".")[2]

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables for this setting, highest precedence first."""
        own = f"HOLDFAST_{self.name.upper()}"
        return (own,) if self.also is None else (own, self.also)

    @property
    def form(self) -> str:
        """The valid values in readable form."""
        return self.must_be or _form(inspect.type_info(self.kind))

    @property
    def plain_default(self) -> Any:
        """The default in its shortest form: 300, not 300.0."""
        default = self.default
        return int(default) if isinstance(default, float) and default.is_integer() else default


setting: Any = Setting
"""Describes a field of `Config`, of which mypy knows the type alone."""


def _form(kind: inspect.Type) -> str:
    match kind:
        case inspect.UnionType():
            return _form(next(one for one in kind.types if not isinstance(one, inspect.NoneType)))
        case inspect.LiteralType():
            return "one of " + ", ".join(sorted(map(str, kind.values)))
        case inspect.IntType():
            return f"a whole number from {kind.ge:,} to {kind.le:,}"
        case inspect.FloatType():
            least = f"from {kind.ge:,}" if kind.gt is None else f"above {kind.gt:,}"
            return f"a number {least} to {kind.le:,.0f}"
        case inspect.BoolType():
            return "true or false"
        case _:
            return "text"


class _Described(msgspec.StructMeta):
    """Makes a struct whose fields are described: each has the default of its setting."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> Any:
        rows = {field: row for field, row in namespace.items() if isinstance(row, Setting)}
        defaults = {field: row.default for field, row in rows.items() if field not in _REQUIRED}
        others = {name: one for name, one in namespace.items() if name not in rows}
        kind: Any = super().__new__(cls, name, bases, others | defaults, **options)
        for field in msgspec.structs.fields(kind):
            SETTINGS[field.name] = msgspec.structs.replace(rows[field.name], name=field.name, kind=field.type)
        return kind


class Config(msgspec.Struct, metaclass=_Described, frozen=True, kw_only=True):
    """All settings, checked and complete."""

    db: str = setting(
        "database.url", "The store: a path or a URL.", flag=True, otherwise="a SQLite file in the data folder"
    )
    data_dir: str = setting(
        "database.data_dir",
        "Folder for the store and for the files of the NATS server that Holdfast starts.",
        flag=True,
        otherwise="`$XDG_DATA_HOME/holdfast`, or `~/.local/share/holdfast`",
    )
    kv_cleanup_interval_seconds: Annotated[float, Meta(ge=0.1, le=86_400)] = setting(
        "database.kv_cleanup_interval_seconds",
        "Longest pause, in seconds, between two runs that remove expired entries and trim old records.",
        default=300.0,
    )
    cache_bytes: Annotated[int, Meta(ge=0, le=2**40)] = setting(
        "database.cache_bytes",
        "Memory, in bytes, for rows of a SQLite store that need not be read from the file again. "
        "0 turns the cache off.",
        default=33_554_432,
    )
    startup_check_seconds: Annotated[float, Meta(ge=0, le=86_400)] = setting(
        "database.startup_check_seconds",
        "Time limit, in seconds, for the check for corrupt pages that `holdfast up` runs on a SQLite "
        "store before serving it. 0 turns the check off.",
        default=2.0,
    )
    table_reaper_interval_seconds: Annotated[float, Meta(ge=0.1, le=31_536_000)] | None = setting(
        "database.table_reaper_interval_seconds",
        "Interval, in seconds, at which expired items are deleted from tables. Readers never see an "
        "expired item; deleting it frees its space.",
        otherwise="expired items are deleted only when a caller sweeps the table",
    )
    audit_key: str | None = setting(
        "database.audit_key",
        "Secret that signs the audit, at least 16 characters. Separate several with commas: the last "
        "one signs. A secret with the prefix `retired:` only verifies what it signed.",
    )
    audit_key_file: str | None = setting(
        "database.audit_key_file",
        "File with these secrets, one per line, instead of `audit_key`. `holdfast audit rotate` "
        "creates it and adds to it.",
        otherwise="a file beside a SQLite store, or `audit-key` in the data folder; created when "
        "it is first needed",
    )
    nats: str | None = setting(
        "nats.url",
        "NATS servers to connect to, separated by commas. Without it, Holdfast starts one on this machine.",
        flag=True,
        also="NATS_URL",
    )
    no_nats: bool = setting(
        "nats.off",
        "Serve HTTP, MCP and the console alone: no NATS server is started or connected to.",
        default=False,
        flag=True,
    )
    nats_port: Port = setting(
        "nats.port", "Port of the NATS server that Holdfast starts.", default=4222, flag=True
    )
    nats_config: str | None = setting(
        "nats.config",
        "Configuration file of the NATS server that Holdfast starts. Without it, any process on this "
        "machine may connect.",
        flag=True,
    )
    nats_user: str | None = setting("nats.user", "User to log in as.", flag=True, also="NATS_USER")
    nats_password: str | None = setting(
        "nats.password", "Password of that user.", flag=True, also="NATS_PASSWORD"
    )
    nats_token: str | None = setting("nats.token", "Token to log in with.", flag=True, also="NATS_TOKEN")
    nats_creds: str | None = setting(
        "nats.creds", "File with a JWT and its seed to log in with.", flag=True, also="NATS_CREDS"
    )
    nats_nkey: str | None = setting(
        "nats.nkey", "File with the seed of an nkey to log in with.", flag=True, also="NATS_NKEY"
    )
    nats_tls_ca: str | None = setting(
        "nats.tls_ca", "File with the CA certificates to trust.", flag=True, also="NATS_CA"
    )
    nats_tls_cert: str | None = setting(
        "nats.tls_cert", "File with the client certificate.", flag=True, also="NATS_CERT"
    )
    nats_tls_key: str | None = setting(
        "nats.tls_key", "File with the private key of the client certificate.", flag=True, also="NATS_KEY"
    )
    nats_tls_first: bool = setting(
        "nats.tls_first",
        "Start with the TLS handshake, for a NATS server with `handshake_first: true`.",
        default=False,
        flag=True,
    )
    own_connection: tuple[Plugin, ...] = setting(
        "nats.own_connection",
        "Plugins that get a connection of their own in addition to the common one.",
        default=(),
        must_be="a list of plugins' names",
    )
    plugin_connections: Annotated[int, Meta(ge=0, le=MOST_LINKS)] = setting(
        "nats.plugin_connections",
        "Largest number of connections, besides the common one, over which plugins and projects are "
        "served when the NATS server tells them apart. 0 serves all of them over the common "
        "connection.",
        default=MOST_LINKS,
    )

    subject_prefixes: Annotated[tuple[Prefix, ...], Meta(min_length=1)] = setting(
        "service.subject_prefixes",
        "Prefixes of the service's subjects. Events use the first one.",
        default=("db", "rosey.db"),
        must_be="a list of one or more prefixes made of a-z, 0-9, _ and -, joined by dots",
    )
    payload_dialect: bool = setting(
        "service.payload_dialect", "Accept requests that name the plugin in the payload.", default=True
    )
    request_users: bool = setting(
        "service.request_users",
        "Record the user of the connection in the audit. The NATS server passes it on when accounts "
        "import the service's subjects with `share: true`.",
        default=False,
    )
    reply_mode: Literal["open", "permissions", "accounts"] = setting(
        "service.reply_mode",
        "Reply subjects that are allowed, to match the way in which the NATS server separates "
        "plugins: by permissions, by accounts, or not at all.",
        default="open",
    )
    events: bool = setting("service.events", "Publish every change as an event.", default=True)
    deadline_ms: Milliseconds = setting(
        "service.deadline_ms",
        "Default deadline in milliseconds for requests that carry none. A request that has not "
        "started by then is refused.",
        default=1_000,
    )
    slow_ms: Milliseconds = setting(
        "service.slow_ms",
        "Log an operation as slow when it takes at least this many milliseconds.",
        default=100,
    )
    slow_list_ms: Milliseconds = setting(
        "service.slow_list_ms",
        "The same threshold for list, query, scan and other operations that walk over rows.",
        default=500,
    )
    slow_log_size: Annotated[int, Meta(ge=0, le=10_000)] = setting(
        "service.slow_log_size", "Slow operations that `holdfast slowlog` keeps. 0 turns it off.", default=128
    )
    rate_limit: Annotated[float, Meta(gt=0, le=1e9)] | None = setting(
        "service.rate_limit", "Requests per second that each plugin may send.", otherwise="no limit"
    )
    strict_fields: bool = setting(
        "service.strict_fields",
        "Refuse a request that has a field which its verb does not know, instead of warning its caller.",
        default=False,
    )
    default_quota_bytes: Annotated[int, Meta(ge=0, le=2**60)] | None = setting(
        "service.default_quota_bytes",
        "Bytes that a namespace may keep if its policy sets no `quota_bytes`. 0 means no limit.",
        otherwise="1,000,000,000 when `reply_mode` is `permissions` or `accounts`, otherwise no limit",
    )
    default_rate_limit: Annotated[int, Meta(ge=0, le=2_147_483_647)] | None = setting(
        "service.default_rate_limit",
        "Requests per second for a namespace whose policy sets no `rate_limit`. 0 means no limit.",
        otherwise="5,000 when `reply_mode` is `permissions` or `accounts`, otherwise no limit",
    )

    max_waiting: Amount = setting(
        "limits.waiting", "Requests of one plugin that may be queued.", default=4_096
    )
    max_waiting_bytes: Amount = setting(
        "limits.waiting_bytes",
        "Total size, in bytes, of one plugin's queued requests.",
        default=16 * 1024 * 1024,
    )
    max_all_waiting_bytes: Amount = setting(
        "limits.all_waiting_bytes", "Total size, in bytes, of all queued requests.", default=64 * 1024 * 1024
    )
    max_under_way: Amount = setting(
        "limits.under_way",
        "Requests of one plugin that may be in progress at a time; at most 8 while other plugins are active.",
        default=128,
    )
    max_all_under_way: Amount = setting(
        "limits.all_under_way", "Requests of all plugins that may be in progress at a time.", default=1_024
    )

    http_host: Annotated[str, Meta(min_length=1)] = setting(
        "http.host", "Address on which verbs, health and metrics are served.", default="127.0.0.1"
    )
    http_port: Annotated[int, Meta(ge=0, le=65_535)] = setting(
        "http.port", "Port for verbs, health and metrics over HTTP. 0 turns it off.", default=8420, flag=True
    )
    http_hosts: tuple[HostName, ...] = setting(
        "http.hosts",
        "Host names that clients may use over HTTP, besides `localhost`, `http_host` and "
        "IP addresses. A request with another `Host` is refused.",
        default=(),
        must_be="a list of host names",
    )
    http_tls_cert: str | None = setting(
        "http.tls_cert",
        "File with the certificate for HTTPS and those that vouch for it.",
        otherwise="no TLS",
    )
    http_tls_key: str | None = setting(
        "http.tls_key",
        "File with the key of that certificate.",
        otherwise="it is in the file of the certificate",
    )
    http_max_body_bytes: Annotated[int, Meta(ge=1_024, le=67_108_864)] = setting(
        "http.max_body_bytes", "Size, in bytes, that the body of a request may have.", default=1_048_576
    )
    http_max_head_bytes: Annotated[int, Meta(ge=8_192, le=1_048_576)] = setting(
        "http.max_head_bytes",
        "Size, in bytes, that a request's first line and headers may have.",
        default=32_768,
    )
    http_max_connections: Annotated[int, Meta(ge=1, le=100_000)] = setting(
        "http.max_connections",
        "Connections that may be open at a time, and at most a quarter of the files that the process "
        "may open. Beyond that, the one that has waited longest for its client is closed.",
        default=1_024,
    )
    http_max_watches: Annotated[int, Meta(ge=1, le=100_000)] = setting(
        "http.max_watches",
        "Watches that may be open at a time. One plugin or project has at most a quarter of them.",
        default=256,
    )
    http_request_seconds: Seconds = setting(
        "http.request_seconds", "Seconds that a client may take to send the head of a request.", default=5.0
    )
    http_idle_seconds: Seconds = setting(
        "http.idle_seconds",
        "Seconds after a response until a client must begin its next request.",
        default=60.0,
    )
    http_answer_seconds: Seconds = setting(
        "http.answer_seconds",
        "Seconds that a request may take from its head until its response has been sent. Watches are exempt.",
        default=30.0,
    )
    console: bool = setting(
        "http.console", "Serve the console at `/` and `/ui` of the HTTP port.", default=True, flag=True
    )
    metrics_prefix: MetricName = setting(
        "metrics.prefix",
        "Prefix of the names of metrics.",
        default="holdfast",
        must_be="a name of letters, digits and _, not beginning with a digit",
    )
    metrics_plugins: Annotated[int, Meta(ge=1, le=10_000)] = setting(
        "metrics.plugins",
        "Number of plugins that have metrics of their own, the busiest first. The rest are counted together.",
        default=100,
    )

    trace_exporter: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,100}\Z")] | None = setting(
        "tracing.exporter",
        "Record spans of requests, and send them with this exporter of OpenTelemetry, such as `console` "
        "or `otlp_proto_http`. `global` stands for the tracer provider that the process has already.",
        must_be="the name of an installed exporter",
        otherwise="none are recorded",
    )

    log_level: Level = setting("logging.level", "Lowest level that is logged.", default="INFO", flag=True)
    service_log_level: Level | None = setting(
        "logging.database_service",
        "Level of the logger `holdfast.service`, which logs requests.",
        otherwise="as `log_level`",
    )

    cluster: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,32}\Z")] | None = setting(
        "cluster.name",
        "Name of a cluster that this machine is part of. Holdfast then starts a NATS server with "
        "JetStream and keeps a replica of the store in the data folder.",
        must_be="1 to 32 letters, digits, hyphens and underscores",
        flag=True,
    )
    peers: tuple[Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]+(:[0-9]{1,5})?\Z")], ...] = setting(
        "cluster.peers",
        "The other machines of the cluster, separated by commas, each with the port of its routes if "
        "that is not 6222. Two of them make a cluster of three.",
        default=(),
        must_be="a list of host names, each with a port if needed",
        flag=True,
    )
    cluster_host: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.:-]+\Z")] = setting(
        "cluster.host",
        "Address on which the NATS server listens for the other machines.",
        default="0.0.0.0",
        flag=True,
    )
    cluster_port: Port = setting(
        "cluster.port",
        "Port on which the NATS server listens for the other machines.",
        default=6222,
        flag=True,
    )
    cluster_secret: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{16,200}\Z")] | None = setting(
        "cluster.secret",
        "Secret that the machines of a cluster share, the same on each of them.",
        must_be="16 to 200 letters, digits, hyphens and underscores",
    )
    allow_lazy_sync: bool = setting(
        "cluster.allow_lazy_sync",
        "Have the NATS server acknowledge writes before its disk has them, and accept servers of a "
        "cluster:// URL that do so. That is faster, but writes of the last minutes that were "
        "acknowledged are lost if all machines lose power at once.",
        default=False,
        flag=True,
    )
    cluster_tls_ca: str | None = setting(
        "cluster.tls_ca", "File with the CA certificates that vouch for the machines of a cluster."
    )
    cluster_tls_cert: str | None = setting(
        "cluster.tls_cert", "File with this machine's certificate, for the other machines."
    )
    cluster_tls_key: str | None = setting("cluster.tls_key", "File with the private key of that certificate.")


def sections() -> Iterator[tuple[str, list[Setting]]]:
    """Yield the sections of a file: the title and the settings of each."""
    for title, settings in groupby(SETTINGS.values(), key=lambda setting: setting.section):
        yield title, list(settings)
