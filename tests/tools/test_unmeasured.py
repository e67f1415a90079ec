"""Coverage is left out for the length of a block, and goes on behind it: see `tests.unmeasured`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

MEASURED = """
import os, threading
from coverage import Coverage
from tests.unmeasured import unmeasured

def before(): return 1
def between(): return 1
def in_a_thread(): return 1
def after(): return 1
def after_in_a_thread(): return 1

def run(call):
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()

inner, outer = [Coverage(data_file=None, include=[__file__], messages=False) for _ in range(2)]
os.environ["COVERAGE_PROCESS_CONFIG"] = "of the outer"
outer.start()
inner.start()
before()
with unmeasured():
    assert "COVERAGE_PROCESS_CONFIG" not in os.environ
    between()
    run(in_a_thread)
after()
run(after_in_a_thread)
assert os.environ["COVERAGE_PROCESS_CONFIG"] == "of the outer"
inner.stop()
outer.stop()
with open(__file__) as file:
    source = file.read().splitlines()
for one in (inner, outer):
    seen = {source[number - 1].split("(")[0] for number in one.get_data().lines(__file__) or ()}
    print(*sorted(line.removeprefix("def ") for line in seen if line.startswith("def ")))
"""

KIT = """
import pytest

class Kit:
    def test_a(self): ...
    def test_b(self): ...
    @pytest.mark.parametrize("case", ["x", "y"])
    def test_c(self, case): ...

"""

CHEAPEST = """
from kit import Kit

class TestCheapest(Kit): ...
"""

INHERITED = """
import pytest
from kit import Kit

class TestFirst(Kit): ...
class TestSecond(Kit): ...

@pytest.mark.unmeasured
class TestThird(Kit): ...
"""

MARKED = """
def pytest_collection_finish(session):
    for item in session.items:
        if item.get_closest_marker("unmeasured") is None:
            print("measured", item.nodeid.partition("::")[2])
"""


def test_nothing_is_measured_in_the_block(tmp_path: Path) -> None:
    """Of two measurements, one inside the other, neither sees the block; the inner one goes on behind it."""
    program = tmp_path / "measured.py"
    program.write_text(MEASURED)
    quiet = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    done = subprocess.run(
        [sys.executable, str(program)],
        env=quiet | {"PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["after after_in_a_thread before", ""]


def test_a_test_of_all_engines_is_measured_on_two(tmp_path: Path) -> None:
    """Every test of the kit is measured on the cheapest engine and on one of the others in turn."""
    folder = tmp_path / "conformance"
    folder.mkdir()
    (tmp_path / "kit.py").write_text(KIT)
    (folder / "test_memory.py").write_text(CHEAPEST)
    (folder / "test_engines.py").write_text(INHERITED)
    (folder / "conftest.py").write_text(MARKED)
    quiet = {name: value for name, value in os.environ.items() if not name.startswith(("COV", "PYTEST"))}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "--collect-only",
            "-p",
            "tests.unmeasured",
            "-p",
            "no:cacheprovider",
        ],
        env=quiet | {"PYTHONPATH": f"{ROOT}:{tmp_path}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    measured = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("measured ")]
    assert sorted(measured) == [
        *(f"TestCheapest::{test}" for test in ("test_a", "test_b", "test_c[x]", "test_c[y]")),
        *("TestFirst::test_a", "TestFirst::test_c[x]", "TestSecond::test_b", "TestSecond::test_c[y]"),
    ]
