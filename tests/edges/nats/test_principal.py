"""Whom the audit knows to have asked, whatever a request says of its writer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import holdfast
from tests.edges.nats.ground import calling, serving

if TYPE_CHECKING:
    from holdfast.clock import ManualClock
    from holdfast.edges.nats.server import NatsServer

LIE = {"last_writer": "root", "lastWriter": "root", "principal": "root", "plugin_name": "trivia"}
ITEM = {"table": "t", "item": {"id": "a"}}
KEY = {"name": "id", "type": "string"}


async def principals(store: holdfast.Store, namespace: str) -> list[tuple[str, str | None, str]]:
    """Who made which change, as the records of an audit have it: the op, the principal and the writer."""
    page = await store.audit(namespace).log()
    assert (await store.audit(namespace).verify()).whole
    return [(one.op, one.principal, one.writer) for one in page.records]


async def test_the_subject_says_who_asks(nats_server: NatsServer) -> None:
    """Plugins, projects, operators and trusted callers are known by the subject, whatever they say."""
    async with serving(nats_server.url) as running, calling(nats_server.url) as caller:

        async def ask(subject: str, **fields: Any) -> None:
            reply = await caller.ask(subject, {**fields, **LIE})
            assert reply["success"], reply

        store = running.store
        for namespace in ("kv/trivia", "table/trivia"):
            await ask("db.admin.set_policy", namespace=namespace, policy={"audit": True})
        await ask("db.kv.trivia.set", key="k", value=1)
        await ask("db.kv.trivia.batch", writes=[{"key": "b", "value": 1}, {"key": "k", "delete": True}])
        await ask("db.kv.trivia.set_many", items=[{"key": "m", "value": 1}], request_id="once")
        await ask("db.kv.set", key="k", value=2)
        assert await principals(store, "kv/trivia") == [
            ("policy", "open:operator", "root"),
            *[(op, "open:trivia", "root") for op in ("set", "set", "deleted", "set")],
            ("set", "open:trusted", "root"),
        ]
        await ask("db.table.trivia.create_table", table="t", partition_key=KEY)
        await ask("db.table.trivia.put_item", **ITEM)
        await ask("db.table.trivia.batch_write_item", table="t", writes=[{"put": {"id": "b"}}])
        assert {known for _, known, _ in (await principals(store, "table/trivia"))[1:]} == {"open:trivia"}
        await ask("db.semantic.acme.web.put", key="k", value=1)
        assert await principals(store, "semantic/acme/web") == [("set", "open:acme/web", "root")]


async def test_the_store_itself_and_programs(clock: ManualClock) -> None:
    """A program that has the store open is `embedded`; what nobody asked for is the store's own doing."""
    async with holdfast.open("memory://", clock=clock, reap=False) as store:
        kv = store.semantic("t", "p")
        await kv.set("k", 1, ttl=1, writer="alice")
        clock.advance(2)
        await kv.set("k", 2)
        assert await principals(store, "semantic/t/p") == [
            ("set", "embedded", "alice"),
            ("expired", "holdfast", "alice"),
            ("set", "embedded", "embedded"),
        ]


async def test_a_request_that_comes_again_through_another_door(nats_server: NatsServer) -> None:
    """Who asks is no part of what is asked: a repeated request is answered as before and recorded once."""
    async with serving(nats_server.url) as running, calling(nats_server.url) as caller:
        store = running.store
        await store.set_policy("kv/trivia", {"audit": True})
        fields = {"key": "k", "value": 1, "request_id": "once", "last_writer": "w"}
        first = await caller.ask("db.kv.trivia.set", fields)
        again = await caller.ask("db.kv.set", {**fields, "plugin_name": "trivia"})
        assert again["data"]["version"] == first["version"]
        here = await store.kv("trivia").set("k", 1, request_id="once", writer="w")
        assert here.version == first["version"]
        assert len(await principals(store, "kv/trivia")) == 2
