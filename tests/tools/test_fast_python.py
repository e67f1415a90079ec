"""The environment is made from a Python that is not much slower than others of the same version."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tools.front_door import front_door, require_pip

KIND = sys.implementation.cache_tag
NAME = f"python{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A copy of `./dev`, with a folder on the PATH that has no Python yet."""
    folder = tmp_path / "clone"
    folder.mkdir()
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("HOLDFAST_PYTHON", raising=False)
    door = front_door(folder)
    require_pip(door)
    return door


def put(folder: Path, told: str, code: int = 0) -> str:
    """Put a Python on the PATH that says this of itself; its path."""
    python = folder / "bin" / NAME
    python.write_text(f"#!/bin/sh\necho '{told}'\nexit {code}\n")
    python.chmod(0o755)
    return str(python)


def test_a_much_faster_python_is_used(door: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """That is said, and how much faster it is."""
    other = put(tmp_path, f"{KIND} /elsewhere/with a blank 0.00001")
    assert door.fast_python() == other
    assert f"using {other}, which is " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("told", "code"),
    [
        (f"{KIND} /elsewhere 9.5", 0),
        ("pypy39 /elsewhere 0.00001", 0),
        (f"{KIND} {sys.base_prefix} 0.00001", 0),
        (f"{KIND} /elsewhere 0.00001", 1),
        ("hello", 0),
    ],
    ids=["slower", "of another kind", "the same", "without a module", "no Python"],
)
def test_any_other_is_left_alone(
    door: Any, tmp_path: Path, told: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The Python that runs `./dev` is used, without a word."""
    put(tmp_path, told, code)
    assert door.fast_python() == door.base_python()
    assert capsys.readouterr().out == ""


def test_one_that_can_not_be_run_is_left_alone(door: Any, tmp_path: Path) -> None:
    """Such as one for another kind of processor."""
    python = tmp_path / "bin" / NAME
    python.write_bytes(b"\x7fELF")
    python.chmod(0o755)
    assert door.fast_python() == door.base_python()


def test_the_one_that_is_named_is_used(door: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HOLDFAST_PYTHON decides, however fast the others are."""
    put(tmp_path, f"{KIND} /elsewhere 0.00001")
    monkeypatch.setenv("HOLDFAST_PYTHON", "/some/python")
    assert door.fast_python() == "/some/python"


def test_virtual_environments_are_no_choice(door: Any) -> None:
    """An environment made from one that is removed would stop working."""
    assert door.pace_of(door.base_python()) is not None
    assert door.pace_of(sys.executable) is None
