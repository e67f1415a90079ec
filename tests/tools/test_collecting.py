"""Test modules are compiled before they are collected: see `tests.collecting`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from _pytest.assertion import rewrite

from tests import collecting
from tests.collecting import compile_one

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_pytest_takes_what_was_compiled(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """A compiled module stands where pytest looks, and holds until its source changes."""
    module = tmp_path / "test_something.py"
    module.write_text("def test_it(): assert 1 + 1 == 2\n")
    compile_one(module, pytestconfig)
    [compiled] = (tmp_path / "__pycache__").iterdir()
    assert compiled.name == f"test_something{rewrite.PYC_TAIL}"
    assert rewrite._read_pyc(module, compiled) is not None
    module.write_text("def test_it(): assert 1 + 2 == 3 or True\n")
    assert rewrite._read_pyc(module, compiled) is None
    compile_one(module, pytestconfig)
    assert rewrite._read_pyc(module, compiled) is not None


def test_all_are_compiled_and_none_is_run(
    tmp_path: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The modules of all folders are compiled; one that is no Python does not keep it from the others."""
    for name in ("test_one.py", "below/test_two.py", "test_broken.py", "helper.py"):
        module = tmp_path / name
        module.parent.mkdir(exist_ok=True)
        module.write_text("def" if "broken" in name else "raise RuntimeError('this was run')")
    monkeypatch.setattr(collecting, "ROOT", tmp_path)
    assert collecting.pytest_cmdline_main(pytestconfig) is None
    monkeypatch.setattr(pytestconfig.option, "compile", True)
    assert collecting.pytest_cmdline_main(pytestconfig) == 0
    compiled = sorted(path.name for path in tmp_path.rglob("*.pyc"))
    assert compiled == [f"test_{name}{rewrite.PYC_TAIL}" for name in ("one", "two")]
