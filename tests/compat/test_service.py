"""A bot's database over a real NATS server: what a plugin gets that speaks as the bot's plugins do.

What every service of Holdfast does is tested with the service; here is what a bot relies on.
"""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import func, select

from holdfast.compat.rosey import BotDatabase, DatabaseService, PluginKVStorage
from tests.compat.conftest import add, row
from tests.nats import library_client

if TYPE_CHECKING:
    from nats.aio.client import Client

    from holdfast.edges.nats.server import NatsServer


async def ask(client: Client, subject: str, request: Any) -> dict[str, Any]:
    """A request's reply; text is sent as it is, anything else as JSON."""
    payload = request if isinstance(request, bytes) else json.dumps(request).encode()
    answer: dict[str, Any] = json.loads((await client.request(subject, payload, timeout=60)).data)
    return answer


async def test_a_published_set_is_stored(client: Client, service: DatabaseService) -> None:
    """A set without a reply subject is executed: the next request of that connection finds its value."""
    await client.publish("db.kv.trivia.set", b'{"key":"theme","value":"dark"}')
    reply = await ask(client, "db.kv.trivia.get", {"key": "theme"})
    assert (reply["exists"], reply["value"]) == (True, "dark")
    assert await service.db.kv_get("trivia", "theme") == {"exists": True, "value": "dark"}


async def test_keys_of_the_bot_are_served(client: Client, service: DatabaseService) -> None:
    """Keys set by calls and rows added by sessions are served, and missing ones are no errors."""
    await service.db.kv_set("trivia", "called", [1])
    await add(service.db, [row("added")])
    assert (await ask(client, "db.kv.trivia.get", {"key": "called"}))["value"] == [1]
    assert (await ask(client, "db.kv.trivia.get", {"key": "added"}))["value"] == "data"
    missing = await ask(client, "db.kv.trivia.get", {"key": "missing"})
    assert missing["exists"] is False
    assert "value" not in missing


async def test_a_counter_by_hand(client: Client) -> None:
    """Set, get, add one and set again, published without waiting, comes to the right number."""
    await client.publish("db.kv.dice.set", b'{"key":"rolls","value":0}')
    for _ in range(3):
        rolls = (await ask(client, "db.kv.dice.get", {"key": "rolls"}))["value"]
        await client.publish("db.kv.dice.set", json.dumps({"key": "rolls", "value": rolls + 1}).encode())
    assert (await ask(client, "db.kv.dice.get", {"key": "rolls"}))["value"] == 3


async def test_delete_and_list(client: Client) -> None:
    """Delete is idempotent, and list has the keys in order with their count, by prefix and limit."""
    for key in ("config_b", "config_a", "state"):
        assert (await ask(client, "db.kv.trivia.set", {"key": key, "value": 1, "ttl": 60}))["success"] is True
    assert (await ask(client, "db.kv.trivia.delete", {"key": "state"}))["deleted"] is True
    assert (await ask(client, "db.kv.trivia.delete", {"key": "state"}))["deleted"] is False
    listed = await ask(client, "db.kv.trivia.list", {"prefix": "config_"})
    assert (listed["keys"], listed["count"], listed["truncated"]) == (["config_a", "config_b"], 2, False)
    cut = await ask(client, "db.kv.trivia.list", {"limit": 1})
    assert (cut["keys"], cut["truncated"]) == (["config_a"], True)
    assert (await ask(client, "db.kv.trivia.list", b""))["count"] == 2


@pytest.mark.parametrize(
    ("verb", "request_", "code"),
    [
        ("get", b"no json", "INVALID_JSON"),
        ("set", {"key": "huge", "value": "x" * 100_000}, "VALUE_TOO_LARGE"),
        ("set", {"value": 1}, "MISSING_FIELD"),
        ("set", {"key": "k"}, "MISSING_FIELD"),
        ("set", {"key": "k", "value": 1, "ttl": 0}, "VALIDATION_ERROR"),
        ("set", {"key": "k", "value": 1, "ttl": 1, "ttl_seconds": 2}, "VALIDATION_ERROR"),
        ("toss", {}, "INVALID_SUBJECT"),
    ],
)
async def test_refusals_have_codes(client: Client, verb: str, request_: Any, code: str) -> None:
    """A request that can't be done is answered with success false, a code and a message."""
    reply = await ask(client, f"db.kv.trivia.{verb}", request_)
    assert (reply["success"], reply["error_code"]) == (False, code)
    assert reply["message"]


