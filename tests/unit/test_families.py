"""The families of namespaces."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

import holdfast
from holdfast import families

LIBRARY: Final = Path(holdfast.__file__).parent
_SPELLED: Final = re.compile(
    r"""(?:startswith|removeprefix)\(f?["'](?:kv|table|semantic)/|f["'](?:kv|table|semantic)/"""
)


@pytest.mark.parametrize(
    ("namespace", "semantic", "tables", "owner"),
    [
        (families.plain("trivia"), False, False, "trivia"),
        (families.tables("trivia"), False, True, "trivia"),
        (families.semantic("acme", "billing"), True, False, "acme/billing"),
        ("kv/semantic", False, False, "semantic"),
    ],
)
def test_a_name_tells_its_family(namespace: str, owner: str, *, semantic: bool, tables: bool) -> None:
    """The beginning of a namespace's name decides its family; the rest names its owner."""
    assert families.is_semantic(namespace) is semantic
    assert families.has_tables(namespace) is tables
    assert families.owner(namespace) == owner
    assert holdfast.rules.namespace(namespace) == namespace


def test_only_one_module_spells_the_families() -> None:
    """A new family, or another name for one, is a change of one module."""
    files = [path for path in LIBRARY.rglob("*.py") if "testing" not in path.relative_to(LIBRARY).parts]
    spelling = {
        str(path.relative_to(LIBRARY)) for path in files if _SPELLED.search(path.read_text(encoding="utf-8"))
    }
    assert len(files) > 200
    assert spelling == {"families.py"}
