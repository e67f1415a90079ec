"""Opening a store from a URL, with the engine for its scheme or the client of a service.

These are imported only here, and only when their URL is opened, so that a program never loads a driver that
it does not use. Engines of other packages are found by the scheme for which they are registered.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from holdfast import extras, masking
from holdfast.audit.keyring import FileKeyring, Keyring, parse_keys
from holdfast.clock import Clock
from holdfast.engine import Engine
from holdfast.errors import Unsupported, ValidationError
from holdfast.model import Policy
from holdfast.pipeline.caller import Service
from holdfast.store import Store

MakeEngine: TypeAlias = Callable[[str, Keyring], Engine]

ENTRY_POINTS: Final = "holdfast.engines"
"""The entry point group in which an installed package names its engines, by URL scheme."""

SERVICES: Final = ("nats", "tls", "http", "https")
"""The schemes of running services."""
ALLOW_NETWORK: Final = "allow_network=true"
"""The option of a SQLite URL for a file on a network file system."""

_SCHEME: Final = re.compile(r"[a-z][a-z0-9.-]*")


def open(
    url: str | Path,
    *,
    clock: Clock | None = None,
    writer: str | None = None,
    sweep_interval: float = 300,
    reap: bool = True,
    audit_key: str | Path | None = None,
    defaults: Policy | None = None,
    cache_bytes: int | None = None,
) -> Store:
    """Get the store behind a URL.

    It is opened and closed by `async with`.

    Args:
        url: A path, `sqlite:///relative` or `sqlite:////absolute`; `sqlite://`, `sqlite:///:memory:` or
            `memory://`, which keep nothing; `postgresql://…`; `cluster://host,host,host/name` for a node of
            a cluster; `nats://…` or `http://…` for a running service; a scheme that was registered with
            `register_engine`.
        clock: The clock to use instead of the machine's, for tests.
        writer: Name of the writer if a call does not give one.
        sweep_interval: Longest time in seconds until expired entries are removed.
        reap: Whether this store notices expiry by itself.
        audit_key: The secret that signs the audit, or the file that holds it. Several may be given, one on
            each line; the last one signs. A local file creates its own beside the data.
        defaults: The `quota_bytes` and the `rate_limit` of namespaces whose policies have none.
        cache_bytes: How much memory rows of a SQLite file may take, so that they need not be read again; 0 to
            keep none, None for 32 MB.

    Returns:
        A store that is not open yet.

    Raises:
        ValidationError: The URL is none of these, or the key is too short.

    Example:
        `store = holdfast.open("state.db")`
    """
    backend = backend_for(url, keyring_for(audit_key))
    return Store(
        backend,
        clock=clock,
        writer=writer,
        sweep_interval=sweep_interval,
        reap=reap,
        defaults=defaults,
        cache_bytes=cache_bytes,
    )


def keyring_for(audit_key: str | Path | None) -> Keyring | None:
    """Return a keyring for the given secrets; None if there are none."""
    if audit_key is None:
        return None
    return FileKeyring(audit_key) if isinstance(audit_key, Path) else Keyring(parse_keys(audit_key))


def backend_for(url: str | Path, keys: Keyring | None = None) -> Engine | Service:
    """Return the engine of a URL, or the client of a service, not started. `keys` sign an engine's audit."""
    if not isinstance(url, str | Path):
        raise ValidationError(f"url must be a string or a path, not a {type(url).__name__}", field="url")
    text = str(url)
    if not text:
        raise ValidationError("url is empty: name a file, or memory:// to keep nothing", field="url")
    scheme, separator, rest = text.partition("://")
    if isinstance(url, Path):
        return _sqlite_file(text, keys)
    if not separator:
        _refuse_lost_slashes(text)
        return _sqlite_file(text, keys)
    make = BACKENDS.get(scheme.partition("+")[0])
    if make is not None and ("+" not in scheme or scheme in DRIVERS):
        return make(text, rest, keys)
    other = _registered.get(scheme) or _installed(scheme)
    if other is None:
        known = ", ".join((*BACKENDS, *_registered))
        raise ValidationError(
            f"url has the unknown scheme {scheme!r}; use one of {known}, or a plain path", field="url"
        )
    return other(text, Keyring() if keys is None else keys)


def engine_for(url: str | Path, keys: Keyring | None = None) -> Engine:
    """Return the engine of a URL, not started. `keys` sign its audit.

    Raises:
        Unsupported: A running service is there, which has the engine itself.
    """
    backend = backend_for(url, keys)
    if isinstance(backend, Service):
        raise Unsupported(f"{masking.shown(str(url))} is a running service: give the place of its store")
    return backend


def register_engine(scheme: str, make: MakeEngine) -> None:
    """Register an engine of your own for the URLs of a scheme, in this process.

    A package that is installed need not call this: it names `make` as an entry point of the group
    `holdfast.engines`, under the scheme, and is imported when such a URL is opened.

    Args:
        scheme: The part of the URL before `://`.
        make: Makes the engine from the URL and the keys that sign the audit, without opening anything.
            Registering the same scheme again replaces it.

    Raises:
        ValidationError: It is no scheme, or one of Holdfast's own.
    """
    if not _SCHEME.fullmatch(scheme):
        raise ValidationError(
            f"scheme {scheme!r} must be a letter and then letters, digits, dots and hyphens, in lower case",
            field="scheme",
        )
    if scheme in BACKENDS:
        raise ValidationError(f"scheme {scheme!r} is one of Holdfast's own: choose another", field="scheme")
    _registered[scheme] = make


