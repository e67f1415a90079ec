"""The protocol by itself: what comes out of bytes, however they are cut, and what commands look like."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.bus.errors import ProtocolError
from holdfast.bus.protocol import (
    LARGEST_MESSAGE,
    LONGEST_LINE,
    Control,
    Info,
    Message,
    Reader,
    block,
    connect,
    info_of,
    pub,
    sub,
    unsub,
)

Event: TypeAlias = Message | Control | ProtocolError

NAMED, BARE = b"NATS/1.0\r\nName: v\r\n\r\n", b"NATS/1.0\r\n\r\n"
STREAM = (
    b"MSG a 1 5\r\nhello\r\n+OK\r\nMSG a.b 1 re.ply 0\r\n\r\nPING\r\n"
    b"HMSG h 1 %d %d\r\n%b{}\r\n"
    % (len(NAMED), len(NAMED) + 2, NAMED)
    + b"HMSG h 1 r %d %d\r\n%b\r\n\r\n" % (len(BARE), len(BARE) + 2, BARE)
    + b"HMSG empty 1 0 1\r\nx\r\nMSG \xff 1 2\r\n{}\r\n"
    b"HMSG h 1 \xff 2 4\r\n\r\nab\r\nMSG x\x0b1 1 2\r\n{}\r\n"
    b"MSG y 12 re\x0c4\r 2\r\n{}\r\n"
    b'INFO {"server_id":"s"}\r\n-ERR \'Permissions Violation\'\r\nMSG last 1 4\r\n\r\n\r\n\r\nPONG\r\n'
)
EVENTS: list[Event] = [
    Message("1", "a", "", b"hello"),
    Control("+OK", b""),
    Message("1", "a.b", "re.ply", b""),
    Control("PING", b""),
    Message("1", "h", "", b"{}", NAMED),
    Message("1", "h", "r", b"\r\n", BARE),
    Message("1", "empty", "", b"x"),
    Message("1", "x\x0b1", "", b"{}"),
    Message("12", "y", "re\x0c4\r", b"{}"),
    Control("INFO", b'{"server_id":"s"}'),
    Control("-ERR", b"'Permissions Violation'"),
    Message("1", "last", "", b"\r\n\r\n"),
    Control("PONG", b""),
]


def read(pieces: list[bytes]) -> tuple[list[Event], Reader]:
    """What comes out of pieces, and who has read them."""
    reader = Reader()
    return [event for piece in pieces for event in reader.feed(piece)], reader


@pytest.mark.unmeasured
@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_any_cut_gives_the_same(cuts: list[int]) -> None:
    """However the stream is cut, the same messages and lines come out; what can't be read is counted once."""
    edges = [0, *sorted(cuts), len(STREAM)]
    events, reader = read([STREAM[start:end] for start, end in pairwise(edges)])
    assert events == EVENTS
    assert (reader.unreadable, reader.held) == (2, 0)


def test_bytes_one_by_one() -> None:
    """A stream that comes in single bytes is read like one that comes at once."""
    events, reader = read([STREAM[at : at + 1] for at in range(len(STREAM))])
    assert (events, reader.unreadable) == (EVENTS, 2)


_TOKENS = st.binary(min_size=1, max_size=12).filter(lambda word: not set(word) & set(b" \r\n\t"))


@pytest.mark.unmeasured
@given(
    st.lists(
        st.tuples(_TOKENS, st.one_of(st.just(b""), _TOKENS), st.binary(max_size=40), st.binary(max_size=9))
    ),
    st.data(),
)
def test_no_byte_of_a_message_derails_the_next(
    messages: list[tuple[bytes, bytes, bytes, bytes]], data: st.DataObject
) -> None:
    """No byte of a subject, a reply subject, a header or a payload derails the messages after it."""
    stream, expected, unreadable = b"", [], 0
    for subject, reply, payload, head in messages:
        where = subject + b" 7" + (b" " + reply if reply else b"")
        size = len(head) + len(payload)
        line = b"HMSG %b %d %d" % (where, len(head), size) if head else b"MSG %b %d" % (where, size)
        stream += line + b"\r\n" + head + payload + b"\r\n"
        try:
            expected.append(Message("7", subject.decode(), reply.decode(), payload, head))
        except UnicodeDecodeError:
            unreadable += 1
    cut = data.draw(st.integers(0, len(stream)))
    events, reader = read([stream[:cut], stream[cut:]])
    assert (events, reader.unreadable) == (expected, unreadable)


@pytest.mark.parametrize(
    "line",
    [
        b"NONSENSE",
        b"",
        b"msg a 1 2",
        b"MSG a 1",
        b"MSG a 1 r 2 3",
        b"MSG a  1 2 2",
        b"MSG a 1 x",
        b"MSG a 1 -1",
        b"MSG a 1 r -9",
        b"MSG a 1 r x",
        b"MSG a 1 %d" % (LARGEST_MESSAGE + 1),
        b"HMSG a 1 4 2",
        b"HMSG a 1 -1 2",
        b"HMSG a 1 2",
        b"MSG\x0ba 1 2",
        b"\xff",
    ],
)
def test_a_line_outside_the_protocol_is_an_error(line: bytes) -> None:
    """A line that is not of the protocol comes out as an error, behind all that came before it."""
    [first, last], _ = read([b"MSG a 1 2\r\n{}\r\n" + line + b"\r\n{}\r\n"])
    assert first == Message("1", "a", "", b"{}")
    assert isinstance(last, ProtocolError)


