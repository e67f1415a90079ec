"""Health over HTTP: alive is not ready, and who is not ready says which part it is."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.edges.http import app as module
from holdfast.edges.http.app import Health, application
from holdfast.edges.http.connections import BoundedConnection
from holdfast.edges.http.server import http_server
from holdfast.edges.monitoring.metrics import Metrics
from holdfast.edges.nats.links import Link
from holdfast.edges.settings.read import read_config
from holdfast.errors import Unavailable, ValidationError
from tests.edges.running import get, until_status
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from holdfast.edges.nats.server import NatsServer
    from holdfast.store import Store


class Place:
    """A served application, and what it speaks about."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.health = Health(store)
        self.port = free_port()

    @contextlib.asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        """Serve it for the length of a block."""
        app = application(self.health, Metrics("holdfast", self.store))
        async with http_server(app, host="127.0.0.1", port=self.port):
            yield

    async def ready(self) -> tuple[int, dict[str, object]]:
        """The status of `/readyz`, and what it says."""
        status, text = await get(self.port, "/readyz")
        return status, json.loads(text)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    """A served application over a store in a file; NATS is to come."""
    async with holdfast.open(tmp_path / "state.db") as store:
        place = Place(store)
        async with place.served():
            yield place


def link(server: NatsServer) -> Link:
    """The service's connection to a server."""
    return Link(server.url, read_config(environment={}), name="holdfast")


async def test_alive_is_not_ready(place: Place) -> None:
    """While a service is starting it is alive and not ready, and says that NATS is missing."""
    assert await get(place.port, "/livez") == (200, '{"alive":true}')
    nats = "it is not connected"
    ok = {"degraded": False, "service": "ok", "store": "ok", "audit": "ok"}
    assert await place.ready() == (503, {"ready": False, **ok, "nats": nats})


async def test_ready_follows_nats(place: Place, nats_server: NatsServer) -> None:
    """Ready turns into 503 when NATS goes away, and back into 200 when it is back."""
    async with link(nats_server) as connection:
        place.health.links = [connection]
        assert await place.ready() == (
            200,
            {"ready": True, "degraded": False, "service": "ok", "store": "ok", "nats": "ok", "audit": "ok"},
        )
        await nats_server.stop()
        report = json.loads(await until_status(place.port, "/readyz", 503))
        assert (report["store"], report["nats"]) == ("ok", "it is not connected")
        assert (await get(place.port, "/livez"))[0] == 200
        await nats_server.start()
        await until_status(place.port, "/readyz", 200)
    assert connection.reconnects == 1


async def test_ready_while_a_plugin_is_cut_off(place: Place, nats_server: NatsServer) -> None:
    """A plugin's connection that is gone is told of and concerns that plugin; with none left it is 503."""
    async with link(nats_server) as common, link(nats_server) as one, link(nats_server) as other:
        place.health.links = [common, one, other]
        status, report = await place.ready()
        assert (status, report["ready"], report["nats"], "plugins" in report) == (200, True, "ok", False)
        await one.client.close()
        status, report = await place.ready()
        gone = "1 of 2 connections of plugins are gone"
        assert (status, report["ready"], report["nats"], report["plugins"]) == (200, True, "ok", gone)
        await other.client.close()
        status, report = await place.ready()
        assert (status, report["nats"]) == (503, "it is not connected")


async def test_ready_follows_the_store(place: Place, nats_server: NatsServer) -> None:
    """A store that accepts no writes makes the service not ready, with its code; metrics go on."""
    async with link(nats_server) as connection:
        place.health.links = [connection]
        await place.store.aclose()
        status, report = await place.ready()
    assert (status, report["store"], report["nats"]) == (503, "UNAVAILABLE: the store is not open", "ok")
    status, text = await get(place.port, "/metrics")
    assert (status, "holdfast_store_up 0.0\n" in text) == (200, True)


async def test_a_service_that_stops_is_not_ready(place: Place, nats_server: NatsServer) -> None:
    """While the last requests are answered no new ones are invited."""
    async with link(nats_server) as connection:
        place.health.links = [connection]
        place.health.stopping = True
        status, report = await place.ready()
    assert (status, report["service"], report["nats"]) == (503, "it is stopping", "ok")


async def test_a_store_that_hangs_is_not_waited_for(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks gets an answer, also when the storage gives none."""
    monkeypatch.setattr(module, "PATIENCE", 0.01)
    monkeypatch.setattr(place.store, "ready", asyncio.Event().wait)
    status, report = await place.ready()
    assert (status, report["store"]) == (503, "it did not answer within 0.01 s")


async def test_metrics_are_text(place: Place) -> None:
    """`/metrics` is what Prometheus reads; other paths are not there."""
    status, text = await get(place.port, "/metrics")
    assert (status, "# TYPE holdfast_kv_set_total counter\n" in text) == (200, True)
    assert (await get(place.port, "/"))[0] == 404


async def test_a_reply_is_sent_at_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """No part of a reply waits for the client's system to acknowledge another: that would take 40 ms."""
    options = []
    made = BoundedConnection.connection_made

    def connection_made(self: BoundedConnection, transport: asyncio.Transport) -> None:
        accepted = transport.get_extra_info("socket")
        options.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        made(self, transport)

    monkeypatch.setattr(BoundedConnection, "connection_made", connection_made)
    await get(place.port, "/healthz")
    assert options == [1]


async def test_signals_are_left_alone(tmp_path: Path) -> None:
    """The HTTP server takes no signal: stopping is the service's business."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    async with holdfast.open(tmp_path / "state.db") as store, Place(store).served():
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


async def test_a_taken_port_is_named_with_its_flag(tmp_path: Path) -> None:
    """Who can't have the port learns which it is and how to choose another."""
    async with holdfast.open(tmp_path / "state.db") as store:
        place = Place(store)
        with socket.create_server(("127.0.0.1", 0)) as other:
            place.port = other.getsockname()[1]
            with pytest.raises(Unavailable, match=rf"port {place.port} .* --http-port"):
                await place.served().__aenter__()


async def test_an_address_of_another_machine_is_refused(tmp_path: Path) -> None:
    """An address that can't be listened at is refused by the name of its setting."""
    async with holdfast.open(tmp_path / "state.db") as store:
        app = application(Health(store), Metrics("holdfast", store))
        with pytest.raises(ValidationError, match=r"^http_host: can't listen at 192\.0\.2\.1 ") as caught:
            await http_server(app, host="192.0.2.1", port=free_port()).__aenter__()
    assert caught.value.field == "http_host"
