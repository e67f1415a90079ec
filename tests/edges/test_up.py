"""`holdfast up`: one command starts everything, serves plain NATS clients, and loses nothing at the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shlex
import signal
import socket
import sys
from typing import TYPE_CHECKING

import nats.errors
import pytest

import holdfast
from holdfast.edges.nats.server_config import SERVICE, Permissions, new_credentials
from tests.edges.running import PATIENCE, Up, ask, holdfast_up, plain_client, started_up, until_status
from tests.nats import nats_server

if TYPE_CHECKING:
    from pathlib import Path

    from nats.aio.client import Client
    from nats.aio.msg import Msg

MEGABYTES = 100
"""What the service may have in memory when nobody asks for anything."""


async def test_a_plain_client_is_served_and_the_data_survives(tmp_path: Path) -> None:
    """Without configuration any NATS client is served, and after a second start everything is there."""
    async with holdfast_up(tmp_path) as up:
        async with plain_client(up.url) as client:
            first = await ask(client, "db.kv.trivia.set", key="game", value={"turn": "alice"})
            await ask(client, "db.kv.trivia.set", key="round", value=[1, 2.5, None], ttl=1800)
            await ask(client, "db.kv.trivia.set", key="gone", value=True)
            assert await ask(client, "db.kv.trivia.delete", key="gone") == {
                "success": True,
                "deleted": True,
                "version": 4,
            }
        assert (first["success"], first["version"]) == (True, 1)
        assert await up.stop(signal.SIGINT) == 0
        assert up.said[-1] == "Holdfast has stopped. The data stays."

        await up.start()
        async with plain_client(up.url) as client:
            found = await ask(client, "db.kv.trivia.get", key="game")
            listed = await ask(client, "db.kv.trivia.list", prefix="")
            left = await ask(client, "db.kv.trivia.get_ttl", key="round")
            gone = await ask(client, "rosey.db.kv.get", plugin_name="trivia", key="gone")
    assert (found["exists"], found["value"], found["version"]) == (True, {"turn": "alice"}, 1)
    assert (listed["keys"], listed["count"]) == (["game", "round"], 2)
    assert 0 < left["ttl"] <= 1800
    assert gone == {"success": True, "data": {"exists": False}}
    assert up.said[1] == f"Data  {tmp_path / 'holdfast' / 'holdfast.db'} (keys: 2, namespaces: 1)"


@pytest.mark.unmeasured
async def test_up_says_where_everything_is_and_what_to_try(tmp_path: Path) -> None:
    """The URL, the data and the HTTP address are printed, and the one command to try does what it says."""
    async with holdfast_up(tmp_path) as up:
        said = "\n".join(up.said)
        assert f"Data  {tmp_path / 'holdfast' / 'holdfast.db'} " in said
        assert f"NATS  {up.url}\n" in said
        assert "\nOpen  any process on this machine can read, write and administer all data, and take" in said
        assert f"HTTP  http://127.0.0.1:{up.http_port}/" in said
        assert f"\nMCP   http://127.0.0.1:{up.http_port}/mcp, for agents with the token" in said
        tried = re.search(r"^Try +(holdfast .+)$", said, re.MULTILINE)
        asked = re.search(r"request (\S+) with (\{.*\})", said)
        assert tried is not None
        assert asked is not None
        program, *arguments = shlex.split(tried[1])
        command = await asyncio.create_subprocess_exec(
            sys.executable, "-m", program, *arguments, stdout=asyncio.subprocess.DEVNULL
        )
        assert await command.wait() == 0
        async with plain_client(up.url) as client:
            found = await ask(client, asked[1], **json.loads(asked[2]))
    assert found["value"] == "hello"


@pytest.mark.unmeasured
async def test_everything_that_was_accepted_is_answered(tmp_path: Path) -> None:
    """On SIGTERM requests that reached the service are executed and answered before it ends with code 0."""
    async with holdfast_up(tmp_path) as up, plain_client(up.url) as client:
        inbox = client.new_inbox()
        replies = await client.subscribe(f"{inbox}.*")
        for number in range(500):
            payload = json.dumps({"key": f"k{number}", "value": number, "deadline_ms": 60_000}).encode()
            await client.publish("db.kv.trivia.set", payload, reply=f"{inbox}.{number}")
        await client.flush()
        up.signal(signal.SIGTERM)
        answered = [json.loads((await replies.next_msg(timeout=PATIENCE)).data) for _ in range(500)]
        assert await up.stop() == 0
    assert all(answer["success"] for answer in answered)
    async with holdfast.open(tmp_path / "holdfast" / "holdfast.db") as store:
        assert (await store.stats("kv/trivia")).keys == 500


async def test_two_services_share_a_file(tmp_path: Path) -> None:
    """What is written through one service is read and extended through another one on the same file.

    Each publishes all changes on its own bus.
    """
    async with (
        holdfast_up(tmp_path / "one") as first,
        holdfast_up(tmp_path / "two", "--db", first.home / "holdfast" / "holdfast.db") as second,
        plain_client(first.url) as one,
        plain_client(second.url) as other,
    ):
        heard = [await _events(one), await _events(other)]
        for number in range(1, 10, 2):
            assert (await ask(one, "db.kv.shared.incr", key="n"))["value"] == number
            assert (await ask(other, "db.kv.shared.incr", key="n"))["value"] == number + 1
        for events in heard:
            assert await _versions(events, 10) == list(range(1, 11))


async def _events(client: Client) -> asyncio.Queue[Msg]:
    """The events of all namespaces from now on."""
    events: asyncio.Queue[Msg] = asyncio.Queue()
    await client.subscribe("db.event.>", cb=events.put)
    await client.flush()
    return events


async def _versions(events: asyncio.Queue[Msg], count: int) -> list[int]:
    """The versions of the next events."""
    async with asyncio.timeout(PATIENCE):
        return [json.loads((await events.get()).data)["version"] for _ in range(count)]


async def test_events_tell_of_what_other_processes_write(tmp_path: Path) -> None:
    """A change of any process that has the file open is published, once and in the order of its versions."""
    file = tmp_path / "state.db"
    async with holdfast_up(tmp_path, "--db", file) as up, plain_client(up.url) as client:
        events = await _events(client)
        async with holdfast.open(file) as store:
            kv = store.kv("shared")

            async def here() -> None:
                for _ in range(100):
                    await kv.incr("n")

            async def there() -> None:
                for _ in range(100):
                    await ask(client, "db.kv.shared.incr", key="n")

            await asyncio.gather(here(), there(), here())
            assert await _versions(events, 300) == list(range(1, 301))
            await kv.set("brief", 1, ttl=1, semantics={"purpose": "config"})
            assert await _versions(events, 2) == [301, 302]
            await store.tables("shared").create_table("t", partition_key=("p", "string"))
            await store.tables("shared").put_item("t", {"p": "a"})
            async with asyncio.timeout(PATIENCE):
                assert (await events.get()).subject.startswith("db.event.table.shared.")
        last = await ask(client, "db.kv.other.set", key="last", value=1)
        async with asyncio.timeout(PATIENCE):
            while (told := await events.get()).subject != "db.event.kv.other.set":
                assert told.subject.startswith("db.event.table.")
        assert json.loads(told.data)["version"] == last["version"]
        assert events.empty()


async def test_services_on_one_bus_publish_once(tmp_path: Path) -> None:
    """Services on one file and one bus publish each change once, and when one is killed the other goes on."""
    file = tmp_path / "state.db"
    async with nats_server() as bus, plain_client(bus.url) as client:
        events = await _events(client)
        services = [Up(tmp_path / name, ("--db", file, "--nats", bus.url), {}) for name in ("one", "two")]
        try:
            for service in services:
                await service.start()
            for _ in range(100):
                await ask(client, "db.kv.shared.incr", key="n")
            assert await _versions(events, 100) == list(range(1, 101))
            services[0].signal(signal.SIGKILL)
            async with asyncio.timeout(PATIENCE):
                while events.empty():
                    await asyncio.sleep(0.1)
                    with contextlib.suppress(nats.errors.Error):
                        await client.request("db.kv.shared.incr", b'{"key": "n"}', timeout=1)
            first = json.loads(events.get_nowait().data)["version"]
            last = [(await ask(client, "db.kv.shared.incr", key="n"))["version"] for _ in range(10)][-1]
            assert await _versions(events, last - first) == list(range(first + 1, last + 1))
        finally:
            for service in services:
                await service.stop(signal.SIGKILL)


@pytest.mark.parametrize("flag", ["--nats-port", "--http-port"])
async def test_a_taken_port_is_one_line_with_its_flag(tmp_path: Path, flag: str) -> None:
    """Who can't have a port learns which it is and with which flag to choose another."""
    up = Up(tmp_path, (), {})
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        setattr(up, flag.strip("-").replace("-", "_"), taken)
        code, line = await up.ended()
    assert code == 5
    assert re.fullmatch(rf"holdfast: port {taken} of 127\.0\.0\.1 is taken .* {flag}", line)


