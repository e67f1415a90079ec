"""The semantic store with real processes: a race, a repeated request, and harvesters at one checkpoint.

The service, the NATS server and every client are processes of their own, on SQLite and on PostgreSQL.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.testing import AUDIT_KEY
from tests.edges.running import PATIENCE, Up, ask, holdfast_up, plain_client
from tests.forking import ForkedProcess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

SUBJECT = "db.semantic.acme.web"
ROOT = "tenant/acme/project/web/"
ROUNDS = 10
TASKS = 5
UNITS = 60


@pytest.fixture(params=["sqlite", "postgresql"])
async def up(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Up]:
    """A service on a fresh store, which tells its log what was written."""
    sqlite = request.param == "sqlite"
    storage = str(tmp_path / "store.db") if sqlite else request.getfixturevalue("pg_url")
    variables = {} if sqlite else {"HOLDFAST_AUDIT_KEY": AUDIT_KEY}
    async with holdfast_up(tmp_path / "home", "--db", storage, **variables) as up:
        yield up


class Worker:
    """A client as a process, which is spoken to in lines."""

    def __init__(self, process: ForkedProcess) -> None:
        self._process = process

    async def hear(self) -> Any:
        """What it says next."""
        line = await asyncio.wait_for(self._process.stdout.readline(), PATIENCE)
        assert line, f"the worker ended with {await self._process.wait()}"
        return json.loads(line)

    def go(self) -> None:
        """Tell it to go on."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")


@contextlib.asynccontextmanager
async def worker(module: str, *arguments: object) -> AsyncIterator[Worker]:
    """A worker for the length of a block; it ends when nobody speaks to it any more."""
    process = await ForkedProcess.start(f"tests.acceptance.{module}", *map(str, arguments), told=True)
    try:
        yield Worker(process)
        assert process.stdin is not None
        process.stdin.close()
        assert await asyncio.wait_for(process.wait(), PATIENCE) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_of_two_processes_one_wins_the_race(up: Up) -> None:
    """Of two that write after the same version exactly one wins; the other is shown who, and with what."""
    given = (up.url, SUBJECT, "docs/delta")
    async with (
        worker("racing_process", *given, "left") as left,
        worker("racing_process", *given, "right") as right,
    ):
        for number in range(ROUNDS):
            assert await left.hear() == await right.hear() == {"version": number}
            left.go()
            right.go()
            replies = {"left": await left.hear(), "right": await right.hear()}
            [winner] = [name for name, reply in replies.items() if reply["success"]]
            [lost] = [reply for reply in replies.values() if not reply["success"]]
            assert replies[winner]["version"] == number + 1
            assert (lost["errorCode"], lost["retryable"]) == ("version_conflict", False)
            current = lost["current"]
            assert (current["key"], current["version"]) == (f"{ROOT}docs/delta", number + 1)
            assert current["value"] == {"by": winner, "after": number}
            assert (current["lastWriter"], current["purpose"]) == (f"{winner}:race", "checkpoint")
        assert await left.hear() == await right.hear() == {"version": ROUNDS}
    await up.stop(signal.SIGTERM)
    told = [line for line in up.log if line["logger"] == "holdfast.writes"]
    written = [line for line in told if line["level"] == "info"]
    assert [line["version"] for line in written] == list(range(1, ROUNDS + 1))
    assert {(line["key"], line["purpose"]) for line in written} == {(f"{ROOT}docs/delta", "checkpoint")}
    assert {line["directive"] for line in told} == {"race"}
    conflicts = [line for line in told if line["level"] == "warning"]
    assert len(conflicts) == ROUNDS
    assert len({line["request_id"] for line in told}) == 2 * ROUNDS


async def test_a_request_sent_three_times_is_done_once(up: Up) -> None:
    """The same request id has one effect and one answer, also when the service was restarted in between."""
    requests: list[tuple[str, dict[str, Any]]] = [
        ("incr", {"key": "runs", "by": 5, "requestId": "2026-11-15T00:00:00Z sync-7"}),
        ("put", {"key": "delta", "value": {"token": "a"}, "expectedVersion": 0, "requestId": "sync-8"}),
        ("delete", {"key": "never/there", "requestId": "sync-9"}),
    ]

    async def send() -> list[dict[str, Any]]:
        async with plain_client(up.url) as client:
            return [
                await ask(client, f"{SUBJECT}.{verb}", deadlineMs=60_000, **fields)
                for verb, fields in requests
            ]

    first = await send()
    assert [reply["success"] for reply in first] == [True] * 3
    assert await send() == first
    assert await up.stop(signal.SIGTERM) == 0
    await up.start()
    assert await send() == first
    async with plain_client(up.url) as client:
        assert (await ask(client, f"{SUBJECT}.get", key="runs"))["value"] == 5
        changes = (await ask(client, f"{SUBJECT}.changes"))["changes"]
    assert [(change["op"], change["key"]) for change in changes] == [
        ("set", f"{ROOT}runs"),
        ("set", f"{ROOT}delta"),
    ]


async def test_ten_harvesters_share_a_checkpoint(up: Up) -> None:
    """Ten tasks in two processes advance one checkpoint: each unit is worked on by one of them alone."""
    given = (TASKS, UNITS)
    async with (
        worker("harvesting_process", up.url, "left", *given) as left,
        worker("harvesting_process", up.url, "right", *given) as right,
    ):
        assert await left.hear() == await right.hear() == "ready"
        left.go()
        right.go()
        done = [await left.hear(), await right.hear()]
    units = [unit for side in done for unit in side["units"]]
    assert sorted(units) == list(range(1, UNITS + 1))
    assert sum(side["conflicts"] for side in done) >= 2 * TASKS - 1
    async with plain_client(up.url) as client:
        entry = await ask(client, f"{SUBJECT}.get", key="checkpoint/harvest")
    assert (entry["value"], entry["version"]) == (UNITS, UNITS)
    assert entry["semantics"]["purpose"] == "checkpoint"
