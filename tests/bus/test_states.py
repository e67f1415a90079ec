"""The states of a session: what each accepts, line by line; nothing is delivered before the login."""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.bus.errors import LoginRefused, Lost, ProtocolError, ServerComplaint
from holdfast.bus.login import Login, server_at
from holdfast.bus.session import ACCEPTED, MOST_PINGS, Session, State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.bus.protocol import Message

CONTEXT = ssl.create_default_context()
INFO = b'INFO {"server_id": "s"}\r\n'
LINES = {
    "INFO": INFO,
    "-ERR": b"-ERR 'Authorization Violation'\r\n",
    "PING": b"PING\r\n",
    "PONG": b"PONG\r\n",
    "+OK": b"+OK\r\n",
    "MSG": b"MSG a 1 2\r\n{}\r\n",
    "HMSG": b"HMSG a 1 12 14\r\nNATS/1.0\r\n\r\n{}\r\n",
    "nonsense": b"NONSENSE\r\n",
    "a client's line": b"PUB a 2\r\n{}\r\n",
    "an empty line": b"\r\n",
}
EXPECTED: dict[State, dict[str, str]] = {
    State.GREETING: {"INFO": "goes on", "-ERR": "ends"},
    State.SECURING: {},
    State.LOGIN: {"INFO": "stays", "-ERR": "ends", "PING": "answers", "PONG": "goes on"},
    State.OPEN: {
        "INFO": "stays",
        "-ERR": "stays",
        "PING": "answers",
        "PONG": "stays",
        "+OK": "stays",
        "MSG": "delivers",
        "HMSG": "delivers",
    },
    State.OVER: dict.fromkeys(LINES, "stays"),
}
"""What a line leads to; what is not here ends the session as a violation of the protocol."""


class Wire:
    """A transport that notes what is written, and whether it is read from."""

    def __init__(self) -> None:
        self.written = b""
        self.reading = True
        self.aborted = False

    def write(self, data: bytes) -> None:
        """Note it."""
        self.written += data

    def abort(self) -> None:
        """Note it."""
        self.aborted = True

    def pause_reading(self) -> None:
        """Note it."""
        self.reading = False

    def is_closing(self) -> bool:
        """Whether nothing may be written."""
        return self.aborted

    def get_write_buffer_size(self) -> int:
        """Everything is taken at once."""
        return 0


class Ground:
    """A session on such a transport, and what its owner is told."""

    def __init__(self, *, tls: bool = False) -> None:
        self.wire = Wire()
        self.delivered: list[bytes] = []
        self.complaints: list[Exception] = []
        self.informed_of: list[Session] = []
        login = Login(tls=CONTEXT) if tls else Login()
        self.session = Session(server_at("127.0.0.1"), {"1": self._take}, self, login=login)
        self.session.connection_made(cast("Any", self.wire))
        self.begun: asyncio.Task[None] | None = None

    def _take(self, message: Message) -> None:
        self.delivered.append(message.data)

    def complain(self, error: Exception) -> None:
        """See `SessionOwner.complain`."""
        self.complaints.append(error)

    def informed(self, session: Session) -> None:
        """See `SessionOwner.informed`."""
        self.informed_of.append(session)

    def ended(self, session: Session) -> None:
        """See `SessionOwner.ended`."""

    def feed(self, data: bytes) -> None:
        """Have bytes come from the server."""
        for at in range(0, len(data), 32_768):
            piece = data[at : at + 32_768]
            self.session.get_buffer(len(piece))[: len(piece)] = piece
            self.session.buffer_updated(len(piece))

    async def bring_to(self, state: State) -> None:
        """Let the session come so far, as a real server would."""
        if state is State.SECURING:
            self.feed(b'INFO {"tls_required": true}\r\n')
        elif state in (State.LOGIN, State.OPEN):
            self.feed(INFO)
            self.begun = asyncio.create_task(self.session.begin("test"))
            await turns()
        if state is State.OPEN:
            self.feed(b"PONG\r\n")
            await turns()
        elif state is State.OVER:
            self.session.abort()
        assert self.session.state is state
        self.wire.written = b""

    async def end(self) -> BaseException | None:
        """End the session, and return what its beginning came to."""
        self.session.abort()
        await turns()
        return self.begun.exception() if self.begun is not None else None


