"""Every bug on the list can be planted in the library as it is now."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from tests.mutate.planting import Bug, Patches, all_bugs

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("bug", all_bugs().values(), ids=lambda bug: str(bug.name))
def test_a_bug_changes_the_library_and_names_its_tests(bug: Bug) -> None:
    """What a bug patches is there, is another thing afterwards, and the tests that look for it exist."""
    patches = Patches()
    try:
        bug.plant(patches)
        assert patches.places
        for owner, name, before in patches.places:
            now = owner[name] if isinstance(owner, dict) else inspect.getattr_static(owner, name)
            assert now is not before, name
    finally:
        patches.undo()
    assert bug.rule.endswith(".")
    paths = [argument for argument in bug.tests if argument.startswith("tests/")]
    assert paths
    for path in paths:
        assert (ROOT / path.partition("::")[0]).exists(), path
