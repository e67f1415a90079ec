"""One connection to one server: which PONG answers whom, when silence is the end, and what may wait.

The session stands alone on a socket that a test reads from and speaks for; nothing waits for time.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from holdfast.bus.connection import Connection
from holdfast.bus.login import server_at
from holdfast.bus.session import MOST_SILENT, MOST_UNSENT, Session, State
from tests.bus.scribe import scribe
from tests.bus.test_connection import reached
from tests.edges.nats.ground import until


class Socket:
    """A socket whose other end takes nothing."""

    def __init__(self) -> None:
        self.written = b""

    def is_closing(self) -> bool:
        """It is open."""
        return False

    def get_write_buffer_size(self) -> int:
        """All that was written is still here."""
        return len(self.written)

    def write(self, data: bytes) -> None:
        """What a transport does."""
        self.written += data

    def abort(self) -> None:
        """Nothing is left to be done."""


@pytest.fixture
def socket() -> Socket:
    """Where a session writes to."""
    return Socket()


@pytest.fixture
async def session(socket: Socket) -> Session:
    """A session on that socket, whose user has been let in."""
    made = Session(server_at("127.0.0.1"), {}, Connection())
    made.connection_made(cast("Any", socket))
    made.state = State.OPEN
    return made


def hear(session: Session, data: bytes) -> None:
    """Have a session read something."""
    session.get_buffer(-1)[: len(data)] = data
    session.buffer_updated(len(data))


async def test_each_pong_answers_one_ping(session: Session, socket: Socket) -> None:
    """Whoever waits for a PONG is not content with that of a ping which was sent before theirs."""
    session._watch()
    mine = session.ping()
    await asyncio.sleep(0)
    assert socket.written == b"PING\r\nPING\r\n"
    hear(session, b"PONG\r\n")
    assert not mine.done()
    hear(session, b"PONG\r\n")
    assert await mine is True
    session.abort()


async def test_silence_is_the_end_of_a_session(session: Session) -> None:
    """After two pings that nothing has followed a session is over; whatever is heard counts."""
    for _ in range(MOST_SILENT):
        session._watch()
    hear(session, b"+OK\r\n")
    for _ in range(MOST_SILENT):
        session._watch()
        assert not session.over
    session._watch()
    assert session.over


async def test_nothing_is_sent_after_the_end(session: Session, socket: Socket) -> None:
    """Who sends or waits on a session that is over is told that it is."""
    waiting = session.ping()
    session.abort()
    assert await waiting is False
    assert await session.ping() is False
    assert session.offer(b"late") is False
    await asyncio.sleep(0)
    assert socket.written == b""


async def test_bytes_in_the_socket_count_as_unsent(session: Session) -> None:
    """What a server has not taken yet is bounded, also what has been handed to the socket."""
    half = b"x" * (MOST_UNSENT // 2)
    assert session.offer(half)
    await asyncio.sleep(0)
    assert session.offer(half)
    await asyncio.sleep(0)
    assert session.offer(b"x") is False
    session.abort()


def test_an_inbox_is_nobody_elses() -> None:
    """No two inboxes are the same, of one connection or of several."""
    connections = [Connection() for _ in range(3)]
    inboxes = {connection.new_inbox() for connection in connections for _ in range(3)}
    assert len(inboxes) == 9


async def test_another_server_is_tried_before_the_one_that_was_lost() -> None:
    """A client whose connection was cut goes to another server first: the one it had may be ill."""
    async with scribe() as first, scribe() as second, reached(first.url, second.url) as client:
        first.writers[0].transport.abort()
        await until(lambda: client.reconnects == 1 and client.is_connected)
        assert (len(first.writers), len(second.writers)) == (1, 1)


async def test_a_greeting_that_comes_too_late_is_no_error(socket: Socket) -> None:
    """A server that greets at the moment at which the login times out raises nothing in the event loop."""
    session = Session(server_at("127.0.0.1"), {}, Connection())
    session.connection_made(cast("Any", socket))
    beginning = asyncio.create_task(session.begin("late"))
    await asyncio.sleep(0)
    beginning.cancel()
    await asyncio.gather(beginning, return_exceptions=True)
    hear(session, b'INFO {"server_id": "s"}\r\n')
    assert not session.over
    session.abort()