def brings_key(url: str) -> bool:
    """Return whether the storage at a URL has its own audit key, as a file or a service does."""
    scheme, separator, _ = url.partition("://")
    return not separator or scheme.partition("+")[0] in ("sqlite", "memory", *SERVICES)


def is_service(url: str) -> bool:
    """Return whether a URL is that of a running service."""
    scheme, separator, _ = url.partition("://")
    return bool(separator) and scheme in SERVICES


def _refuse_lost_slashes(path: str) -> None:
    """Refuse a path such as `memory:` or `nats:host`, which is meant as a URL."""
    scheme, colon, _ = path.partition(":")
    engine = scheme.partition("+")[0]
    if colon and (engine in BACKENDS or scheme in _registered):
        right = f"{scheme}:///path" if engine == "sqlite" else f"{scheme}://…"
        raise ValidationError(
            f"url begins with {scheme}: and lacks the slashes: write {right}, or ./{scheme}:… for a file of "
            "that name",
            field="url",
        )


def _installed(scheme: str) -> MakeEngine | None:
    """Return the engine that an installed package provides for a scheme; None if none does."""
    # late: it takes 17 ms, and few programs use an engine of others
    from importlib.metadata import entry_points

    for entry_point in entry_points(group=ENTRY_POINTS, name=scheme):
        make: MakeEngine = entry_point.load()
        return make
    return None


def _memory(url: str, rest: str, keys: Keyring | None) -> Engine:
    # late: it takes 12 ms, and a program uses one engine
    from holdfast.engines.memory import MemoryEngine

    if rest:
        raise ValidationError(f"{masking.shown(url)!r} has a name, but memory:// keeps nothing", field="url")
    return MemoryEngine(keys)


def _sqlite(url: str, rest: str, keys: Keyring | None) -> Engine:
    if rest and not rest.startswith("/"):
        raise ValidationError(
            f"{masking.shown(url)!r} has a host; a relative path is written sqlite:///path, an absolute one "
            "sqlite:////path",
            field="url",
        )
    path, _, options = rest.partition("?")
    if options not in ("", ALLOW_NETWORK):
        raise ValidationError(f"a sqlite URL takes no options after ? but {ALLOW_NETWORK}", field="url")
    return _sqlite_file(path[1:], keys, allow_network=bool(options))


def sqlite_path(url: str) -> str | None:
    """Return the path of a URL of a SQLite file, or of a plain path; None for any other store."""
    scheme, separator, rest = url.partition("://")
    if separator and scheme.partition("+")[0] != "sqlite":
        return None
    path = rest.partition("?")[0][1:] if separator else url
    return None if path in ("", ":memory:") else path


def _sqlite_file(path: str, keys: Keyring | None, *, allow_network: bool = False) -> Engine:
    # late: it takes 6 ms, and a program uses one engine
    from holdfast.engines.sqlite import SqliteEngine

    return SqliteEngine(None if path in ("", ":memory:") else Path(path), keys, allow_network=allow_network)


def _postgres(url: str, rest: str, keys: Keyring | None) -> Engine:
    with extras.needed("postgres", "postgresql://"):
        # late: optional driver
        from holdfast.engines.postgres import PostgresEngine
    masking.require_escaped(url)
    return PostgresEngine(f"postgresql://{rest}", keys=keys)


def _nats(url: str, rest: str, keys: Keyring | None) -> Service:
    """Make a client of a service over NATS. It ignores the keys, because the service signs with its own."""
    # late: it takes 13 ms, and few programs use a service
    from holdfast.client.nats import NatsClient

    return NatsClient(url)


def _http(url: str, rest: str, keys: Keyring | None) -> Service:
    """Make a client of a service over HTTP. It ignores the keys, because the service signs with its own."""
    # late: few programs use a service
    from holdfast.client.http import HttpClient

    return HttpClient(url)


def _cluster(url: str, rest: str, keys: Keyring | None) -> Engine:
    # late: a program uses one engine
    from holdfast.engines.cluster import ClusterEngine
    from holdfast.engines.cluster.address import cluster_address

    return ClusterEngine(cluster_address(url), keys)


BACKENDS: Final[dict[str, Callable[[str, str, Keyring | None], Engine | Service]]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "postgresql": _postgres,
    "nats": _nats,
    "tls": _nats,
    "http": _http,
    "https": _http,
    "cluster": _cluster,
}
"""All built-in engines and clients by URL scheme."""

_registered: Final[dict[str, MakeEngine]] = {}

DRIVERS: Final = frozenset({"sqlite+aiosqlite", "postgresql+asyncpg"})
"""Schemes that also name a driver, as other libraries write them. They are accepted like the plain ones."""
