"""`holdfast cluster grow` and `remove`: the servers that keep a log become more, and are replaced."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final

import pytest

import holdfast
from holdfast.edges.nats.cluster_server import system_login
from tests.jetstream import servers_running

if TYPE_CHECKING:
    from pathlib import Path

    from tests.edges.cli.conftest import Cli, Outcome

SECRET: Final = "0123456789abcdef"
RUNS: Final = "HOLDFAST_CLUSTER_OPERATIONS" in os.environ


async def test_a_change_that_can_not_be_is_refused(cli: Cli, tmp_path: Path) -> None:
    """The commands say what is missing, and change nothing."""

    async def refused(*given: str) -> tuple[int, str]:
        done = await asyncio.to_thread(cli, "cluster", *given, "--url", url)
        return done.code, done.err

    async with servers_running(1) as servers:
        url = servers.url("alone", tmp_path / "1")
        code, words = await refused("grow")
        assert (code, "keep no store alone" in words) == (2, True)
        async with holdfast.open(url, reap=False) as store:
            await store.kv("trivia").set("key", 1)
            code, words = await refused("grow")
            assert (code, "not part of a cluster of servers" in words) == (1, True), words
            for number in ("0", "6"):
                assert (await refused("grow", "--to", number))[0] == 2
            code, words = await refused("remove", "nobody")
            assert (code, "no server 'nobody' keeps the log" in words) == (2, True), words
            assert (await store.kv("trivia").set("key", 2)).version == 2


@pytest.mark.skipif(not RUNS, reason="three servers take seconds to elect: ./dev soak cluster runs it")
async def test_a_server_that_died_is_named_with_its_address(cli: Cli, tmp_path: Path) -> None:
    """The status says that it is gone and exits with 1, also for a URL that names one of the others alone."""
    async with servers_running(3) as servers:
        places = [f"127.0.0.1:{server.port}" for server in servers.servers]
        url = servers.url("dying", tmp_path / "1", timeout=60, peers=",".join(places))
        async with holdfast.open(url, reap=False) as store:
            await store.kv("trivia").incr("sum")
            fine = await asyncio.to_thread(cli, "cluster", "status", "--url", url)
            assert fine.code == 0, fine.err
            servers.kill(2)
            await store.kv("trivia").incr("sum")
            for asked in (url, f"cluster://{places[0]}/dying?timeout=60"):
                seen = await asyncio.to_thread(cli, "cluster", "status", "--url", asked)
                assert seen.code == 1, seen.out
                assert f"the NATS server server-2 at {places[2]} is gone" in seen.err, seen.err


@pytest.mark.skipif(not RUNS, reason="three servers take seconds to elect: ./dev soak cluster runs it")
async def test_one_server_becomes_three_and_one_of_them_is_replaced(cli: Cli, tmp_path: Path) -> None:
    """The log and its snapshots move while a node serves, and the old server is not needed any more."""
    async with servers_running(4) as servers:
        url = servers.url("moving", tmp_path / "1", replicas=1, timeout=60)

        async def changed(*given: str) -> Outcome:
            return await asyncio.to_thread(cli, "cluster", *given, "--url", url, "--json")

        async with holdfast.open(url, reap=False) as store:
            await store.kv("trivia").incr("sum")
            assert (await changed("snapshot")).code == 0
            [only] = (await changed("grow", "--to", "1")).json["servers"]
            assert (await changed("remove", only)).code == 2
            done = await changed("grow")
            assert done.code == 0, done.err
            assert (len(done.json["servers"]), done.json["changed"]) == (3, True)
            again = await changed("grow")
            assert (again.code, again.json["changed"]) == (0, False)
            assert (await changed("grow", "--to", "1")).code == 2
            names = done.json["servers"]
            servers.kill(int(names[0][-1]))
            done = await changed("remove", names[0])
            assert done.code == 0, done.err
            assert len(done.json["servers"]) == 3
            assert names[0] not in done.json["servers"]
            assert (await store.kv("trivia").incr("sum")).value == 2
            assert (await changed("verify")).code == 0
            missing = await changed("remove", done.json["servers"][0])
            assert (missing.code, "no other server is there" in missing.err) == (5, True), missing.err


@pytest.mark.skipif(not RUNS, reason="five servers take seconds to elect: ./dev soak cluster runs it")
async def test_a_removed_server_no_longer_counts(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others forget it, with the secret of the machines: of five, two can go, and then one be lost."""
    user, password = system_login(SECRET)
    account = f'accounts {{ $SYS {{ users: [{{ user: "{user}", password: "{password}" }}] }} }}'
    async with servers_running(5, more=account) as servers:
        url = servers.url("fewer", tmp_path / "1", replicas=3, timeout=60)

        async def removed(name: str, *more: str) -> Outcome:
            return await asyncio.to_thread(cli, "cluster", "remove", name, "--url", url, *more)

        async with holdfast.open(url, reap=False) as store:
            await store.kv("trivia").incr("sum")
            seen = (await asyncio.to_thread(cli, "cluster", "status", "--url", url, "--json")).json["log"]
            kept = {seen["leader"], *seen["followers"]}
            spare = sorted({f"server-{number}" for number in range(5)} - kept)
            servers.kill(int(spare[0][-1]))
            unknown = await removed(spare[0])
            assert (unknown.code, "keeps the log" in unknown.err) == (2, True), unknown.err
            monkeypatch.setenv("HOLDFAST_CLUSTER_SECRET", SECRET)
            done = await removed(spare[0], "--json")
            assert (done.code, done.json["forgotten"], done.json["changed"]) == (0, True, False), done.err
            assert (await removed(spare[0])).code == 2  # it is not counted any more
            gone = sorted(kept)[0]
            servers.kill(int(gone[-1]))
            done = await removed(gone)
            assert (done.code, f"no longer count {gone}" in done.err) == (0, True), done.err
            assert "is now kept by" in done.err
            lost = next(name for name in sorted(kept) if name != gone)
            servers.kill(int(lost[-1]))  # two of five are left, a majority of the three that count
            assert (await store.kv("trivia").incr("sum")).value == 2
            async with holdfast.open(servers.url("fewer", tmp_path / "2", timeout=60), reap=False) as other:
                assert await other.kv("trivia").get("sum") is not None


