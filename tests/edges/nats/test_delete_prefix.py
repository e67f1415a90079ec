"""Deleting by prefix over NATS, asked for with a plain client: pages, a dry run, and the rules of deletes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import holdfast
from holdfast.clock import ManualClock
from holdfast.edges.nats.server import NatsServer
from tests.edges.nats.ground import Caller, Gated, Running, calling, serving


class Asking(NamedTuple):
    """A caller of a service that has a few keys."""

    caller: Caller
    running: Running

    async def __call__(self, verb: str = "delete_prefix", /, **fields: Any) -> dict[str, Any]:
        return await self.caller.ask(f"db.kv.trivia.{verb}", fields)

    async def fill(self, *keys: str, value: Any = 1) -> None:
        for key in keys:
            await self("set", key=key, value=value)

    async def keys(self) -> list[str]:
        found: list[str] = (await self("list"))["keys"]
        return found


@pytest.fixture(params=["sqlite", "postgresql"])
async def ask(
    request: pytest.FixtureRequest, nats_server: NatsServer, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Asking]:
    """A caller of a service on a file and on a database, which has keys with two beginnings."""
    storage = str(tmp_path / "store.db")
    if request.param == "postgresql":
        storage = request.getfixturevalue("pg_url")
    async with (
        serving(nats_server.url, storage=storage, clock=clock) as running,
        calling(nats_server.url) as caller,
    ):
        asking = Asking(caller, running)
        await asking.fill("a:1", "a:2", "a:3", "b:1")
        yield asking


async def test_pages_that_resume(ask: Asking) -> None:
    """A page removes up to its limit and names what went; its cursor leads to the rest, and others stay."""
    first = await ask(prefix="a:", limit=2, last_writer="bot:7")
    assert (first["success"], first["keys"], first["count"]) == (True, ["a:1", "a:2"], 2)
    assert first["truncated"]
    rest = await ask(prefix="a:", cursor=first["cursor"])
    assert rest == {"success": True, "keys": ["a:3"], "count": 1, "truncated": False, "cursor": None}
    assert (await ask(prefix="a:"))["count"] == 0
    assert await ask.keys() == ["b:1"]
    change = (await ask("history", key="a:1"))["changes"][0]
    assert (change["op"], change["last_writer"]) == ("deleted", "bot:7")


async def test_a_dry_run_changes_nothing(ask: Asking) -> None:
    """A dry run names and counts what would go, in pages too, and nothing is written."""
    seen = await ask(prefix="a:", dry_run=True, limit=2)
    assert (seen["keys"], seen["count"], seen["truncated"]) == (["a:1", "a:2"], 2, True)
    rest = await ask(prefix="a:", dry_run=True, cursor=seen["cursor"])
    assert (rest["keys"], rest["cursor"]) == (["a:3"], None)
    assert (await ask("stats"))["version"] == 4


async def test_a_set_after_a_delete_by_prefix_stays(ask: Asking) -> None:
    """A key that its caller sets right after asking, without waiting, is there afterwards."""
    told = await ask.caller.ask_all(
        [
            ("db.kv.trivia.delete_prefix", {"prefix": "a:"}),
            ("db.kv.trivia.set", {"key": "a:2", "value": "later"}),
            ("db.kv.trivia.set", {"key": "a:9", "value": "new"}),
        ]
    )
    assert all(answer.fields["success"] for answer in told)
    assert {"a:1", "a:3"} <= set(told[0].fields["keys"])
    assert await ask.keys() == ["a:2", "a:9", "b:1"]


async def test_large_values_end_a_page(ask: Asking) -> None:
    """However large the values are, a page is shorter and never too expensive; the trash has all of them."""
    namespace = "kv/trivia"
    await ask.running.store.set_policy(namespace, {"trash": True})
    names = [f"large:{number:02}" for number in range(20)]
    await ask.fill(*names, value="x" * 65_000)
    removed: list[str] = []
    cursor, pages = None, 0
    while pages == 0 or cursor is not None:
        page = await ask(prefix="large:", cursor=cursor)
        removed, cursor, pages = removed + page["keys"], page["cursor"], pages + 1
    assert (removed, pages) == (names, 3)
    for key in names:
        assert (await ask("restore", key=key))["success"]


async def test_one_record_of_each_in_the_audit(nats_server: NatsServer, tmp_path: Path) -> None:
    """Each key is audited as a single delete would be, with who is known to have asked."""
    async with (
        serving(nats_server.url, storage=str(tmp_path / "store.db")) as running,
        calling(nats_server.url) as caller,
    ):
        ask = Asking(caller, running)
        await running.store.set_policy("kv/trivia", {"audit": True})
        await ask.fill("a:1", "a:2")
        await ask(prefix="a:", last_writer="bot:7")
        page = await running.store.audit("kv/trivia").log(op="deleted")
        told = [(record.key, record.writer, record.principal) for record in page.records]
        assert told == [("a:1", "bot:7", "open:trivia"), ("a:2", "bot:7", "open:trivia")]


async def test_names_that_json_spells_at_length(ask: Asking) -> None:
    """A page fits a reply also if every character of every key has to be escaped."""
    marks = [chr(number) for number in range(1, 32)]
    keys = ["\x01" * 253 + first + second for first in marks for second in marks][:600]
    for start in range(0, 600, 100):
        items = [{"key": key, "value": 0} for key in keys[start : start + 100]]
        assert all(result["success"] for result in (await ask("set_many", items=items))["results"])
    first = await ask(prefix="\x01", limit=10_000)
    assert (first["count"], first["truncated"]) == (500, True)
    assert (await ask(prefix="\x01", cursor=first["cursor"]))["count"] == 100


@pytest.mark.parametrize(
    ("fields", "code", "field"),
    [
        ({}, "MISSING_FIELD", "prefix"),
        ({"prefix": ""}, "VALIDATION_ERROR", "prefix"),
        ({"prefix": 5}, "VALIDATION_ERROR", "prefix"),
        ({"prefix": "a", "request_id": "r1"}, "VALIDATION_ERROR", "request_id"),
        ({"prefix": "a", "dry_run": "no"}, "VALIDATION_ERROR", "dry_run"),
        ({"prefix": "a", "limit": 0}, "VALIDATION_ERROR", "limit"),
        ({"prefix": "a", "cursor": "nonsense!"}, "VALIDATION_ERROR", "cursor"),
        ({"prefix": "a", "cursor": "Yjox"}, "VALIDATION_ERROR", "cursor"),
        ({"prefix": "a", "fence": {"lock": "l", "token": 9}}, "FENCED", "fence"),
        ({"prefix": "a", "deadline": 1}, "TIMEOUT", None),
    ],
)
async def test_a_refused_delete_by_prefix_removes_nothing(
    caller: Caller, running: Running, fields: dict[str, Any], code: str, field: str | None
) -> None:
    """What is wrong is said with the field, and no key goes."""
    ask = Asking(caller, running)
    await ask.fill("a:1", "b:1")
    refused = await ask(**fields)
    assert (refused["error_code"], refused.get("field")) == (code, field)
    assert await ask.keys() == ["a:1", "b:1"]


async def test_a_deadline_goes_to_the_commit(nats_server: NatsServer, clock: ManualClock) -> None:
    """A page that could not be removed before its caller gave up is not removed later."""
    engine = Gated()
    async with (
        serving(nats_server.url, engine=engine, clock=clock) as running,
        calling(nats_server.url) as caller,
    ):
        ask = Asking(caller, running)
        await ask.fill("a:1")
        engine.gate.clear()
        begun = await caller.begin("db.kv.trivia.delete_prefix", {"prefix": "a", "deadline_ms": 500})
        await caller.ask("db.kv.trivia.get", {"key": "a:1"})
        clock.advance(1)
        engine.gate.set()
        assert (await begun).fields["error_code"] == "TIMEOUT"
        assert await ask.keys() == ["a:1"]


async def test_the_other_dialects(caller: Caller) -> None:
    """The payload names the plugin; a project says dryRun and may leave out what all its keys begin with."""
    await caller.ask("db.kv.trivia.set", {"key": "a:1", "value": 1})
    nested = await caller.ask("db.kv.delete_prefix", {"plugin_name": "trivia", "prefix": "a"})
    assert nested == {
        "success": True,
        "data": {"keys": ["a:1"], "count": 1, "truncated": False, "cursor": None},
    }
    full = "tenant/acme/project/web/jobs/1"
    await caller.ask("db.semantic.acme.web.put", {"key": full, "value": 1})
    seen = await caller.ask("db.semantic.acme.web.delete_prefix", {"prefix": "jobs/", "dryRun": True})
    assert seen["keys"] == [full]
    for everything in ("", "tenant/acme/", "tenant/acme/project/web/"):
        refused = await caller.ask("db.semantic.acme.web.delete_prefix", {"prefix": everything})
        assert (refused["errorCode"], refused["field"]) == ("validation_error", "prefix")
    wrong = await caller.ask("db.semantic.acme.web.delete_prefix", {"prefix": "jobs/", "dryRun": 1})
    assert (wrong["field"], wrong["message"]) == ("dryRun", "dryRun must be true or false")
    gone = await caller.ask("db.semantic.acme.web.delete_prefix", {"prefix": "jobs/"})
    assert gone["keys"] == [full]


async def test_a_client_asks_once_for_each_page(nats_server: NatsServer, running: Running) -> None:
    """Through our client a page is one request to the service, which looks and removes by itself."""
    async with holdfast.open(nats_server.url) as store:
        kv = store.kv("trivia")
        await kv.set("a:1", 1)
        running.recorder.operations.clear()
        assert (await kv.delete_prefix("a:", dry_run=True)).keys == ["a:1"]
        assert (await kv.delete_prefix("a:", timeout=20)).keys == ["a:1"]
        assert await kv.get("a:1") is None
    verbs = [operation.verb for operation in running.recorder.operations]
    assert verbs == ["delete_prefix", "delete_prefix", "get"]
