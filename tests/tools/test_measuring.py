"""Coverage is measured of the tests that add to the others, and of every test that is not known yet."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tests import measuring
from tests.measuring import Cost, Known, choose, digest_of, lines_of, read, that_add_nothing
from tests.tools.front_door import front_door

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

FILE = "tests/unit/test_x.py"


def _items(*names: str) -> list[Any]:
    return [SimpleNamespace(nodeid=f"{FILE}::{name}") for name in names]


def _known(names: list[str], adding: list[str]) -> dict[str, Known]:
    return {FILE: Known(digest_of(f"{FILE}::{name}" for name in names), frozenset(_full(*adding)))}


def _full(*names: str) -> list[str]:
    return [f"{FILE}::{name}" for name in names]


def _left_out(names: list[str], record: dict[str, Known]) -> list[str]:
    return [item.nodeid.partition("::")[2] for item in that_add_nothing(_items(*names), record)]


def test_a_test_that_is_known_to_add_nothing_is_left_out() -> None:
    """The cases of a test that add something are measured, whatever their text, and no others."""
    record = _known(["test_a[0]", "test_a[1]", "test_a[2]", "test_b[0]"], ["test_a[0]", "test_a[2]"])
    assert _left_out(["test_a[x]", "test_b", "test_a[y]", "test_a[z]"], record) == ["test_b", "test_a[y]"]


def test_a_file_that_changed_is_measured_whole() -> None:
    """A new, renamed or removed test or case has its file measured, until the record is written anew."""
    record = _known(["test_a[0]", "test_a[1]", "test_b[0]"], ["test_a[0]"])
    assert _left_out(["test_a[x]", "test_a[y]", "test_b"], record) != []
    assert _left_out(["test_a[x]", "test_a[y]", "test_b"], {}) == []
    for names in (
        ["test_a[x]", "test_a[y]", "test_b", "test_new"],
        ["test_a[x]", "test_a[y]", "test_renamed"],
        ["test_a[x]", "test_a[y]", "test_a[z]", "test_b"],
        ["test_a[x]", "test_b"],
        ["test_b"],
    ):
        assert _left_out(names, record) == []


def test_cheap_tests_come_first() -> None:
    """Together the chosen tests reach what all reach, and a dear test is chosen only for what is its own."""
    reached = {"dear": 0b00110, "cheap": 0b00011, "same": 0b00011, "alone": 0b01000, "nothing": 0}
    costs = {"dear": 0.03, "cheap": 0.01, "same": 0.02, "alone": 0.04}
    assert choose(reached, costs, twice=0) == ["cheap", "dear", "alone"]
    assert choose({"dear": 0b0011, "cheap": 0b0011}, costs, twice=0) == ["cheap"]


def test_what_later_ones_reach_too_is_left_out() -> None:
    """A test that was chosen early is not measured if all that it reaches is reached by those after it."""
    reached = {"early": 0b0111, "left": 0b1011, "right": 0b10101}
    costs = {"early": 0.01, "left": 0.05, "right": 0.05}
    assert sorted(choose(reached, costs, twice=0)) == ["left", "right"]
    assert sorted(choose(reached, costs, twice=0b1)) == ["left", "right"]
    assert sorted(choose(reached, costs, twice=0b10)) == ["early", "left", "right"]


def test_what_must_be_covered_whole_is_reached_twice() -> None:
    """A second test is chosen for it, if there is one."""
    reached = {"first": 0b01, "second": 0b01, "third": 0b01, "only": 0b10}
    costs = {"first": 1.0, "second": 2.0, "third": 3.0, "only": 1.0}
    assert sorted(choose(reached, costs, twice=0b11)) == ["first", "only", "second"]


def test_a_test_that_costs_too_much_for_what_it_adds_is_left_out() -> None:
    """What is too much for a line is not for ten, nor for one that must be covered whole."""
    reached = {"cheap": 0b1, "line": 0b10, "lines": 0b1111111111 << 2, "second": 0b1}
    costs = {"cheap": 0.01, "line": 0.4, "lines": 0.4, "second": 0.4}
    assert sorted(choose(reached, costs, twice=0)) == ["cheap", "lines"]
    assert sorted(choose(reached, costs, twice=0b10)) == ["cheap", "line", "lines"]
    assert sorted(choose(reached, costs, twice=0b1)) == ["cheap", "lines", "second"]


def test_the_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    """A file has a line if one of its tests was measured, also when none of them adds anything."""
    tests = _full(
        "test_a[0]", "TestKind::test_b[0]", *(f"TestKind::test_c[{number}]" for number in range(12))
    )
    costs = [
        *(Cost(test, 1.0, measured=True) for test in tests),
        Cost("tests/docs/test_y.py::test_c[0]", 1.0, measured=False),
        Cost("tests/wire/test_z.py::test_d[0]", 1.0, measured=True),
    ]
    record = tmp_path / "measured.txt"
    adding = [tests[1], tests[2], tests[4], tests[-1]]
    record.write_text("\n".join(lines_of(costs, adding)))
    assert read(record) == {
        FILE: Known(digest_of(tests), frozenset(adding)),
        "tests/wire/test_z.py": Known(digest_of([costs[-1].test]), frozenset()),
    }
    assert "    TestKind::test_b\n    TestKind::test_c 0 2 11\n" in record.read_text()
    assert read(tmp_path / "none") == {}


def test_the_record_is_made_from_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs without any test makes no test worth measuring, nor does what the report does not count."""
    source = tmp_path / "source.py"
    source.write_text("x = [\n    1\n]\nif x:\n    y = 1\nz = 1\n")
    with closing(sqlite3.connect(tmp_path / "data")) as data, data:
        data.execute("CREATE TABLE context (id, context)")
        data.execute("CREATE TABLE file (id, path)")
        data.execute("CREATE TABLE arc (file_id, context_id, fromno, tono)")
        data.execute("INSERT INTO file VALUES (1, ?)", [str(source)])
        names = ["", *_full(*(f"test_{name}[0]" for name in ("line", "free", "branch", "uncounted")))]
        data.executemany("INSERT INTO context VALUES (?, ?)", enumerate(names))
        ways = [
            (0, -1, 1),
            (0, 1, 4),
            (0, 4, 6),
            (1, 4, 5),
            (2, 4, 6),
            (3, 4, 5),
            (3, 5, 6),
            (4, 2, 1),
            (4, 6, 1),
        ]
        data.executemany("INSERT INTO arc VALUES (1, ?, ?, ?)", ways)
    costs = [Cost(name, (1 + number) / 100, measured=True) for number, name in enumerate(names[1:])]
    (tmp_path / "1.costs").write_text("\n".join(json.dumps(cost) for cost in costs))
    monkeypatch.setattr(measuring, "RECORD", tmp_path / "measured.txt")
    measuring.main(tmp_path, str(tmp_path / "data"))
    assert (tmp_path / "measured.txt").read_text().split()[2:] == ["test_line"]


def test_measuring_all_writes_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`./dev test --measure-all` runs the whole suite, notes costs, and renews the record if it passed."""
    door, ran = front_door(tmp_path), []
    monkeypatch.setenv("HOLDFAST_MEASURE_ALL", "replaced and restored")
    monkeypatch.setattr(door, "ensure", door.PRIVATE.mkdir)
    monkeypatch.setattr(door, "coverage_gaps", lambda report: [])

    def run(*command: str) -> int:
        ran.append(command)
        door.COVERAGE.write_text('{"files": {}}')
        return 0

    monkeypatch.setattr(door, "run", run)
    assert door.test(["--measure-all"]) == 0
    assert [command[0] for command in ran] == ["pytest", "python", "python"]
    assert "--measure-all" not in ran[0]
    assert ran[1][1:] == ("-m", "tests.reporting", str(door.COVERAGE))
    assert ran[2][1:] == ("-m", "tests.measuring", str(door.COSTS), ".coverage")
    assert door.COSTS.is_dir()
