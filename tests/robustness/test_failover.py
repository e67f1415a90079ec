"""PostgreSQL fails over while callers write: nothing acknowledged is lost, and nothing is done twice."""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import time
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.edges import cli as command_line
from holdfast.errors import OutcomeUnknown, Unavailable, ValidationError
from tests.postgres_pair import asked, wait_until
from tests.robustness.failover_load import CALLERS, RECOVERY, Ledger, under_load
from tests.robustness.serving_process import service_process

if TYPE_CHECKING:
    from holdfast.edges.nats.server import NatsServer
    from tests.postgres_pair import Pair

PROMOTIONS = int(os.environ.get("HOLDFAST_PROMOTIONS", "1"))
CANCEL = (
    "SELECT pg_cancel_backend(pid) FROM pg_stat_activity "
    "WHERE application_name = 'holdfast' AND wait_event = 'SyncRep'"
)
"""Tells commits that wait for a standby to stop waiting."""
WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


async def test_a_service_recovers_when_a_standby_takes_over(pair: Pair, nats_server: NatsServer) -> None:
    """A service comes back by itself, its callers get errors to retry on, and a request has one effect."""
    ledger, seed, pauses = Ledger("promoted"), random.Random(11), []
    url = f"{nats_server.url}?timeout=2"
    async with service_process(nats_server.url, pair.url), holdfast.open(url) as store:
        async with under_load(store, ledger) as load:
            for number in range(PROMOTIONS):
                await load.everyone_answered(RECOVERY, times=seed.randint(1, 5))
                await asyncio.sleep(seed.random() * 0.05)  # so that every other kill meets any step
                before = time.monotonic()
                await asyncio.to_thread(pair.fail_over, amid_a_commit=number % 2 == 0)
                promoted = time.monotonic()
                await asyncio.to_thread(pair.rebuild)
                rebuilt = time.monotonic()
                await load.everyone_answered(RECOVERY)
                pauses.append((promoted - before, rebuilt - promoted, time.monotonic() - rebuilt))
        await load.compare()
    print(f"\n{PROMOTIONS} promotions, {CALLERS} callers: {ledger.total:,} acknowledged")
    print(f"errors {dict(ledger.errors)}, {ledger.replayed} requests sent again")
    for name, seconds in zip(
        ("promotion", "new standby", "all answered"), zip(*pauses, strict=True), strict=True
    ):
        print(f"{name}: median {statistics.median(seconds):.2f} s, longest {max(seconds):.2f} s")
    assert ledger.violations == []
    assert ledger.replayed >= PROMOTIONS


async def test_a_write_that_only_the_primary_has_is_not_acknowledged(pair: Pair) -> None:
    """A write that only the primary has is not acknowledged, although PostgreSQL confirms its commit.

    It can be seen, and is not acknowledged either when its caller sends it again.
    """
    await asyncio.to_thread(
        asked, pair.primary_url, "ALTER ROLE CURRENT_USER SET client_min_messages = error"
    )
    async with holdfast.open(pair.url) as store:
        kv = store.kv("lonely")
        await kv.set("known", 1)
        await asyncio.to_thread(pair.standby.stop)
        write = asyncio.create_task(kv.set("waits", 2, request_id="once"))
        await asyncio.to_thread(wait_until, lambda: bool(asked(pair.primary_url, CANCEL)))
        with pytest.raises(OutcomeUnknown):
            await write
        again = asyncio.create_task(kv.set("waits", 2, request_id="once"))
        await asyncio.to_thread(wait_until, lambda: bool(asked(pair.primary_url, WAITING)))
        assert not again.done()
        await asyncio.to_thread(pair.standby.start)
        assert (await again).version == 2


async def test_a_store_opens_at_the_server_that_accepts_writes(pair: Pair) -> None:
    """A store is opened, migrated and examined at the server that accepts writes, wherever that stands."""
    login, at, places = pair.url.partition("@")
    for url in (
        pair.url,
        f"{pair.url}?target_session_attrs=read-write",
        f"{pair.url}?target_session_attrs=primary",
        f"{login}{at}127.0.0.1:1,{places}",
    ):
        async with holdfast.open(url) as store:
            await store.kv("several").set("here", url)
            await store.ready()
    with pytest.raises(Unavailable, match="is a standby and accepts no writes"):
        await holdfast.open(pair.standby_url).start()
    with pytest.raises(Unavailable, match=r"127.0.0.1:1 can't be reached; .* is a standby"):
        await holdfast.open(pair.standby_url.replace("@", "@127.0.0.1:1,")).start()
    with pytest.raises(ValidationError, match="target_session_attrs must be read-write or primary"):
        holdfast.open(f"{pair.url}?target_session_attrs=standby")


def test_commands_find_the_server_that_accepts_writes(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    """Commands find the server that accepts writes, also those of the schema, and show no password."""
    secret = pair.url.partition("@")[0].rpartition(":")[2]
    for command, url in (
        ("migrate up", "--db"),
        ("migrate down base --yes", "--db"),
        ("migrate up", "--db"),
        ("migrate check", "--db"),
        ("set lamp 1 --plugin house", "--url"),
        ("get lamp --plugin house", "--url"),
        ("doctor", "--url"),
    ):
        code = command_line.run([*command.split(), url, f"{pair.url}?target_session_attrs=read-write"])
        shown = capsys.readouterr()
        assert code == 0, f"{command}: {shown}"
        assert secret not in shown.out + shown.err
