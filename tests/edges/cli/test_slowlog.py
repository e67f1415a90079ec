"""`holdfast slowlog`: what took a running service long."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast.edges.nats.service import Settings
from tests.edges.cli.conftest import fill
from tests.edges.nats.ground import serving
from tests.edges.running import holdfast_up

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.edges.nats.server import NatsServer
    from tests.edges.cli.conftest import Cli

EVERYTHING = Settings(slow_seconds=0.0, slow_walk_seconds=0.0)


async def test_slow_requests_are_listed(cli: Cli, nats_server: NatsServer) -> None:
    """Rows for eyes and programs, the newest first or the slowest; only the command line narrows them."""
    async with serving(nats_server.url, settings=EVERYTHING):
        await asyncio.to_thread(_look, cli, nats_server.url)


def _look(cli: Cli, url: str) -> None:
    on = ("--url", url)
    cli.did("set", "a\x1b[2J", "1", *on, "--request-id", "r1")
    assert cli("get", "other", *on, "--plugin", "quote-db").code == 3
    rows = [row.split("\t") for row in cli.did("slowlog", *on).out.splitlines()]
    assert [row[2:] for row in rows] == [
        ["quote-db", "get", "other"],
        ["jobs", "set", '"a\\u001b[2J"'],
    ]
    [long] = [row.split("\t") for row in cli.did("slowlog", "-l", "-p", "jobs", *on).out.splitlines()]
    assert long[5:] == ["-", "r1", "-", "1"]
    shown = cli.did("slowlog", "--slowest", "--limit", "2", "--json", *on).json
    times = [one["milliseconds"] for one in shown["requests"]]
    assert times == sorted(times, reverse=True)
    assert (len(times), shown["slow"]) == (2, 4)
    again = cli.did("slowlog", "--instance", shown["instance"], "--json", *on).json
    assert again["instance"] == shown["instance"]
    nothing = cli("slowlog", "-p", "nobody", *on)
    assert (nothing.code, nothing.out) == (0, "")
    assert "the slow log is empty; slow requests since the service started: 6" in nothing.err
    assert cli("slowlog", "--limit", "0", *on).code == 2


def test_a_file_has_none(cli: Cli, url: str, tmp_path: Path) -> None:
    """A file has no slow log, there or not; the sentence says what has, and nothing is made."""
    for _ in range(2):
        refused = cli("slowlog", "--json")
        assert (refused.code, refused.error["error_code"]) == (1, "UNSUPPORTED")
        assert "holdfast up" in refused.error["message"]
        assert "--url nats://" in refused.error["message"]
        fill(url, ("k", 1, {}))


async def test_the_service_that_has_the_file_open(cli: Cli, tmp_path: Path) -> None:
    """Whoever names the file is answered by the service that has it open, with its settings."""
    file = tmp_path / "up" / "holdfast" / "holdfast.db"
    async with holdfast_up(tmp_path / "up", HOLDFAST_SLOW_MS="3600000", HOLDFAST_SLOW_LOG_SIZE="5"):
        shown = await asyncio.to_thread(cli.did, "slowlog", "--json", "--url", file)
    assert (shown.json["requests"], shown.json["slow"]) == ([], 0)
