"""How much a session reads and hands over in a turn of the loop: enough for a server, and little for others.

The session stands alone on a socket that notes what it is told; nothing waits for time.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from holdfast.bus.connection import Connection
from holdfast.bus.login import server_at
from holdfast.bus.protocol import Message
from holdfast.bus.session import (
    AT_ONCE,
    BULK_BYTES,
    FEW,
    LONGEST,
    MESSAGES,
    MOST_UNSENT,
    READ_BYTES,
    Session,
    State,
)


class Socket:
    """A socket whose other end takes everything."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self._reading = True

    def reads(self) -> bool:
        """Whether the loop would read on."""
        return self._reading

    def is_closing(self) -> bool:
        """It is open."""
        return False

    def get_write_buffer_size(self) -> int:
        """All that was written is gone."""
        return 0

    def write(self, data: bytes) -> None:
        """What a transport does."""
        self.written.append(data)

    def pause_reading(self) -> None:
        """What a transport does."""
        assert self._reading
        self._reading = False

    def resume_reading(self) -> None:
        """What a transport does."""
        assert not self._reading
        self._reading = True

    def abort(self) -> None:
        """Nothing is left to be done."""


@pytest.fixture
def socket() -> Socket:
    """What a session reads from and writes to."""
    return Socket()


def on(socket: Socket, taken: list[Message], *, rest: float = 0.0) -> Session:
    """A session on that socket, whose user has been let in."""
    made = Session(server_at("127.0.0.1"), {"1": taken.append}, Connection(), rest=rest)
    made.connection_made(cast("Any", socket))
    made.state = State.OPEN
    return made


def hear(session: Session, data: bytes) -> int:
    """Have a session read as much as it wants in one piece; how much that was."""
    buffer = session.get_buffer(-1)
    size = min(len(buffer), len(data))
    buffer[:size] = data[:size]
    session.buffer_updated(size)
    return size


async def test_a_large_message_is_read_in_few_pieces(socket: Socket) -> None:
    """Of a message larger than a piece all that is missing is read at once, and of what follows no more."""
    taken: list[Message] = []
    session = on(socket, taken)
    size = BULK_BYTES + 300_000
    data = b"MSG a 1 %d\r\n%b\r\nMSG b 1 1\r\nx\r\n" % (size, b"y" * size)
    pieces: list[int] = []
    while data:
        pieces.append(hear(session, data))
        data = data[pieces[-1] :]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert socket.reads()
    assert pieces[:2] == [READ_BYTES, BULK_BYTES]
    assert len(pieces) == 4
    assert [(message.subject, len(message.data)) for message in taken] == [("a", size), ("b", 1)]
    assert len(session.get_buffer(-1)) == READ_BYTES
    session.abort()


async def test_a_full_piece_is_the_last_of_its_turn(socket: Socket) -> None:
    """Where there is more to read, others have their turn first; where there is not, reading goes on."""
    session = on(socket, [])
    hear(session, b"+OK\r\n" * 10)
    assert socket.reads()
    hear(session, b"+OK\r\n" * READ_BYTES)
    assert not socket.reads()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert socket.reads()
    session.abort()


