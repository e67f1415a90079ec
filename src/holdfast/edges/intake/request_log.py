"""Log lines and counts of the service's operations, and the most recent slow ones for operators.

Values never appear in logs. Each operation gets a DEBUG line; above a thousand a second only one in a hundred
is written. Slow and refused requests are all counted, but their log lines are limited to a readable rate: a
client that floods the service must not flood its log.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, Protocol

import msgspec
from msgspec import UnsetType

from holdfast import rules, seams
from holdfast.clock import moment
from holdfast.edges.calls import FAMILIES
from holdfast.edges.intake.requests import Request
from holdfast.errors import Busy, Defect, HoldfastError, InvalidJson, RateLimited, VersionConflict
from holdfast.model import SlowRequest
from holdfast.rules import MAX_KEY_CHARACTERS
from holdfast.wire.blobs import with_data
from holdfast.wire.subjects import Route

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

KEPT: Final = 128
"""Default number of slow requests that are kept."""
PAGE: Final = 200
"""Maximum number of requests on a page. A reply can hold that many however JSON escapes their keys."""
MOST_READ: Final = 131_072
"""Largest request, in bytes, that is decoded again for a log line. For others only the subject is used."""
LONG_FIELD: Final = 4_096
"""Size in bytes above which a field is not decoded for a log line: a value of 64 KB takes milliseconds."""
SHOWN: Final = 10
"""Maximum number of keys that a line names for a request about several."""
_SEVERAL: Final = ("keys", "items", "writes")
"""The fields that list the keys or items of a request."""

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


class SlowLog:
    """The most recent slow requests of this process.

    Args:
        kept: Number of requests to keep.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._kept: deque[SlowRequest] = deque(maxlen=kept)
        self._number = 0
        self.slow = 0
        """Number of slow requests, including those that are not kept."""

    def keep(
        self, request: Request, seconds: float, *, fields: Mapping[str, Any], error: HoldfastError | None
    ) -> None:
        """Store a request with the fields of its log line."""
        self._number += 1
        self._kept.append(
            SlowRequest(
                number=self._number,
                at=moment(request.received),
                plugin=fields["plugin"],
                verb=fields["verb"],
                key=fields["key"],
                milliseconds=round(seconds * 1000, 3),
                error_code=None if error is None else error.code,
                request_id=fields["request_id"],
                trace_id=fields.get("trace_id"),
            )
        )

    def page(self, fields: Mapping[str, Any], instance: str) -> dict[str, Any]:
        """Return one page as the fields of a reply, newest first; empty if another instance was asked for."""
        limit, before = rules.limit(fields.get("limit")), fields.get("before")
        if before is not None:
            rules.positive(before, field="before", most=rules.MAX_LOADED_VERSION)
        meant = fields.get("instance") in (None, instance)
        older = (one for one in reversed(self._kept) if meant and (before is None or one.number < before))
        page = list(islice(older, min(limit, PAGE)))
        return {
            "requests": page,
            "count": len(page),
            "next": page[-1].number if page and next(older, None) is not None else None,
            "slow": self.slow,
            "instance": instance,
        }


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
        fields = log_fields(request)
        self.slow_log.keep(request, seconds, fields=fields, error=error)
        took = _took(request, seconds)
        _log.warning("slow: %s of %s took %.0f ms", verb, owner, seconds * 1000, extra=fields | took)

    def unknown_fields(self, request: Request, count: int) -> None:
        """Record a request with unknown fields. Its warning names them."""
        if _log.isEnabledFor(logging.DEBUG) and self._sampled():
            route = request.route
            _log.debug("%s of %s has %s", route.verb, route.owner, request.warning, extra=log_fields(request))
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
        second = int(seams.monotonic())
        if second != self._second:
            self._second, self._in_second = second, 0
        self._in_second += 1
        return self._in_second <= SAMPLE_ABOVE or seams.uniform() < SAMPLE


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
        now = seams.monotonic()
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
        extra=log_fields(request)
        | {"code": error.code, "field": error.field and dialect.spelled(error.field)},
    )


