"""Every setting of a running Holdfast: its name, type, limits, default, and where it can be given.

Law: this is the one table. The reader of configuration, the flags of `holdfast up`, the reference page and
the example files are made from it, and nothing about a setting is written down a second time. Nothing here
reads a file or the environment.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, inspect

from holdfast.wire.subjects import MOST_LINKS

Level = Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]
Port = Annotated[int, Meta(ge=1, le=65_535)]
Milliseconds = Annotated[int, Meta(ge=1, le=3_600_000)]
Amount = Annotated[int, Meta(ge=1, le=2**40)]
Prefix = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_-]*(\.[a-z0-9][a-z0-9_-]*)*\Z")]
Plugin = Annotated[str, Meta(pattern=r"^[a-z0-9_-]{1,100}\Z")]
HostName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?\Z")]
MetricName = Annotated[str, Meta(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*\Z")]


class About(msgspec.Struct, frozen=True):
    """What the table says of a setting beside its type.

    Args:
        path: Its place in a file: section and name.
        help: What it is for, in one sentence.
        form: What it must be, where the type alone does not say it well.
        flag: Whether `holdfast up` takes it on the command line.
        also: A variable of NATS' own tools that is read when ours is not set.
        otherwise: What holds when it is not given, where that is no fixed value.
    """

    path: str
    help: str
    form: str = ""
    flag: bool = False
    also: str | None = None
    otherwise: str = ""


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """All settings, checked and complete."""

    db: Annotated[
        str,
        About(
            "database.url",
            "The store: a path or a URL.",
            flag=True,
            otherwise="a SQLite file in the data folder",
        ),
    ]
    data_dir: Annotated[
        str,
        About(
            "database.data_dir",
            "The folder for the store and for the NATS server that is brought along.",
            flag=True,
            otherwise="`$XDG_DATA_HOME/holdfast`, or `~/.local/share/holdfast`",
        ),
    ]
    kv_cleanup_interval_seconds: Annotated[
        float,
        Meta(ge=0.1, le=86_400),
        About(
            "database.kv_cleanup_interval_seconds",
            "Every how many seconds, at the latest, expired entries are removed and records thinned out.",
        ),
    ] = 300.0
    startup_check_seconds: Annotated[
        float,
        Meta(ge=0, le=86_400),
        About(
            "database.startup_check_seconds",
            "For how many seconds `holdfast up` looks for corrupt pages of a SQLite store before it serves "
            "it; 0 turns that off.",
        ),
    ] = 2.0
    table_reaper_interval_seconds: Annotated[
        Annotated[float, Meta(ge=0.1, le=31_536_000)] | None,
        About(
            "database.table_reaper_interval_seconds",
            "Every how many seconds expired items are removed from tables; they are gone before, but take "
            "up room.",
            otherwise="they are removed only when somebody sweeps a table",
        ),
    ] = None

    audit_key: Annotated[
        str | None,
        About(
            "database.audit_key",
            "The secret that signs the audit, of at least 16 characters; several are separated by commas, "
            "and the last one signs. One with `retired:` before it verifies what it signed, and no more.",
        ),
    ] = None
    audit_key_file: Annotated[
        str | None,
        About(
            "database.audit_key_file",
            "A file with such secrets instead, one on each line; "
            "`holdfast audit rotate` makes it and adds to it.",
            otherwise="a file beside a SQLite store, or `audit-key` in the folder for data, which is made "
            "when it is first needed",
        ),
    ] = None

    nats: Annotated[
        str | None,
        About(
            "nats.url",
            "The NATS servers to use, separated by commas; without it one is started on this machine.",
            flag=True,
            also="NATS_URL",
        ),
    ] = None
    nats_port: Annotated[
        Port, About("nats.port", "The port of the NATS server that is started.", flag=True)
    ] = 4222
    nats_config: Annotated[
        str | None,
        About(
            "nats.config",
            "A file with the configuration of the NATS server that is started; without it anybody on this "
            "machine may connect.",
            flag=True,
        ),
    ] = None
    nats_user: Annotated[
        str | None, About("nats.user", "The user to log in as.", flag=True, also="NATS_USER")
    ] = None
    nats_password: Annotated[
        str | None, About("nats.password", "The user's password.", flag=True, also="NATS_PASSWORD")
    ] = None
    nats_token: Annotated[
        str | None, About("nats.token", "The token to log in with.", flag=True, also="NATS_TOKEN")
    ] = None
    nats_creds: Annotated[
        str | None,
        About("nats.creds", "A file with a JWT and its seed to log in with.", flag=True, also="NATS_CREDS"),
    ] = None
    nats_nkey: Annotated[
        str | None,
        About("nats.nkey", "A file with the seed of an nkey to log in with.", flag=True, also="NATS_NKEY"),
    ] = None
    nats_tls_ca: Annotated[
        str | None,
        About("nats.tls_ca", "A file with the certificates to trust.", flag=True, also="NATS_CA"),
    ] = None
    nats_tls_cert: Annotated[
        str | None,
        About("nats.tls_cert", "A file with the service's own certificate.", flag=True, also="NATS_CERT"),
    ] = None
    nats_tls_key: Annotated[
        str | None,
        About("nats.tls_key", "A file with the key of that certificate.", flag=True, also="NATS_KEY"),
    ] = None
    nats_tls_first: Annotated[
        bool,
        About(
            "nats.tls_first",
            "Whether the NATS server begins with TLS, as one with `handshake_first: true` does.",
            flag=True,
        ),
    ] = False
    own_connection: Annotated[
        tuple[Plugin, ...],
        About(
            "nats.own_connection",
            "Plugins that are served over one more connection each, beside the common one.",
            form="a list of plugins' names",
        ),
    ] = ()
    plugin_connections: Annotated[
        int,
        Meta(ge=0, le=MOST_LINKS),
        About(
            "nats.plugin_connections",
            "Over how many connections at most plugins and projects are served beside the common one, where "
            "the NATS server tells them apart; with 0 over the common one.",
        ),
    ] = MOST_LINKS

    subject_prefixes: Annotated[
        tuple[Prefix, ...],
        Meta(min_length=1),
        About(
            "service.subject_prefixes",
            "What the service's subjects begin with; events have the first.",
            form="a list of one or more prefixes made of a-z, 0-9, _ and -, joined by dots",
        ),
    ] = ("db", "rosey.db")
    payload_dialect: Annotated[
        bool,
        About("service.payload_dialect", "Whether callers may name the plugin in the payload."),
    ] = True
    request_users: Annotated[
        bool,
        About(
            "service.request_users",
            "Whether the audit records the user of the connection, which the NATS server tells where its "
            "accounts import the service's subjects with `share: true`.",
        ),
    ] = False
    reply_mode: Annotated[
        Literal["open", "permissions", "accounts"],
        About(
            "service.reply_mode",
            "Where replies may go: as the NATS server keeps plugins apart, by permissions, by accounts, or "
            "not at all.",
        ),
    ] = "open"
    events: Annotated[bool, About("service.events", "Whether every change is published as an event.")] = True
    deadline_ms: Annotated[
        Milliseconds,
        About(
            "service.deadline_ms",
            "After how many milliseconds a request is refused that was not begun and names no deadline.",
        ),
    ] = 1_000
    slow_ms: Annotated[
        Milliseconds, About("service.slow_ms", "From how many milliseconds an operation counts as slow.")
    ] = 100
    slow_list_ms: Annotated[
        Milliseconds,
        About("service.slow_list_ms", "The same for list, query, scan and all else that walks."),
    ] = 500
    rate_limit: Annotated[
        Annotated[float, Meta(gt=0, le=1e9)] | None,
        About("service.rate_limit", "How many requests a second each plugin may send.", otherwise="no limit"),
    ] = None
    default_quota_bytes: Annotated[
        Annotated[int, Meta(ge=0, le=2**60)] | None,
        About(
            "service.default_quota_bytes",
            "How many bytes a namespace may keep whose policy names no `quota_bytes`; 0 for any number.",
            otherwise="1,000,000,000 where `reply_mode` is `permissions` or `accounts`, else any number",
        ),
    ] = None
    default_rate_limit: Annotated[
        Annotated[int, Meta(ge=0, le=2_147_483_647)] | None,
        About(
            "service.default_rate_limit",
            "How many requests a second a namespace may take whose policy names no `rate_limit`; 0 for any "
            "number.",
            otherwise="5,000 where `reply_mode` is `permissions` or `accounts`, else any number",
        ),
    ] = None

    max_waiting: Annotated[Amount, About("limits.waiting", "How many requests of one plugin may wait.")] = (
        4_096
    )
    max_waiting_bytes: Annotated[
        Amount, About("limits.waiting_bytes", "How many bytes the waiting requests of one plugin may have.")
    ] = 16 * 1024 * 1024
    max_all_waiting_bytes: Annotated[
        Amount, About("limits.all_waiting_bytes", "How many bytes all waiting requests may have.")
    ] = 64 * 1024 * 1024
    max_under_way: Annotated[
        Amount,
        About(
            "limits.under_way",
            "How many requests of one plugin may be under way; while others ask too, no more than 8.",
        ),
    ] = 128
    max_all_under_way: Annotated[
        Amount, About("limits.all_under_way", "How many requests may be under way together.")
    ] = 1_024

    http_host: Annotated[
        str, Meta(min_length=1), About("http.host", "The address that health and metrics are served at.")
    ] = "127.0.0.1"
    http_port: Annotated[
        int,
        Meta(ge=0, le=65_535),
        About("http.port", "The port of health and metrics; 0 turns them off.", flag=True),
    ] = 8420
    http_hosts: Annotated[
        tuple[HostName, ...],
        About(
            "http.hosts",
            "Names by which clients may ask for health and metrics, beside `localhost`, `http_host` and "
            "addresses; a request with another name in `Host` is refused.",
            form="a list of host names",
        ),
    ] = ()
    metrics_prefix: Annotated[
        MetricName,
        About(
            "metrics.prefix",
            "What the names of metrics begin with.",
            form="a name of letters, digits and _, not beginning with a digit",
        ),
    ] = "holdfast"
    metrics_plugins: Annotated[
        int,
        Meta(ge=1, le=10_000),
        About(
            "metrics.plugins",
            "How many plugins have metrics of their own, the busiest ones; the rest count together.",
        ),
    ] = 100

    log_level: Annotated[Level, About("logging.level", "How much is told.", flag=True)] = "INFO"
    service_log_level: Annotated[
        Level | None,
        About(
            "logging.database_service",
            "The level of the logger `holdfast.service` alone, which tells of requests.",
            otherwise="as `log_level`",
        ),
    ] = None


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table."""

    name: str
    kind: Any
    default: Any
    about: About

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables that give it, the strongest first."""
        own = f"HOLDFAST_{self.name.upper()}"
        return (own,) if self.about.also is None else (own, self.about.also)

    @property
    def form(self) -> str:
        """What it must be, for people."""
        return self.about.form or _form(inspect.type_info(self.kind))


def _settings() -> dict[str, Setting]:
    table = {}
    for field in msgspec.structs.fields(Config):
        about = next(one for one in field.type.__metadata__ if isinstance(one, About))
        default = None if field.default is msgspec.NODEFAULT else field.default
        table[field.name] = Setting(name=field.name, kind=field.type, default=default, about=about)
    return table


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


SETTINGS: Final = _settings()
"""Every setting by its name."""