@pytest.mark.skipif(not RUNS, reason="five servers take seconds to elect: ./dev soak cluster runs it")
async def test_machines_that_join_are_added(cli: Cli, tmp_path: Path) -> None:
    """One more than three is kept in reserve, two more make five, and a lost one is named with its remedy."""
    async with servers_running(5) as servers:
        url = servers.url("adding", tmp_path / "1", replicas=3, timeout=60)

        async def added(*given: str) -> Outcome:
            return await asyncio.to_thread(cli, "cluster", "add", *given, "--url", url)

        async with holdfast.open(url, reap=False) as store:
            await store.kv("trivia").incr("sum")
            seen = (await asyncio.to_thread(cli, "cluster", "status", "--url", url, "--json")).json["log"]
            kept = {int(name[-1]) for name in (seen["leader"], *seen["followers"])}
            last = servers.servers[min(set(range(5)) - kept)]
            await last.stop()
            reserve = await added("--json")
            assert (reserve.code, reserve.json["changed"], len(reserve.json["spare"])) == (0, False, 1)
            assert "in reserve: " in (await added()).err
            await last.start()
            done = await added("--json")
            assert (done.code, done.json["changed"], len(done.json["servers"])) == (0, True, 5), done.err
            none = await added("--wait", "1")
            assert (none.code, "no further server has joined" in none.err) == (5, True), none.err
            assert "holdfast up --cluster adding --peers" in none.err
            assert (await store.kv("trivia").incr("sum")).value == 2