async def turns() -> None:
    """Let the loop turn a few times."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("state", State)
async def test_every_line_in_every_state(state: State, name: str) -> None:
    """A line that its state does not accept ends the session; messages are delivered in OPEN alone."""
    ground = Ground(tls=state is State.SECURING)
    await ground.bring_to(state)
    outcome = EXPECTED[state].get(name, "violates")
    ground.feed(LINES[name])
    await turns()
    assert ground.session.over is (outcome in ("ends", "violates") or state is State.OVER)
    assert ground.wire.aborted is ground.session.over
    assert ground.delivered == ([b"{}"] if outcome == "delivers" else [])
    assert (b"PONG\r\n" in ground.wire.written) is (outcome == "answers")
    if outcome == "goes on":
        assert ground.session.state is {State.GREETING: State.LOGIN, State.LOGIN: State.OPEN}[state]
    elif outcome in ("stays", "answers", "delivers"):
        assert ground.session.state is state
    await ground.end()


def test_the_table_is_the_one_that_is_tested() -> None:
    """What the session's own table accepts is what is expected here, and each state is in it."""
    expected = {state: frozenset(lines) for state, lines in EXPECTED.items()} | {State.OVER: frozenset()}
    assert expected == ACCEPTED


@pytest.mark.parametrize(
    ("state", "line", "error"),
    [
        (State.LOGIN, b"-ERR 'Authorization Violation'\r\n", LoginRefused),
        (State.LOGIN, b"-ERR 'maximum connections exceeded'\r\n", ServerComplaint),
        (State.LOGIN, b"MSG a 1 2\r\n", ProtocolError),
        (State.LOGIN, b"x" * 70_000, ProtocolError),
    ],
)
async def test_a_failed_login_raises_the_reason(state: State, line: bytes, error: type[Exception]) -> None:
    """Who logs in learns why it came to nothing."""
    ground = Ground()
    await ground.bring_to(state)
    ground.feed(line)
    assert type(await ground.end()) is error
    assert ground.complaints == []


async def test_nobody_is_refused_before_the_login() -> None:
    """Whoever says in plain text that a user is not let in can't know that: it is a complaint like others."""
    ground = Ground(tls=True)
    ground.begun = asyncio.create_task(ground.session.begin("test"))
    ground.feed(b"-ERR 'Authorization Violation'\r\n")
    assert type(await ground.end()) is ServerComplaint


@pytest.mark.parametrize(
    "behind", [b"M", b"\r\n", b"MSG a 1 2\r\n{}\r\n", b"INFO {}\r\n", b"PING\r\n", b"\x16\x03\x01"]
)
async def test_any_byte_behind_info_before_tls_ends_the_session(behind: bytes) -> None:
    """Once TLS is to come, not a byte more is taken in plain text, in the same piece or the next."""
    for pieces in (
        [b'INFO {"tls_required": true}\r\n' + behind],
        [b'INFO {"tls_required": true}\r\n', behind],
    ):
        ground = Ground(tls=True)
        ground.begun = asyncio.create_task(ground.session.begin("test"))
        for piece in pieces:
            ground.feed(piece)
        assert ground.session.over
        assert not ground.wire.reading
        error = await ground.end()
        assert isinstance(error, ProtocolError)
        assert "encrypted" in str(error)
        assert (ground.delivered, ground.wire.written) == ([], b"")


