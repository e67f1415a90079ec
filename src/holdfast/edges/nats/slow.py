"""The slow log: the last requests that took long, for operators to look at.

Law: it holds what the log line about such a request holds, and no value. It is bounded, and ends with the
process. A request is read for it only if a line about it is written too: of a flood most are counted alone.
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

    from holdfast.edges.nats.lines import Request
    from holdfast.errors import HoldfastError

KEPT: Final = 128
"""How many slow requests are kept if nothing else is said."""
PAGE: Final = 200
"""How many a page has at most: a reply can then hold them, however JSON has to spell their keys."""


class SlowLog:
    """The last slow requests of this process.

    Args:
        kept: How many are kept.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._kept: deque[SlowRequest] = deque(maxlen=kept)
        self._number = 0
        self.slow = 0
        """How many there were, also those that are not kept."""

    def keep(
        self, request: Request, seconds: float, *, asked: Mapping[str, Any], error: HoldfastError | None
    ) -> None:
        """Keep a request, as its log line describes it."""
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
        """A page of them as the fields of a reply, the newest first; none if another instance is meant."""
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
