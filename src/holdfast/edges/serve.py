"""The composition root: starts the configured parts and runs them until a stop signal.

When stopping, it first answers every accepted request. Then it closes the store, then NATS, and last HTTP,
which reports until then that the service is stopping.

Law: parts are put together here and nowhere else.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final

import msgspec

import holdfast
from holdfast import private
from holdfast.audit.keyring import FileKeyring
from holdfast.edges.greeting import greeting
from holdfast.edges.http.api import Api
from holdfast.edges.http.app import Health, application
from holdfast.edges.http.door import Door
from holdfast.edges.http.guard import TokenGuard
from holdfast.edges.http.limits import HttpLimits
from holdfast.edges.http.server import http_server, tls_context
from holdfast.edges.intake.lines import Limits
from holdfast.edges.intake.request_log import Observer
from holdfast.edges.mcp.door import McpDoor
from holdfast.edges.monitoring import logs
from holdfast.edges.monitoring.metrics import Metrics
from holdfast.edges.monitoring.outage import OutageWatch
from holdfast.edges.nats.link import Link
from holdfast.edges.nats.links import REST, Links
from holdfast.edges.nats.server import NatsServer
from holdfast.edges.nats.service import NatsService, Settings
from holdfast.edges.settings.addresses import public_url
from holdfast.edges.settings.read import keys_of, open_mode, shown
from holdfast.errors import DatabaseError, HoldfastError, ValidationError
from holdfast.registry import engine_for
from holdfast.store import Store
from holdfast.upkeep.tables import reap_tables
from holdfast.wire.subjects import own_subjects

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from holdfast.edges.settings.table import Config

__all__ = ["mappings", "serve", "settings_of", "shown"]

QUOTA_BYTES: Final = 1_000_000_000
RATE_LIMIT: Final = 5_000
"""The default quota and rate of a namespace, where the NATS server isolates plugins."""
PAUSE: Final = 1.0
"""Seconds to wait before restarting a NATS server that exited."""

_log = logging.getLogger("holdfast.serve")


def _say(line: str) -> None:
    print(line, flush=True)


async def serve(config: Config, *, say: Callable[[str], None] = _say) -> None:
    """Serve a store until SIGINT or SIGTERM.

    Raises:
        HoldfastError: The store cannot be opened or another process writes to it, a port is taken, or NATS
            cannot be reached.
    """
    logs.configure(config.log_level, config.service_log_level)
    _log.info("starting")
    stop = _stop_signal()
    async with contextlib.AsyncExitStack() as outliving, _opened(config, say) as store:
        health = Health(store)
        metrics = Metrics(config.metrics_prefix, store, most_plugins=config.metrics_plugins)
        guard = TokenGuard(store.tokens(), open_mode=open_mode(config) is not None)
        limits = http_limits_of(config)
        api, mcp = Api(guard, store, limits), McpDoor(guard, store, limits)
        if config.http_port:
            names = (config.http_host, *config.http_hosts)
            app = Door(application(health, metrics), names=names, api=api, mcp=mcp)
            tls = tls_context(config.http_tls_cert, config.http_tls_key) if config.http_tls_cert else None
            served = http_server(app, host=config.http_host, port=config.http_port, tls=tls, limits=limits)
            await outliving.enter_async_context(served)
        url = await outliving.enter_async_context(_bus(config))
        links = health.links = metrics.links = [
            await outliving.enter_async_context(Link(url, config, name=name)) for name in _names(config)
        ]
        async with (
            _services(config, store, links, url=url, metrics=metrics) as service,
            _answering(api, mcp, service),
            _watched(config, store, links[0]),
            _table_reaper(config, store),
        ):
            _log.info(
                "started; removing expired entries at least every %g s",
                config.kv_cleanup_interval_seconds,
            )
            store.announce(public_url(config, url))
            for line in greeting(config, url, await store.namespaces(), no_key=await store.key_trouble()):
                say(line)
            _spare_the_collector()
            await stop.wait()
            health.stopping = True
    _log.info("stopped")
    say("Holdfast has stopped. The data stays.")


def settings_of(config: Config) -> Settings:
    """Return the settings of the NATS service."""
    return Settings(
        prefixes=config.subject_prefixes,
        reply_mode=config.reply_mode,
        payload_dialect=config.payload_dialect,
        request_users=config.request_users,
        events=config.events,
        deadline_ms=config.deadline_ms,
        slow_seconds=config.slow_ms / 1000,
        slow_walk_seconds=config.slow_list_ms / 1000,
        slow_kept=config.slow_log_size,
        rate=config.rate_limit,
        strict_fields=config.strict_fields,
        limits=Limits(
            waiting=config.max_waiting,
            waiting_bytes=config.max_waiting_bytes,
            all_waiting_bytes=config.max_all_waiting_bytes,
            under_way=config.max_under_way,
            all_under_way=config.max_all_under_way,
        ),
    )


def http_limits_of(config: Config) -> HttpLimits:
    """Return the limits of the HTTP door."""
    return HttpLimits(
        body_bytes=config.http_max_body_bytes,
        head_bytes=config.http_max_head_bytes,
        connections=config.http_max_connections,
        watches=config.http_max_watches,
        request_seconds=config.http_request_seconds,
        idle_seconds=config.http_idle_seconds,
        answer_seconds=config.http_answer_seconds,
    )


def defaults_of(config: Config) -> holdfast.Policy | None:
    """Return the default limits for policies that set none; by default no limits in open mode."""
    apart = config.reply_mode != "open"
    quota, rate = config.default_quota_bytes, config.default_rate_limit
    if quota is None and apart:
        quota = QUOTA_BYTES
    if rate is None and apart:
        rate = RATE_LIMIT
    if not quota and not rate:
        return None
    return holdfast.Policy(quota_bytes=quota or None, rate_limit=rate or None)


@contextlib.asynccontextmanager
async def _opened(config: Config, say: Callable[[str], None]) -> AsyncIterator[holdfast.Store]:
    """Open the store and check that it accepts writes."""
    if "://" not in config.db:
        _make_folder(Path(config.db).parent)
    engine = engine_for(config.db, keys_of(config))
    if isinstance(engine.keys, FileKeyring):
        engine.keys.tell = say
    interval, defaults = config.kv_cleanup_interval_seconds, defaults_of(config)
    async with Store(engine, sweep_interval=interval, defaults=defaults) as store:
        if not store.capabilities.batching:
            raise ValidationError(f"db: {shown(config.db)} is a running service, not a store", field="db")
        await store.ready()
        await _require_sound(store, config)
        _log.info("cleanup of expired entries started")
        yield store
    _log.info("cleanup of expired entries stopped")


async def _require_sound(store: holdfast.Store, config: Config) -> None:
    """Check for corruption within the configured time, and refuse to serve a corrupt store."""
    seconds, where = config.startup_check_seconds, shown(config.db)
    found = await store.examine(seconds=seconds) if seconds else None
    if found is None:
        return
    if found.troubles:
        raise DatabaseError(
            f"{where} is corrupt: {found.troubles[0]}. Run holdfast doctor --deep --url {quote(where)} to "
            "see all that is wrong, and restore a backup. To serve it as is, set startup_check_seconds to 0"
        )
    if not found.complete:
        _log.info(
            "checked %s for %g s and skipped the rest; holdfast doctor --deep checks all of it",
            where,
            seconds,
        )


def _make_folder(folder: Path) -> None:
    try:
        private.make_folder(folder)
    except OSError as error:
        reason = (error.strerror or "it can't be used").lower()
        raise ValidationError(f"db: the folder {folder} can't be created: {reason}", field="db") from None


@contextlib.asynccontextmanager
async def _bus(config: Config) -> AsyncIterator[str]:
    """Yield the address of NATS: the configured one, or that of our own server, restarted when it exits."""
    if config.nats:
        yield config.nats
        return
    told = mappings(config) if config.nats_config is None else _readable(config.nats_config)
    folder = Path(config.data_dir) / "nats"
    async with NatsServer(folder, port=config.nats_port, config=told) as server:
        keeper = asyncio.create_task(_keep(server), name="holdfast nats-server")
        try:
            yield server.url
        finally:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)


def mappings(config: Config) -> str | None:
    """Return the configuration that maps a plugin's requests to its own connection alone."""
    moved = [own_subjects(config.subject_prefixes, plugin) for plugin in config.own_connection]
    lines = [f'"{subject}": "{where}"' for one in moved for subject, where in one.items()]
    return "\n".join(["mappings {", *lines, "}", ""]) if lines else None


