"""The checkers of the cluster's histories accept what may happen, and find each fault written by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tests.cluster_proof.appends import check_appends
from tests.cluster_proof.fences import check_fences
from tests.cluster_proof.steps import Kind, Recorder, Step, recorded
from tests.cluster_proof.sums import check_replays, check_sums
from tests.cluster_proof.watches import Written, check_audit, check_journal, check_watches

if TYPE_CHECKING:
    from pathlib import Path


def step(kind: Kind, call: int, end: int | None, **fields: Any) -> Step:
    """A step that succeeded, unless its outcome is given."""
    return Step(kind=kind, client=f"c{call}", call=call, end=end, **{"outcome": "ok", **fields})


def incr(call: int, end: int, value: int, **fields: Any) -> Step:
    """An increment that was answered."""
    return step("incr", call, end, key="sum", value=value, version=value, **fields)


def lost(kind: Kind, call: int, **fields: Any) -> Step:
    """A step without an answer."""
    return step(kind, call, None, outcome="unknown", **fields)


def refused(kind: Kind, call: int, **fields: Any) -> Step:
    """A step that was refused."""
    return step(kind, call, call + 1, **{"outcome": "refused", **fields})


SUMS: dict[str, tuple[list[Step], int, str]] = {
    "nothing happened": ([], 0, ""),
    "one after the other": ([incr(0, 1, 1), incr(2, 3, 2)], 2, ""),
    "two that overlap, in either order": ([incr(0, 9, 2), incr(1, 8, 1)], 2, ""),
    "a lost reply took effect": ([incr(0, 1, 1), lost("incr", 2, key="sum"), incr(3, 4, 3)], 3, ""),
    "a lost reply took no effect": ([incr(0, 1, 1), lost("incr", 2, key="sum")], 1, ""),
    "a refused increment took no effect": ([refused("incr", 0, key="sum"), incr(2, 3, 1)], 1, ""),
    "an acknowledged one is lost at the end": (
        [incr(0, 1, 1), incr(2, 3, 2)],
        1,
        "at the end the counter is 1",
    ),
    "an acknowledged one is lost between": ([incr(0, 9, 1), incr(0, 9, 1)], 1, "the same number"),
    "one is applied twice": ([incr(0, 1, 1), incr(2, 3, 3)], 3, "1 more than"),
    "the last one is applied twice": ([incr(0, 1, 1)], 2, "1 more than"),
    "a refused one took effect": ([refused("incr", 0, key="sum"), incr(2, 3, 2)], 2, "1 more than"),
    "time goes back": ([incr(0, 1, 2), incr(2, 3, 1)], 2, "smaller number"),
}


@pytest.mark.parametrize("case", SUMS)
def test_a_wrong_sum_of_increments_is_found(case: str) -> None:
    """The sum of increments is exact: one too many or too few is found, and nothing else is blamed."""
    steps, final, words = SUMS[case]
    found = check_sums(steps, {"sum": final})
    assert bool(found) == bool(words), found
    assert words in "".join(found)


def test_a_repeated_request_has_one_effect() -> None:
    """Replies to one request id must be equal, in one step and across steps."""
    assert check_replays([incr(0, 1, 1, request_id="a", replies=[(1, 1), (1, 1)])]) == []
    assert check_replays([incr(0, 1, 1, request_id="a", replies=[(1, 1), (2, 2)])])
    twice = [incr(0, 1, 1, request_id="a", replies=[(1, 1)]), incr(2, 3, 2, request_id="a", replies=[(2, 2)])]
    assert check_replays(twice)


def append(call: int, end: int, found: dict[str, list[int]], **added: int) -> Step:
    """A transaction that was acknowledged."""
    return step("append", call, end, found=found, added=added)


APPENDS: dict[str, tuple[list[Step], dict[str, list[int]], str]] = {
    "one after the other": ([append(0, 1, {"x": []}, x=1), append(2, 3, {"x": [1]}, x=2)], {"x": [1, 2]}, ""),
    "two lists together": (
        [append(0, 9, {"x": [], "y": []}, x=1, y=2), append(1, 9, {"x": [1], "y": [2]})],
        {"x": [1], "y": [2]},
        "",
    ),
    "a lost reply took effect": (
        [lost("append", 0, found={"x": []}, added={"x": 1}), append(5, 6, {"x": [1]})],
        {"x": [1]},
        "",
    ),
    "a lost reply took no effect": ([lost("append", 0, found={"x": []}, added={"x": 1})], {"x": []}, ""),
    "an acknowledged append is lost": ([append(0, 1, {"x": []}, x=1)], {"x": []}, "is lost"),
    "half of a transaction is lost": (
        [append(0, 1, {"x": [], "y": []}, x=1, y=2)],
        {"x": [1], "y": []},
        "is lost, or a part of it",
    ),
    "half of an unknown transaction": (
        [lost("append", 0, found={"x": [], "y": []}, added={"x": 1, "y": 2})],
        {"x": [1], "y": []},
        "in part",
    ),
    "an element twice": ([append(0, 1, {"x": []}, x=1)], {"x": [1, 1]}, "2 times"),
    "an element of nobody": ([], {"x": [1]}, "which no transaction appended"),
    "a refused transaction left something": (
        [refused("append", 0, found={"x": []}, added={"x": 1})],
        {"x": [1]},
        "refused transaction left",
    ),
    "a list that never was": (
        [append(0, 1, {"x": []}, x=1), append(2, 3, {"x": [1]}, x=2), append(2, 3, {"x": [2]})],
        {"x": [1, 2]},
        "never was",
    ),
    "a lost update": (
        [append(0, 9, {"x": []}, x=1), append(0, 9, {"x": []}, x=2)],
        {"x": [1, 2]},
        "no order",
    ),
    "a stale read": (
        [append(0, 1, {"x": []}, x=1), append(2, 3, {"x": []})],
        {"x": [1]},
        "no order",
    ),
    "write skew": (
        [append(0, 9, {"x": [], "y": []}, x=1), append(0, 9, {"x": [], "y": []}, y=2)],
        {"x": [1], "y": [2]},
        "no order",
    ),
    "two readers that see two orders": (
        [
            append(0, 9, {"x": []}, x=1),
            append(0, 9, {"y": []}, y=2),
            append(0, 9, {"x": [1], "y": []}),
            append(0, 9, {"x": [], "y": [2]}),
        ],
        {"x": [1], "y": [2]},
        "no order",
    ),
}


@pytest.mark.parametrize("case", APPENDS)
def test_appends_without_one_order_are_found(case: str) -> None:
    """Transactions have one order that explains all they read and respects time; else that is found."""
    steps, final, words = APPENDS[case]
    found = check_appends(steps, final)
    assert bool(found) == bool(words), found
    assert words in "".join(found)


def grant(call: int, end: int, token: int) -> Step:
    """A lock that was taken."""
    return step("grant", call, end, token=token)


def fenced(call: int, end: int, token: int, version: int) -> Step:
    """A write under a lock that was accepted."""
    return step("fenced", call, end, token=token, version=version)


LATE = refused("fenced", 0, token=2, code="FENCED")
FENCES: dict[str, tuple[list[Step], str]] = {
    "writes of holders in turn": (
        [grant(0, 1, 2), fenced(2, 3, 2, 3), grant(4, 5, 5), fenced(6, 7, 5, 6)],
        "",
    ),
    "a late write is refused": ([grant(0, 1, 2), grant(4, 5, 5), LATE], ""),
    "a write that overlaps the next grant": ([grant(0, 1, 2), fenced(2, 9, 2, 3), grant(4, 5, 5)], ""),
    "refused because of a grant without a reply": ([grant(0, 1, 2), lost("grant", 3), LATE], ""),
    "a write past the fence": ([grant(0, 1, 2), grant(4, 9, 5), fenced(6, 7, 2, 6)], "after the token 5"),
    "a write that began after the loss": (
        [grant(0, 1, 2), grant(2, 3, 5), fenced(4, 5, 2, 4)],
        "began after its lock was lost",
    ),
    "a version before the token": ([grant(0, 1, 5), fenced(2, 3, 5, 4)], "smaller version"),
    "one token for two": ([grant(0, 1, 2), grant(0, 1, 2)], "one token"),
    "a later token is smaller": ([grant(0, 1, 5), grant(2, 3, 2)], "smaller token"),
    "the newest holder is refused": ([grant(0, 1, 2), LATE], "newest holder"),
}


@pytest.mark.parametrize("case", FENCES)
def test_a_write_past_a_lost_lock_is_found(case: str) -> None:
    """A write of a holder that lost its lock is refused, and no other is."""
    steps, words = FENCES[case]
    found = check_fences(steps)
    assert bool(found) == bool(words), found
    assert words in "".join(found)


JOURNAL = [Written(1, "a"), Written(2, "b"), Written(4, "a")]


def yielded(*changes: tuple[int, str], since: int = 0) -> list[Step]:
    """The changes that one watch yielded."""
    return [
        Step(kind="watch", client="w", call=0, outcome="ok", version=version, key=key, token=since)
        for version, key in changes
    ]


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (yielded((1, "a"), (2, "b"), (4, "a")), ""),
        (yielded((1, "a"), (2, "b")), ""),
        (yielded((2, "b"), (4, "a"), since=1), ""),
        (yielded((1, "a"), (4, "a")), "missed [(2, 'b')]"),
        (yielded((2, "b"), (4, "a")), "missed [(1, 'a')]"),
        (yielded((1, "a"), (1, "a"), (2, "b")), "yielded [(1, 'a')]"),
        (yielded((1, "a"), (2, "a")), "yielded [(2, 'a')]"),
        (yielded((2, "b"), (1, "a"), (4, "a")), "in another order"),
        (yielded((1, "a"), (2, "b"), (3, "c"), (4, "a")), "yielded [(3, 'c')]"),
    ],
)
def test_a_watch_that_differs_from_the_journal_is_found(steps: list[Step], words: str) -> None:
    """A watch yields what the journal has, each change once and in order."""
    found = check_watches(steps, JOURNAL)
    assert bool(found) == bool(words), found
    assert words in "".join(found)


def test_an_acknowledged_change_missing_from_the_journal_is_found() -> None:
    """Acknowledged changes are in the journal, under their keys, and versions grow."""
    assert check_journal([Written(2, "b")], JOURNAL) == []
    assert check_journal([Written(3, "b")], JOURNAL)
    assert check_journal([Written(2, "a")], JOURNAL)
    assert check_journal([], [Written(2, "a"), Written(2, "b")])


def test_an_acknowledged_write_missing_from_the_audit_is_found() -> None:
    """The audit has every acknowledged write once, and none that was refused."""
    done = step("audited", 0, 1, key="a", version=3, request_id="r")
    record = Written(3, "a", "r")
    assert check_audit([done, lost("audited", 0, request_id="s")], [record], whole=True) == []
    assert check_audit([done], [record], whole=False)
    assert check_audit([done], [], whole=True)
    assert check_audit([done], [record, record], whole=True)
    assert check_audit([done], [Written(4, "a", "r")], whole=True)
    assert check_audit([refused("audited", 0, request_id="r")], [record], whole=True)


def test_a_history_survives_a_kill(tmp_path: Path) -> None:
    """A step that was begun is in the file, also if its process ended in the middle of a line."""
    path = tmp_path / "steps.jsonl"
    recorder = Recorder(path)
    first = lost("incr", 1, key="a")
    number = recorder.begin(first)
    recorder.begin(lost("incr", 2, key="b"))
    ended = msgspec.structs.replace(first, end=3, outcome="ok", value=1)
    recorder.end(ended, number)
    recorder.close()
    with path.open("ab") as file:
        file.write(b"[3,{")
    assert recorded([path], Step) == [ended, lost("incr", 2, key="b")]
