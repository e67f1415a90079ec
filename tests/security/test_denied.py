"""What a plugin is told that asks where it may not, and what the command line says with its credentials."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.edges.cli import run
from holdfast.edges.nats.server_config import new_credentials
from holdfast.testing.exact import refusal
from tests.nats import nats_server
from tests.security.bus import permissions
from tests.security.responders import holdfast_service
from tests.security.test_operator import address

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.edges.nats.server_config import Mode


async def test_another_plugin_is_denied_at_once(mode: Mode) -> None:
    """A call to another's subject is PERMISSION_DENIED, which no retry repeats; one's own goes on."""
    who = permissions(mode)
    known = {user: new_credentials(user, "passwords") for user in who.users}
    async with (
        nats_server(who.configuration(known)) as server,
        holdfast_service(server.url, known, who),
        holdfast.open(address(server.url, known["trivia"])) as store,
    ):
        await store.kv("trivia").set("k", 1)
        other, tables, project = store.kv("quote-db"), store.tables("quote-db"), store.semantic("acme", "web")
        calls: list[Callable[[], Any]] = [
            lambda: other.get("k"),
            lambda: other.set("k", 2),
            lambda: other.retry.set("k", 2),
            tables.list_tables,
            lambda: project.set("k", 2),
            store.namespaces,
        ]
        for call in calls:
            with refusal(holdfast.PermissionDenied, says="does not let this user send to"):
                await call()
        entry = await store.kv("trivia").get("k")
        assert entry is not None
        assert entry.value == 1


async def test_without_a_service_a_call_is_unavailable(mode: Mode) -> None:
    """Without a service a call is UNAVAILABLE wherever it goes, since nothing says that it is not allowed."""
    who = permissions(mode)
    known = {user: new_credentials(user, "passwords") for user in who.users}
    async with (
        nats_server(who.configuration(known)) as server,
        holdfast.open(address(server.url, known["trivia"])) as store,
    ):
        for plugin in ("trivia", "quote-db") if mode == "accounts" else ("trivia",):
            with refusal(holdfast.Unavailable, says="no Holdfast service answers"):
                await store.kv(plugin).get("k")


async def test_doctor_and_ping_agree(mode: Mode, capsys: pytest.CaptureFixture[str]) -> None:
    """With a plugin's own credentials both say that the service is there and takes its writes."""
    who = permissions(mode)
    known = {user: new_credentials(user, "passwords") for user in who.users}
    async with nats_server(who.configuration(known)) as server, holdfast_service(server.url, known, who):
        url = address(server.url, known["trivia"])
        assert await asyncio.to_thread(run, ["ping", "--url", url]) == 0
        assert "ready in" in capsys.readouterr().out
        await asyncio.to_thread(run, ["doctor", "--json", "--url", url])
        found = {one["check"]: one for one in json.loads(capsys.readouterr().out)["checks"]}
    assert (found["store"]["level"], found["writing"]["level"], found["nats"]["level"]) == ("ok", "ok", "ok")
    assert "only an operator may list them" in found["store"]["message"]
    assert found["access"]["level"] == "ok", "the server of this service asks for credentials"
