"""Attacks on the connection to NATS by somebody on the wire without keys, against real servers with TLS."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import ssl
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import holdfast
from holdfast.bus import connection as connection_module
from holdfast.bus import login as login_module
from holdfast.bus import session as session_module
from holdfast.bus.connection import Connection
from holdfast.bus.errors import BusError
from holdfast.bus.login import Login
from holdfast.bus.protocol import Info
from holdfast.bus.session import Session
from holdfast.clock import ManualClock
from holdfast.errors import Unavailable
from tests.bus.scribe import scribe
from tests.edges.nats.ground import PATIENCE, Running, serving, until
from tests.edges.test_link import CERTIFICATE, KEY
from tests.nats import nats_server
from tests.security.middle import Middle, middle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

ROUNDS = int(os.environ.get("HOLDFAST_ATTACK_ROUNDS", "12"))
"""How many random injections are tried."""
FORGED = b'{"key": "forged", "value": 1}'


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever loses a connection looks for it soon."""
    monkeypatch.setattr(connection_module, "PAUSE_SECONDS", 0.05)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """The file with the server's certificate, which is its own authority; its key is beside it."""
    (tmp_path / "key.pem").write_text(KEY)
    path = tmp_path / "certificate.pem"
    path.write_text(CERTIFICATE)
    return path


@pytest.fixture
async def attacked(certificate: Path) -> AsyncIterator[Middle]:
    """Somebody before a real server that requires TLS and a password."""
    config = (
        f'tls {{ cert_file: "{certificate}", key_file: "{certificate.parent / "key.pem"}" }}\n'
        "authorization { user: me, password: pa55 }"
    )
    async with nats_server(config) as server, middle(server.port) as who:
        yield who


@contextlib.asynccontextmanager
async def served(attacked: Middle, certificate: Path, scheme: str = "tls") -> AsyncIterator[Running]:
    """A service that reaches its server through the attacker."""
    async with serving(
        attacked.url.replace("nats", scheme),
        clock=ManualClock(),
        user="me",
        password="pa55",
        tls=ssl.create_default_context(cafile=certificate),
    ) as running:
        yield running


def forged_requests() -> bytes:
    """A write for each subscription of the service, as its server would deliver it."""
    lines = b""
    for sid in range(1, 40):
        lines += b"MSG db.kv.trivia.set %d %d\r\n%b\r\n" % (sid, len(FORGED), FORGED)
    return lines


async def holds(running: Running) -> int:
    """How many keys the plugin under attack has."""
    found = await running.store.kv("trivia").list()
    return len(found.keys)


async def attack(attacked: Middle, running: Running, alter: Callable[[bytes], bytes]) -> None:
    """Alter what the server says first on the next connections, then let one through."""
    before, reconnects = attacked.connections, running.client.reconnects
    attacked.alter = alter
    attacked.cut()
    await until(lambda: attacked.connections > before + 1 or running.client.reconnects > reconnects)
    attacked.be_honest()
    await until(lambda: running.client.is_connected)
    await running.client.flush()


async def test_messages_injected_before_tls_are_not_executed(attacked: Middle, certificate: Path) -> None:
    """What somebody without keys says before the handshake, on a reconnect, is never taken for a request."""
    async with served(attacked, certificate) as running:
        await attack(attacked, running, lambda info: info + forged_requests())
        assert await holds(running) == 0
        assert running.recorder.operations == []


async def test_random_bytes_before_tls_execute_nothing(attacked: Middle, certificate: Path) -> None:
    """No bytes before, in or behind the greeting get anything executed or keep the service away for good."""
    chance = random.Random(7)
    async with served(attacked, certificate) as running:
        lines = [
            forged_requests(),
            b"PONG\r\n",
            b"PING\r\n",
            b"+OK\r\n",
            b"INFO {}\r\n",
            b'INFO {"tls_required":false,"tls_available":false}\r\n',
            b"-ERR 'Authorization Violation'\r\n",
            b"MSG db.kv.trivia.set 1 9999999\r\n",
            b"\x16\x03\x03",
            b"\r\n",
        ]

        def alter(info: bytes) -> bytes:
            injected = b"".join(chance.choices(lines, k=chance.randint(1, 4)))
            at = chance.choice((0, len(info), chance.randint(0, len(info))))
            return info[:at] + injected + info[at:]

        for _ in range(ROUNDS):
            before = attacked.connections
            attacked.alter = alter
            attacked.cut()
            await until(lambda before=before: attacked.connections > before)  # type: ignore[misc]
        attacked.be_honest()
        await until(lambda: running.client.is_connected)
        await running.client.flush()
        assert await holds(running) == 0
        assert running.recorder.operations == []
        assert b"pa55" not in attacked.heard


def without_tls(info: bytes) -> bytes:
    """A greeting that offers no TLS."""
    fields = json.loads(info.removeprefix(b"INFO "))
    fields.pop("tls_required", None)
    fields.pop("tls_available", None)
    return b"INFO " + json.dumps(fields).encode() + b"\r\n"


@pytest.mark.parametrize("scheme", ["nats", "tls"])
async def test_a_greeting_without_tls_gets_no_password(
    attacked: Middle, certificate: Path, scheme: str
) -> None:
    """Who was given something about TLS gets it or nothing: the password does not go out in plain text."""
    attacked.alter = without_tls
    address = attacked.url.replace("nats://", f"{scheme}://me:pa55@")
    with pytest.raises(Unavailable, match="does not offer TLS"):
        await holdfast.open(f"{address}?tls_ca={certificate}").start()
    with pytest.raises(BusError, match="does not offer TLS"):
        await served(attacked, certificate, scheme).__aenter__()
    assert attacked.connections == 2
    assert attacked.heard == b""


