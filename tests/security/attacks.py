"""Everything that a user with real credentials can try against the others.

An attempt says what it does and judges nothing; what it achieved is counted by the bus. No attempt sends
the word of `HONEST`. Every user makes every kind of attempt. The suite has the users share the attempts of a
kind, so that each is made by one of them; `./dev soak attacks` has every user make them all.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from holdfast.bus.protocol import block
from holdfast.edges.nats.server_config import SERVICE
from holdfast.wire.subjects import OPERATOR, QUEUE
from tests.nats import Wire, connection
from tests.security.bus import BOT, FEW, FORGED, KEY_VERBS, OPS, OWNERS, verb_subjects

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from holdfast.bus.protocol import Message
    from tests.security.bus import Bus

T = TypeVar("T")

ALL: Final = os.environ.get("HOLDFAST_EVERY_ATTEMPT") == "1"
"""Every user makes every attempt; else the users share the attempts of a kind."""
SHARING: Final = (*OWNERS, *FEW)
"""The users who share the attempts."""

EVERYTHING: Final = (
    ">",
    "*",
    "*.>",
    "*.*.>",
    "*.*.*.>",
    "_INBOX.>",
    "_INBOX.*",
    "_INBOX.*.>",
    "_INBOX.*.*.>",
    "_R_.>",
    "$SRV.>",
    "$SRV.PING",
    "$SYS.>",
    "$JS.>",
)
"""Subjects that hold those of others."""

ODD_BYTES: Final = (
    b"\x00",
    b"\x01",
    b"\x08",
    b"\x1b",
    b"\x7f",
    b"\xc2\x85",
    b"\xe2\x80\xa8",
    b"*",
    b">",
)
"""What may stand in a reply subject and is no part of any inbox."""
LINE_BREAKS: Final = (b"\n", b"\r", b"\r\n", b"\n\n", b"\t\n", b" \n")
"""What ends a line of the protocol, or seems to."""


_ONE_OF_EACH: Final = {
    "table": ("put_item", "get_item"),
    "blob": ("put", "head"),
    "kv": ("set", "get"),
}
"""A verb that writes and one that reads, by family."""


def forged(user: str, victim: str) -> bytes:
    """A request that every verb would take for a good one."""
    entry = {"key": "forged", "value": f"by {user}"}
    others = {"keys": ["forged"], "items": [entry], "writes": [entry], "by": 1, "ttl_seconds": 60}
    named = {"plugin_name": victim, "namespace": f"kv/{victim}", "table": FORGED, "partition_key": "forged"}
    blob = {"data": "Zm9yZ2Vk", "upload": 1, "number": 0, "source": "forged", "size": 6, "checksum": "0" * 64}
    item = {"item": {"name": "forged"}, "index": "forged", "set": {"by": user}, "key_value": "forged"}
    return json.dumps({**entry, **others, **named, **item, **blob, "ttlSeconds": 60, "since": 0}).encode()


def _count(heard: Counter[str], ear: str, message: Message) -> None:
    heard[ear] += 1


class Attacker:
    """One user, who turns against all others."""

    def __init__(self, user: str, bus: Bus) -> None:
        self.user = user
        self.owner = user.partition(":")[0]
        self._bus = bus
        self._own = bus.credentials[user]
        self._victims = [name for name in (*OWNERS, BOT) if name != self.owner]
        self._turn = SHARING.index(user) if user in SHARING else 0

    async def overhear(self) -> list[str]:
        """Subscribe to all that is not one's own while the others work, and return what was delivered."""
        async with connection(self._bus.url, self._own) as client:
            heard: Counter[str] = Counter()
            for subject in self._subjects_to_hear():
                for queue in ("", QUEUE, "thieves"):
                    client.listen(subject, partial(_count, heard, subject), queue=queue)
            await client.flush()
            await self._bus.everybody_asks(but=self.owner, rounds=1)
            await client.flush()
            return [f"{self.user} overheard {times} at {subject!r}" for subject, times in heard.items()]

    async def impersonate(self) -> list[str]:
        """Ask, tell and answer in the name of others, and return what came back."""
        async with connection(self._bus.url, self._own) as client:
            answers: list[Message] = []
            ear = client.listen(f"{self._own.inbox}.ear", answers.append)
            for victim, subject in self._share(self._subjects_to_use()):
                for reply in ("", ear.subject):
                    assert client.send(subject, forged(self.user, victim), reply=reply)
            await client.flush()
            await self._bus.everybody_asks(but=self.owner, rounds=1)
            await client.flush()
            return [f"{self.user} was answered {len(answers)} times"] if answers else []

    async def misdirect(self) -> None:
        """Ask at one's own subjects, with replies that would go to others or be taken for their requests."""
        await self._misdirect_bare()
        async with connection(self._bus.url, self._own) as client:
            for own, victim, reply in self._misdirected():
                assert client.send(own, forged(self.user, victim), reply=reply)
            await client.flush()
        await self._bus.everybody_asks(but=self.owner)

    async def trace(self) -> None:
        """Have the server itself tell others how a message of one's own would go."""
        async with connection(self._bus.url, self._own) as client:
            for own, _, reply in self._misdirected():
                headers = {"Nats-Trace-Dest": reply, "Nats-Trace-Only": "true"}
                assert client.send(own, b"{}", head=block(headers))
            await client.flush()
        await self._bus.everybody_asks(but=self.owner)

    async def _misdirect_bare(self) -> None:
        """The same with bytes that no client library would send."""
        inbox = self._own.inbox.encode()
        others = [
            inbox,
            inbox + b".",
            inbox[:-1] + b".x",
            b"_INBOX",
            b"_INBOX..x",
            b".",
            b"..",
            b"_INBOX.*.x",
        ]
        odd = [
            reply
            for byte in ODD_BYTES
            for reply in (inbox + b".x" + byte, inbox + b"." + byte, byte, inbox + byte + b".x")
        ]
        async with Wire.open(self._bus.url, self._own) as wire:
            for own, reply in self._from_own([*odd, *others]):
                wire.publish(own.encode(), reply, forged(self.user, self.user))
            await wire.settle()
        for own, line_break in self._from_own(LINE_BREAKS):
            # The server may hang up on these: each has a connection of its own.
            with contextlib.suppress(ConnectionError):
                async with Wire.open(self._bus.url, self._own) as wire:
                    wire.publish(own.encode(), inbox + b".x" + line_break, forged(self.user, self.user))
                    await wire.settle()

    def _share(self, subjects: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        """The first subject of every kind, and this user's share of the others."""
        kinds: set[str] = set()
        for number, (victim, subject) in enumerate(subjects):
            kind = subject.rpartition(".")[0]
            if ALL or kind not in kinds or number % len(SHARING) == self._turn:
                yield victim, subject
            kinds.add(kind)

    def _from_own(self, what: Iterable[T]) -> Iterator[tuple[str, T]]:
        """Each of these with every subject of one's own, or with one of them in turn."""
        own = list(self._own_subjects())
        return itertools.product(own, what) if ALL else zip(itertools.cycle(own), what, strict=False)

    def _ways_in(self, user: str) -> list[str]:
        """Where a user may ask, and where the server sends that."""
        permissions = self._bus.permissions
        asked = permissions.requests(user)
        return list(dict.fromkeys([*asked, *map(permissions.where, asked)]))

    def _own_subjects(self) -> Iterator[str]:
        """A writing and a reading verb of each prefix and family of one's own."""
        for pattern in self._ways_in(self.user):
            if pattern.endswith((">", "*")):
                family = next((one for one in _ONE_OF_EACH if f".{one}." in pattern), "kv")
                verbs = _ONE_OF_EACH[family]
                yield from (pattern.removesuffix(">") + verb for verb in verbs)
            elif pattern.endswith((".get", ".list", ".get_item")):
                yield pattern

    def _subjects_to_hear(self) -> Iterator[str]:
        yield from EVERYTHING
        for prefix in self._bus.permissions.prefixes:
            for rest in (
                ">",
                "*.>",
                "kv.>",
                "kv.*",
                "kv.*.>",
                "table.*.>",
                "blob.*.>",
                "semantic.*.*.>",
                "admin.*",
                "link.>",
            ):
                yield f"{prefix}.{rest}"
            yield from (f"{prefix}.event.{rest}" for rest in (">", "*.>", "*.*.>", "*.*.*", "*.*.*.*"))
        for victim in (*self._victims, OPERATOR):
            yield f"{self._bus.credentials[victim].inbox}.>"
            yield from self._ways_in(victim)
            yield from self._bus.permissions.events(victim)
        yield f"{self._bus.credentials[SERVICE].inbox}.>"

    def _subjects_to_use(self) -> Iterator[tuple[str, str]]:
        """Whom it would hurt, and every subject at which something can be asked, told or answered."""
        permissions = self._bus.permissions
        for victim in (*self._victims, OPERATOR):
            for pattern in self._ways_in(victim):
                yield from ((victim, subject) for subject in verb_subjects(pattern))
            for pattern in permissions.events(victim):
                yield from ((victim, pattern.removesuffix(">") + op) for op in OPS)
            yield from (
                (victim, f"{prefix}.kv.{verb}") for prefix in permissions.prefixes for verb in KEY_VERBS
            )
            yield victim, f"{self._bus.credentials[victim].inbox}.forged"
            yield victim, f"{self._bus.credentials[victim].inbox}.ear"
        yield SERVICE, f"{self._bus.credentials[SERVICE].inbox}.forged"
        yield from ((SERVICE, subject) for subject in ("_R_.forged", "$SYS.REQ.SERVER.PING", "$JS.API.INFO"))
        yield from ((SERVICE, f"$SRV.{kind}.holdfast") for kind in ("PING", "INFO", "STATS"))

    def _misdirected(self) -> Iterator[tuple[str, str, str]]:
        """One's own subject, whom it would hurt, and a place for the answer that is not one's own inbox.

        Every place is used with one of one's own subjects in turn. If all attempts are made, the first of
        every kind is used with each.
        """
        own = itertools.cycle(self._own_subjects())
        kinds: set[str] = set()
        places = itertools.chain(self._share(self._subjects_to_use()), self._subjects_of_oneself())
        for victim, reply in places:
            kind = reply.rpartition(".")[0]
            if kind in kinds or not ALL:
                yield next(own), victim, reply
            else:
                kinds.add(kind)
                yield from ((subject, victim, reply) for subject in self._own_subjects())

    def _subjects_of_oneself(self) -> Iterator[tuple[str, str]]:
        for pattern in self._bus.permissions.events(self.user):
            yield self.user, pattern.removesuffix(">") + "set"
        yield from ((self.user, own) for own in self._own_subjects())