async def _keep(server: NatsServer) -> None:
    while True:
        code = await server.process.wait()
        _log.error("the NATS server exited with code %s; restarting it, see %s", code, server.log)
        await asyncio.sleep(PAUSE)
        try:
            await server.start()
        except HoldfastError as error:
            _log.error("the NATS server could not be started: %s", error.message)


def _readable(path: str) -> Path:
    """Return the file itself, so that the server sees its changes on a reload."""
    file = Path(path).absolute()
    try:
        file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise ValidationError(f"nats_config: {path} can't be read", field="nats_config") from None
    return file


def _names(config: Config) -> list[str]:
    """Return the names of the connections: the common one, and those of single plugins."""
    return ["holdfast", *(f"holdfast {plugin}" for plugin in config.own_connection)]


@contextlib.asynccontextmanager
async def _services(
    config: Config, store: holdfast.Store, links: list[Link], *, url: str, metrics: Metrics
) -> AsyncIterator[NatsService]:
    """Run a service on each connection. The common one stops last, because it publishes the events."""
    settings = settings_of(config)
    observer = Observer(
        slow=settings.slow_seconds,
        slow_walk=settings.slow_walk_seconds,
        counter=metrics,
        kept=settings.slow_kept,
    )
    common = NatsService(store, links[0].client, settings, observer)
    own = [
        NatsService(
            store, link.client, msgspec.structs.replace(settings, plugin=plugin), observer, beside=common
        )
        for plugin, link in zip(config.own_connection, links[1:], strict=True)
    ]
    metrics.services = [common, *own]
    more = Links(
        links,
        common,
        lambda name: Link(url, config, name=name, rest=REST),
        most=config.plugin_connections,
        prefix=config.subject_prefixes[0],
    )
    told_apart = config.reply_mode != "open"
    async with contextlib.AsyncExitStack() as running:
        if told_apart:
            await running.enter_async_context(more)
        for service, link in zip(metrics.services, tuple(links), strict=True):
            running.push_async_callback(service.stop)
            await service.start()
            link.require_listening()
        if told_apart:
            await more.serve()
            await running.enter_async_context(_task(more.keep(), name="holdfast links"))
        yield common


