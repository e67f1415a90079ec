"""The service's clock, as a client estimates it, and the service's warnings.

Law: this knows nothing of the transport that brought a reply.
"""

from __future__ import annotations

import logging
import time
from typing import Final

from holdfast.clock import TICKS

MOST_WARNINGS: Final = 100
LONGEST_WARNING: Final = 1_000
"""The maximum number of different warnings of a service that are logged, and of characters of each."""

_log = logging.getLogger("holdfast.remote")


class ServiceTime:
    """What a client learns from the headers of replies."""

    def __init__(self) -> None:
        self._warned: set[str] = set()
        self._best = float("inf")
        self._line = self._latest = (time.time() - TICKS()) * 1000
        self.told: bool = False
        """True once the service has sent its time."""

    def _warn(self, subject: str, warning: str | None) -> None:
        """Log a warning of the service, once: a program that repeats a call would repeat the warning."""
        told = f"{subject}: {warning}"[:LONGEST_WARNING]
        if told not in self._warned and len(self._warned) < MOST_WARNINGS:
            self._warned.add(told)
            _log.warning("%s", told)

    def time(self) -> float:
        """Return the service's time in milliseconds, or this machine's until the service has sent its own."""
        return TICKS() * 1000 + self._line

    def _learn_time(self, text: str | None, sent: float) -> None:
        """Estimate the service's clock from a reply. Quick replies give the best estimate."""
        if text is None or not text.isdecimal():
            return
        took = TICKS() - sent
        self._latest = int(text) - (sent + took / 2) * 1000
        self.told = True
        if took <= self._best:
            self._best = took
            self._line = self._latest
        self._best *= 1.01  # the best estimate ages a little with every reply

    def relearn_time(self) -> None:
        """Replace the estimate of the service's clock by that of its last reply: the clock has jumped."""
        self._line = self._latest