async def test_messages_after_the_pong_are_delivered() -> None:
    """The line that lets this user in may be followed by others in the same piece, and they count."""
    ground = Ground()
    await ground.bring_to(State.LOGIN)
    ground.feed(b"PONG\r\nMSG a 1 2\r\n{}\r\nPING\r\n" + INFO)
    await turns()
    assert ground.delivered == [b"{}"]
    assert ground.informed_of == [ground.session]
    assert ground.wire.written == b"PONG\r\n"
    assert await ground.end() is None


async def test_an_early_pong_confirms_nothing() -> None:
    """A PONG that was not asked for is no answer to the PING of the login."""
    ground = Ground()
    ground.feed(INFO + b"PONG\r\n" * 3)
    assert ground.session.state is State.LOGIN
    ground.feed(b"MSG a 1 2\r\n{}\r\n")
    assert ground.session.over
    assert ground.delivered == []


async def test_the_owner_hears_of_a_server_that_has_let_it_in_alone() -> None:
    """What a server says of itself before that counts for this login and for nothing else."""
    ground = Ground()
    ground.feed(b'INFO {"connect_urls": ["evil:1"], "ldm": true}\r\n')
    assert ground.informed_of == []
    ground.begun = asyncio.create_task(ground.session.begin("test"))
    await turns()
    ground.feed(INFO)
    assert ground.informed_of == []
    await ground.end()


async def test_pings_are_bounded() -> None:
    """A server that pings and takes no pong is left, and so is one that answers no ping."""
    ground = Ground()
    await ground.bring_to(State.OPEN)
    ground.feed(b"PING\r\n" * MOST_PINGS)
    await turns()
    assert ground.wire.written == b"PONG\r\n" * MOST_PINGS
    ground.session.pause_writing()
    ground.feed(b"PING\r\n" * (MOST_PINGS + 1))
    assert ground.session.over
    assert [type(error) for error in ground.complaints] == [ProtocolError]

    ground = Ground()
    await ground.bring_to(State.OPEN)
    waiting = [ground.session.ping() for _ in range(MOST_PINGS)]
    assert not ground.session.over
    waiting.append(ground.session.ping())
    assert [one.result() for one in waiting] == [False] * (MOST_PINGS + 1)
    assert [type(error) for error in ground.complaints] == [Lost]


@pytest.mark.parametrize("state", [State.GREETING, State.LOGIN, State.OPEN])
async def test_a_nested_introduction_ends_the_session(state: State) -> None:
    """An INFO that is nested deeper than anybody would is refused like every other that can't be read."""
    ground = Ground()
    await ground.bring_to(state)
    ground.feed(b'INFO {"a": ' + b"[" * 30_000 + b"]" * 30_000 + b"}\r\n")
    assert ground.session.over
    await ground.end()


async def test_a_complaint_is_passed_on_in_part() -> None:
    """However much a server complains, who is told of it gets a line."""
    ground = Ground()
    await ground.bring_to(State.OPEN)
    ground.feed(b"-ERR '" + "ä".encode() * 10_000 + b"'\r\n")
    assert [str(error) for error in ground.complaints] == ["ä" * 500]


@pytest.mark.unmeasured
@given(st.data())
def test_nothing_is_delivered_before_the_login(data: st.DataObject) -> None:
    """No order of lines and no cut of them delivers a message, answers an unasked PONG or lets a user in."""

    async def attempt(lines: Sequence[bytes], *, tls: bool) -> None:
        ground = Ground(tls=tls)
        stream = b"".join(lines)
        cut = data.draw(st.integers(0, len(stream)))
        for piece in (stream[:cut], stream[cut:]):
            if piece:
                ground.feed(piece)
        await turns()
        assert ground.delivered == []
        assert ground.informed_of == []
        assert ground.session.state is not State.OPEN
        ground.session.abort()

    infos = [b"INFO " + json.dumps(info).encode() + b"\r\n" for info in ({}, {"tls_required": True})]
    lines = data.draw(st.lists(st.sampled_from([*LINES.values(), *infos]), max_size=12))
    asyncio.run(attempt(lines, tls=data.draw(st.booleans())))
