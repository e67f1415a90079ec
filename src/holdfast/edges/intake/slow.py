"""The slow log: the most recent slow requests, for operators.

Law: it holds the same fields as the log line about a request, and no value. It is bounded and is lost when
the process ends. A request is decoded for it only if a log line about it is written too; during a flood most
requests are only counted.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from holdfast import rules
from holdfast.clock import moment
from holdfast.model import SlowRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.edges.intake.lines import Request
    from holdfast.errors import HoldfastError

KEPT: Final = 128
"""Default number of slow requests that are kept."""
PAGE: Final = 200
"""Maximum number of requests on a page. A reply can hold that many however JSON escapes their keys."""


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
        self, request: Request, seconds: float, *, asked: Mapping[str, Any], error: HoldfastError | None
    ) -> None:
        """Store a request with the fields of its log line."""
        self._number += 1
        self._kept.append(
            SlowRequest(
                number=self._number,
                at=moment(request.received),
                plugin=asked["plugin"],
                verb=asked["verb"],
                key=asked["key"],
                milliseconds=round(seconds * 1000, 3),
                error_code=None if error is None else error.code,
                request_id=asked["request_id"],
            )
        )

    def page(self, fields: Mapping[str, Any], instance: str) -> dict[str, Any]:
        """Return one page as the fields of a reply, newest first; empty if another instance was asked for."""
        limit, before = rules.limit(fields.get("limit")), fields.get("before")
        if before is not None:
            rules.positive(before, field="before", most=rules.MAX_LOADED_VERSION)
        meant = fields.get("instance") in (None, instance)
        older = (one for one in reversed(self._kept) if meant and (before is None or one.number < before))
        found = list(islice(older, min(limit, PAGE)))
        return {
            "requests": found,
            "count": len(found),
            "next": found[-1].number if found and next(older, None) is not None else None,
            "slow": self.slow,
            "instance": instance,
        }
