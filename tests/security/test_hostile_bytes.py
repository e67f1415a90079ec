"""No message of one user can silence the service for the others, whatever bytes are in it.

These messages go over a bare connection, since no client library would send them. The last tests show
that they would silence the library's own client.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from tests.nats import Wire
from tests.security.bus import running_bus
from tests.security.responders import stand_in_on_the_library

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.security.bus import Bus

INBOX: Final = b"_INBOX.trivia."
PATTERN: Final = b"db.kv.trivia."


def _subject(tail: bytes) -> Callable[[Wire], None]:
    return lambda wire: wire.publish(PATTERN + tail, b"", b"{}")


def _reply(tail: bytes) -> Callable[[Wire], None]:
    return lambda wire: wire.publish(PATTERN + b"get", INBOX + tail, b"{}")


def _headers(block: bytes) -> Callable[[Wire], None]:
    line = b"HPUB %bget %d %d" % (PATTERN, len(block), len(block) + 2)
    return lambda wire: wire.send(line, block + b"{}\r\n")


HOSTILE: Final = {
    "subject that is not UTF-8": _subject(b"\xff"),
    "subject cut within a character": _subject(b"\xe2\x80"),
    "reply that is not UTF-8": _reply(b"x\xff"),
    "vertical tab in the subject": _subject(b"get\x0b9"),
    "form feeds in the subject": _subject(b"get\x0c9\x0c9"),
    "vertical tab in the reply": _reply(b"x\x0bdb.kv.quote-db.set"),
    "form feed and a number in the reply": _reply(b"x\x0c4"),
    "carriage return in the reply": _reply(b"x\ry"),
    "carriage return at the end of the reply": _reply(b"x\r"),
    "headers of no form": _headers(b"garbage"),
    "headers without an end": _headers(b"NATS/1.0"),
    "headers with a status that is not UTF-8": _headers(b"NATS/1.0 \xff\xff\xff\r\n\r\n"),
    "headers with names that are not UTF-8": _headers(b"NATS/1.0\r\n\xff: \xff\r\n\r\n"),
    "headers of line breaks": _headers(b"NATS/1.0\r\n\r\n\r\n\r\n\r\n"),
}
"""Messages that a user may send to its own subjects."""

SILENCING: Final = [
    "subject that is not UTF-8",
    "reply that is not UTF-8",
    "carriage return in the reply",
    "headers of no form",
]


async def _send(bus: Bus, name: str) -> None:
    async with Wire.open(bus.url, bus.credentials["trivia"]) as wire:
        HOSTILE[name](wire)
        await wire.settle()


async def test_hostile_bytes_silence_nobody(bus: Bus) -> None:
    """After each of these messages everybody else is served as before, and nobody was sent anything."""
    for name in HOSTILE:
        await _send(bus, name)
        await bus.parties["quote-db"].ask_everywhere()
    await bus.everybody_asks(but="trivia")
    assert bus.breaches(own="trivia") == []


async def test_a_subject_can_not_choose_its_subscription(bus: Bus) -> None:
    """A number behind a vertical tab is part of the subject: it leads to no operators' verb."""
    async with Wire.open(bus.url, bus.credentials["trivia"]) as wire:
        for subscription in range(1, 30):
            for verb in (b"sweep", b"kv.quote-db.set", b"admin.namespaces"):
                wire.publish(b"%b%b\x0b%d" % (PATTERN, verb, subscription), b"", b'{"key": "k", "value": 1}')
        await wire.settle()
    await bus.everybody_asks(but="trivia")
    assert bus.breaches(own="trivia") == []


@pytest.mark.parametrize("name", SILENCING)
async def test_control_the_nats_py_client_is_silenced(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: a service that is connected with the library's client answers nobody any more."""
    monkeypatch.setattr("tests.security.bus.PATIENCE", 0.5)
    async with running_bus("permissions", stand_in_on_the_library) as bus:
        await bus.parties["quote-db"].ask_everywhere()
        await _send(bus, name)
        with pytest.raises(AssertionError, match="got no answer"):
            await bus.parties["quote-db"].ask_everywhere()


async def test_control_the_nats_py_client_confuses_subscriptions() -> None:
    """Negative control: behind a vertical tab a user names the subscription that takes its message."""
    plain = partial(stand_in_on_the_library, guarded=False)
    async with running_bus("permissions", plain) as bus:
        async with Wire.open(bus.url, bus.credentials["trivia"]) as wire:
            for subscription in range(1, 30):
                wire.publish(b"%bset\x0b%d" % (PATTERN, subscription), b"", b"{}")
            await wire.settle()
        await bus.everybody_asks(but="trivia")
        assert bus.responder.executed["kv/trivia"] > 0
