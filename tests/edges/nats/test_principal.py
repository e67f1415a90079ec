"""Whom the audit knows to have asked, whatever a request says of its writer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.bus.protocol import Message
from holdfast.edges.nats.service import Settings, user_of
from tests.edges.nats.ground import calling, serving
from tests.edges.running import plain_client
from tests.nats import nats_server as running_server

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


SHARED = """
accounts {
  SVC { users: [{user: svc, password: svc}], exports: [{service: "db.>"}] }
  trivia {
    users: [{user: alice, password: a}, {user: bob, password: b}]
    imports: [{service: {account: SVC, subject: "db.>"}, share: true}]
  }
}
"""


@pytest.mark.parametrize("told", [True, False])
async def test_the_user_of_the_connection(told: bool) -> None:
    """Where the server tells the user, the principal has it, whatever header the caller sends."""
    settings = Settings(reply_mode="accounts", request_users=told)
    forged = {"Nats-Request-Info": '{"acc":"SVC","user":"root"}'}
    async with (
        running_server(SHARED) as server,
        serving(server.url, settings=settings, user="svc", password="svc") as running,
    ):
        await running.store.set_policy("kv/trivia", {"audit": True})
        await running.store.set_policy("table/trivia", {"audit": True})
        for user, password in (("alice", "a"), ("bob", "b")):
            async with plain_client(server.url, user=user, password=password) as client:
                payload = json.dumps({"key": "k", "value": user}).encode()
                table = json.dumps({"table": user, "partition_key": KEY}).encode()
                for subject, body in (
                    ("db.kv.trivia.set", payload),
                    ("db.kv.set", payload[:-1] + b',"plugin_name":"trivia"}'),
                    ("db.table.trivia.create_table", table),
                ):
                    reply = await client.request(subject, body, headers=forged, timeout=60)
                    assert json.loads(reply.data)["success"], reply.data
        suffix = (":alice", ":bob") if told else ("", "")
        keys, tables = [await principals(running.store, f"{family}/trivia") for family in ("kv", "table")]
        assert [known for _, known, _ in keys[1:]] == [
            f"accounts:{who}{user}" for user in suffix for who in ("trivia", "trusted")
        ]
        assert [known for _, known, _ in tables[1:]] == [f"accounts:trivia{user}" for user in suffix]


@pytest.mark.parametrize(
    ("said", "user"),
    [
        (b'{"user":"alice"}', ":alice"),
        (b'{"user":"a\\nb\\u202ec"}', ":abc"),
        (b'{"user":"' + b"x" * 300 + b'"}', ":" + "x" * 100),
        (b"{}", ""),
        (b"no JSON", ""),
        (b'{"user":7}', ""),
        (b"[" * 5000, ""),
    ],
)
def test_the_user_that_a_server_names_is_bounded(said: bytes, user: str) -> None:
    """A user is at most 100 characters that change no line, and nothing where nothing can be read."""
    head = b"NATS/1.0\r\nNats-Request-Info: " + said + b"\r\n\r\n"
    assert user_of(Message(sid="1", subject="s", reply="", data=b"", head=head)) == user
    assert user_of(Message(sid="1", subject="s", reply="", data=b"")) == ""


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
