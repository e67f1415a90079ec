"""The rules that all integrations share: what importing them costs, their keys and their lifetimes."""

from __future__ import annotations

import ast
import functools
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast import rules
from holdfast.integrations.entries import whole_seconds
from holdfast.integrations.key_names import KeyNames

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = Path(holdfast.__file__).parent / "integrations"
SHARED: Final = {
    *("__init__", "entries", "json_merge", "key_names", "langgraph_store", "langgraph_vectors"),
    *("overflow_values", "records", "stores", "turns"),
}
FILES: Final = {path.stem: path for path in FOLDER.glob("*.py")} | {
    path.parent.name: path for path in FOLDER.glob("*/__init__.py")
}
MODULES: Final = sorted(FILES.keys() - SHARED)
NAMES: Final = KeyNames("thing", parts=2)

# All that a name may hold, and often what keys use to separate and to escape.
texts = st.text(st.one_of(st.characters(), st.sampled_from("/%#\x00\ud800\udfff:")), max_size=300)


WITHOUT_PACKAGES: Final = """
import importlib, json, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if not name.startswith("holdfast") and name.split(".")[0] not in KNOWN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

KNOWN = sys.stdlib_module_names | {"msgspec"}
sys.meta_path.insert(0, Missing())
told = {}
for module in sys.argv[1:]:
    try:
        importlib.import_module(f"holdfast.integrations.{module}")
    except Exception as error:
        told[module] = f"{type(error).__name__}: {error}"
print(json.dumps(told))
"""


@functools.cache
def complaints() -> dict[str, str]:
    """What each module says when it is imported where no package is installed but what the base needs."""
    command = [sys.executable, "-c", WITHOUT_PACKAGES, *MODULES]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    told: dict[str, str] = json.loads(done.stdout)
    return told


def extra_of(module: str) -> str:
    """Return the extra that a module's import names."""
    tree = ast.parse(FILES[module].read_text(encoding="utf-8"))
    [extra] = [
        node.args[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "imported"
        if isinstance(node.args[0], ast.Constant)
    ]
    return str(extra)


def test_importing_holdfast_imports_no_integration() -> None:
    """A program that uses no integration pays for none, whatever is installed beside it."""
    code = "import sys, holdfast; print([name for name in sys.modules if name.startswith('holdfast.integ')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("module", MODULES)
def test_a_missing_package_names_the_extra(module: str) -> None:
    """A program whose package is missing is told what to install, and the extra exists."""
    extra = extra_of(module)
    assert extra.replace("-", "_") == module
    extras: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]["optional-dependencies"]
    assert extra in extras
    told = complaints()[module]
    assert told.startswith(f"ModuleNotFoundError: holdfast.integrations.{module} needs the package ")
    assert told.endswith(f": pip install 'holdfast-kv[{extra}]'")


@given(st.tuples(texts, texts))
def test_a_name_has_a_legal_key_and_comes_back_from_it(name: tuple[str, str]) -> None:
    """Whatever a name holds and however long it is, its key is legal, and a listing gives the name back."""
    key = NAMES.key(*name)
    assert rules.key(key) == key
    assert key.startswith(NAMES.prefix(name[0]))
    assert key.startswith(NAMES.prefix())
    stored = NAMES.wrapped({"some": "value"}, *name)
    assert NAMES.parts_of(key, stored) == name
    assert NAMES.unwrapped(key, stored) == {"some": "value"}


@given(st.tuples(texts, texts), st.tuples(texts, texts))
def test_two_names_have_two_keys(one: tuple[str, str], other: tuple[str, str]) -> None:
    """No two names meet in one key, and none begins like the collection of another."""
    assert (NAMES.key(*one) == NAMES.key(*other)) == (one == other)
    assert NAMES.key(*one).startswith(NAMES.prefix(other[0])) == (one[0] == other[0])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a/b", "c"), ("a", "b/c")),
        (("a%2Fb", "c"), ("a/b", "c")),
        (("", "a"), ("a", "")),
        (("x" * 300, "c"), (NAMES.key("x" * 300, "c").split("/")[1], "c")),
        (("\ud83d\ude00", "c"), ("\U0001f600", "c")),
        (("é", "c"), ("e\u0301", "c")),
    ],
)
def test_imitated_separators_do_not_collide(one: tuple[str, str], other: tuple[str, str]) -> None:
    """Names that imitate separators, escapes and digests keep apart from the names they imitate."""
    assert NAMES.key(*one) != NAMES.key(*other)


def test_a_short_name_is_readable() -> None:
    """An operator who lists the keys recognises the names."""
    assert NAMES.key("sessions", "user:42") == "thing/sessions/user:42"


@pytest.mark.parametrize(
    ("lifetime", "seconds"),
    [
        (0.0001, 1),
        (1, 1),
        (1.0, 1),
        (1.0001, 2),
        (59.5, 60),
        (1e12, rules.MAX_TTL),
        (float("inf"), rules.MAX_TTL),
    ],
)
def test_lifetimes_are_rounded_up(lifetime: Any, seconds: int) -> None:
    """An entry never lives shorter than was asked for, as long as an entry can live that long."""
    assert whole_seconds(lifetime) == seconds