async def test_a_session_that_rests_leaves_time_to_others(
    socket: Socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that shares the loop with others reads nothing for so many times as long as the last piece took."""
    loop, rests = asyncio.get_running_loop(), list[float]()
    monkeypatch.setattr("holdfast.seams.monotonic", iter([10.0, 10.5]).__next__)
    session = on(socket, [], rest=3.0)
    message = b"MSG a 1 %d\r\n%b\r\n" % (READ_BYTES // 2, b"x" * (READ_BYTES // 2))

    def call_later(delay: float, call: Any) -> None:
        rests.append(delay)
        loop.call_soon(call)

    monkeypatch.setattr(loop, "call_later", call_later)
    hear(session, message * 3)
    monkeypatch.undo()
    assert (socket.reads(), rests) == (False, [1.5])
    await asyncio.sleep(0)
    assert socket.reads()
    session.abort()


async def test_messages_that_take_long_are_delivered_a_few_at_a_time(
    socket: Socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The share of a flood in a turn is bounded by the time that it takes, not only in number."""
    taken: list[Message] = []
    session = on(socket, taken, rest=3.0)
    with monkeypatch.context() as patched:
        patched.setattr("holdfast.seams.monotonic", lambda: len(taken) * LONGEST / 6)
        hear(session, b"MSG a 1 1\r\nx\r\n" * (MESSAGES + 8))
    assert len(taken) == 2 * FEW
    for _ in range(4):
        await asyncio.sleep(0)
    session.abort()


async def test_a_session_that_rests_delivers_little_in_a_turn(
    socket: Socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many small messages few are delivered in a turn, in order, and nothing is read meanwhile."""
    monkeypatch.setattr("holdfast.bus.session.LONGEST", 60.0)
    taken: list[Message] = []
    session = on(socket, taken, rest=3.0)
    subjects = [f"s{number}" for number in range(2 * MESSAGES + 1)]
    assert hear(session, "".join(f"MSG {subject} 1 0\r\n\r\n" for subject in subjects).encode()) < READ_BYTES
    for delivered in (MESSAGES, 2 * MESSAGES, 2 * MESSAGES + 1):
        assert [message.subject for message in taken] == subjects[:delivered]
        assert not socket.reads()
        await asyncio.sleep(0)
    assert socket.reads()
    hear(session, b"MSG last 1 0\r\n\r\n")
    assert taken[-1].subject == "last"
    session.abort()


async def test_a_flood_of_small_messages_rests_after_each_few(
    socket: Socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is more to read, a session rests after each few messages, for as long as they took."""
    loop, rests = asyncio.get_running_loop(), list[float]()
    taken: list[Message] = []
    session = on(socket, taken, rest=3.0)

    def call_later(delay: float, call: Any) -> None:
        rests.append(delay)
        loop.call_soon(call)

    monkeypatch.setattr(loop, "call_later", call_later)
    ticks = iter(range(100_000))
    monkeypatch.setattr("holdfast.seams.monotonic", lambda: float(next(ticks)))
    sent = hear(session, b"MSG a 1 0\r\n\r\n" * READ_BYTES) // len(b"MSG a 1 0\r\n\r\n")
    for turn in range(1, -(-sent // FEW) + 1):
        assert (len(taken), rests) == (min(turn * FEW, sent), [3.0] * turn)
        assert not socket.reads()
        await asyncio.sleep(0)
    assert socket.reads()
    session.abort()


async def test_a_session_that_is_over_delivers_no_more(
    socket: Socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that were read but not delivered before the end are dropped: none could be answered."""
    monkeypatch.setattr("holdfast.bus.session.LONGEST", 60.0)
    taken: list[Message] = []
    session = on(socket, taken, rest=3.0)
    hear(session, b"MSG a 1 0\r\n\r\n" * 2 * MESSAGES)
    session.abort()
    await asyncio.sleep(0)
    assert len(taken) == MESSAGES
    assert session._undelivered == []  # else the loop would look for the end of them for ever


async def test_a_session_that_is_over_reads_no_more(socket: Socket) -> None:
    """What ended while it rested is not read from again."""
    session = on(socket, [])
    hear(session, b"+OK\r\n" * READ_BYTES)
    session.abort()
    await asyncio.sleep(0)
    assert not socket.reads()


async def test_waiting_messages_are_handed_over_in_pieces(socket: Socket) -> None:
    """However much waits, a turn hands over a piece of it, in order; in the end all of it, and once."""
    session = on(socket, [])
    session.pause_writing()
    commands = [bytes([number % 256]) * 1_000 for number in range(MOST_UNSENT // 1_000)]
    assert all(session.offer(command) for command in commands)
    session.resume_writing()
    assert 0 < len(socket.written[0]) < AT_ONCE + 1_000
    for _ in range(MOST_UNSENT // AT_ONCE + 2):
        await asyncio.sleep(0)
    assert len(socket.written) > MOST_UNSENT // AT_ONCE - 1
    assert b"".join(socket.written) == b"".join(commands)
    assert session.offer(b"x" * MOST_UNSENT)
    session.abort()
