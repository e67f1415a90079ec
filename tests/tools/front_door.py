"""A copy of `./dev` in a folder of its own, whose verbs can be called one by one.

Law: the copy is the real file; only the folder around it is made up.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]


def front_door(folder: Path) -> Any:
    """The module that a copy of `./dev` in this folder is, with an empty folder for tools beside it."""
    shutil.copy(ROOT / "dev", folder / "dev")
    (folder / "tools").mkdir()
    loader = SourceFileLoader(f"dev_of_{folder.name}", str(folder / "dev"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def require_pip(door: Any) -> None:
    """Skip the test where the Python of this machine has no pip, as Debian's may not."""
    command = [door.base_python(), "-c", "import pip"]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip(f"{door.base_python()} has no pip, so uv can't be installed with it")