async def test_a_service_can_not_be_the_store(tmp_path: Path) -> None:
    """A service over another service is refused."""
    async with nats_server() as server:
        code, line = await Up(tmp_path, ("--db", server.url), {}).ended()
    assert (code, line) == (2, f"holdfast: db: {server.url} is a running service, not a store")


async def test_a_folder_that_can_not_be_made_is_named(tmp_path: Path) -> None:
    """Where the store can't be is one line with the reason."""
    (tmp_path / "file").touch()
    code, line = await Up(tmp_path, ("--data-dir", tmp_path / "file" / "data"), {}).ended()
    assert (code, line) == (
        2,
        f"holdfast: db: the folder {tmp_path / 'file' / 'data'} can't be created: not a directory",
    )


async def test_its_server_comes_back_after_it_died(tmp_path: Path) -> None:
    """A NATS server that was brought along and killed is started again, as soon as its port is free."""
    async with holdfast_up(tmp_path) as up:
        async with plain_client(up.url) as client:
            await ask(client, "db.kv.trivia.set", key="k", value=1)
        pid = tmp_path / "holdfast" / "nats" / str(up.nats_port) / "nats-server.pid"
        os.kill(int(pid.read_text()), signal.SIGKILL)
        report = json.loads(await until_status(up.http_port, "/readyz", 503))
        assert (report["ready"], report["store"]) == (False, "ok")
        with socket.create_server(("127.0.0.1", up.nats_port)):
            await until_logged(up, "the NATS server could not be started: port .* is taken .*")
        await until_status(up.http_port, "/readyz", 200)
        async with plain_client(up.url) as another:
            assert (await ask(another, "db.kv.trivia.get", key="k"))["value"] == 1


