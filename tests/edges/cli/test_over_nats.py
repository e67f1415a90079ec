"""The command line against a running service: the same commands, the same answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import holdfast
from holdfast.bus.connection import Connection
from holdfast.edges.cli.commands.listing import CLOSED
from holdfast.edges.nats.server_config import SERVICE, Permissions, new_credentials
from holdfast.edges.nats.service import NatsService, Settings
from holdfast.wire.subjects import MOST_LINKS
from tests.nats import connection, nats_server

if TYPE_CHECKING:
    import pytest

    from holdfast.edges.nats.server import NatsServer
    from holdfast.edges.nats.server_config import Credentials
    from tests.edges.cli.conftest import Cli


@contextlib.asynccontextmanager
async def serving(url: str, *, prefix: str = "db") -> AsyncIterator[None]:
    """A service behind a NATS server."""
    async with holdfast.open("memory://") as store:
        connection = Connection()
        await connection.reach(url)
        service = NatsService(store, connection, Settings(prefixes=(prefix,)))
        await service.start()
        try:
            yield
        finally:
            await service.stop()
            await connection.close()


async def test_commands_over_nats(cli: Cli, nats_server: NatsServer) -> None:
    """Nothing depends on where a store is: every kind of command works through a service."""
    async with serving(nats_server.url):
        await asyncio.to_thread(_every_kind, cli, nats_server.url)


async def test_the_servers_of_the_settings(
    cli: Cli, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    """NATS_URL leads to the service, as it does for `up`, unless a store is named; the prefix goes along."""
    monkeypatch.delenv("HOLDFAST_URL")
    monkeypatch.setenv("NATS_URL", nats_server.url.removeprefix("nats://"))
    monkeypatch.setenv("HOLDFAST_SUBJECT_PREFIXES", "own.place")
    async with serving(nats_server.url, prefix="own.place"):
        await asyncio.to_thread(cli.did, "set", "k", "1")
        assert (await asyncio.to_thread(cli.did, "list")).out == "k\n"
        monkeypatch.setenv("HOLDFAST_DB", url)
        assert (await asyncio.to_thread(cli.did, "list")).out == ""


async def test_values_without_the_trash(cli: Cli) -> None:
    """With a plugin's own credentials the trash is not shown, and the history of a key says so."""
    who = Permissions(["jobs"], mode="permissions")
    known = {user: new_credentials(user, "passwords") for user in who.users}
    async with (
        nats_server(who.configuration(known)) as server,
        connection(server.url, known[SERVICE]) as client,
        holdfast.open("memory://") as store,
    ):
        service = NatsService(store, client, Settings(reply_mode="permissions", deadline_ms=60_000))
        await service.start()
        service.serve_links(client, range(MOST_LINKS))
        await client.flush()
        try:
            await asyncio.to_thread(_history, cli, _address(server.url, known["jobs"]))
        finally:
            await service.stop()


def _address(url: str, shown: Credentials) -> str:
    login = f"{shown.entry()['user']}:{shown.secret}"
    return f"{url.replace('nats://', f'nats://{login}@')}?timeout=600&inbox={shown.inbox}"


def _history(cli: Cli, url: str) -> None:
    cli.did("set", "k", "1", "--purpose", "config", "--url", url)
    cli.did("set", "k", "2", "--url", url)
    history = cli("history", "k", "--values", "--url", url)
    assert (history.code, history.err) == (0, f"holdfast: {CLOSED}\n")
    assert history.out.splitlines()[0].endswith("\t2")


def _every_kind(cli: Cli, url: str) -> None:
    on = ["--url", url]
    assert cli.did("set", "k", '{"a":1}', *on).out == "1\n"
    assert cli("set", "k", "2", "--if-version", "9", "--json", *on).error["current"]["value"] == {"a": 1}
    assert cli.did("list", "--long", *on).out.startswith("k\t7\t1\t-\t")
    assert cli.did("history", "k", *on).out.count("\n") == 1
    assert cli.did("stats", *on).out.startswith("kv/jobs\t1\t")
    assert cli.did("ping", *on).out.startswith("ready in ")
    assert cli.did("top", "--once", "--interval", "0.01", *on).out == "kv/jobs\t1\t8\t0.0\n"
    copied = cli("import", "-", "--plugin", "copy", *on, stdin=cli.did("export", *on).out)
    assert copied.err == "holdfast: 1 entry imported into kv/copy\n"
    assert cli.did("get", "k", "--plugin", "copy", *on).json == {"a": 1}
    assert cli("get", "nothing", *on).code == 3
    assert cli("migrate", "current", "--db", url).code == 1
    checked = cli.did("doctor", *on).out
    assert "ok    nats" in checked
    assert "warn  access     the NATS server lets in callers without credentials" in checked
