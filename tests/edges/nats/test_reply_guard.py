"""Where a reply may go: a request with any other reply subject is dropped unexecuted, counted and logged."""

from __future__ import annotations

import asyncio
import json
import logging
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.msg import Msg

from holdfast.edges.intake.request_log import DROPPED
from holdfast.edges.nats.server import NatsServer
from holdfast.edges.nats.service import MODES, Settings, reply_guard
from tests.edges.nats.ground import PATIENCE, Gated, calling, serving, until

PREFIXES = ("db", "rosey.db")

ODD = [
    "",
    ".",
    "_INBOX",
    "_INBOX.",
    "_INBOX..x",
    "_INBOX.trivia",
    "_INBOX.trivia.",
    "_INBOX.trivia.>",
    "_INBOX.trivia.*",
    "_INBOX.trivia.a..b",
    "_INBOX.trivia.x\n",
    "_INBOX.trivia.x y",
    "_INBOX.trivia.\u00e9",
    "_INBOX.trivia.x\x0b",
    "_INBOX.trivia/../other.x",
]


@pytest.mark.parametrize(
    ("mode", "owner", "allowed", "refused"),
    [
        (
            "accounts",
            "trivia",
            ["_R_.abc", "_R_.aB3.x-y_z", "_R_.a.b.c"],
            [
                *ODD,
                "_INBOX.trivia.x",
                "_R_",
                "_R_.",
                "_R_.>",
                "_R_.a\n",
                "_R_x.a",
                "_R_xa.b",
                "x._R_.a",
                "db.kv.trivia.set",
            ],
        ),
        (
            "permissions",
            "trivia",
            ["_INBOX.trivia.x", "_INBOX.trivia.a.b-c_D"],
            [
                *ODD,
                "_INBOX.other.x",
                "_INBOX.triviax.x",
                "_R_.abc",
                "db.kv.other.set",
                "x._INBOX.trivia.x",
                "reply",
            ],
        ),
        (
            "permissions",
            "acme/web",
            ["_INBOX.acme.web.x"],
            [*ODD, "_INBOX.acme.x", "_INBOX.acme.app.x", "_INBOX.acme/web.x", "_INBOX.acme.webx.y"],
        ),
        (
            "permissions",
            "",
            ["_INBOX.bot.x", "_INBOX.trivia.x"],
            [
                *[one for one in ODD if one != "_INBOX.trivia"],
                *("db.kv.other.set", "$SRV.PING", "anything", "_INBOX.HOLDFAST.x", "_INBOX.OPERATOR.x"),
            ],
        ),
        (
            "open",
            "trivia",
            ["_INBOX.x", "_INBOX.other.x", "replies.here", "dbx.kv", "db-replies.x", "rosey.dbx", "rosey"],
            [
                *("", ".", "_INBOX.", "_INBOX..x", "a b", "a.*", "a.>", "a\n", "db", "rosey.db", "$SRV.PING"),
                *(
                    "$JS.API.x",
                    "db.kv.other.set",
                    "rosey.db.kv.other.set",
                    "db.event.kv.trivia.set",
                    "db.admin.sweep",
                ),
            ],
        ),
    ],
)
def test_reply_subjects_that_each_mode_allows(
    mode: str, owner: str, allowed: list[str], refused: list[str]
) -> None:
    """accounts: what the server maps; permissions: the caller's inbox; open: not our subjects, nor `$`."""
    guard = reply_guard(mode, PREFIXES)
    assert [reply for reply in allowed if not guard(reply, owner)] == []
    assert [reply for reply in refused if guard(reply, owner)] == []


@given(
    st.lists(
        st.lists(
            st.sampled_from(
                ["db", "rosey", "kv", "_INBOX", "a", "1", "\u00e9", "$", "*", ">", " ", "\n", ""]
            ),
            min_size=1,
            max_size=4,
        ).map(".".join),
        min_size=1,
        max_size=8,
    )
)
def test_each_reply_subject_is_judged_by_itself(replies: list[str]) -> None:
    """Each reply subject is judged by itself, whatever inboxes were met before it."""
    guard = reply_guard("open", PREFIXES)
    legal = re.compile(r"[^\s.*>]+(\.[^\s.*>]+)*")
    for reply in replies:
        ours = reply in PREFIXES or reply.startswith(("$", "db.", "rosey.db."))
        assert guard(reply, "trivia") is (legal.fullmatch(reply) is not None and not ours), reply