async def until_logged(up: Up, pattern: str) -> None:
    """Wait until a message was logged."""
    async with asyncio.timeout(PATIENCE):
        while True:
            if any(re.fullmatch(pattern, line["message"]) for line in up.log):
                return
            await asyncio.sleep(0.05)


@pytest.mark.unmeasured
async def test_up_stops_while_nats_is_gone(tmp_path: Path) -> None:
    """A service that has lost its server ends as soon as it is told to, with code 0."""
    async with nats_server() as server, holdfast_up(tmp_path, "--nats", server.url) as up:
        await server.stop()
        await until_status(up.http_port, "/readyz", 503)
        assert await asyncio.wait_for(up.stop(signal.SIGTERM), 30) == 0


@pytest.mark.unmeasured
async def test_plugins_are_kept_apart_with_a_generated_configuration(tmp_path: Path) -> None:
    """With `nats_config` and the service's seed, each plugin on the bus reaches its own keys alone."""
    permissions = Permissions(["trivia", "quotes"], mode="permissions", own_connection=["trivia"])
    credentials = {user: new_credentials(user, "nkeys") for user in permissions.users}
    config, seed = tmp_path / "nats.conf", tmp_path / "service.nk"
    config.write_text(permissions.configuration(credentials))
    seed.write_text(credentials[SERVICE].secret)
    variables = {"HOLDFAST_REPLY_MODE": "permissions", "HOLDFAST_OWN_CONNECTION": "trivia"}
    async with holdfast_up(tmp_path, "--nats-config", config, "--nats-nkey", seed, **variables) as up:
        async with plain_client(up.url, **credentials["trivia"].options()) as client:
            written = [await ask(client, "db.kv.trivia.set", key="k", value=n) for n in range(20)]
            await client.publish("db.kv.quotes.set", b'{"key": "k", "value": 1}')
            await client.flush()
            stats = await ask(client, "db.kv.trivia.stats")
        async with plain_client(up.url, **credentials["quotes"].options()) as client:
            found = await ask(client, "db.kv.quotes.get", key="k")
    assert [reply["version"] for reply in written] == list(range(1, 21))
    assert found == {"success": True, "exists": False}
    assert stats["defaults"] == {"quota_bytes": 1_000_000_000, "rate_limit": 5_000}
    denied = [line["message"] for line in up.log if "instances" in line["message"]]
    assert not denied, "the service may tell its other instances how it is"


