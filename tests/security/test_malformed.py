"""Whatever is sent, the service answers with success or a correct code, and is none the worse for it."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from holdfast.edges.nats.server import NatsServer
from tests.edges.nats.ground import calling, serving
from tests.nats import library_client
from tests.robustness.serving_process import kill, launch, ready
from tests.security.malformed import LATE, Malformed, Mill, verdict

pytestmark = pytest.mark.unmeasured

MESSAGES = 100_000 if os.environ.get("HOLDFAST_SOAK") == "1" else 1_500
AT_ONCE = 500
GROWTH = 8 * 1024 * 1024
"""By how many bytes the service may grow over all of them: what its caches and its log of changes need."""

ODD_TOKENS = [
    "..",
    "../other",
    "..%2fother",
    "*",
    ">",
    "'; DROP TABLE plugin_kv_storage; --".replace(" ", "_"),
    "' OR '1'='1",
    "a\x00b",
    "a\x0bb",
    "a\x0cb",
    "a\x1b[31mb",
    "a\x7fb",
    "\u202etrivia",
    "é",
    "$SRV",
    "a" * 300,
    "${jndi:ldap://x}",
]
ODD_KEYS = [
    "../../../etc/passwd",
    "'; DROP TABLE plugin_kv_storage; --",
    "' OR '1'='1",
    "%",
    "_",
    "*",
    ">",
    "k*",
    "a\nb\r\n",
    "\x01\x1b\x7f\x85",
    "\u202e\u200b\ufeff",
    "db.kv.other.set",
    "kv/other",
    "tenant/acme/project/web/k",
    "\U0001f389" * 255,
]


class Sender:
    """Sends messages, so many at a time, and looks at every reply."""

    def __init__(self, client: Client) -> None:
        self.codes: Counter[str] = Counter()
        self.wrong: list[tuple[Malformed, dict[str, Any]]] = []
        self.late: list[Malformed] = []
        self._client = client
        self._inbox = client.new_inbox()
        self._number = 0
        self._waiting: dict[str, Malformed] = {}
        self._room = asyncio.Semaphore(AT_ONCE)

    async def start(self) -> None:
        """Listen to replies."""
        await self._client.subscribe(f"{self._inbox}.*", cb=self.hear)

    async def send(self, message: Malformed) -> None:
        """Send a message as soon as there is room for it."""
        async with asyncio.timeout(60):
            await self._room.acquire()
        self._number += 1
        self._waiting[str(self._number)] = message
        await self._client.publish(message.subject, message.payload, reply=f"{self._inbox}.{self._number}")

    async def all_answered(self) -> None:
        """Wait until each message has been answered."""
        async with asyncio.timeout(60):
            for _ in range(AT_ONCE):
                await self._room.acquire()
        for _ in range(AT_ONCE):
            self._room.release()

    async def again(self) -> None:
        """Send what a busy machine was late with once more, a few at a time."""
        late, self.late = self.late, []
        for number, message in enumerate(late):
            if number % 16 == 0:
                await self.all_answered()
            await self.send(message)
        await self.all_answered()

    async def hear(self, reply: Msg) -> None:
        """Judge a reply."""
        message = self._waiting.pop(reply.subject.rpartition(".")[2])
        fields = json.loads(reply.data)
        code = str(fields.get("error_code") or fields.get("errorCode") or fields.get("error", {}).get("code"))
        code = "success" if fields["success"] else code.upper()
        if code in LATE:
            self.late.append(message)
        self.codes[code] += 1
        allowed = verdict(message.payload)
        if code not in allowed | LATE and not (code == "success" and len(allowed) > 1):
            self.wrong.append((message, fields))
        self._room.release()


def resident(pid: int) -> int:
    """How many bytes of memory a process has."""
    [line] = [
        line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")
    ]
    return int(line.split()[1]) * 1024


@pytest.mark.timeout(300)
async def test_malformed_payloads_get_the_right_code(nats_server: NatsServer, tmp_path: Path) -> None:
    """Each malformed payload is answered with a correct code; memory stays flat."""
    mill = Mill(seed=1)
    with (tmp_path / "stderr").open("wb") as complaints:
        process = await launch(nats_server.url, str(tmp_path / "store.db"), stderr=complaints.fileno())
    try:
        await ready(process)
        async with library_client(nats_server.url) as client:
            sender = Sender(client)
            await sender.start()
            before = 0
            for number in range(MESSAGES):
                await sender.send(mill.next())
                if number == MESSAGES // 5:
                    before = resident(process.pid)
            await sender.all_answered()
            await sender.again()
            grown = resident(process.pid) - before
        async with calling(nats_server.url) as caller:
            assert (await caller.ask("db.kv.usable.set", {"key": "k", "value": 1}))["version"] == 1
            assert (await caller.ask("db.kv.usable.get", {"key": "k"}))["value"] == 1
    finally:
        await kill(process)
    assert sender.wrong[:3] == []
    assert sum(sender.codes.values()) >= MESSAGES
    assert len(sender.late) < MESSAGES / 100
    usual = ("success", "INVALID_JSON", "VALIDATION_ERROR", "MISSING_FIELD")
    assert min(sender.codes[code] for code in usual) > MESSAGES / 200
    assert grown < GROWTH
    assert b"Traceback" not in (tmp_path / "stderr").read_bytes()


async def test_odd_subjects_reach_nothing(nats_server: NatsServer, tmp_path: Path) -> None:
    """Traversal, SQL, wildcards and control characters lead nowhere, in every place of every subject."""
    path = tmp_path / "store.db"
    payload = b'{"key":"k","value":1}'
    async with serving(nats_server.url, storage=str(path)) as running, calling(nats_server.url) as caller:
        for token in ODD_TOKENS:
            for subject in (
                f"db.kv.{token}.set",
                f"db.kv.trivia.{token}",
                f"db.kv.trivia.set.{token}",
                f"rosey.db.semantic.{token}.web.put",
                f"rosey.db.semantic.acme.{token}.put",
                f"rosey.db.semantic.acme.web.{token}",
                f"db.admin.{token}",
            ):
                if " " in subject or (".." in subject and "..." not in subject.replace("/", "")):
                    continue  # the client library, or the server, does not let it out
                try:
                    reply = await caller.ask(subject, payload)
                except ConnectionError:
                    continue  # more tokens than any of our subjects has: nobody listens there
                code = str(reply.get("error_code", reply.get("errorCode"))).upper()
                assert code in ("INVALID_SUBJECT", "INVALID_PLUGIN_NAME", "VALIDATION_ERROR"), (
                    subject,
                    reply,
                )
        assert await running.store.namespaces() == []
        assert (await caller.ask("db.kv.trivia.set", payload))["version"] == 1


async def test_odd_keys_are_stored_and_matched_literally(nats_server: NatsServer, tmp_path: Path) -> None:
    """What means something elsewhere is an ordinary key here: kept and matched as it is, where it belongs."""
    path = tmp_path / "store.db"
    async with serving(nats_server.url, storage=str(path)), calling(nats_server.url) as caller:
        for number, key in enumerate(ODD_KEYS):
            assert (await caller.ask("db.kv.trivia.set", {"key": key, "value": number}))["success"] is True
        for number, key in enumerate(ODD_KEYS):
            assert (await caller.ask("db.kv.trivia.get", {"key": key}))["value"] == number
            listed = await caller.ask("db.kv.trivia.list", {"prefix": key})
            assert listed["keys"] == [one for one in sorted(ODD_KEYS, key=str.encode) if one.startswith(key)]
        assert (await caller.ask("db.kv.other.list"))["count"] == 0
        for key in ODD_KEYS:
            reply = await caller.ask("db.semantic.acme.web.put", {"key": key, "value": 1})
            legal = key == "tenant/acme/project/web/k"
            assert reply.get("errorCode") == (
                None if legal or key in ("db.kv.other.set", "kv/other") else "validation_error"
            )
    with sqlite3.connect(path) as table:
        [plugins] = [
            row[0]
            for row in table.execute("SELECT count(*) FROM plugin_kv_storage WHERE plugin_name = 'trivia'")
        ]
    table.close()
    assert plugins == len(ODD_KEYS)
