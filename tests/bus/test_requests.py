"""Requester over a connection: what a sender is told about a request that no reply came to."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from holdfast.bus.connection import Connection, Requester
from holdfast.bus.errors import Lost, NoResponders
from tests.nats import connection, nats_server

if TYPE_CHECKING:
    from holdfast.bus.protocol import Message


def _echo(connection: Connection, message: Message) -> None:
    connection.send(message.reply, message.data)


async def test_a_request_tells_how_it_ended() -> None:
    """A reply is returned; no listener, silence and a lost connection are three different errors."""
    async with nats_server() as server, connection(server.url) as one, connection(server.url) as other:
        requests = Requester(one)
        other.listen("echo", partial(_echo, other))
        other.listen("silent", lambda message: None)
        await other.flush()
        assert (await requests.ask("echo", b"hello", seconds=5)).data == b"hello"
        with pytest.raises(NoResponders):
            await requests.ask("nobody", seconds=5)
        with pytest.raises(TimeoutError):
            await requests.ask("silent", seconds=0.05)
        assert one.server_version.startswith("2.")
        await one.close()
        with pytest.raises(Lost):
            await requests.ask("echo", seconds=5)
        assert one.server_version == ""


async def test_a_reply_that_comes_too_late_is_dropped() -> None:
    """A late reply is not taken for that of the next request."""
    late: list[str] = []
    async with nats_server() as server, connection(server.url) as one:
        requests = Requester(one)
        one.listen("slow", lambda message: late.append(message.reply))
        with pytest.raises(TimeoutError):
            await requests.ask("slow", b"1", seconds=0.05)

        def answer(message: Message) -> None:
            one.send(late[0], b"1")
            one.send(message.reply, b"2")

        one.listen("next", answer)
        assert (await requests.ask("next", seconds=5)).data == b"2"


async def test_a_connection_that_was_never_made_sends_nothing() -> None:
    """A request without a connection raises at once."""
    with pytest.raises(Lost):
        await Requester(Connection()).ask("echo", seconds=5)
