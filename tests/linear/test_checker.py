"""The checker of histories is right: it accepts what may happen and nothing else."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.linear import planting
from tests.linear.checker import check_key, judge
from tests.linear.checker import main as judge_files
from tests.linear.every_order import explained
from tests.linear.history import Operation, load, save
from tests.linear.simulated import Simulation

if TYPE_CHECKING:
    from pathlib import Path

SEEDS = 20


def op(call: int, end: int | None, verb: str, **fields: Any) -> Operation:
    """An operation on the one key of a history written by hand; it succeeds unless its outcome is given."""
    fields = {"client": call, "namespace": "kv/hand", "key": "k", "outcome": "ok"} | fields
    return Operation(call=call, end=end, verb=verb, **fields)  # type: ignore[arg-type]


def put(call: int, end: int, value: int, version: int, **fields: Any) -> Operation:
    """A set that succeeded."""
    return op(call, end, "set", argument=value, found=value, version=version, **fields)


def got(call: int, end: int, value: int | None = None, version: int | None = None) -> Operation:
    """A get that was answered."""
    return op(call, end, "get", found=value, version=version)


def lost(call: int, verb: str = "set", **fields: Any) -> Operation:
    """A write that nobody answered."""
    return op(call, call + 1, verb, outcome="unknown", **fields)


def refused(call: int, verb: str = "set", **fields: Any) -> Operation:
    """A write that was answered with TIMEOUT."""
    return op(call, call + 1, verb, outcome="refused", code="TIMEOUT", **fields)


def conflict(call: int, end: int, expected: int, found: int | None, version: int | None) -> Operation:
    """A compare-and-set that failed, and what it showed."""
    fields = {"argument": 0, "expected": expected, "found": found, "version": version}
    return op(call, end, "set", outcome="conflict", **fields)


EXPLAINED = {
    "nothing happened": [],
    "one after the other": [put(0, 1, 7, 1), got(2, 3, 7, 1), op(4, 5, "delete", found=True), got(6, 7)],
    "a get that overlaps a set sees it or not": [put(0, 9, 7, 1), got(1, 2), got(3, 4, 7, 1)],
    "calls that touch overlap": [put(0, 5, 7, 1), got(5, 6)],
    "sets that overlap take effect in the order of their versions": [
        put(0, 9, 1, 2),
        put(0, 9, 2, 1),
        got(10, 11, 1, 2),
    ],
    "a lost set is never seen": [put(0, 1, 7, 1), lost(2, argument=8), got(9, 10, 7, 1)],
    "a lost set is seen at once": [lost(0, argument=8), got(9, 10, 8, 4)],
    "a lost set is seen much later": [
        lost(0, argument=8),
        put(2, 3, 7, 1),
        got(9, 10, 7, 1),
        got(11, 12, 8, 2),
    ],
    "a lost set was there and is gone again": [
        lost(0, argument=8),
        op(2, 3, "delete", found=True),
        got(4, 5),
    ],
    "lost sets are seen in any order": [
        lost(0, argument=8),
        lost(1, argument=9),
        got(4, 5, 9, 1),
        got(6, 7, 8, 2),
    ],
    "a lost delete": [put(0, 1, 7, 1), lost(2, "delete"), got(4, 5), put(6, 7, 8, 3, expected=0)],
    "a lost incr": [lost(0, "incr", argument=2), op(3, 4, "incr", argument=1, found=3, version=2)],
    "a lost compare-and-set on a lost set": [
        lost(0, argument=8),
        lost(1, argument=9, expected=4),
        got(3, 4, 8, 4),
        got(5, 6, 9, 6),
    ],
    "a refused set is not there": [put(0, 1, 7, 1), refused(2, argument=8), got(4, 5, 7, 1)],
    "a conflict shows what is there": [put(0, 1, 7, 1), conflict(2, 3, 5, 7, 1), conflict(4, 5, 0, 7, 1)],
    "a conflict with nothing": [conflict(2, 3, 5, None, None)],
    "compare-and-set on what was seen": [put(0, 1, 7, 1), put(2, 3, 8, 2, expected=1)],
    "versions of other keys lie between": [put(0, 1, 7, 1), put(2, 3, 8, 9), got(4, 5, 8, 9)],
}

UNEXPLAINED = {
    "a get sees what was replaced": [put(0, 1, 7, 1), put(2, 3, 8, 2), got(4, 5, 7, 1)],
    "a get misses a set": [put(0, 1, 7, 1), got(2, 3)],
    "a get sees what was deleted": [put(0, 1, 7, 1), op(2, 3, "delete", found=True), got(4, 5, 7, 1)],
    "a get sees what nobody wrote": [got(0, 1, 7, 1)],
    "a get sees a set before it began": [got(0, 1, 7, 1), put(2, 3, 7, 1)],
    "two gets see two sets in opposite orders": [
        put(0, 20, 1, 1),
        put(0, 20, 2, 2),
        got(1, 2, 2, 2),
        got(3, 4, 1, 1),
    ],
    "a refused set is there": [put(0, 1, 7, 1), refused(2, argument=8), got(4, 5, 8, 2)],
    "a lost set is seen twice": [lost(0, argument=8), got(2, 3, 8, 1), put(4, 5, 7, 2), got(6, 7, 8, 3)],
    "a lost set is seen with two versions": [lost(0, argument=8), got(2, 3, 8, 1), got(4, 5, 8, 2)],
    "a lost compare-and-set takes effect on another version": [
        put(0, 1, 7, 1),
        put(2, 3, 8, 2),
        lost(4, argument=9, expected=1),
        got(6, 7, 9, 3),
    ],
    "two updates of one version": [
        put(0, 1, 7, 1),
        put(2, 9, 8, 2, expected=1),
        put(2, 9, 9, 3, expected=1),
    ],
    "two sets of what must not exist": [put(0, 9, 1, 1, expected=0), put(0, 9, 2, 2, expected=0)],
    "an incr is lost": [
        op(0, 1, "incr", argument=1, found=1, version=1),
        op(2, 3, "incr", argument=1, found=1, version=2),
    ],
    "a delete finds nothing where something is": [put(0, 1, 7, 1), op(2, 3, "delete", found=False)],
    "a delete finds something twice": [
        put(0, 1, 7, 1),
        op(2, 9, "delete", found=True),
        op(2, 9, "delete", found=True),
    ],
    "a conflict with what would have matched": [put(0, 1, 7, 1), conflict(2, 3, 1, 7, 1)],
    "a conflict shows what is not there": [put(0, 1, 7, 1), conflict(2, 3, 5, 6, 1)],
    "a version that falls": [put(0, 1, 7, 5), put(2, 3, 8, 4)],
    "a set answers with another value": [op(0, 1, "set", argument=7, found=8, version=1)],
}


@pytest.mark.parametrize("history", EXPLAINED.values(), ids=EXPLAINED)
def test_a_history_that_an_order_explains_is_accepted(history: list[Operation]) -> None:
    """A history that some order explains is linearizable, in whatever order it was recorded."""
    assert not judge(history).violations
    assert not judge(history[::-1]).violations


@pytest.mark.parametrize("history", UNEXPLAINED.values(), ids=UNEXPLAINED)
def test_a_history_that_no_order_explains_is_caught(history: list[Operation]) -> None:
    """A history that no order explains is a violation, in whatever order it was recorded."""
    assert check_key(history) is not None
    assert check_key(history[::-1]) is not None


def test_versions_belong_to_the_namespace() -> None:
    """A version is given once in a namespace, and later writes have greater ones, whatever their keys."""
    other = {"key": "other"}
    assert not judge([put(0, 1, 7, 1), put(2, 3, 8, 2, **other)]).violations
    assert not judge([put(0, 1, 7, 1), put(2, 3, 8, 1, namespace="kv/another")]).violations
    assert not judge([put(0, 9, 7, 2), put(0, 9, 8, 1, **other)]).violations
    for wrong in (
        [put(0, 9, 7, 1), put(0, 9, 8, 1, **other)],
        [put(0, 1, 7, 2), put(2, 3, 8, 1, **other)],
        [lost(0, argument=7), got(2, 3, 7, 5), put(4, 5, 8, 4, **other)],
        [lost(0, argument=7), got(2, 3, 7, 5), lost(0, argument=7, **other), put(2, 9, 8, 5, **other)],
    ):
        [violation] = judge(wrong).violations
        assert "version" in str(violation)


def test_a_late_effect_is_told_from_a_violation() -> None:
    """What took effect long after its deadline is late; without a deadline nothing is ever late."""
    tale = [put(2, 3, 7, 1), got(50, 51, 7, 1), got(60, 61, 8, 2)]
    late = [lost(0, argument=8, deadline=10), *tale]
    assert judge(late) == ([], [])
    assert judge(late, slack=60) == ([], [])
    verdict = judge(late, slack=5)
    assert not verdict.violations
    assert len(verdict.late) == 1
    assert judge([lost(0, argument=8), *tale], slack=5) == ([], [])
    assert judge([lost(0, argument=8, deadline=10), got(50, 51, 8, 2)], slack=5) == ([], [])
    both = [lost(0, argument=8, deadline=12), lost(1, "incr", argument=1, deadline=10)]
    assert judge([*both, got(50, 51, 9, 2)], slack=5) == ([], [])


@settings(max_examples=100, deadline=None)
@given(st.integers(0), st.integers(1, 100))
def test_a_right_register_is_accepted(seed: int, operations: int) -> None:
    """Whatever a right register does is linearizable, with effects anywhere between call and end or after."""
    assert judge(Simulation(random.Random(seed)).run(operations)) == ([], [])


@pytest.mark.parametrize("plant", planting.KINDS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_caught(plant: Any) -> None:
    """A certain fault in a history that was right is caught in every one of 20 histories."""
    caught = 0
    for seed in range(SEEDS):
        history = Simulation(random.Random(seed), clients=8, keys=3).run(150)
        assert judge(history) == ([], [])
        caught += bool(judge(plant(history, random.Random(seed))).violations)
    assert caught == SEEDS


@settings(max_examples=150, deadline=None)
@given(st.integers(0))
def test_the_search_agrees_with_trying_every_order(seed: int) -> None:
    """The checker calls a history linearizable if and only if one of all its orders explains it."""
    chance = random.Random(seed)
    history = Simulation(chance, clients=3, keys=1).run(5)
    for _ in range(chance.randint(0, 2)):
        history = _mangled(history, chance)
    assert (check_key(history) is None) == explained(history)
    slack = chance.randint(0, 5)
    assert (check_key(history, slack=slack) is None) == explained(history, slack=slack)


def _mangled(history: list[Operation], chance: random.Random) -> list[Operation]:
    """A history with the end of one operation put in the place of another's."""
    answered = [one for one in history if one.outcome in ("ok", "conflict") and one.verb != "delete"]
    if not answered:
        return history
    one, other = chance.choice(answered), chance.choice(answered)
    if other.version is None and one.verb != "get" and one.outcome == "ok":
        return history
    changed = replace(one, found=other.found, version=other.version)
    return [changed if each is one else each for each in history]


def test_a_history_can_be_kept_and_judged_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file holds all that matters of a history, and whoever finds one can have it judged and explained."""
    path = tmp_path / "history.jsonl"
    right = Simulation(random.Random(1)).run(50)
    save(path, right)
    assert load(path) == right
    assert judge_files([str(path)]) == 0
    save(path, UNEXPLAINED["a get sees what was replaced"])
    assert judge_files([str(path)]) == 1
    told = capsys.readouterr().out
    assert "no order of the operations explains" in told
    assert "get k() → 7@1" in told
    assert "could only be\n  8@2" in told
