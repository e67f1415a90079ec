"""Finding the server that accepts writes: the others cost a moment at most, and nothing is left open."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.engines.postgres import connections
from holdfast.errors import Unavailable, Unsupported

BOTH = "postgresql://a,b/db"


class Line:
    """A connection as far as dialling knows one."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.ended = False

    def terminate(self) -> None:
        """Close it."""
        self.ended = True


class Servers:
    """Servers by name: a connection, an error, or an event after which it answers."""

    def __init__(self, **by_name: Any) -> None:
        self.by_name = by_name
        self.tried: list[str] = []
        self.both_tried = asyncio.Event()
        self.lines: list[Line] = []
        self.cancelled: list[str] = []

    async def dial(self, place: str) -> Any:
        """Connect as told."""
        name = place.partition("://")[2].partition("/")[0]
        self.tried.append(name)
        if len(self.tried) > 1:
            self.both_tried.set()
        answer = self.by_name[name]
        try:
            if isinstance(answer, asyncio.Event):
                await answer.wait()
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise
        if isinstance(answer, Exception):
            raise answer
        self.lines.append(Line(name))
        return self.lines[-1]


async def test_the_one_found_last_is_tried_first() -> None:
    """A server that is down is tried once, not before every connection."""
    servers = Servers(a=Unavailable("a is down"), b=None)
    found = connections.Servers(BOTH, servers.dial)
    for _ in range(3):
        assert (await found.connection()).place == "b"  # type: ignore[attr-defined]
    assert servers.tried == ["a", "b", "b", "b"]


async def test_unresponsive_server_is_given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is gone costs a moment, and the attempt at it is ended."""
    monkeypatch.setattr(connections, "HEAD_START", 0.01)
    servers = Servers(a=asyncio.Event(), b=None)
    assert (await connections.Servers(BOTH, servers.dial).connection()).place == "b"  # type: ignore[attr-defined]
    assert servers.cancelled == ["a"]


async def test_surplus_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that is not needed is closed."""
    monkeypatch.setattr(connections, "HEAD_START", 0.01)
    gate = asyncio.Event()
    servers = Servers(a=gate, b=gate)
    task = asyncio.create_task(connections.Servers(BOTH, servers.dial).connection())
    await servers.both_tried.wait()
    gate.set()
    kept: Any = await task
    assert [line.ended for line in servers.lines if line is not kept] == [True] * (len(servers.lines) - 1)


async def test_error_names_the_reason_for_each_server() -> None:
    """The message says of each server why it can't be used."""
    servers = Servers(a=Unavailable("a is down"), b=Unavailable("b is a standby"))
    with pytest.raises(Unavailable, match=r"^a is down; b is a standby$"):
        await connections.Servers(BOTH, servers.dial).connection()


async def test_permanent_reasons_come_first() -> None:
    """What only an operator can mend is said before what may pass by itself."""
    servers = Servers(a=Unavailable("a is down"), b=Unsupported("b is too old"))
    with pytest.raises(Unsupported):
        await connections.Servers(BOTH, servers.dial).connection()


async def test_cancelled_caller_leaves_no_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that gives up leaves no attempt behind."""
    monkeypatch.setattr(connections, "HEAD_START", 0.001)
    servers = Servers(a=asyncio.Event(), b=asyncio.Event())
    task = asyncio.create_task(connections.Servers(BOTH, servers.dial).connection())
    await servers.both_tried.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(servers.cancelled) == ["a", "b"]
