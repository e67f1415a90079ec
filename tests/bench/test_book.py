"""Comparing: medians of ratios, round by round, and what a file says of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from bench.bars import BARS, FLOORS, Bar, judge, unmeasured
from bench.book import OWN_CLIENT, Book, Scenario, Spread, figure
from bench.floors import coverage
from bench.measure import percentile
from bench.over_nats import turned
from bench.page import page
from bench.plot import svg
from bench.run import Run
from bench.scenarios import FINELY, SCENARIOS, SUITES
from bench.tell import document, facts, table, verdicts

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def book() -> Book:
    """A peer that is fast in one round in which Holdfast is slow."""
    book = Book()
    for ours, theirs in ((100, 50), (90, 100), (300, 100)):
        book.add("get", "holdfast", ours, unit="/s")
        book.add("get", "peer", theirs, unit="/s")
    return book


def test_a_ratio_is_the_median_of_the_rounds_ratios(book: Book) -> None:
    """Rounds are compared with their own round: the ratio of the medians would be another."""
    assert book.scenarios["get"].ratio("holdfast", "peer") == Spread(2.0, 0.9, 3.0, 3)


def test_rounds_that_do_not_match_are_not_compared(book: Book) -> None:
    """A side that missed a round can't be held against one that did not."""
    book.add("get", "holdfast", 1, unit="/s")
    with pytest.raises(ValueError, match="shorter"):
        book.scenarios["get"].ratio("holdfast", "peer")


def test_holdfast_is_compared_with_every_peer() -> None:
    """Holdfast against every peer; without it, each side against the first."""
    sides = {"holdfast": [1.0], "a": [1.0], "b": [1.0]}
    assert Scenario("x", "/s", sides).compared == [("holdfast", "a"), ("holdfast", "b")]
    both = {"holdfast": [1.0], OWN_CLIENT: [1.0], "a": [1.0]}
    assert Scenario("x", "/s", both).compared == [
        ("holdfast", "a"),
        (OWN_CLIENT, "a"),
        (OWN_CLIENT, "holdfast"),
    ]
    assert Scenario("x", "/s", {"few": [1.0], "many": [1.0]}).compared == [("many", "few")]


def test_everybody_goes_first_in_turn() -> None:
    """Whoever follows a pause has an advantage, so each round begins with another side."""
    assert [turned("abc", number)[0] for number in range(4)] == ["a", "b", "c", "a"]
    assert turned("abc", 1) == ["b", "c", "a"]


def test_a_bar_is_judged_by_the_median(book: Book) -> None:
    """One good round does not reach a bar, and one bad round does not miss it."""
    reached = Bar(group="1", scenario="get", over="peer", at_least=2.0)
    missed = Bar(group="1", scenario="get", over="peer", at_least=2.01)
    most = Bar(group="1", scenario="get", at_most=99)
    assert [verdict.reached for verdict in judge(book, [reached, missed, most])] == [True, False, False]


def test_a_bound_of_zero_holds_in_every_round(book: Book) -> None:
    """A bound of 0 holds for the worst round."""
    for errors in (0.0, 0.0, 0.1):
        book.add("errors", "holdfast", errors, unit="")
    [verdict] = judge(book, [Bar(group="1", scenario="errors", at_most=0)])
    assert not verdict.reached


def test_a_bar_without_its_peer_is_not_reached(book: Book) -> None:
    """A peer that was left out leaves the bar unjudged, and that is said."""
    bar = Bar(group="1", scenario="get", over="absent", at_least=1)
    assert judge(book, [bar]) == []
    assert unmeasured(book, [bar]) == [bar]
    assert "not measured: bar 1 get: holdfast / absent" in verdicts(book, [bar])


@pytest.mark.parametrize(("least", "most"), [(None, None), (1.0, 2.0)])
def test_a_bar_has_one_bound(least: float | None, most: float | None) -> None:
    """Neither none nor two."""
    with pytest.raises(ValueError, match="one bound"):
        Bar(group="1", scenario="x", at_least=least, at_most=most)


def test_every_bar_is_looked_at_by_a_suite() -> None:
    """Bars 1 to 6 by quick, 7 and 9 by growth, the rest by full; the floors by floors."""
    looked_at = {bar for suite in SUITES.values() for bar in suite.bars}
    assert looked_at == {*BARS, *FLOORS}
    assert {bar.group for bar in SUITES["quick"].bars} == set("123456")
    assert {bar.group for bar in BARS} == {*"123456789", "10", "blobs", "cluster", "file", "house", "logs"}


def test_shorter_turns_take_as_long() -> None:
    """More rounds, each as much shorter, into the same book, for scenarios that exist."""
    run = Run(count=5, seconds=0.9)
    finely = run.finely()
    assert finely.count > run.count
    assert finely.count * finely.seconds == pytest.approx(run.count * run.seconds)
    assert finely.book is run.book
    assert SCENARIOS.keys() >= FINELY


