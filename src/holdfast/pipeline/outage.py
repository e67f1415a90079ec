"""Detection of storage outages from the results of writes, with one alert for each long outage.

This module never calls the storage; it is given the results of those who do. An outage is a run of failures
with no success between them. After a silence the state is unknown, and the next failure begins a new outage.
Time is the store's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Final

import msgspec

from holdfast.clock import moment
from holdfast.errors import HoldfastError, OutcomeUnknown, Unavailable

PATIENCE: Final = 300
"""Seconds for which the storage may be unavailable before an alert is sent."""
SILENCE: Final = 60
"""Seconds without a result after which the state of an outage is unknown."""

_log = logging.getLogger("holdfast.outage")


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert that the storage is unavailable: since when, for how many seconds so far, and why."""

    since: datetime
    seconds: float
    message: str


class Outage:
    """The state of the current outage, if there is one.

    Args:
        now: The store's time.

    Attributes:
        alerts: Number of outages for which an alert was sent.
        alerted: Called with each alert.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._since: int | None = None
        self._last = 0
        self._told = False
        self.alerts: int = 0
        self.alerted: Callable[[Alert], None] | None = None

    @property
    def seconds(self) -> float:
        """Seconds for which the storage has been unavailable; 0 if it is not, or if that is unknown."""
        now = self._now()
        return (now - self._since) / 1000 if self._since is not None and self._known(now) else 0.0

    def heard(self, result: object) -> None:
        """Record the result of a write. A refusal that has nothing to do with the storage is ignored."""
        if isinstance(result, (Unavailable, OutcomeUnknown)):
            self.failed(result.message)
        elif self._since is not None and not isinstance(result, HoldfastError):
            self.worked()

    def failed(self, message: str) -> None:
        """Record that the storage was unavailable. Send the alert if the outage has lasted too long."""
        now = self._now()
        if self._since is None or not self._known(now):
            self._since, self._told = now, False
        self._last = now
        seconds = (now - self._since) / 1000
        if seconds < PATIENCE or self._told:
            return
        self._told = True
        self.alerts += 1
        _log.critical("the storage has been unavailable for %.0f s: %s", seconds, message)
        if self.alerted is not None:
            self.alerted(Alert(since=moment(self._since), seconds=seconds, message=message))

    def worked(self) -> None:
        """Record that the storage worked, which ends the outage."""
        if self._since is None:
            return
        level = logging.WARNING if self._told else logging.INFO
        _log.log(level, "the storage is available again after %.0f s", (self._now() - self._since) / 1000)
        self._since, self._told = None, False

    def _known(self, now: int) -> bool:
        return now - self._last <= SILENCE * 1000