@pytest.mark.parametrize("prefix", ["db", "rosey.db"])
async def test_the_plugin_may_be_named_in_the_payload(client: Client, prefix: str) -> None:
    """At either prefix a trusted caller names the plugin, and gets what it asked for under `data`."""
    named = {"plugin_name": "trivia", "key": "theme"}
    stored = await ask(client, f"{prefix}.kv.set", {**named, "value": "dark", "ttl_seconds": 60})
    assert stored["success"] is True
    found = await ask(client, f"{prefix}.kv.get", named)
    assert (found["data"]["exists"], found["data"]["value"]) == (True, "dark")
    assert (await ask(client, f"{prefix}.kv.list", {"plugin_name": "trivia"}))["data"]["keys"] == ["theme"]
    assert (await ask(client, f"{prefix}.kv.delete", named))["data"]["deleted"] is True
    refused = await ask(client, f"{prefix}.kv.get", {"plugin_name": "../x", "key": "theme"})
    assert (refused["success"], refused["error"]["code"]) == (False, "INVALID_PLUGIN_NAME")


async def test_a_plugin_in_the_payload_does_not_count_where_the_subject_names_one(
    client: Client, service: DatabaseService
) -> None:
    """Who speaks is taken from the subject, so that a plugin can't pass itself off as another."""
    await service.db.kv_set("quotes", "secret", 1)
    reply = await ask(client, "rosey.db.kv.trivia.get", {"plugin_name": "quotes", "key": "secret"})
    assert reply["exists"] is False


@pytest.mark.parametrize(
    ("subject", "plugin"),
    [
        ("db.kv.trivia.set", "trivia"),
        ("rosey.db.kv.quote-db.get", "quote-db"),
        ("db.kv.my_game2.list", "my_game2"),
        ("db.kv.set", None),
        ("db.kv.trivia.set.more", None),
        ("xx.kv.trivia.set", None),
        ("db.table.trivia.set", None),
        ("db.semantic.acme.web.put", None),
        ("db.admin.stats", None),
        ("db.kv.Trivia.set", None),
        ("db.kv../etc/passwd.get", None),
        ("db.kv.x'; DROP TABLE plugin_kv_storage;--.get", None),
        ("db.kv.*.get", None),
        (f"db.kv.{'x' * 101}.get", None),
        ("", None),
    ],
)
def test_the_plugin_of_a_subject(subject: str, plugin: str | None) -> None:
    """Only a subject of ours with a legal plugin and a verb names a plugin."""
    service = DatabaseService(BotDatabase("sqlite://"), "nats://127.0.0.1:1")
    assert service._extract_plugin_name(subject) == plugin


async def test_the_service_cleans_up(db: BotDatabase, nats_server: NatsServer) -> None:
    """A running service removes what has expired from the table, and answers meanwhile."""
    await add(db, [row(f"key{number}", expires_at=datetime.now(UTC) - timedelta(1)) for number in range(5)])
    await db.kv_set("trivia", "kept", 1)
    removed = asyncio.Event()
    clean_up = db.kv_cleanup_expired

    async def cleaning_up() -> int:
        count = await clean_up()
        removed.set()
        return count

    db.kv_cleanup_expired = cleaning_up  # type: ignore[method-assign]
    service = DatabaseService(db, nats_server.url, cleanup_interval_seconds=0.01)
    await service.start()
    assert service._cleanup_task is not None
    async with asyncio.timeout(60), library_client(nats_server.url) as client:
        await removed.wait()
        assert (await ask(client, "rosey.db.kv.get", {"plugin_name": "trivia", "key": "key0"}))["data"] == {
            "exists": False
        }
    await service.stop()
    async with db.session_factory() as session:
        assert await session.scalar(select(func.count()).select_from(PluginKVStorage)) == 1


async def test_stopping_answers_what_was_taken_and_leaves_the_database(
    db: BotDatabase, nats_server: NatsServer
) -> None:
    """Every set that reached the service is kept; then task and connection are gone, not the database."""
    service = DatabaseService(db, nats_server.url)
    await service.start()
    async with library_client(nats_server.url) as client:
        for number in range(200):
            await client.publish("db.kv.trivia.set", json.dumps({"key": f"{number}", "value": 1}).encode())
        await ask(client, "db.kv.trivia.get", {"key": "0"})
    await service.stop()
    await service.stop()
    assert (service.nc, service._cleanup_task, service._shutdown) == (None, None, True)
    assert (await db.kv_list("trivia"))["count"] == 200


async def test_a_service_can_be_started_again(db: BotDatabase, nats_server: NatsServer) -> None:
    """After a stop the same object serves again, on the same database."""
    service = DatabaseService(db, nats_server.url)
    for number in range(2):
        await service.start()
        assert service.nc is not None
        assert service.nc.is_connected
        async with library_client(nats_server.url) as client:
            await ask(client, "db.kv.trivia.set", {"key": f"run{number}", "value": number})
        await service.stop()
    assert (await db.kv_list("trivia"))["keys"] == ["run0", "run1"]


async def test_without_a_server_nothing_is_left_running(db: BotDatabase) -> None:
    """A start that can't reach a NATS server fails, and leaves no connection and no task."""
    service = DatabaseService(db, "nats://127.0.0.1:1")
    with pytest.raises(ConnectionError):
        await service.start()
    assert (service.nc, service._cleanup_task) == (None, None)
    await db.kv_set("trivia", "key", 1)
