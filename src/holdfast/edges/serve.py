"""The composition root: starts the configured parts and runs them until a stop signal.

When stopping, it first answers every accepted request. Then it closes the store, then NATS, and last HTTP,
which reports until then that the service is stopping. Parts are put together here and nowhere else.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

import holdfast
from holdfast import masking, seams, tracing
from holdfast.edges.console.door import ConsoleDoor
from holdfast.edges.console.instances import ClusterWatch, Instances
from holdfast.edges.console.sessions import BrowserSessions
from holdfast.edges.console.visits import Instruments
from holdfast.edges.greeting import data_place, greeting
from holdfast.edges.http.api import Api
from holdfast.edges.http.app import Door, Health, application
from holdfast.edges.http.connections import HttpLimits
from holdfast.edges.http.guard import TokenGuard, TokenUses
from holdfast.edges.http.server import http_server, tls_context
from holdfast.edges.intake.request_log import RequestLog
from holdfast.edges.intake.service import Limits, RequestService
from holdfast.edges.mcp.door import McpDoor
from holdfast.edges.monitoring import logs
from holdfast.edges.monitoring.metrics import Metrics, RecentMetrics
from holdfast.edges.monitoring.outage import OutageWatch
from holdfast.edges.nats.cluster_server import (
    ClusterBootstrap,
    StoppedEarly,
    cluster_config,
    in_cluster,
    is_new,
    joined,
    keep_log,
    require_new_server,
    server_name,
    set_aside,
)
from holdfast.edges.nats.links import REST, Link, Links
from holdfast.edges.nats.server import NatsServer
from holdfast.edges.nats.service import NatsService, Settings
from holdfast.edges.served_store import MovesFollower, ServedStore, open_in_time
from holdfast.edges.settings.addresses import local_http_url, public_url
from holdfast.edges.settings.read import open_mode, settings_in_force, shown
from holdfast.edges.settings.table import Config
from holdfast.engines.cluster.address import cluster_address
from holdfast.errors import HoldfastError, Transient, Unavailable, ValidationError
from holdfast.model import Stats
from holdfast.upkeep.tables import reap_tables
from holdfast.wire.subjects import own_subjects

__all__ = ["mappings", "serve", "shown"]

PAUSE: Final = 1.0
"""Seconds to wait before restarting a NATS server that exited."""

_log = logging.getLogger("holdfast.serve")


def _say(line: str) -> None:
    print(line, flush=True)


async def serve(
    config: Config,
    *,
    sources: Mapping[str, str] | None = None,
    ignored: str | None = None,
    say: Callable[[str], None] = _say,
) -> None:
    """Serve a store until SIGINT or SIGTERM, also at the place to which it moves meanwhile.

    Args:
        config: The settings.
        sources: The source of each setting that was given, which the console shows.
        ignored: A line about settings that the file has for another program.
        say: Prints a line for the person who started it.

    Raises:
        HoldfastError: The store cannot be opened or another process writes to it, a port is taken, or NATS
            cannot be reached.
    """
    logs.configure(config.log_level, config.service_log_level)
    config = in_cluster(config)
    _log.info("starting")
    if ignored is not None:
        _log.warning(ignored)
    stop = _stop_signal()
    try:
        with tracing.exported(config.trace_exporter):
            await _serve_until(stop, config, sources=sources or {}, say=say)
    except StoppedEarly as early:
        _log.info("%s", early.message)
    _log.info("stopped")
    say("Holdfast has stopped. The data stays.")


async def _serve_until(
    stop: asyncio.Event, config: Config, *, sources: Mapping[str, str], say: Callable[[str], None]
) -> None:
    async with _log_kept(config, say, stop) as own, contextlib.AsyncExitStack() as lasting:
        served = await open_in_time(config, say, stop)
        addresses = [] if own is None else [own]

        async def nats() -> str | None:
            if config.no_nats:
                return None
            if not addresses:
                addresses.append(await lasting.enter_async_context(_bus(config)))
            return addresses[0]

        sessions = BrowserSessions()
        while served is not None:
            following = MovesFollower(served, say, stop)
            await _serve(served, following, nats, sources=sources, sessions=sessions, say=say)
            served, sources = following.next, {**sources, "db": "holdfast copy --switch"}


async def _serve(
    served: ServedStore,
    following: MovesFollower,
    nats: Callable[[], Awaitable[str | None]],
    *,
    sources: Mapping[str, str],
    sessions: BrowserSessions,
    say: Callable[[str], None],
) -> None:
    """Serve one store until the service is to stop, or the store has moved and the next one is open.

    `nats` returns the address of NATS; None if it is not served. A NATS server of our own is started when it
    is first asked for.
    """
    config, store = served.config, served.store
    async with contextlib.AsyncExitStack() as outliving, served.stack:
        health = Health(store, nats=not config.no_nats)
        metrics = Metrics(config.metrics_prefix, store, most_plugins=config.metrics_plugins)
        guard = TokenGuard(store.tokens(), open_mode=open_mode(config) is not None)
        uses = guard.uses = TokenUses(store.tokens())
        limits = http_limits_of(config)
        api, mcp = Api(guard, store, limits), McpDoor(guard, store, limits)
        recent = RecentMetrics(metrics, store.now)
        settings = tuple(settings_in_force(config, sources))
        prefix = config.subject_prefixes[0]
        instances = Instances(health, metrics, store.survey().cluster, prefix=prefix)
        parts = Instruments(
            health=health,
            metrics=metrics,
            recent=recent,
            instances=instances,
            settings=settings,
            prefix=prefix,
            addresses={"data": data_place(config)},
            cluster=ClusterWatch(cluster_address(config.db)) if config.db.startswith("cluster://") else None,
        )
        console = ConsoleDoor(guard, sessions, parts) if config.console else None
        if config.http_port:
            names = (config.http_host, *config.http_hosts)
            app = Door(application(health, metrics), names=names, api=api, mcp=mcp, console=console)
            tls = tls_context(config.http_tls_cert, config.http_tls_key) if config.http_tls_cert else None
            listening = http_server(app, host=config.http_host, port=config.http_port, tls=tls, limits=limits)
            await outliving.enter_async_context(listening)
        url = await nats()
        if url is not None:
            parts.addresses["nats"] = masking.shown(url)
        links = health.links = metrics.links = [
            await outliving.enter_async_context(Link(url, config, name=name))
            for name in _names(config)
            if url is not None
        ]
        common = links[0] if links else None
        requests = metrics.requests = _requests(config, store, metrics)
        async with (
            _services(config, store, requests, links, url=url, metrics=metrics),
            _answering(api, mcp, console, requests),
            _task(recent.run(), name="holdfast recent metrics"),
            _task(uses.run(), name="holdfast uses of tokens"),
            _task(
                instances.run(
                    None if common is None else common.client,
                    denied=lambda: common is not None and common.inbox_denied,
                ),
                name="holdfast instances",
            ),
            _watched(config, store, common),
            _table_reaper(config, store),
            _anchored(store),
        ):
            _log.info(
                "started; removing expired entries at least every %g s",
                config.kv_cleanup_interval_seconds,
            )
            here = local_http_url(config) if url is None else public_url(config, url)
            if here is not None:
                store.announce(here)
            once = sessions.link() if config.console and sys.stdout.isatty() else None
            namespaces, no_key = await _contents(store)
            for line in greeting(config, url, namespaces, no_key=no_key, once=once):
                say(line)
            _spare_the_collector()
            _share_the_interpreter()
            await following.wait()
            health.stopping = following.next is None


async def _contents(store: holdfast.Store) -> tuple[list[Stats] | None, HoldfastError | None]:
    """Return what the store holds, and why audited writes are refused; None if it can't be read just now."""
    try:
        return await store.namespaces(), await store.key_trouble()
    except Transient as error:
        _log.warning("the store can't be read just now: %s", error.message)
        return None, None