async def test_a_reconnect_without_tls_gets_no_password(attacked: Middle, certificate: Path) -> None:
    """That holds for every later connection too."""
    async with served(attacked, certificate, "nats") as running:
        await attack(attacked, running, without_tls)
    assert b"CONNECT" not in attacked.heard


@pytest.mark.parametrize("scheme", ["nats", "tls"])
async def test_servers_named_in_plain_text_are_not_believed(
    attacked: Middle, certificate: Path, scheme: str
) -> None:
    """Whoever adds servers to the greeting leads nobody there, also when the real one is gone."""
    async with scribe() as thief, served(attacked, certificate, scheme) as running:

        def add(info: bytes) -> bytes:
            fields = json.loads(info.removeprefix(b"INFO "))
            fields["connect_urls"] = [f"127.0.0.1:{thief.port}"] * 40
            return b"INFO " + json.dumps(fields).encode() + b"\r\n"

        await attack(attacked, running, add)
        attacked.alter = lambda info: b"-ERR 'gone'\r\n"
        before = attacked.connections
        attacked.cut()
        await until(lambda: attacked.connections > before + 1)
        assert (thief.writers, thief.lines) == ([], [])
        attacked.be_honest()
        await until(lambda: running.client.is_connected)


async def test_servers_and_stops_announced_before_tls_are_forgotten(certificate: Path) -> None:
    """Other servers that were named in plain text, and a stop that was announced there, are forgotten."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, certificate.parent / "key.pem")

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = {"tls_required": True, "max_payload": 77, "connect_urls": ["127.0.0.1:1"], "ldm": True}
        writer.write(b"INFO " + json.dumps(said).encode() + b"\r\n")
        await writer.start_tls(tls)
        while line := await reader.readline():
            if line == b"PING\r\n":
                writer.write(b"PONG\r\n")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = Connection()
    await client.reach(f"tls://127.0.0.1:{port}", Login(tls=ssl.create_default_context(cafile=certificate)))
    assert [one.port for one in client._servers.round()] == [port]
    assert (client.max_payload, client._search) == (77, None)
    await client.close()
    server.close()


@pytest.mark.parametrize("depth", [1_000, 30_000])
async def test_a_deeply_nested_greeting_fails_one_connection_only(
    attacked: Middle, certificate: Path, depth: int
) -> None:
    """A greeting that is nested without end is an error of that connection, and the next one is made."""
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(context))
    nested = b'INFO {"a":' + b"[" * depth + b"]" * depth + b"}\r\n"
    async with served(attacked, certificate) as running:
        await attack(attacked, running, lambda info: nested)
    assert errors == []


async def test_an_untrusted_certificate_is_named_and_gets_no_password(
    attacked: Middle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that can't be trusted is said to be that, with what can be done; it gets no password."""
    monkeypatch.setattr(
        "holdfast.bus.connection.ATTEMPT_SECONDS", PATIENCE
    )  # TLS takes long on a busy machine
    address = attacked.url.replace("nats://", "tls://me:pa55@")
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(Unavailable, match=r"its certificate is not trusted: self-signed .*tls_ca"):
            await holdfast.open(address).start()
    assert b"pa55" not in attacked.heard


# Negative controls: the same attempts with one thing taken away that keeps them out.


async def test_control_injected_requests_would_be_executed(
    attacked: Middle, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If what comes before the login were read like everything else, the forged request would be executed."""
    monkeypatch.setattr(Session, "_hear", lambda session, data: data)
    async with served(attacked, certificate) as running:
        attacked.alter = lambda info: info + forged_requests()
        attacked.cut()
        await until(lambda: bool(running.recorder.operations))
        assert await holds(running) == 1


async def test_control_the_password_would_be_sent_in_plain_text(
    attacked: Middle, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If TLS were spoken only where it is offered, the password would be heard on the wire."""
    monkeypatch.setattr(
        Login, "context", lambda login, server, info: login.tls if info.tls_required else None
    )
    async with served(attacked, certificate, "nats"):
        attacked.alter = without_tls
        attacked.cut()
        await until(lambda: b"pa55" in attacked.heard)
        attacked.be_honest()
        attacked.cut()


async def test_control_a_server_named_in_plain_text_would_get_the_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If a server that only another one named were trusted like the user's own, it would get the password."""
    monkeypatch.setattr(login_module, "_SECRETS", frozenset())
    async with scribe() as named, scribe() as thief:
        named.info = {"connect_urls": [f"127.0.0.1:{thief.port}"]}
        client = Connection(on_error=lambda error: None)
        await client.reach(named.url.replace("//", "//me:pa55@"))
        named.greeting = b"-ERR 'not now'\r\n"
        named.writers[-1].transport.abort()
        await until(lambda: any(b"pa55" in line for line in thief.lines))
        await client.close()


async def test_control_nested_greetings_would_reach_the_loop(
    attacked: Middle, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If nobody expected that a greeting may be nested too deeply, the loop would be told of an error."""
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(context))
    monkeypatch.setattr(
        session_module, "info_of", lambda control: msgspec.json.decode(control.rest, type=Info)
    )
    nested = b'INFO {"a":' + b"[" * 30_000 + b"]" * 30_000 + b"}\r\n"
    async with served(attacked, certificate) as running:
        await attack(attacked, running, lambda info: nested)
    assert any(isinstance(error["exception"], RecursionError) for error in errors)
