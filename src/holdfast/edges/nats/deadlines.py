"""The deadline of a request: named by the caller as a time or as a number of milliseconds, or the usual one.

Law: a time only. Who keeps to it is told: the service before a request is begun, and the commit of a write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import Timeout, ValidationError
from holdfast.rules import MAX_TTL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.edges.nats.lines import Request

FARTHEST: Final = MAX_TTL * 1000
"""How many milliseconds after its receipt a request's deadline may lie: every engine can hold that time."""


def deadline_of(request: Request, fields: Mapping[str, Any], now: int, usual: int) -> int:
    """The deadline of a request, in milliseconds since 1970. It goes with a write to its commit.

    Raises:
        Timeout: It has passed.
        ValidationError: What the caller says is no time.
    """
    deadline = fields.get("deadline")
    if deadline is None:
        allowed = fields.get("deadline_ms", usual)
        if type(allowed) is not int or allowed < 0:
            raise ValidationError("deadline_ms must be a whole number from 0", field="deadline_ms")
        deadline = request.received + allowed
    elif type(deadline) is not int:
        raise ValidationError("deadline must be in whole milliseconds since 1970", field="deadline")
    if now > deadline:
        raise Timeout("the deadline passed before the request was begun: nothing was done")
    farthest = request.received + FARTHEST
    return deadline if deadline < farthest else farthest