@contextlib.asynccontextmanager
async def _anchored(store: holdfast.Store) -> AsyncIterator[None]:
    """Log the heads of all audits when the service starts and when it stops. Upkeep logs them in between."""
    if await _log_heads(store):
        _log.info("keep these lines elsewhere: holdfast audit verify --log FILE compares the store with them")
    yield
    await _log_heads(store)


async def _log_heads(store: holdfast.Store) -> bool:
    """Log the heads of all audits. Returns whether there are any."""
    try:
        heads = await store.audit_heads()
    except HoldfastError as error:
        _log.warning("the heads of the audits could not be read: %s", error.message)
        return False
    for name, head in heads.items():
        _log.info("audit head of %s is %s", name, head)
    return bool(heads)


@contextlib.asynccontextmanager
async def _log_kept(
    config: Config, say: Callable[[str], None], stop: asyncio.Event
) -> AsyncIterator[str | None]:
    """Run the NATS server that keeps a cluster's log, on a machine that is part of one. Yield its address."""
    if config.cluster is None:
        yield None
        return
    await seams.aside(require_new_server)
    folder = Path(config.data_dir) / "nats"
    brings = set_aside(config, folder)
    async with contextlib.AsyncExitStack() as stack:
        url = await stack.enter_async_context(_bus(config))
        if config.peers:
            bootstrap = ClusterBootstrap(config, folder, brings=brings, say=say, stop=stop)
            await stack.enter_async_context(bootstrap)
            await joined(config, say, stop, first=brings or is_new(config))
            await bootstrap.end()
        yield url


@contextlib.asynccontextmanager
async def _bus(config: Config) -> AsyncIterator[str]:
    """Yield the address of NATS: the configured one, or that of our own server, restarted when it exits."""
    if config.nats:
        yield config.nats
        return
    base = mappings(config) if config.nats_config is None else _readable(config.nats_config)
    folder, name = Path(config.data_dir) / "nats", None
    text: str | Path | None = base
    if config.cluster is not None:
        keep_log(config, folder)
        text, name = cluster_config(config, folder, base), server_name(config, folder)
    apart = config.nats_config is not None
    async with (
        NatsServer(folder, port=config.nats_port, config=text, name=name, apart=apart) as server,
        contextlib.AsyncExitStack() as tasks,
    ):
        await tasks.enter_async_context(_task(_keep(server), name="holdfast nats-server"))
        if config.cluster is not None and isinstance(base, Path):
            following = _follow_file(server, str(text), partial(cluster_config, config, folder, base))
            await tasks.enter_async_context(_task(following, name="holdfast nats_config"))
        yield server.url


