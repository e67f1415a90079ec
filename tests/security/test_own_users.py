"""With credentials of one's own: whether the service is ready, and a plugin with a connection of its own.

Real credentials of a generated configuration, in both modes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Final

import pytest

import holdfast
from holdfast.edges.intake.request_log import RequestLog
from holdfast.edges.nats.server_config import SERVICE, Permissions, new_credentials
from holdfast.edges.nats.service import NatsService, Settings
from holdfast.errors import PermissionDenied, Unavailable
from holdfast.testing.exact import refusal
from holdfast.wire.subjects import MOST_LINKS, OPERATOR
from tests.nats import connection, library_client, nats_server
from tests.security.responders import Tally

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from holdfast.edges.nats.server_config import Credentials, Mode

USERS: Final = ("trivia", "quote-db", "acme/web", OPERATOR)
PATIENCE: Final = 60.0


class Place:
    """A server with a generated configuration, and who may connect to it."""

    def __init__(self, url: str, mode: Mode, credentials: dict[str, Credentials], folder: Path) -> None:
        self.url = url
        self.mode = mode
        self.credentials = credentials
        self._folder = folder

    def address(self, user: str, *, inbox: bool = True) -> str:
        """Where a user finds the service, with what it logs in with."""
        seed = self._folder / user.replace("/", ".")
        seed.write_text(self.credentials[user].secret)
        named = f"&inbox={self.credentials[user].inbox}" if inbox else ""
        return f"{self.url}?nkey={seed}&timeout=600{named}"

    @contextlib.asynccontextmanager
    async def serving(self, tally: Tally, plugin: str | None = None) -> AsyncIterator[None]:
        """The service, for all or for a plugin over a connection of its own."""
        settings = Settings(reply_mode=self.mode, plugin=plugin, deadline_ms=60_000)
        request_log = RequestLog(slow=9, slow_walk=9, counter=tally)
        async with (
            holdfast.open("memory://") as store,
            connection(self.url, self.credentials[SERVICE]) as client,
        ):
            service = NatsService(store, client, settings, request_log)
            await service.start()
            if plugin is None:
                service.serve_links(client, range(MOST_LINKS))
                await client.flush()
            yield
            await service.stop()


@pytest.fixture
async def place(mode: Mode, tmp_path: Path) -> AsyncIterator[Place]:
    """A server on which trivia has a connection of its own."""
    who = Permissions(("trivia", "quote-db"), ("acme/web",), mode=mode, own_connection=("trivia",))
    credentials = {user: new_credentials(user, "nkeys") for user in who.users}
    async with nats_server(who.configuration(credentials)) as server:
        yield Place(server.url, mode, credentials, tmp_path)


async def test_every_user_learns_whether_the_service_is_ready(place: Place) -> None:
    """`ready` needs no more than a user's own credentials; without a service it is UNAVAILABLE at once."""
    for user in USERS:
        async with holdfast.open(place.address(user)) as store, asyncio.timeout(PATIENCE):
            with refusal(Unavailable, says="no Holdfast service answers"):
                await store.ready()
    async with place.serving(Tally()), place.serving(Tally(), "trivia"):
        for user in USERS:
            async with holdfast.open(place.address(user)) as store, asyncio.timeout(PATIENCE):
                await store.ready()


async def test_ready_needs_an_inbox_only_with_permissions(place: Place) -> None:
    """With an account of its own a client need not name its inbox; with permissions it is told to."""
    async with place.serving(Tally()), place.serving(Tally(), "trivia"):
        for user in USERS:
            async with holdfast.open(place.address(user, inbox=False)) as store, asyncio.timeout(PATIENCE):
                if place.mode == "accounts":
                    await store.ready()
                    continue
                with refusal(PermissionDenied, says="inbox"):
                    await store.ready()


async def test_ready_with_the_inbox_of_another_is_refused(place: Place) -> None:
    """A client that names another's inbox is refused by permissions, and not answered between accounts."""
    theirs = place.address("quote-db", inbox=False) + "&inbox=_INBOX.trivia"
    async with place.serving(Tally()), holdfast.open(theirs) as store, asyncio.timeout(PATIENCE):
        with refusal(PermissionDenied if place.mode == "permissions" else Unavailable):
            await store.ready()


async def test_a_plugin_with_its_own_connection_is_served_there_only(place: Place) -> None:
    """In both modes a plugin with a connection of its own is served there alone, in order, and each once."""
    common, own = Tally(), Tally()
    async with place.serving(common), place.serving(own, "trivia"):
        async with holdfast.open(place.address("trivia")) as store, asyncio.timeout(PATIENCE):
            kv = store.kv("trivia")
            counted = await asyncio.gather(*(kv.incr("n") for _ in range(100)))
        async with holdfast.open(place.address("quote-db")) as store, asyncio.timeout(PATIENCE):
            await store.kv("quote-db").set("k", 1)
    assert [entry.value for entry in counted] == list(range(1, 101))
    assert (own.executed, common.executed) == ({"kv/trivia": 100}, {"kv/quote-db": 1})


async def test_no_other_user_reaches_the_connection_of_a_plugin(place: Place) -> None:
    """Neither the plugin's subjects nor those behind them are open to another, and no reply leads there."""
    common, own = Tally(), Tally()
    async with place.serving(common), place.serving(own, "trivia"):
        async with library_client(place.url, place.credentials["quote-db"]) as client:
            for subject in ("db.kv.trivia.incr", "db.own.kv.trivia.incr", "rosey.db.own.table.trivia.x"):
                await client.publish(subject, json.dumps({"key": "forged"}).encode())
                await client.publish("db.kv.quote-db.incr", b'{"key":"k"}', reply=subject)
            await client.flush()
        async with holdfast.open(place.address("trivia")) as store, asyncio.timeout(PATIENCE):
            assert (await store.kv("trivia").list()).keys == []
    assert own.executed == {"kv/trivia": 1}
    assert set(common.executed) <= {"kv/quote-db"}
