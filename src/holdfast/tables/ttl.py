"""The deadlines of items, which an attribute holds in seconds since 1970.

Law: an item is expired when that attribute is a number other than 0 and not later than now; any other item
never expires. A stored deadline is in whole milliseconds and within the calendar, as engines keep it.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.tables.schema import TableSchema

LAST_SECOND: Final = 253_402_214_400
"""The start of the last day of 9999. Python and databases can't represent every later date."""


def deadline_of(item: Mapping[str, Any], schema: TableSchema) -> int | None:
    """Return when an item expires, in milliseconds since 1970; None for never.

    A deadline before 1970 counts as reached. One past the calendar is never reached.
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
    # Exact arithmetic: a float product could be earlier than a `now` that precedes the attribute itself.
    return math.ceil(Fraction(seconds) * 1000)


def seconds_left(deadline: int | None, now: int) -> int | None:
    """Return the seconds until an item expires, rounded down but at least 1; 0 if expired, None if never.

    Times are in milliseconds. A deadline is rounded up to a whole second when it is set, so rounding down
    returns the number that the caller asked for.
    """
    if deadline is None:
        return None
    return max(1, (deadline - now) // 1000) if deadline > now else 0


def attribute_for(ttl_seconds: int, now: int) -> int:
    """Return the attribute's value for an item to live this long from `now`, which is in milliseconds."""
    return -(-now // 1000) + ttl_seconds
