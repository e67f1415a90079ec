"""Log lines and counts of the service's operations.

Law: values never appear in logs. Each operation gets a DEBUG line; above a thousand a second only one in a
hundred is written. Slow and refused requests are all counted, but their log lines are limited to a readable
rate: a client that floods the service must not flood its log.
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from holdfast.edges.calls import FAMILIES
from holdfast.edges.intake.asked import asked
from holdfast.edges.intake.slow import KEPT, SlowLog
from holdfast.errors import Busy, Defect, HoldfastError, InvalidJson, RateLimited, VersionConflict

if TYPE_CHECKING:
    from holdfast.edges.intake.lines import Request

SAMPLE_ABOVE: Final = 1_000
SAMPLE: Final = 0.01
LINES: Final = 20
SLOW_LINES: Final = 5
CROWD_LINES: Final = 5
ALL_LINES: Final = 500
"""Maximum number of lines per second: for one plugin and kind, for one plugin and verb about slow requests,
for one plugin about requests that were too many, and for all together. When a service is overloaded, nearly
all requests are slow, and lines about them would take a tenth of its time."""
CROWDED: Final = frozenset({Busy.code, RateLimited.code})
"""The codes of requests that were too many. It does not matter how these differ, not even by verb."""
OTHERS: Final = "others"
"""The collective name of plugins beyond the number whose dropped lines are counted separately."""
DROPPED: Final = {"reply_subject": "its reply subject is not the caller's own"}
"""Reasons for dropping a message without executing or answering it."""

_log = logging.getLogger("holdfast.service")


class Operation(msgspec.Struct, frozen=True, gc=False):
    """A request that has been answered."""

    dialect: str
    owner: str
    namespace: str
    verb: str
    seconds: float
    slow: bool
    code: str | None


class OperationCounter(Protocol):
    """A counter of operations."""

    def operation(self, operation: Operation) -> None:
        """Count a request that has been answered."""
        ...

    def dropped(self, reason: str) -> None:
        """Count a message that was dropped without being executed or answered; see `DROPPED`."""
        ...

    def unknown_fields(self, owner: str, count: int) -> None:
        """Count the unknown fields of a request."""
        ...


class RequestLog:
    """Logs operations and passes them on to a counter.

    Args:
        slow: Seconds from which an operation counts as slow. Lists and other walks have their own threshold.
        slow_walk: The threshold for walks.
        counter: The counter, if any.
        kept: Number of slow operations to keep for operators.
    """

    WALKS: Final = frozenset(
        name for verbs in FAMILIES.values() for name, verb in verbs.items() if verb.walks
    )

    def __init__(
        self, *, slow: float, slow_walk: float, counter: OperationCounter | None = None, kept: int = KEPT
    ) -> None:
        self._slow = slow
        self._slow_walk = slow_walk
        self._counter = counter
        self._second = 0
        self._in_second = 0
        self._lines = _Lines()
        self.slow_log = SlowLog(kept)

    def done(
        self, request: Request, seconds: float, *, hit: bool | None, error: HoldfastError | None
    ) -> None:
        """Record a request that has been answered, with or without an error."""
        verb = request.route.verb
        slow = seconds >= (self._slow_walk if verb in self.WALKS else self._slow)
        if slow:
            self._tell_slow(request, seconds, error)
        if error is not None:
            if self._may_be_told(request.route.owner, verb, error.code):
                _log_error(request, error)
        elif _log.isEnabledFor(logging.DEBUG) and self._sampled():
            _log_done(request, seconds, hit=hit)
        if self._counter is not None:
            route = request.route
            code = None if error is None else error.code
            self._counter.operation(
                Operation(route.dialect.name, route.owner, route.namespace, verb, seconds, slow, code)
            )

    def _may_be_told(self, owner: str, verb: str, code: str) -> bool:
        """Return whether a line about a refusal may be written."""
        if code in CROWDED:
            return self._lines.may_be_written(owner, code, most=CROWD_LINES)
        return self._lines.may_be_written(owner, verb, code)

    def _tell_slow(self, request: Request, seconds: float, error: HoldfastError | None) -> None:
        verb, owner = request.route.verb, request.route.owner
        self.slow_log.slow += 1
        if not self._lines.may_be_written(owner, verb, "slow", most=SLOW_LINES):
            return
        told = asked(request)
        self.slow_log.keep(request, seconds, asked=told, error=error)
        took = _took(request, seconds)
        _log.warning("slow: %s of %s took %.0f ms", verb, owner, seconds * 1000, extra=told | took)

    def unknown_fields(self, request: Request, count: int) -> None:
        """Record a request with unknown fields. Its warning names them."""
        if _log.isEnabledFor(logging.DEBUG) and self._sampled():
            route = request.route
            _log.debug("%s of %s has %s", route.verb, route.owner, request.warning, extra=asked(request))
        if self._counter is not None:
            self._counter.unknown_fields(request.route.owner, count)

    def dropped(self, reason: str, subject: str) -> None:
        """Record a message that was dropped without being executed or answered."""
        if self._lines.may_be_written("", reason):
            _log.warning("dropped a message on %r: %s", subject[:200], DROPPED[reason])
        if self._counter is not None:
            self._counter.dropped(reason)

    def unrouted(self, subject: str, error: HoldfastError) -> None:
        """Record the refusal of a message whose subject is invalid, so that its caller is unknown."""
        if self._lines.may_be_written("", error.code):
            _log.warning(
                "refused a message on %r: %s",
                subject[:200],
                error.message,
                extra={"code": error.code, "field": error.field},
            )
        if self._counter is not None:
            self._counter.operation(Operation("", "", "", "", 0.0, False, error.code))

    def _sampled(self) -> bool:
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._in_second = second, 0
        self._in_second += 1
        return self._in_second <= SAMPLE_ABOVE or random.random() < SAMPLE


class _Lines:
    """A limit on the log lines of each kind, and a count of the dropped lines by plugin.

    The lines of a flood are spread over each second: a line takes a quarter of a millisecond of the event
    loop, and a hundred in a row would hold up other plugins.
    """

    def __init__(self) -> None:
        self._second = 0
        self._free_at: dict[tuple[str, ...], float] = {}
        self._total = 0
        self._left_out: Counter[str] = Counter()

    def may_be_written(self, owner: str, *kind: str, most: int = LINES) -> bool:
        """Return whether one more line of this kind may be written.

        That many may be written at once after a second without any. Later ones follow at that rate.
        """
        now = time.monotonic()
        if int(now) != self._second:
            self._begin_second(now)
        free_at = max(now, self._free_at.get((owner, *kind), now))
        if free_at - now > 1 - 0.5 / most or self._total >= ALL_LINES:
            known = owner in self._left_out or len(self._left_out) < ALL_LINES
            self._left_out[owner if known else OTHERS] += 1
            return False
        self._free_at[owner, *kind] = free_at + 1 / most
        self._total += 1
        return True

    def _begin_second(self, now: float) -> None:
        self._second = int(now)
        self._tell_what_was_left_out()
        self._free_at = {kind: at for kind, at in self._free_at.items() if at > now}
        self._total = 0

    def _tell_what_was_left_out(self) -> None:
        if self._left_out:
            [(owner, most)] = self._left_out.most_common(1)
            _log.warning(
                "dropped %d more log lines in one second, %d of them about %s",
                self._left_out.total(),
                most,
                owner or "messages that lead nowhere",
            )
            self._left_out.clear()


def _log_error(request: Request, error: HoldfastError) -> None:
    if isinstance(error, VersionConflict):
        return  # the store has already logged it, with the request id
    level = logging.ERROR if isinstance(error, InvalidJson | Defect) else logging.WARNING
    dialect = request.route.dialect
    _log.log(
        level,
        "%s of %s was refused: %s %s",
        request.route.verb,
        request.route.owner,
        error.code,
        dialect.message(error),
        exc_info=error if isinstance(error, Defect) else None,
        extra=asked(request) | {"code": error.code, "field": error.field and dialect.spelled(error.field)},
    )


def _log_done(request: Request, seconds: float, *, hit: bool | None) -> None:
    # For calls on tables this module does not know whether they were replayed.
    replayed = {} if request.route.family == "table" else {"replayed": request.replayed}
    _log.debug(
        "%s%s of %s",
        "replayed " if request.replayed else "",
        request.route.verb,
        request.route.owner,
        extra=asked(request) | _took(request, seconds) | {"hit": hit} | replayed,
    )


def _took(request: Request, seconds: float) -> dict[str, object]:
    return {"size": len(request.payload), "latency_ms": round(seconds * 1000, 3)}