@pytest.mark.unmeasured
async def test_a_default_quota_holds_over_nats(tmp_path: Path) -> None:
    """What a plugin has kept counts, the refusal says what to do, and clients see the default."""
    large = "x" * 20_000
    async with holdfast_up(tmp_path, HOLDFAST_DEFAULT_QUOTA_BYTES="100000") as up:
        async with plain_client(up.url) as client:
            given_up = {"key": "k", "value": large, "request_id": "r"}
            letter = {"verb": "set", "request": given_up, "error_code": "BUSY", "attempts": 3}
            letters = [await ask(client, "db.kv.p.escalate", **letter) for _ in range(10)]
            stats = await ask(client, "db.kv.p.stats")
            overwritten = [await ask(client, "db.kv.p.set", key="k", value=large[:5_000]) for _ in range(30)]
        async with holdfast.open(up.url) as remote:
            assert await remote.defaults("kv/p") == holdfast.Policy(quota_bytes=100_000)
            assert await remote.recount("kv/p") == 0
            seen = await remote.stats("kv/p")
    refused = [reply for reply in letters if not reply["success"]]
    assert 5 <= len(refused) <= 7
    assert {reply["error_code"] for reply in refused} == {"QUOTA_EXCEEDED"}
    assert "are dead letters: retry or drop some of them" in refused[0]["message"]
    assert stats["kept_bytes"] == sum(stats["parts"].values()) <= 100_000
    assert all(reply["success"] for reply in overwritten)
    assert seen.kept_bytes == seen.parts.counted <= 100_000
    assert seen.parts.letters == stats["parts"]["letters"]


@pytest.mark.unmeasured
async def test_the_log_is_json_without_values(tmp_path: Path) -> None:
    """Away from a terminal each line is JSON with the fields of its record, and never with a value."""
    async with holdfast_up(tmp_path, "--log-level", "debug") as up:
        async with plain_client(up.url) as client:
            await ask(client, "db.kv.trivia.set", key="game", value="a secret")
            await ask(client, "db.kv.trivia.set", key="game", value="a secret", expected_version=9)
            await ask(client, "db.kv.trivia.set", key="", value="a secret")
            await ask(client, "db.kv.trivia.get", key="game")
        assert await up.stop() == 0
    assert len(up.log) == len(up.complaints.splitlines())
    assert "a secret" not in up.complaints
    [read] = [line for line in up.log if line.get("operation") == "get"]
    assert (read["plugin"], read["key"], read["hit"], read["level"]) == ("trivia", "game", True, "debug")
    assert [line["logger"] for line in up.log if line["level"] == "warning"] == [
        "holdfast.writes",
        "holdfast.service",
    ]


