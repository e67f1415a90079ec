"""A library is silent: a program that opens and closes a store finds nothing of it in its log."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import holdfast
from holdfast.edges.nats.server import NatsServer
from tests.edges.nats.ground import serving


async def told(url: str, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What is logged above DEBUG while a store is opened twice, written to and closed."""
    caplog.clear()
    caplog.set_level(logging.DEBUG)
    for _ in range(2):
        async with holdfast.open(url) as store:
            await store.kv("trivia").set("k", 1)
    return [record.getMessage() for record in caplog.records if record.levelno > logging.DEBUG]


@pytest.mark.parametrize("engine", ["memory", "sqlite", "postgres"])
async def test_opening_and_closing_logs_nothing_above_debug(
    engine: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    """Opening and closing a store logs nothing above DEBUG, on every engine."""
    if engine == "postgres":
        url: str = request.getfixturevalue("pg_store_url")
    else:
        url = "memory://" if engine == "memory" else str(tmp_path / "state.db")
    assert await told(url, caplog) == []


async def test_a_client_logs_nothing_above_debug(
    nats_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    """So does opening and closing the store of a service."""
    async with serving(nats_server.url):
        assert await told(nats_server.url, caplog) == []
