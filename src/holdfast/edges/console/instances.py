"""The instances of a service: which there are, which of them lag behind, and which are gone.

Every instance tells all of them how it is every few seconds, over the inbox of services. A server that limits
users admits no others to it. So each instance can show all of them, and notices one that falls silent.

Law: what an instance says is shown and never acted on. Only the newest word of each is kept, for minutes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

import holdfast
from holdfast.wire.subjects import SERVICE_INBOX

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.bus.connection import Connection
    from holdfast.bus.protocol import Message
    from holdfast.edges.http.app import Health
    from holdfast.edges.monitoring.metrics import Metrics
    from holdfast.engine import ClusterFigures

EVERY: Final = 10.0
"""Seconds between two words of an instance."""
SILENT: Final = 35.0
"""Seconds after which an instance that says nothing is gone: three words are missing."""
FORGOTTEN: Final = 600.0
"""Seconds after which an instance that says nothing is shown no more."""
LATE: Final = 60.0
"""Delay of expiries in seconds from which an instance lags."""
BEHIND: Final = 10_000
"""Messages of a cluster's log from which a node lags, as in `holdfast cluster status`."""
MOST: Final = 64
"""Number of instances that are kept."""
MOST_BYTES: Final = 4_096
"""Size of the longest word."""


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """What an instance says of itself. `behind` and `stopped` are those of a node of a cluster, by shard."""

    id: str
    host: str
    pid: int
    version: str
    trouble: str | None = None
    """Why it is not ready; None if it is."""
    waiting: int = 0
    lag: float = 0.0
    behind: dict[int, int] = {}
    stopped: list[int] = []
    leaving: bool = False

    @property
    def name(self) -> str:
        """The instance, for people."""
        return f"the instance on {self.host} (process {self.pid})"


class HeardInstance(NamedTuple):
    """The newest word of an instance, and when it came, by this machine's monotonic clock."""

    word: Word
    at: float


class Instances:
    """The instances of a service, this one included.

    Args:
        health: The readiness of this instance.
        metrics: Its metrics.
        cluster: Returns what it knows of its cluster, if it is a node of one.
        prefix: The prefix of the service's subjects: instances that share requests share it.
        ticks: A clock that never goes back, in seconds.
    """

    def __init__(
        self,
        health: Health,
        metrics: Metrics,
        cluster: Callable[[], ClusterFigures | None],
        *,
        prefix: str,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._health = health
        self._metrics = metrics
        self._cluster = cluster
        self._ticks = ticks
        self._subject = f"{SERVICE_INBOX}.instances.{prefix}"
        self._me = Word(
            id=secrets.token_hex(8), host=socket.gethostname(), pid=os.getpid(), version=holdfast.__version__
        )
        self._heard: dict[str, HeardInstance] = {}
        self._unknown = asyncio.Event()

    async def run(self, client: Connection, *, denied: Callable[[], bool] = lambda: False) -> None:
        """Tell and hear over a connection until cancelled, and then say that this instance leaves.

        Args:
            client: The connection.
            denied: Whether the server refuses what instances tell each other. This one then lists itself.
        """
        listening = client.listen(self._subject, self._take)
        try:
            while True:
                self._unknown.clear()
                word = await self._word()
                self.hear(word)
                if not denied():
                    self._say(client, word)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(EVERY):
                        await self._unknown.wait()
        finally:
            listening.cancel()
            if not denied():
                self._say(client, msgspec.structs.replace(self._me, leaving=True))

    def hear(self, word: Word) -> None:
        """Take the word of an instance. One that leaves is forgotten, since a person has stopped it."""
        now = self._ticks()
        gone = [id for id, one in self._heard.items() if now - one.at > FORGOTTEN]
        for id in gone:
            del self._heard[id]
        if word.leaving:
            self._heard.pop(word.id, None)
        elif word.id in self._heard or len(self._heard) < MOST:
            if word.id not in self._heard:
                self._unknown.set()  # a new instance need not wait for the words of the others
            self._heard[word.id] = HeardInstance(word, now)

    def shown(self) -> list[dict[str, Any]]:
        """Return all instances by host and process, each with what is wrong with it."""
        now = self._ticks()
        found = sorted(self._heard.values(), key=lambda one: (one.word.host, one.word.pid))
        return [
            {
                "host": word.host,
                "process": word.pid,
                "version": word.version,
                "here": word.id == self._me.id,
                "heard_seconds_ago": round(now - at, 1),
                "waiting": word.waiting,
                "lag": word.lag,
                "behind": max(word.behind.values(), default=0),
                "state": "gone" if now - at > SILENT else "lags" if troubles else "ok",
                "troubles": troubles,
            }
            for word, at in found
            if now - at <= FORGOTTEN
            for troubles in [_troubles(word, now - at, here=word.id == self._me.id)]
        ]

    def _take(self, message: Message) -> None:
        if len(message.data) <= MOST_BYTES:
            try:
                self.hear(msgspec.json.decode(message.data, type=Word))
            except msgspec.MsgspecError:  # of a version that says it otherwise
                return

    def _say(self, client: Connection, word: Word) -> None:
        client.send(self._subject, msgspec.json.encode(word))

    async def _word(self) -> Word:
        report, seen, figures = await self._health.report(), self._metrics.glance(), self._cluster()
        wrong = [
            f"{part}: {report[part]}" for part in ("service", "store", "nats") if report.get(part) != "ok"
        ]
        return msgspec.structs.replace(
            self._me,
            trouble="; ".join(wrong)[:500] if wrong else None,
            waiting=seen.waiting,
            lag=seen.lag,
            behind={} if figures is None else figures.behind,
            stopped=[] if figures is None else [shard for shard, is_so in figures.stopped.items() if is_so],
        )


def _troubles(word: Word, silent: float, *, here: bool) -> list[str]:
    """Return what is wrong with an instance, in words. The readiness of this one is shown by part."""
    if silent > SILENT:
        return [f"{word.name} is gone: it has not been heard for {silent:.0f} s"]
    found = [] if here or word.trouble is None else [f"{word.name} is not ready: {word.trouble}"]
    if word.lag > LATE:
        found.append(f"{word.name} removes expired entries {word.lag:.0f} s late")
    found += [f"{word.name} does not serve shard {shard}" for shard in word.stopped]
    found += [
        f"{word.name} is {behind} messages behind on shard {shard}"
        for shard, behind in word.behind.items()
        if behind > BEHIND
    ]
    return found
