"""Test modules are compiled by two processes: see `tests.collecting`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from _pytest.assertion import rewrite

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
