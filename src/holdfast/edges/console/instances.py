"""The instances of a service: which there are, which of them lag behind, and which are gone; and its cluster.

Every instance tells all of them how it is every few seconds, over the inbox of services. A server that limits
users admits no others to it. So each instance can show all of them, and notices one that falls silent.

What an instance announces is shown and never acted on. Only its newest announcement is kept, for minutes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

import holdfast
from holdfast import seams
from holdfast.bus.connection import Connection
from holdfast.bus.protocol import Message
from holdfast.engine import ClusterFigures
from holdfast.engines.cluster.operators import ClusterOperator, ClusterStatus
from holdfast.errors import HoldfastError, Unavailable
from holdfast.wire.subjects import SERVICE_INBOX

if TYPE_CHECKING:
    from holdfast.edges.http.app import Health
    from holdfast.edges.monitoring.metrics import Metrics
    from holdfast.engines.cluster.address import ClusterAddress

EVERY: Final = 10.0
"""Seconds between two announcements of an instance."""
SILENT: Final = 35.0
"""Seconds after which an instance that says nothing is gone: three announcements are missing."""
FORGOTTEN: Final = 600.0
"""Seconds after which an instance that says nothing is shown no more."""
LATE: Final = 60.0
"""Delay of expiries in seconds from which an instance lags."""
BEHIND: Final = 10_000
"""Messages of a cluster's log from which a node lags, as in `holdfast cluster status`."""
MOST: Final = 64
"""Number of instances that are kept."""
MOST_BYTES: Final = 4_096
"""Size of the longest announcement."""
FRESH: Final = 3.0
"""Seconds for which an answer of the cluster is shown again, however many look at the page."""
AGREE: Final = 4.0
"""Seconds that the servers may take to agree. Later there is no quorum, as far as the page knows."""
PATIENCE: Final = 15.0
"""Seconds that a look may take in all."""
SOON: Final = 1.0
"""Seconds for which the overview waits for a look."""


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
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


class Trouble(NamedTuple):
    """Something that is wrong with an instance: whether it does not serve, and whether expiries are late."""

    text: str
    stops: bool = True
    late: bool = False


class HeardInstance(NamedTuple):
    """The newest announcement of an instance, and when it came, by this machine's monotonic clock."""

    announced: Announcement
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
        ticks: Callable[[], float] | None = None,
    ) -> None:
        self._health = health
        self._metrics = metrics
        self._cluster = cluster
        self._ticks = seams.monotonic if ticks is None else ticks
        self._subject = f"{SERVICE_INBOX}.instances.{prefix}"
        self._me = Announcement(
            id=seams.token(8), host=seams.host(), pid=seams.pid(), version=holdfast.__version__
        )
        self._heard: dict[str, HeardInstance] = {}
        self._unknown = asyncio.Event()

    async def run(self, client: Connection | None, *, denied: Callable[[], bool] = lambda: False) -> None:
        """Tell and hear over a connection until cancelled, and then say that this instance leaves.

        Args:
            client: The connection; None where NATS is not served. This instance then lists itself.
            denied: Whether the server refuses what instances tell each other. This one then lists itself.
        """
        listening = None if client is None else client.listen(self._subject, self._take)
        try:
            while True:
                self._unknown.clear()
                announced = await self._announcement()
                self.hear(announced)
                if client is not None and not denied():
                    self._announce(client, announced)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(EVERY):
                        await self._unknown.wait()
        finally:
            if listening is not None:
                listening.cancel()
            if client is not None and not denied():
                self._announce(client, msgspec.structs.replace(self._me, leaving=True))

    def hear(self, announced: Announcement) -> None:
        """Take an announcement. An instance that leaves is forgotten, since a person has stopped it."""
        now = self._ticks()
        gone = [id for id, one in self._heard.items() if now - one.at > FORGOTTEN]
        for id in gone:
            del self._heard[id]
        if announced.leaving:
            self._heard.pop(announced.id, None)
        elif announced.id in self._heard or len(self._heard) < MOST:
            if announced.id not in self._heard:
                self._unknown.set()  # a new instance need not wait for those of the others
            self._heard[announced.id] = HeardInstance(announced, now)

    @property
    def several(self) -> bool:
        """Whether others than this instance are known."""
        return len(self._heard) > 1

    def shown(self) -> list[dict[str, Any]]:
        """Return all instances by host and process, each with what is wrong with it."""
        now = self._ticks()
        heard = sorted(self._heard.values(), key=lambda one: (one.announced.host, one.announced.pid))
        return [
            {
                "host": announced.host,
                "process": announced.pid,
                "version": announced.version,
                "here": announced.id == self._me.id,
                "heard_seconds_ago": round(now - at, 1),
                "waiting": announced.waiting,
                "lag": announced.lag,
                "behind": max(announced.behind.values(), default=0),
                "state": "gone" if now - at > SILENT else "lags" if troubles else "ok",
                "troubles": [trouble._asdict() for trouble in troubles],
            }
            for announced, at in heard
            if now - at <= FORGOTTEN
            for troubles in [_troubles(announced, now - at, here=announced.id == self._me.id)]
        ]

    def _take(self, message: Message) -> None:
        if len(message.data) <= MOST_BYTES:
            try:
                self.hear(msgspec.json.decode(message.data, type=Announcement))
            except msgspec.MsgspecError:  # of a version that says it otherwise
                return

    def _announce(self, client: Connection, announced: Announcement) -> None:
        client.send(self._subject, msgspec.json.encode(announced))

    async def _announcement(self) -> Announcement:
        report, seen, figures = await self._health.report(), self._metrics.totals(), self._cluster()
        wrong = [
            f"{part}: {report[part]}"
            for part in ("service", "store", "nats")
            if report.get(part, "ok") != "ok"
        ]
        return msgspec.structs.replace(
            self._me,
            trouble="; ".join(wrong)[:500] if wrong else None,
            waiting=seen.waiting,
            lag=seen.lag,
            behind={} if figures is None else figures.behind,
            stopped=[] if figures is None else [shard for shard, is_so in figures.stopped.items() if is_so],
        )


