"""Lifetimes as other projects give them, in whole seconds as Holdfast takes them.

Law: rounding never shortens a lifetime that Holdfast can keep, and never makes one of 0 seconds.
"""

from __future__ import annotations

import math

from holdfast import rules


def whole_seconds(lifetime: float) -> int:
    """Return a lifetime in seconds, rounded up, from 1 to the longest that an entry can have (68 years)."""
    return max(1, math.ceil(min(lifetime, rules.MAX_TTL)))