def _log_done(request: Request, seconds: float, *, hit: bool | None) -> None:
    # For calls on tables this module does not know whether they were replayed.
    replayed = {} if request.route.family == "table" else {"replayed": request.replayed}
    _log.debug(
        "%s%s of %s",
        "replayed " if request.replayed else "",
        request.route.verb,
        request.route.owner,
        extra=log_fields(request) | _took(request, seconds) | {"hit": hit} | replayed,
    )


def _took(request: Request, seconds: float) -> dict[str, object]:
    return {"size": len(request.payload), "latency_ms": round(seconds * 1000, 3)}


def log_fields(request: Request) -> dict[str, Any]:
    """Return the plugin, verb, key, request id and trace of a request, and its TTL if any; never a value.

    The request is decoded for this, so it is called only when a line about it is written.
    """
    route = request.route
    line: dict[str, Any] = {
        "plugin": route.owner,
        "operation": route.verb,
        "verb": route.verb,
        "key": request.key,
        "request_id": None,
    }
    if not isinstance(request.trace, UnsetType):
        line |= request.trace.fields
    if len(request.payload) > MOST_READ and not request.head:
        return line
    payload, count = _shortened(request.payload)
    try:
        fields = with_data(request.head, b"") if request.head else route.dialect.fields(payload)
    except HoldfastError:
        return line
    line["request_id"] = _text(fields.get("request_id", fields.get("once")))
    if route.family == "table":
        return line
    line |= _keys(route, fields)
    if count:
        line["count"] = count
    if route.verb == "set" or not _TTL.isdisjoint(fields):
        line["ttl"] = _ttl(fields)
    return line


_TTL: Final = frozenset({"ttl", "ttl_seconds"})
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


def _shortened(payload: bytes) -> tuple[bytes, int]:
    """Return a payload without long fields, and the number of keys or items if only the first are left."""
    if len(payload) <= LONG_FIELD:
        return payload, 0
    try:
        members, count = _MEMBERS(payload), 0
        for name, member in members.items():
            if len(bytes(member)) > LONG_FIELD:
                members[name] = msgspec.Raw(b"null")
                if name in _SEVERAL:
                    several = _LIST(member)
                    count = len(several)
                    members[name] = msgspec.Raw(msgspec.json.encode(several[:SHOWN]))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return payload[:LONG_FIELD], 0
    return msgspec.json.encode(members), count


def _keys(route: Route, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the key, or for several keys the first ones and their number."""
    if "key" in fields:
        return {"key": _stored_key(route, fields["key"])}
    if "prefix" in fields:
        return {"prefix": _stored_key(route, fields["prefix"])}
    for name in _SEVERAL:
        if isinstance(members := fields.get(name), list):
            keys = [_stored_key(route, key) for key in _member_keys(members[:SHOWN])]
            return {"key": keys[0] if keys else "", "keys": keys, "count": len(members)}
    return {}


def _member_keys(members: list[Any]) -> Iterator[Any]:
    for member in members:
        yield member.get("key") if isinstance(member, dict) else member


def _stored_key(route: Route, key: object) -> str:
    """Return a key as it is stored. A caller may leave out the prefix that all keys of a project share."""
    shown = _text(key) or ""
    if route.root is None or shown.startswith(route.root):
        return shown
    return f"{route.root}{shown}"


def _ttl(fields: Mapping[str, Any]) -> int | None:
    semantics = fields.get("semantics")
    ttls = [fields.get("ttl"), fields.get("ttl_seconds")]
    if isinstance(semantics, dict):
        ttls.append(semantics.get("ttl_seconds"))
    return next((ttl for ttl in ttls if type(ttl) is int), None)


def _text(field: object) -> str | None:
    return field[:MAX_KEY_CHARACTERS] if isinstance(field, str) else None