def mappings(config: Config) -> str | None:
    """Return the configuration that maps a plugin's requests to its own connection alone."""
    moved = [own_subjects(config.subject_prefixes, plugin) for plugin in config.own_connection]
    lines = [f'"{subject}": "{where}"' for one in moved for subject, where in one.items()]
    return "\n".join(["mappings {", *lines, "}", ""]) if lines else None


async def _follow_file(server: NatsServer, last: str, config: Callable[[], str]) -> None:
    """Have the server of a machine in a cluster use its configuration file as it is changed.

    The server does not read that file itself, because the node is admitted beside the users that it names.
    """
    while True:
        await asyncio.sleep(PAUSE)
        try:
            text = await seams.aside(config)
        except (HoldfastError, OSError, UnicodeDecodeError) as error:
            _log.warning("nats_config can't be used now; the server goes on as it is: %s", error)
            continue
        if text != last:
            server.reload(text)
            last = text
            _log.info("nats_config was changed: the NATS server uses it")


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


def _names(config: Config) -> list[str]:
    """Return the names of the connections: the common one, and those of single plugins."""
    return ["holdfast", *(f"holdfast {plugin}" for plugin in config.own_connection)]


def _requests(config: Config, store: holdfast.Store, metrics: Metrics) -> RequestService:
    """Return what starts and finishes the requests of all doors."""
    settings = settings_of(config)
    request_log = RequestLog(
        slow=settings.slow_seconds,
        slow_walk=settings.slow_walk_seconds,
        counter=metrics,
        kept=settings.slow_kept,
    )
    return RequestService(store, settings, request_log, mode=config.reply_mode)


@contextlib.asynccontextmanager
async def _services(
    config: Config,
    store: holdfast.Store,
    requests: RequestService,
    links: list[Link],
    *,
    url: str | None,
    metrics: Metrics,
) -> AsyncIterator[None]:
    """Run a service on each connection. The common one stops last, because it publishes the events.

    Without NATS there is none, and what the other doors have accepted is answered at the end.
    """
    if url is None:
        try:
            yield
        finally:
            await requests.stop()
        return
    settings = settings_of(config)
    common = NatsService(store, links[0].client, settings, requests=requests)
    own = [
        NatsService(store, link.client, msgspec.structs.replace(settings, plugin=plugin), requests=requests)
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
            try:
                await more.serve()
            except Unavailable as error:  # the connection was lost during the start
                _log.warning("serving the plugins' links failed; retrying: %s", error.message)
            await running.enter_async_context(_task(more.keep(), name="holdfast links"))
        yield


@contextlib.asynccontextmanager
async def _answering(
    api: Api, mcp: McpDoor, console: ConsoleDoor | None, service: RequestService
) -> AsyncIterator[None]:
    """Pass requests over HTTP on to a service."""
    api.service = mcp.service = service
    if console is not None:
        console.service = service
    try:
        yield
    finally:
        api.service = None
        if console is not None:
            console.service = None
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
async def _watched(config: Config, store: holdfast.Store, link: Link | None) -> AsyncIterator[None]:
    """Watch for outages of the storage and send alerts, over NATS where it is served."""
    send = link.client.send if link is not None and config.events else None
    watch = OutageWatch(store, send, prefix=config.subject_prefixes[0])
    async with _task(watch.run(), name="holdfast outage watch"):
        yield


@contextlib.asynccontextmanager
async def _table_reaper(config: Config, store: holdfast.Store) -> AsyncIterator[None]:
    """Delete expired items of tables periodically, if that is configured."""
    if config.table_reaper_interval_seconds is None:
        yield
        return
    reaping = reap_tables(store.pipeline, config.table_reaper_interval_seconds)
    async with _task(reaping, name="holdfast table reaper"):
        yield


def _spare_the_collector() -> None:
    """Exempt from garbage collection what exists by now: modules, classes and the parts of the service.

    They are 55,000 objects, which a full collection would look through in 40 ms, and a plugin that sends
    values of many lists would cause ten such collections a second.
    """
    gc.collect()
    gc.freeze()


def _share_the_interpreter() -> None:
    """Let threads take turns in the interpreter after half a millisecond instead of five.

    During a set, the loop and the thread that commits release the interpreter some ten times, for the file
    and for sockets. Beside a thread that reads a long list, they would wait for five milliseconds each time.
    """
    sys.setswitchinterval(0.0005)


def _stop_signal() -> asyncio.Event:
    """Return an event that SIGINT and SIGTERM set; from now on neither ends the process by itself."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop
