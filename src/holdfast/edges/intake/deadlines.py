"""The deadline of a request: a time or a number of milliseconds given by the caller, or the default.

Law: this module only computes a time. The service checks it before it starts a request, and the commit of a
write checks it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.errors import Timeout, ValidationError
from holdfast.rules import MAX_TTL

if TYPE_CHECKING:
    from holdfast.edges.intake.lines import Request

FARTHEST: Final = MAX_TTL * 1000
"""Largest allowed distance from receipt to deadline, in milliseconds. Every engine can store that time."""


def deadline_of(request: Request, deadline: object, allowed: object, now: int, usual: int) -> int:
    """Return the deadline of a request, in milliseconds since 1970. A write carries it to its commit.

    Args:
        request: The request.
        deadline: The time that the caller gave as `deadline`, if any.
        allowed: The milliseconds that the caller gave as `deadline_ms`, if any.
        now: The store's time.
        usual: The milliseconds that a request has if the caller gives neither.

    Raises:
        Timeout: The deadline has passed.
        ValidationError: The caller's deadline is not a valid time.
    """
    if deadline is None:
        if allowed is None:
            allowed = usual
        if type(allowed) is not int or allowed < 0:
            raise ValidationError("deadline_ms must be a whole number from 0", field="deadline_ms")
        deadline = request.received + allowed
    elif type(deadline) is not int:
        raise ValidationError("deadline must be in whole milliseconds since 1970", field="deadline")
    if now > deadline:
        raise Timeout("the deadline passed before the request started: nothing was done")
    farthest = request.received + FARTHEST
    return deadline if deadline < farthest else farthest
