"""Which servers are tried, in which order, how long each is waited for and how soon."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.bus import connection as module
from holdfast.bus.connection import (
    ANNOUNCED_IN_A_ROUND,
    MOST_ANNOUNCED,
    PAUSE_SECONDS,
    SPREAD_SECONDS,
    Connection,
    Servers,
    patience,
    pause,
)
from holdfast.bus.login import Server
from tests.bus.scribe import scribe
from tests.edges.nats.ground import until

if TYPE_CHECKING:
    from collections.abc import Iterable

NAMED = ["nats://a", "nats://b"]


def hosts(found: Iterable[Server]) -> list[str]:
    """Where they are."""
    return [one.host for one in found]


def test_named_servers_come_first() -> None:
    """The user's own servers are tried before all that were told of, the one that was lost as their last."""
    servers = Servers(NAMED)
    servers.hear(servers.named[0], ["c", "b:4222", "d"], encrypted=False)
    servers.latest = servers.named[0]
    assert hosts(servers.round()) == ["b", "a", "c", "d"]
    assert [one.announced for one in servers.round()] == [False, False, True, True]
    assert hosts(servers.round(but=servers.named[1])) == ["a", "c", "d"]


def test_announced_servers_are_bounded_and_tried_in_turn() -> None:
    """At most 32 are remembered, and a few of them are tried in a round; in time each has its turn."""
    servers = Servers(NAMED)
    servers.hear(servers.named[0], [f"t{number}" for number in range(3_000)], encrypted=False)
    rounds = [hosts(servers.round()) for _ in range(MOST_ANNOUNCED // ANNOUNCED_IN_A_ROUND)]
    assert all(one[:2] == ["a", "b"] and len(one) == 2 + ANNOUNCED_IN_A_ROUND for one in rounds)
    assert [one for tried in rounds for one in tried[2:]] == [
        f"t{number}" for number in range(MOST_ANNOUNCED)
    ]
    servers.hear(servers.named[0], ["u"], encrypted=False)
    assert hosts(servers.round()) == ["a", "b", "u"]
    servers.hear(servers.named[0], [], encrypted=False)
    assert hosts(servers.round()) == ["a", "b"]


def test_an_announced_server_has_one_second_to_answer() -> None:
    """A second is enough for a server that only another one named."""
    assert patience(Server(host="a")) == 5.0
    assert patience(Server(host="a", announced=True)) == 1.0


def test_pauses_differ() -> None:
    """Those who lose their server together come back at different times, soon if they had it for long."""
    pauses = [pause(60.0) for _ in range(200)]
    assert all(0 <= one <= SPREAD_SECONDS for one in pauses)
    assert max(pauses) - min(pauses) > SPREAD_SECONDS / 2
    pauses = [pause(0.0) for _ in range(200)]
    assert all(PAUSE_SECONDS / 2 <= one <= PAUSE_SECONDS * 1.5 for one in pauses)
    assert max(pauses) - min(pauses) > PAUSE_SECONDS / 2


async def test_a_dead_end_that_was_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that were told of and never say anything don't keep anybody from a named one that is back."""
    monkeypatch.setattr(module, "ANNOUNCED_SECONDS", 0.05)
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.05)
    async with scribe() as named, scribe() as dead:
        dead.greeting = b"INFO"
        named.info = {"connect_urls": [f"127.0.0.1:{dead.port}"]}
        client = Connection(on_error=lambda error: None)
        await client.reach(named.url)
        named.greeting = b"-ERR 'not now'\r\n"
        named.writers[-1].transport.abort()
        await until(lambda: len(dead.writers) > 1)
        assert not client.is_connected
        named.greeting = None
        await until(lambda: client.is_connected)
        assert client.reconnects == 1
        assert dead.lines == []
        await client.close()


async def test_a_thief_gets_no_password() -> None:
    """A server that only gossip names is told no password in plain text, and nothing else instead."""
    async with scribe() as named, scribe() as thief:
        named.info = {"connect_urls": [f"127.0.0.1:{thief.port}"]}
        errors: list[Exception] = []
        client = Connection(on_error=errors.append)
        await client.reach(named.url.replace("//", "//me:pa55@"))
        named.greeting = b"-ERR 'not now'\r\n"
        named.writers[-1].transport.abort()
        await until(lambda: any("in plain text" in str(error) for error in errors))
        await client.close()
        assert thief.lines == []
        assert any(b"pa55" in line for line in named.lines)
