"""The suite runs in forked processes: see `tests.spreading`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.spreading import Piece, Pieces, pieces, read, write

ROOT = Path(__file__).parents[2]

GROUND = """
import os, pathlib, pytest

@pytest.fixture(scope="session")
def ground():
    yield os.getpid()
    pathlib.Path(f"session{os.getpid()}").touch(exist_ok=False)
"""

SPREAD = """
import os, pathlib, pytest, sys

PARENT = os.getpid()
STDERR = sys.stderr

@pytest.fixture(scope="module")
def room():
    yield []
    pathlib.Path(f"module-{__name__}").touch(exist_ok=False)

def test_one(ground, room, tmp_path):
    room.append(1)
    assert os.getppid() == PARENT
    assert tmp_path.parent.name.startswith("process")

def test_two(ground, room, run_folder, tmp_path):
    assert ground == os.getpid()
    assert room == [1]
    assert run_folder == tmp_path.parents[1]

def test_output(capfd):
    print("mine")
    os.write(1, b"alone")
    assert capfd.readouterr().out == "mine\\nalone"

def test_a_stream_that_was_kept():
    print("said long after", file=STDERR)

def test_failing():
    print("said before")
    os.write(2, b"and this")
    assert False
"""

FAILING = """
import os, pytest, sys

@pytest.fixture(scope="session")
def broken():
    yield
    raise RuntimeError("the ground gave way")

def test_passes(): pass
def test_fails():
    print("said before")
    assert 1 + 1 == 3
@pytest.mark.skip(reason="not today")
def test_skipped(): pass
def test_kills_its_process(): os._exit(7)
def test_behind_it(broken): pass
"""


WAITING = """
import pathlib, time

def test_it_waits(ground):
    pathlib.Path("begun").touch()
    time.sleep(60)
"""


def _started(folder: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pytest", "-p", "tests.spreading", "-p", "no:cacheprovider", *options]
    quiet = {name: value for name, value in os.environ.items() if not name.startswith(("COV", "PYTEST"))}
    own = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.Popen(
        command, cwd=folder, env=quiet | own, stdout=subprocess.PIPE, text=True, start_new_session=True
    )


def _run(folder: Path, *options: str) -> tuple[int, str]:
    """The exit code of a run, and what it says."""
    with _started(folder, *options) as run:
        said, _ = run.communicate(timeout=60)
    return run.returncode, said


def test_processes_share_what_was_collected_and_nothing_else(tmp_path: Path) -> None:
    """Tests run in processes below the one that collected them, each with its own fixtures and files."""
    (tmp_path / "conftest.py").write_text(GROUND)
    for number in range(3):
        (tmp_path / f"test_{number}.py").write_text(SPREAD)
    code, said = _run(tmp_path, "--spread=2")
    assert code == 1, said
    assert "3 failed, 12 passed" in said
    assert said.count("said before") == said.count("and this") == 6  # once in the source that is shown
    assert "said long after" not in said
    assert len([*tmp_path.glob("module-*")]) == 3
    assert 1 <= len([*tmp_path.glob("session*")]) <= 2


def test_every_outcome_is_reported(tmp_path: Path) -> None:
    """Failures have their reasons and output, of a process that died and of fixtures that end with it too."""
    (tmp_path / "test_failing.py").write_text(FAILING)
    code, said = _run(tmp_path, "--spread=2")
    assert code == 1, said
    assert "2 failed, 2 passed, 1 skipped, 1 error" in said
    assert "assert (1 + 1) == 3" in said
    assert "said before" in said
    assert "the process that ran test_failing.py::test_kills_its_process crashed, with exit code 7" in said
    assert "RuntimeError: the ground gave way" in said


def test_a_run_ends_where_it_shall(tmp_path: Path) -> None:
    """With a limit of failures the run ends early, and its processes with it."""
    (tmp_path / "test_failing.py").write_text(FAILING)
    code, said = _run(tmp_path, "--spread=2", "-x")
    assert code == 1, said
    assert "1 failed, 1 passed" in said
    assert "stopping after 1 failures" in said


def test_long_files_are_taken_by_pieces() -> None:
    """Every test is in one piece; the pieces of long files come before others, which stay whole."""
    files = ["x/a"] * 3 + ["x/long"] * 10 + ["y/b"] * 520
    found = pieces(files, {"x/long": 48.0, "x/a": 0.1})
    assert sorted(test for piece in found for test in piece.tests) == list(range(len(files)))
    assert [files[piece.tests.start] for piece in found] == ["y/b"] * 2 + ["x/long"] * 4 + ["x/a"]
    assert found[-1] == (0.1, "x", range(3))


def test_one_long_test_is_one_piece() -> None:
    """A piece has at least one test."""
    found = pieces(["x/long", "x/long"], {"x/long": 100.0})
    assert [piece.tests for piece in found] == [range(1), range(1, 2)]


def test_a_process_stays_in_its_folder() -> None:
    """What takes longest comes first; then the folder of the last piece, then the one with most left."""
    found = [(20.0, "slow"), (4.0, "a"), (3.0, "b"), (3.0, "b"), (1.0, "a")]
    left = Pieces([Piece(took, folder, range(1)) for took, folder in found])
    assert _taken(left, "a") == (20.0, "slow")
    assert _taken(left, "a") == (4.0, "a")
    assert _taken(left, "a") == (1.0, "a")
    left.put_back(Piece(0.0, "a", range(1)))
    assert _taken(left, "none") == (3.0, "b")
    assert _taken(left, "b") == (3.0, "b")
    assert left
    assert _taken(left, "b") == (0.0, "a")
    assert not left
    assert left.take("b") is None


def test_long_pieces_of_a_folder_stay_together() -> None:
    """A process takes the next long piece of its folder; one that has none begins another folder."""
    found = [(30.0, "a"), (20.0, "b"), (19.0, "a"), (18.0, "c"), (17.0, "b")]
    left = Pieces([Piece(took, folder, range(1)) for took, folder in found])
    assert _taken(left, "") == (30.0, "a")
    assert _taken(left, "") == (20.0, "b")
    assert _taken(left, "a") == (19.0, "a")
    assert _taken(left, "a") == (18.0, "c")
    assert _taken(left, "c") == (17.0, "b")
    assert not left


def _taken(left: Pieces, folder: str) -> tuple[float, str]:
    piece = left.take(folder)
    assert piece is not None
    return piece.seconds, piece.folder


def test_the_record(tmp_path: Path) -> None:
    """What takes long is kept in a file; without the file nothing is known."""
    record = tmp_path / "seconds.txt"
    assert read(record) == {}
    write(record, {"b.py": 2.04, "a.py": 31.5, "quick.py": 0.2})
    assert record.read_text() == "a.py 31.5\nb.py 2.0\n"
    assert read(record) == {"a.py": 31.5, "b.py": 2.0}


def test_ctrl_c_ends_a_run(tmp_path: Path) -> None:
    """Interrupted, a run ends its processes, and their fixtures end first."""
    (tmp_path / "conftest.py").write_text(GROUND)
    (tmp_path / "test_waits.py").write_text(WAITING)
    with _started(tmp_path, "--spread=2") as run:
        while not (tmp_path / "begun").exists():
            assert run.poll() is None
            time.sleep(0.02)
        os.killpg(run.pid, signal.SIGINT)  # as a terminal does
        said, _ = run.communicate(timeout=60)
    assert run.returncode == 2, said
    assert "KeyboardInterrupt" in said
    assert len([*tmp_path.glob("session*")]) == 1