def _troubles(announced: Announcement, silent: float, *, here: bool) -> list[Trouble]:
    """Return what is wrong with an instance, in words. The readiness of this one is shown by part."""
    if silent > SILENT:
        return [Trouble(f"{announced.name} is gone: it has not been heard for {silent:.0f} s")]
    troubles = []
    if announced.trouble is not None and not here:
        troubles.append(Trouble(f"{announced.name} is not ready: {announced.trouble}"))
    if announced.lag > LATE:
        late = f"{announced.name} removes expired entries {announced.lag:.0f} s late"
        troubles.append(Trouble(late, stops=False, late=True))
    troubles += [Trouble(f"{announced.name} does not serve shard {shard}") for shard in announced.stopped]
    troubles += [
        Trouble(f"{announced.name} is {behind} messages behind on shard {shard}", stops=False)
        for shard, behind in announced.behind.items()
        if behind > BEHIND
    ]
    return troubles


class ClusterWatch:
    """Asks a cluster how it is, as `holdfast cluster status` does, over a connection of its own.

    Args:
        address: The address of the cluster.
        ticks: Returns a monotonic time in seconds.
    """

    def __init__(self, address: ClusterAddress, *, ticks: Callable[[], float] | None = None) -> None:
        remote = msgspec.structs.replace(address.remote, timeout=min(AGREE, address.timeout))
        self._address = msgspec.structs.replace(address, remote=remote)
        self._ticks = seams.monotonic if ticks is None else ticks
        self._asking = asyncio.Lock()
        self._answer: tuple[float, ClusterStatus | HoldfastError] | None = None
        self._asked: asyncio.Task[None] | None = None

    @property
    def addresses(self) -> int:
        """The number of NATS servers whose addresses are known."""
        return len({*self._address.servers, *self._address.peers})

    async def status(self) -> ClusterStatus:
        """Return what servers and nodes say.

        Raises:
            HoldfastError: The servers do not agree; the message names those that are missing.
        """
        async with self._asking:
            if self._answer is not None and self._ticks() < self._answer[0] + FRESH:
                answer = self._answer[1]
            else:
                answer = await self._ask()
                self._answer = self._ticks(), answer
        if isinstance(answer, HoldfastError):
            raise answer
        return answer

    async def troubles(self) -> list[str]:
        """Return what is wrong, by the last answer. A new one is asked for, and waited for a moment alone."""
        if self._asked is None or self._asked.done():
            self._asked = asyncio.create_task(self._renew(), name="holdfast asks a cluster how it is")
        await asyncio.wait([self._asked], timeout=SOON)
        answer = None if self._answer is None else self._answer[1]
        if isinstance(answer, HoldfastError):
            return [answer.message]
        return [] if answer is None else answer.troubles

    async def _renew(self) -> None:
        with contextlib.suppress(HoldfastError):
            await self.status()

    async def _ask(self) -> ClusterStatus | HoldfastError:
        """Ask servers and nodes; return the refusal if they do not agree, which is shown again as well."""
        try:
            async with asyncio.timeout(PATIENCE), ClusterOperator(self._address) as operator:
                return await operator.status()
        except HoldfastError as error:
            return error
        except TimeoutError:
            name = self._address.name
            return Unavailable(f"the servers of {name} did not answer within {PATIENCE:g} s")
