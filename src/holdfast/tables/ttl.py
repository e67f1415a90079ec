"""The deadlines of items, which one of their attributes holds in seconds since 1970.

Law: an item is gone when that attribute is a number other than 0 and not later than now; anything else lives
for ever. A stored deadline is in whole milliseconds and within the calendar, as engines keep it.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.tables.schema import TableSchema

LAST_SECOND: Final = 253_402_214_400
"""Where the last day of 9999 begins: a later deadline is no date that Python or a database could show."""


def deadline_of(item: Mapping[str, Any], schema: TableSchema) -> int | None:
    """When an item is gone, in milliseconds since 1970; None is never.

    A deadline before 1970 has been reached as well as one in 1970. One past the calendar is never reached.
    """
    seconds = None if schema.ttl_attribute is None else item.get(schema.ttl_attribute)
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or seconds == 0:
        return None
    if seconds > LAST_SECOND:
        return None
    if seconds < 0:
        return 0
    if isinstance(seconds, int):
        return seconds * 1000
    # Exactly: in floats a product could fall before a `now` that the attribute itself is later than.
    return math.ceil(Fraction(seconds) * 1000)


def seconds_left(deadline: int | None, now: int) -> int | None:
    """How long an item still lives, rounded down, but at least 1 while it does; 0 is gone, None for ever.

    Times are in milliseconds. A deadline is rounded up to a whole second when it is set, so that to round
    down is to answer what was asked for.
    """
    if deadline is None:
        return None
    return max(1, (deadline - now) // 1000) if deadline > now else 0


def attribute_for(ttl_seconds: int, now: int) -> int:
    """What the attribute has to hold for an item to live this long from `now`, which is in milliseconds."""
    return -(-now // 1000) + ttl_seconds