@pytest.mark.parametrize("line", [b"MSG a 1 2", b"MSG a 1 r 2", b"HMSG a 1 0 2"])
def test_a_message_that_does_not_end_where_it_should(line: bytes) -> None:
    """A payload that is longer than was said is no payload."""
    [only], _ = read([line + b"\r\n{}{}\r\n"])
    assert isinstance(only, ProtocolError)


def test_a_line_without_an_end() -> None:
    """A line is bounded, and so is what is held of it."""
    reader = Reader()
    assert reader.feed(b"INFO " + b"x" * (LONGEST_LINE - 5)) == []
    assert reader.held == LONGEST_LINE
    [only] = reader.feed(b"x")
    assert isinstance(only, ProtocolError)


def test_a_large_message_is_joined_once() -> None:
    """What waits for the end of a message is kept in pieces, and read when it is whole."""
    reader, piece = Reader(), b"x" * 10_000
    assert reader.feed(b"MSG a 1 1000000\r\n") == []
    assert [reader.feed(piece) for _ in range(100)] == [[]] * 100
    assert reader.feed(b"\r\nPING\r\n") == [Message("1", "a", "", piece * 100), Control("PING", b"")]


@pytest.mark.parametrize(
    ("head", "status", "value"),
    [
        (b"", "", None),
        (NAMED, "", "v"),
        (BARE, "", None),
        (b"NATS/1.0 503\r\n\r\n", "503", None),
        (b"NATS/1.0 503 No Responders\r\nName:v\r\n\r\n", "503", "v"),
        (b"NATS/1.0\r\nMy-Name: other\r\nName:   first\r\nName: second\r\n\r\n", "", "first"),
        (b"NATS/1.0\r\nName: \xff\r\n\r\n", "", None),
        (b"NATS/1.0 \xff\xff\xff\r\n\r\n", "\ufffd\ufffd\ufffd", None),
        (b"garbage", "", None),
    ],
)
def test_headers(head: bytes, status: str, value: str | None) -> None:
    """Headers are looked at only where somebody asks for one; of odd ones there is none."""
    message = Message("1", "a", "", b"", head)
    assert (message.status, message.header("Name")) == (status, value)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"nonsense",
        b"[]",
        b"\xff",
        b'{"max_payload": 0}',
        b'{"max_payload": -1}',
        b'{"max_payload": 1e400}',
        b'{"max_payload": %d}' % (LARGEST_MESSAGE + 1),
        b'{"max_payload": "1"}',
        b'{"nonce": "%b"}' % (b"n" * 257),
        b'{"nonce": 7}',
        b'{"connect_urls": "a"}',
        b'{"connect_urls": [7]}',
        b'{"tls_required": "false"}',
        b'{"ldm": 1}',
        b'{"deep": ' + b"[" * 30_000 + b"]" * 30_000 + b"}",
        b'{"deep": ' + b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b"}",
        b'{"connect_urls": ' + b"[" * 30_000 + b"]" * 30_000 + b"}",
    ],
)
def test_an_introduction_that_can_not_be_read(text: bytes) -> None:
    """What a server says of itself is a JSON object, each field of its kind and size, not nested for ever."""
    with pytest.raises(ProtocolError):
        info_of(Control("INFO", text))


def test_an_introduction() -> None:
    """Of what a server says of itself that is kept which matters; the usual holds for what it leaves out."""
    text = b'{"x": [[]], "max_payload": 77, "nonce": "n", "connect_urls": ["a:1"], "ldm": true}'
    assert info_of(Control("INFO", text)) == Info(max_payload=77, nonce="n", connect_urls=["a:1"], ldm=True)
    assert info_of(Control("INFO", b'{"connect_urls": null}')) == Info(max_payload=1_048_576)


def test_commands() -> None:
    """Commands are what the protocol says."""
    assert sub("a.>", "", "1") == b"SUB a.> 1\r\n"
    assert sub("a.>", "q", "2") == b"SUB a.> q 2\r\n"
    assert unsub("2") == b"UNSUB 2\r\n"
    assert pub("a", b"xy") == b"PUB a 2\r\nxy\r\n"
    assert pub("a", b"xy", reply="r") == b"PUB a r 2\r\nxy\r\n"
    assert pub("ä", b"xy", head=block({"N": "v"})) == b"HPUB \xc3\xa4 18 20\r\nNATS/1.0\r\nN: v\r\n\r\nxy\r\n"
    assert (
        pub("a", b"", reply="r", head=block({"N": "v", "M": "w"}))
        == b"HPUB a r 24 24\r\nNATS/1.0\r\nN: v\r\nM: w\r\n\r\n\r\n"
    )
    assert json.loads(connect({"verbose": False}).removeprefix(b"CONNECT ")) == {"verbose": False}
