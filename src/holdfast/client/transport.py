"""What carries requests to a service and replies back, whatever the network protocol is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

from msgspec import UNSET, UnsetType

from holdfast import seams
from holdfast.errors import HoldfastError
from holdfast.tracing import Trace

Late: TypeAlias = Callable[[], HoldfastError]
"""Makes the error to raise if no reply arrives in time."""

MOST_WARNINGS: Final = 100
LONGEST_WARNING: Final = 1_000
"""The maximum number of different warnings of a service that are logged, and of characters of each."""

_log = logging.getLogger("holdfast.remote")


class Transport(Protocol):
    """Carries requests to a service and replies back; see `NatsTransport`."""

    knows_time: bool

    async def open(self) -> None:
        """Connect."""
        ...

    async def ask(
        self,
        subject: str,
        payload: bytes,
        *,
        seconds: float,
        late: Late,
        repeat: bool = False,
        fields: str | None = None,
        trace: Trace | UnsetType = UNSET,
    ) -> Reply:
        """Send a request and wait for the reply.

        `fields` are those of a payload that is bytes. `trace` is the trace that the request belongs to.
        """
        ...

    def listen(self, subject: str, heard: Callable[[Any], None]) -> Subscription:
        """Subscribe to a subject."""
        ...

    def time(self) -> float:
        """Return the service's time in milliseconds."""
        ...

    def relearn_time(self) -> None:
        """Trust the time of the last reply alone."""
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...


class Reply(Protocol):
    """A reply."""

    @property
    def data(self) -> bytes:
        """The payload."""
        ...

    @property
    def head(self) -> bytes:
        """The headers."""
        ...

    def header(self, name: str) -> str | None:
        """Return a header of the reply."""
        ...


class Subscription(Protocol):
    """A subscription."""

    def cancel(self) -> None:
        """End it."""
        ...


class ServiceTime:
    """What a client learns from the headers of replies."""

    def __init__(self) -> None:
        self._warned: set[str] = set()
        self._best = float("inf")
        self._line = self._latest = (seams.wall() - seams.ticks()) * 1000
        self.knows_time: bool = False
        """True once the service has sent its time."""

    def _warn(self, subject: str, warning: str | None) -> None:
        """Log a warning of the service, once: a program that repeats a call would repeat the warning."""
        text = f"{subject}: {warning}"[:LONGEST_WARNING]
        if text not in self._warned and len(self._warned) < MOST_WARNINGS:
            self._warned.add(text)
            _log.warning("%s", text)

    def time(self) -> float:
        """Return the service's time in milliseconds, or this machine's until the service has sent its own."""
        return seams.ticks() * 1000 + self._line

    def _learn_time(self, text: str | None, sent: float) -> None:
        """Estimate the service's clock from a reply. Quick replies give the best estimate."""
        if text is None or not text.isdecimal():
            return
        took = seams.ticks() - sent
        self._latest = int(text) - (sent + took / 2) * 1000
        self.knows_time = True
        if took <= self._best:
            self._best = took
            self._line = self._latest
        self._best *= 1.01  # the best estimate ages a little with every reply

    def relearn_time(self) -> None:
        """Replace the estimate of the service's clock by that of its last reply: the clock has jumped."""
        self._line = self._latest
