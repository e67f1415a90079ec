"""A copy of `./dev` in a folder of its own, whose verbs can be called one by one.

The copy is the real file, and so is what it knows of environments. Only the folder around it is made up.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
ENVIRONMENTS: Final = "tools/environments.py"


def front_door(folder: Path) -> Any:
    """The module that a copy of `./dev` in this folder is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "tools.environments", environments(folder))
        return _copied("dev", folder)


def environments(folder: Path) -> Any:
    """The module that a copy of `tools/environments.py` is, with nothing else in the folder for tools."""
    (folder / "tools").mkdir()
    return _copied(ENVIRONMENTS, folder)


def _copied(name: str, folder: Path) -> Any:
    path = Path(shutil.copy(ROOT / name, folder / name))
    loader = SourceFileLoader(f"{path.stem}_of_{path.parent.name}", str(path))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
