"""A service that is served over HTTP beside NATS, and a client of the httpx library for it.

Only what is needed to start it and to speak to it; nothing about pytest.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

import httpx

import holdfast
from holdfast.bus.connection import Connection
from holdfast.edges.console.door import ConsoleDoor
from holdfast.edges.console.instances import ClusterWatch, Instances
from holdfast.edges.console.sessions import BrowserSessions
from holdfast.edges.console.visits import Instruments
from holdfast.edges.http.api import Api
from holdfast.edges.http.app import Door, Health, application
from holdfast.edges.http.guard import TokenGuard, TokenUses
from holdfast.edges.http.server import USUAL_LIMITS, http_server
from holdfast.edges.mcp.door import McpDoor
from holdfast.edges.monitoring.metrics import Metrics, RecentMetrics
from holdfast.edges.nats.service import NatsService, Settings
from holdfast.edges.settings.read import read_settings, settings_in_force
from holdfast.store import Store
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from holdfast.clock import Clock
    from holdfast.edges.http.connections import HttpLimits
    from holdfast.engine import Engine
    from holdfast.engines.cluster.address import ClusterAddress


class Served:
    """A store that is served at `url` over HTTP and at `bus` over NATS."""

    def __init__(
        self,
        store: Store,
        bus: str,
        client: httpx.AsyncClient,
        api: Api,
        *,
        mcp: McpDoor,
        sessions: BrowserSessions,
        parts: Instruments,
    ) -> None:
        self.store = store
        self.bus = bus
        self.client = client
        self.api = api
        self.mcp = mcp
        self.sessions = sessions
        self.recent = parts.recent
        self.instances = parts.instances
        self.url = str(client.base_url).rstrip("/")

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        """Send a request; underscores in the names of headers are hyphens."""
        named = {name.replace("_", "-"): said for name, said in headers.items()}
        content = holdfast_json(body) if body is not None else None
        return await self.client.request(method, path, content=content, headers=named)

    async def call(self, path: str, /, **fields: Any) -> httpx.Response:
        """Call a verb by POST."""
        return await self.client.post(path, json=fields)


def holdfast_json(body: Any) -> bytes:
    """Encode a body; bytes are sent as they are."""
    return body if isinstance(body, bytes) else json.dumps(body).encode()


@contextlib.asynccontextmanager
async def served(
    db: Path | str,
    bus: str,
    *,
    settings: Settings | None = None,
    clock: Clock | None = None,
    open_mode: bool = True,
    engine: Engine | None = None,
    limits: HttpLimits | None = None,
    port: int | None = None,
    names: tuple[str, ...] = (),
    cluster: ClusterAddress | None = None,
) -> AsyncIterator[Served]:
    """Serve a store within an `async with` block, at this port or at any free one."""
    port = port or free_port()
    opened = holdfast.open(db, clock=clock, reap=False) if engine is None else Store(engine, reap=False)
    async with (
        opened as store,
        contextlib.AsyncExitStack() as stack,
    ):
        connection = Connection()
        await connection.reach(bus)
        stack.push_async_callback(connection.close)
        service = NatsService(store, connection, settings or Settings())
        await service.start()
        stack.push_async_callback(service.stop)
        guard = TokenGuard(store.tokens(), open_mode=open_mode)
        uses = guard.uses = TokenUses(store.tokens())
        api, mcp = Api(guard, store, limits), McpDoor(guard, store, limits)
        api.service = mcp.service = service.requests
        stack.push_async_callback(mcp.aclose)
        state = Health(store)
        state.links = [connection]
        metrics, sessions = Metrics("holdfast", store), BrowserSessions()
        health = application(state, metrics)
        settings_read = tuple(
            settings_in_force(
                *read_settings(environment={"XDG_DATA_HOME": "/var/lib", "HOLDFAST_SLOW_MS": "50"})
            )
        )
        instances = Instances(state, metrics, store.survey().cluster, prefix="db")
        parts = Instruments(
            health=state,
            metrics=metrics,
            recent=RecentMetrics(metrics, store.now),
            instances=instances,
            settings=settings_read,
            addresses={"data": str(db), "nats": bus},
            cluster=None if cluster is None else ClusterWatch(cluster),
        )
        for work in (instances.run(connection), uses.run()):
            task = asyncio.create_task(work)
            stack.push_async_callback(asyncio.wait, [task])
            stack.callback(task.cancel)
        console = ConsoleDoor(guard, sessions, parts)
        console.service = service.requests
        door = Door(health, names=names, api=api, mcp=mcp, console=console)
        await stack.enter_async_context(
            http_server(door, host="127.0.0.1", port=port, limits=limits or USUAL_LIMITS)
        )
        client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20, verify=False)
        await stack.enter_async_context(client)
        yield Served(store, bus, client, api, mcp=mcp, sessions=sessions, parts=parts)
