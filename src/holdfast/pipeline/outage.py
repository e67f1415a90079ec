"""Whether the storage takes writes, going by what becomes of them, and the one alert when it long has not.

Law: nothing here asks the storage: it listens to those who do. An outage is a run of failures with nothing
done between them; where none is heard of for a while nobody knows, and the next failure begins another. Time
is the store's.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.clock import moment
from holdfast.errors import HoldfastError, OutcomeUnknown, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE: Final = 300
"""For how many seconds the storage may be unavailable before there is an alert."""
SILENCE: Final = 60
"""After how many seconds without a word nothing is known of an outage any more."""

_log = logging.getLogger("holdfast.outage")


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """That the storage has long been unavailable: since when, for how many seconds so far, and why."""

    since: datetime
    seconds: float
    message: str


class Outage:
    """What is known of the outage that goes on, if one does.

    Args:
        now: The store's time.

    Attributes:
        alerts: How many outages there was an alert for.
        alerted: Is told of each alert.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._since: int | None = None
        self._last = 0
        self._told = False
        self.alerts = 0
        self.alerted: Callable[[Alert], None] | None = None

    @property
    def seconds(self) -> float:
        """For how long the storage has been unavailable; 0 if it is not, or nobody knows."""
        now = self._now()
        return (now - self._since) / 1000 if self._since is not None and self._known(now) else 0.0

    def heard(self, result: object) -> None:
        """A write was done or refused. A refusal that has nothing to do with the storage says nothing."""
        if isinstance(result, (Unavailable, OutcomeUnknown)):
            self.failed(result.message)
        elif self._since is not None and not isinstance(result, HoldfastError):
            self.worked()

    def failed(self, message: str) -> None:
        """The storage was asked, and could not be had."""
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
        """The storage was asked, and did what it should."""
        if self._since is None:
            return
        level = logging.WARNING if self._told else logging.INFO
        _log.log(level, "the storage is available again after %.0f s", (self._now() - self._since) / 1000)
        self._since, self._told = None, False

    def _known(self, now: int) -> bool:
        return now - self._last <= SILENCE * 1000