def test_suites_are_made_of_scenarios() -> None:
    """Every scenario that a suite names exists and says what it does."""
    for suite in SUITES.values():
        assert set(suite.scenarios) <= set(SCENARIOS)
    assert all(scenario.__doc__ for scenario in SCENARIOS.values())


def test_the_file_has_every_ratio_with_its_spread(book: Book) -> None:
    """Whoever reads the file can check each verdict and each round behind it."""
    bars = [Bar(group="1", scenario="get", over="peer", at_least=2.0)]
    book.left_out["redis"] = "there is none"
    found = json.loads(json.dumps(document(book, bars, {"cores": "2"}, busy=True)))
    [scenario] = found["scenarios"]
    assert scenario["sides"]["peer"]["values"] == [50, 100, 100]
    assert scenario["ratios"] == [
        {"side": "holdfast", "over": "peer", "median": 2.0, "low": 0.9, "high": 3.0, "rounds": 3}
    ]
    assert found["bars"][0] | {"median": 2.0, "low": 0.9, "high": 3.0, "reached": True} == found["bars"][0]
    assert (found["machine"], found["busy"], found["left_out"]) == (
        {"cores": "2"},
        True,
        {"redis": "there is none"},
    )


def test_people_see_the_spread_the_verdict_and_what_was_left_out(book: Book) -> None:
    """The table has each side's range and ratio; a missed bar shouts."""
    assert "holdfast / peer = 2.00 (0.90 to 3.00)" in table(book.scenarios["get"])
    assert "MISSED" in verdicts(book, [Bar(group="1", scenario="get", at_most=1)])
    book.left_out["redis"] = "there is none"
    book.durability["holdfast"] = "synced"
    assert "left out: redis: there is none" in facts(book)
    assert "durability of holdfast: synced" in facts(book)


def test_the_picture_begins_at_zero(book: Book) -> None:
    """It is well-formed, and a bar's length is its share of the longest."""
    drawn = ElementTree.fromstring(svg(list(book.scenarios.values())))
    bars = [one for one in drawn.iter() if one.get("class") in ("ours", "theirs")]
    assert [one.get("class") for one in bars] == ["ours", "theirs"]
    assert [float(one.get("width", "nan")) for one in bars] == [140.0, 140.0]


@pytest.mark.parametrize(
    ("value", "told"), [(12345.6, "12,346"), (123.44, "123.4"), (1.5, "1.50"), (0.01234, "0.0123")]
)
def test_figures_have_the_digits_that_mean_something(value: float, told: str) -> None:
    """Neither noise nor a rounded-away difference."""
    assert figure(value) == told


def test_the_page_copies_what_the_file_has(book: Book) -> None:
    """Figures of the documentation come from a file, with their spread, their verdict and how busy it was."""
    machine = {
        "cores": "2",
        "processor": "P",
        "system": "S",
        "python": "3",
        "sqlite": "4",
        "command": "quick",
    }
    bars = [Bar(group="1", scenario="get", over="peer", at_least=2.5)]
    text = page(document(book, bars, machine, busy=True))
    assert "| 1 | get: holdfast / peer | at least 2.50 | 2.00 (0.90 to 3.00) | missed |" in text
    assert "the machine was busy with other things" in text


def test_a_side_of_which_nothing_succeeded_misses(book: Book) -> None:
    """It has no latency: it misses its bar, is null in the file, and is left out of the picture."""
    book.add("p50", "holdfast", percentile([], 0.5), unit="ms")
    bars = [Bar(group="1", scenario="p50", at_most=5)]
    found = json.loads(json.dumps(document(book, bars, {}, busy=False), allow_nan=False))
    assert found["bars"][0]["reached"] is False
    assert found["scenarios"][1]["sides"]["holdfast"]["values"] == [None]
    assert "p50" not in svg(list(book.scenarios.values()))


def test_coverage_is_what_the_last_test_run_found(tmp_path: Path) -> None:
    """Every line, those of the key verbs, and those that must be covered whole; without a report, said so."""
    report = tmp_path / "coverage.json"
    run = Run()
    coverage(run, report)
    assert "coverage" in run.book.left_out
    counts = {
        "handles/kv.py": (10, 9),
        "errors.py": (10, 10),
        "decide/keys.py": (30, 30),
        "clock.py": (50, 31),
    }
    summaries = {
        f"src/holdfast/{name}": {"summary": {"num_statements": known, "covered_lines": covered}}
        for name, (known, covered) in counts.items()
    }
    report.write_text(json.dumps({"files": summaries}))
    coverage(run, report)
    found = {name: scenario.sides["holdfast"] for name, scenario in run.book.scenarios.items()}
    assert found == {
        "floors.coverage.lines": [80.0],
        "floors.coverage.verbs": [90.0],
        "floors.coverage.whole": [100.0],
    }