FORGED = {
    "open": [
        "db.kv.other.set",
        "rosey.db.kv.other.set",
        "db.event.kv.other.set",
        "db.admin.sweep",
        "$SRV.PING",
    ],
    "permissions": ["_INBOX.other.x", "db.kv.other.set", "_INBOX.triviax.y", "anywhere"],
    "accounts": ["_INBOX.trivia.x", "db.kv.other.set", "_R_", "anywhere"],
}
OWN = {"open": "_INBOX.mine.x", "permissions": "_INBOX.trivia.x", "accounts": ""}
"""Where an honest caller is answered; what the server maps with accounts no client can name by itself."""


@pytest.mark.parametrize("mode", MODES)
async def test_a_forged_reply_subject_executes_nothing(
    nats_server: NatsServer, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    """In every mode the request is neither executed nor answered, but counted and logged; others go on."""
    engine = Gated()
    settings = Settings(reply_mode=mode, events=False)
    async with (
        serving(nats_server.url, engine=engine, settings=settings) as running,
        calling(nats_server.url) as caller,
    ):
        heard: asyncio.Queue[Msg] = asyncio.Queue()
        await caller.client.subscribe(">", cb=heard.put)
        await caller.client.flush()
        for reply in FORGED[mode]:
            await caller.client.publish("db.kv.trivia.set", b'{"key":"k","value":1}', reply=reply)
        honest = b'{"key":"honest","value":1}'
        await caller.client.publish("db.kv.trivia.set", honest, reply=OWN[mode])
        await until(lambda: engine.executed == 1)
        await running.service.stop()
        await caller.client.flush()
        own = {OWN[mode]} - {""}
        assert {heard.get_nowait().subject for _ in range(heard.qsize())} == {"db.kv.trivia.set"} | own
        assert engine.executed == 1
        assert running.recorder.drops == ["reply_subject"] * len(FORGED[mode])
        assert [operation.verb for operation in running.recorder.operations] == ["set"]
    drops = [record for record in caplog.records if DROPPED["reply_subject"] in record.getMessage()]
    assert [record.levelno for record in drops] == [logging.WARNING] * len(FORGED[mode])
    assert all("db.kv.trivia.set" in record.getMessage() for record in drops)


@pytest.mark.parametrize("mode", ["open", "permissions"])
async def test_a_refusal_is_no_way_around_the_guard(nats_server: NatsServer, mode: str) -> None:
    """What has no route, and who asks who we are, is not answered at a forged subject either."""
    settings = Settings(reply_mode=mode, events=False)
    async with (
        serving(nats_server.url, settings=settings) as running,
        calling(nats_server.url) as caller,
    ):
        heard: list[str] = []

        async def hear(message: Msg) -> None:
            if message.reply == "" and message.data != b"{}":
                heard.append(message.subject)

        await caller.client.subscribe(">", cb=hear)
        await caller.client.flush()
        for subject in (
            "db.kv.Trivia.set",
            "db.semantic.Acme.web.put",
            "$SRV.PING",
            "$SRV.INFO.holdfast",
            "$SRV.STATS",
        ):
            await caller.client.publish(subject, b"{}", reply="db.kv.other.set")
        operators = "_INBOX.OPERATOR.x"
        await caller.client.publish("$SRV.PING", b"{}", reply=operators)
        async with asyncio.timeout(PATIENCE):
            while operators not in heard:
                await caller.client.flush()
        assert heard == [operators]
        assert await running.store.namespaces() == []


async def test_the_payload_dialect_under_permissions(nats_server: NatsServer) -> None:
    """Trusted callers name any plugin and are answered in their own inbox, but nowhere else."""
    settings = Settings(reply_mode="permissions")
    async with (
        serving(nats_server.url, settings=settings) as running,
        calling(nats_server.url) as caller,
    ):
        fields = {"key": "k", "value": 1, "plugin_name": "trivia"}
        payload = json.dumps(fields).encode()
        await caller.client.publish("db.kv.set", payload, reply="db.kv.other.set")
        subscription = await caller.client.subscribe("_INBOX.bot.x")
        await caller.client.publish("db.kv.set", payload, reply="_INBOX.bot.x")
        reply = await subscription.next_msg(timeout=PATIENCE)
        assert json.loads(reply.data)["data"]["version"] == 1
        assert running.recorder.drops == ["reply_subject"]
