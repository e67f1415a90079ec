"""The types of what is documented: a type checker knows them without having to guess."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast

ROOT = Path(__file__).parents[2]
PYRIGHT = shutil.which("pyright")
LEAST = 0.99


@pytest.mark.skipif(PYRIGHT is None, reason="pyright is not on this machine: npm or pipx installs it")
@pytest.mark.timeout(600)
def test_documented_names_have_known_types() -> None:
    """At least 99 of 100 documented names and their members have a type that every checker finds alike."""
    assert PYRIGHT is not None
    env = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT / "src"),  # else the folder that an editable installation makes is looked at
    }
    command = [PYRIGHT, "--verifytypes", "holdfast", "--ignoreexternal", "--outputjson"]
    ran = subprocess.run(command, env=env, cwd="/", capture_output=True, text=True, check=False)
    documented = tuple(_documented())
    found = [
        one
        for one in json.loads(ran.stdout)["typeCompleteness"]["symbols"]
        if f"{one['name']}.".startswith(documented)
    ]
    unclear = [one for one in found if not one["isTypeKnown"] or one["isTypeAmbiguous"]]
    assert len(found) > 1_000
    assert len(unclear) <= (1 - LEAST) * len(found), [one["name"] for one in unclear]


def _documented() -> set[str]:
    """The names of the reference, and where they are defined, each with a dot after it."""
    pages = (ROOT / "docs" / "reference" / "api").glob("*.md")
    told = [name for page in pages for name in re.findall(r"^::: (\S+)", page.read_text(), re.MULTILINE)]
    names = [*told, *(f"holdfast.{name}" for name in holdfast.__all__)]
    return {f"{place}." for name in names for place in (name, _definition(name))}


def _definition(name: str) -> str:
    """The module and the name within it that a documented name stands for."""
    parts = name.split(".")
    for size in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:size]))
        except ModuleNotFoundError:
            continue
        for part in parts[size:]:
            found = getattr(found, part)
        where = getattr(found, "__module__", None), getattr(found, "__qualname__", None)
        return f"{where[0]}.{where[1]}" if None not in where else name
    raise AssertionError(f"{name} is nowhere")
