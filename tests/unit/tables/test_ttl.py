"""The deadlines of items.

A deadline is tested by the instant at which the item is gone, in milliseconds.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.clock import moment
from holdfast.tables.items import attribute_for, deadline_of, seconds_left
from tests.unit.tables.samples import EXAMPLES, events

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("item", "deadline"),
    [
        ({}, None),
        ({"expires": 0}, None),
        ({"expires": 0.0}, None),
        ({"expires": -0.0}, None),
        ({"expires": True}, None),
        ({"expires": False}, None),
        ({"expires": None}, None),
        ({"expires": "1700000000"}, None),
        ({"expires": [1]}, None),
        ({"expires": 1}, 1000),
        ({"expires": 1_700_000_000}, NOW),
        ({"expires": 1_700_000_000.5}, NOW + 500),
        ({"expires": 1_700_000_000.0001}, NOW + 1),
        ({"expires": 5e-324}, 1),
        ({"expires": -1}, 0),
        ({"expires": -1e300}, 0),
        ({"expires": 253_402_214_400}, 253_402_214_400_000),
        ({"expires": 253_402_214_401}, None),
        ({"expires": 1_700_000_000_000}, None),
        ({"expires": 1e300}, None),
        ({"expires": 10**4299}, None),
    ],
    ids=repr,
)
def test_item_deadline_is_a_number_of_seconds(item: dict[str, Any], deadline: int | None) -> None:
    """A number other than 0 is a deadline in seconds; anything else, and what no calendar has, is none."""
    assert deadline_of(item, events()) == deadline
    assert deadline is None or moment(deadline).year <= 9999


@EXAMPLES
@given(
    st.integers(-10, 253_402_214_400) | st.floats(-10, 253_402_214_400), st.integers(1, 253_402_214_400_000)
)
@example(0.001, 1)
@example(1_700_000_000.001, 1_700_000_000_001)
def test_gone_when_the_attribute_is_not_later_than_now(seconds: float, now: int) -> None:
    """An item is gone from the first millisecond that is not before its attribute, exactly."""
    deadline = deadline_of({"expires": seconds}, events())
    for instant in {now, deadline or 1, (deadline or 1) - 1, (deadline or 1) + 1} - {0, -1}:
        gone = seconds != 0 and Fraction(seconds) * 1000 <= instant
        assert (deadline is not None and deadline <= instant) == gone
        if not gone and deadline is not None:
            assert seconds_left(deadline, instant) == max(1, (deadline - instant) // 1000)


def test_item_without_a_ttl_attribute_never_expires() -> None:
    """Where a table names no attribute, no item has a deadline."""
    assert deadline_of({"expires": 1, "None": 1}, events(ttl_attribute=None)) is None


@pytest.mark.parametrize(
    ("deadline", "left"),
    [(None, None), (NOW, 0), (NOW - 1, 0), (0, 0), (NOW + 1, 1), (NOW + 1999, 1), (NOW + 2000, 2)],
)
def test_remaining_seconds_of_an_item(deadline: int | None, left: int | None) -> None:
    """The remaining time is in whole seconds and at least 1 until the deadline; 0 means gone, None means no
    deadline.
    """
    assert seconds_left(deadline, NOW) == left


@pytest.mark.parametrize(
    ("now", "value"), [(NOW, 1_700_000_060), (NOW + 1, 1_700_000_061), (NOW - 999, 1_700_000_060)]
)
def test_ttl_attribute_counts_the_present_second(now: int, value: int) -> None:
    """An item that is given a time to live has at least that: the present second counts as a whole one."""
    assert attribute_for(60, now) == value
    assert seconds_left(value * 1000, now) == 60
