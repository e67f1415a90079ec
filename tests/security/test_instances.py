"""Instances of a service on a server that tells users apart: each lists all of them, and nothing is denied.

Real processes, and real credentials of a generated configuration.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import httpx

import holdfast
from holdfast.edges.console import instances as module
from holdfast.edges.console.instances import Instances
from holdfast.edges.http.app import Health
from holdfast.edges.monitoring.metrics import Metrics
from holdfast.edges.nats.links import Link
from holdfast.edges.nats.server_config import SERVICE, Permissions, new_credentials
from holdfast.edges.settings.read import read_config
from tests.edges.nats.ground import until
from tests.edges.running import PATIENCE, holdfast_up
from tests.nats import nats_server

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from holdfast.edges.nats.server_config import Mode
    from tests.edges.running import Up


async def test_two_instances_list_each_other(mode: Mode, tmp_path: Path) -> None:
    """With a generated configuration, the console of each of two instances lists both, without a denial."""
    who = Permissions(("trivia",), mode=mode)
    credentials = {user: new_credentials(user, "nkeys") for user in who.users}
    seed = tmp_path / "service.nk"
    seed.write_text(credentials[SERVICE].secret)
    tokens = {}
    for name in ("one", "two"):
        async with holdfast.open(str(tmp_path / f"{name}.db")) as store:
            tokens[name] = (await store.tokens().create(operator=True)).token
    async with nats_server(who.configuration(credentials)) as server, asyncio.timeout(PATIENCE):
        options = ("--nats", server.url, "--nats-nkey", seed)
        variables = {"HOLDFAST_REPLY_MODE": mode}
        async with (
            holdfast_up(tmp_path / "1", "--db", tmp_path / "one.db", *options, **variables) as one,
            holdfast_up(tmp_path / "2", "--db", tmp_path / "two.db", *options, **variables) as two,
        ):
            for up, token in ((one, tokens["one"]), (two, tokens["two"])):
                while await _listed(up, token) != {one.pid, two.pid}:  # noqa: ASYNC110 - other processes
                    await asyncio.sleep(0.05)
        assert "iolation" not in one.complaints + two.complaints + server.log.read_text()


async def _listed(up: Up, token: str) -> set[int]:
    """The processes of the instances on the overview of one of them."""
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{up.http_port}") as client:
        answer = await client.get("/", headers=headers)
    assert answer.status_code == 200, answer.text
    return {found["process"] for found in answer.json()["instances"]}


async def test_a_denied_inbox_is_logged_once_with_its_cure(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under permissions that a person wrote, a denial is logged once, with its cure.

    The instance goes on: it lists itself, and no longer tells others of itself.
    """
    monkeypatch.setattr(module, "EVERY", 0.01)
    caplog.set_level(logging.INFO, logger="holdfast")
    allowed = 'publish: ["db.event.>", "_R_.>"], subscribe: ["db.>", "$SRV.>"]'
    config = f"authorization {{ users = [{{ user: me, password: pw, permissions: {{ {allowed} }} }}] }}"
    settings = read_config(environment={}, nats_user="me", nats_password="pw")
    async with (
        nats_server(config) as server,
        holdfast.open("memory://") as store,
        Link(server.url, settings, name="holdfast") as link,
    ):
        found = Instances(Health(store), Metrics("kv", store), lambda: None, prefix="db")
        running = asyncio.create_task(found.run(link.client, denied=lambda: link.inbox_denied))
        await until(lambda: "_INBOX.HOLDFAST" in caplog.text)
        await until(lambda: len(found.shown()) == 1)
        for _ in range(20):
            await link.client.flush()
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.wait([running])
        await link.client.flush()
        violations = server.log.read_text().count("Publish Violation")
    told = [record.getMessage() for record in caplog.records if "_INBOX.HOLDFAST" in record.getMessage()]
    assert len(told) == 1, told
    assert "allow the service's user to publish and to subscribe to _INBOX.HOLDFAST.>" in told[0]
    assert "holdfast nats config" in told[0]
    assert violations <= 2
