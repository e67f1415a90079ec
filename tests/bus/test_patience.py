"""What is patient waits for company, but not for long."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from holdfast.bus.connection import Connection
from holdfast.bus.login import server_at
from holdfast.bus.session import Session
from holdfast.pace import PATIENT_TURNS

if TYPE_CHECKING:
    from holdfast.edges.nats.server import NatsServer


class Socket:
    """Notes what is written at a time."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def is_closing(self) -> bool:
        """It is open."""
        return False

    def get_write_buffer_size(self) -> int:
        """It takes all."""
        return 0

    def write(self, data: bytes) -> None:
        """What a transport does."""
        self.written.append(data)


@pytest.fixture
def socket() -> Socket:
    """Where a session writes to."""
    return Socket()


@pytest.fixture
async def session(socket: Socket) -> Session:
    """A session on that socket."""
    made = Session(server_at("127.0.0.1"), {}, Connection())
    made.connection_made(cast("Any", socket))
    return made


async def turns(count: int) -> None:
    """Let the loop turn."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_patient_messages_are_sent_after_a_few_turns(session: Session, socket: Socket) -> None:
    """Nobody else comes: it is sent all the same, and what came meanwhile with it."""
    session.offer(b"first", patient=True)
    await turns(PATIENT_TURNS)
    assert socket.written == []
    session.offer(b"second", patient=True)
    await turns(1)
    assert socket.written == [b"firstsecond"]
    session.offer(b"third", patient=True)
    await turns(PATIENT_TURNS + 1)
    assert socket.written == [b"firstsecond", b"third"]


async def test_patient_messages_go_with_urgent_ones(session: Session, socket: Socket) -> None:
    """Whoever is in a hurry takes along what waits, in the order in which it came."""
    session.offer(b"first", patient=True)
    await turns(1)
    session.offer(b"second")
    session.offer(b"third", patient=True)
    await turns(1)
    assert socket.written == [b"firstsecondthird"]
    session.offer(b"fourth")
    await turns(1)
    assert socket.written == [b"firstsecondthird", b"fourth"]


async def test_patient_messages_are_sent_before_the_close(nats_server: NatsServer) -> None:
    """Who closes the connection at once has sent what was patient, too."""
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    listener, sender = Connection(), Connection()
    await listener.reach(nats_server.url)
    await sender.reach(nats_server.url)
    listener.listen("here", lambda message: heard.put_nowait(message.data))
    await listener.flush()
    assert sender.send("here", b"patient", patient=True)
    await sender.close()
    async with asyncio.timeout(60):
        assert await heard.get() == b"patient"
    await listener.close()