async def test_its_life_is_told(tmp_path: Path) -> None:
    """Start and end are INFO lines in their order, with the subjects and the interval of the cleanup."""
    async with holdfast_up(tmp_path, HOLDFAST_KV_CLEANUP_INTERVAL_SECONDS="60") as up:
        await up.stop()
    told = [line["message"] for line in up.log if line["level"] == "info"]
    expected = [
        "starting",
        "cleanup of expired entries started",
        "the service is starting",
        r"subjects registered: db\.kv\..*",
        "started; removing expired entries at least every 60 s",
        "the service has stopped",
        "cleanup of expired entries stopped",
        "stopped",
    ]
    assert len(told) == len(expected)
    assert all(re.fullmatch(pattern, line) for pattern, line in zip(expected, told, strict=True))


async def test_a_file_in_the_form_of_older_programs_is_read(tmp_path: Path) -> None:
    """`config.json` with database and logging sections works; a flag outweighs a variable, that the file."""
    sections = {
        "database": {"url": str(tmp_path / "named.db"), "kv_cleanup_interval_seconds": 120},
        "logging": {"level": "ERROR", "database_service": "DEBUG"},
        "service": {"subject_prefixes": ["file"]},
        "metrics": {"prefix": "rosey"},
    }
    (tmp_path / "config.json").write_text(json.dumps(sections))
    variables = {"HOLDFAST_SUBJECT_PREFIXES": "env", "HOLDFAST_LOG_LEVEL": "critical"}
    flags = ("--config", "config.json", "--log-level", "error")
    async with holdfast_up(tmp_path, *flags, **variables) as up, plain_client(up.url) as client:
        assert (await ask(client, "env.kv.trivia.set", key="k", value=1))["success"]
        assert 'rosey_kv_set_total{plugin="trivia"} 1.0\n' in (await up.http("/metrics"))[1]
        assert any(f"--url '{up.url}?prefix=env'" in line for line in up.said)
    assert (tmp_path / "named.db").exists()
    assert {line["logger"] for line in up.log} == {"holdfast.service"}


@pytest.mark.unmeasured
async def test_a_server_configuration_that_is_not_there_is_named(tmp_path: Path) -> None:
    """A file that a setting names and that can't be read is one line with the setting."""
    code, line = await Up(tmp_path, ("--nats-config", "none.conf"), {}).ended()
    assert (code, line) == (2, "holdfast: nats_config: none.conf can't be read")


@pytest.mark.unmeasured
async def test_http_can_be_turned_off(tmp_path: Path) -> None:
    """With port 0 nothing is served over HTTP, and nothing said of it."""
    up = Up(tmp_path, (), {})
    up.http_port = 0
    await up.start()
    assert await up.stop() == 0
    assert not any(line.startswith("HTTP") for line in up.said)


@pytest.mark.unmeasured
async def test_an_idle_service_stays_below_100_mb(tmp_path: Path) -> None:
    """The whole service, after its first requests, stays below 100 MB of resident memory."""
    async with started_up(tmp_path) as up:
        _, text = await up.http("/metrics")
    found = re.search(r"^process_resident_memory_bytes (\S+)$", text, re.MULTILINE)
    assert found is not None
    assert float(found[1]) < MEGABYTES * 1024 * 1024


@pytest.mark.unmeasured
async def test_a_setting_says_how_many_plugins_have_metrics_of_their_own(tmp_path: Path) -> None:
    """With `metrics_plugins` so many plugins are shown by name, and all requests of the others together."""
    async with holdfast_up(tmp_path, HOLDFAST_METRICS_PLUGINS="2") as up:
        async with plain_client(up.url) as client:
            for plugin in ("a", "b", "c", "d", "d"):
                await ask(client, f"db.kv.{plugin}.get", key="k")
        _, text = await up.http("/metrics")
    found = dict(re.findall(r'^holdfast_kv_get_total\{plugin="(\w+)"\} (\S+)$', text, re.MULTILINE))
    assert found == {"a": "1.0", "b": "1.0", "OTHER": "3.0"}