@contextlib.asynccontextmanager
async def _answering(api: Api, mcp: McpDoor, service: NatsService) -> AsyncIterator[None]:
    """Pass requests over HTTP on to a service."""
    api.service = mcp.service = service
    try:
        yield
    finally:
        api.service = None
        await mcp.aclose()


@contextlib.asynccontextmanager
async def _task(work: Coroutine[None, None, None], *, name: str) -> AsyncIterator[None]:
    """Run a task within an `async with` block."""
    task = asyncio.create_task(work, name=name)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def _watched(config: Config, store: holdfast.Store, link: Link) -> AsyncIterator[None]:
    """Watch for outages of the storage and send alerts."""
    send = link.client.send if config.events else None
    watch = OutageWatch(store, send, prefix=config.subject_prefixes[0])
    async with _task(watch.run(), name="holdfast outage watch"):
        yield


@contextlib.asynccontextmanager
async def _table_reaper(config: Config, store: holdfast.Store) -> AsyncIterator[None]:
    """Delete expired items of tables periodically, if that is configured."""
    if config.table_reaper_interval_seconds is None:
        yield
        return
    reaping = reap_tables(store, config.table_reaper_interval_seconds)
    async with _task(reaping, name="holdfast table reaper"):
        yield


def _spare_the_collector() -> None:
    """Exempt from garbage collection what exists by now: modules, classes and the parts of the service.

    They are 55,000 objects, which a full collection would look through in 40 ms, and a plugin that sends
    values of many lists would cause ten such collections a second.
    """
    gc.collect()
    gc.freeze()


def _stop_signal() -> asyncio.Event:
    """Return an event that SIGINT and SIGTERM set; from now on neither ends the process by itself."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop
