"""The API reference shows every public name, and nothing that does not exist."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import holdfast
from holdfast import clock, errors
from holdfast.testing import conformance
from tests.docs.api_pages import API, defined_in, resolved, shown


def test_the_reference_shows_every_public_name() -> None:
    """Whatever a program may import is in the API reference, in one place."""
    objects = [resolved(name) for page in API for name in shown(page)]
    objects += [part for one in objects if inspect.ismodule(one) for part in defined_in(one)]
    known = {id(one) for one in objects}
    wanted = {f"holdfast.{name}": getattr(holdfast, name) for name in holdfast.__all__}
    wanted |= {f"holdfast.errors.{part.__name__}": part for part in errors.error_classes()}
    wanted |= {
        f"holdfast.clock.{name}": getattr(clock, name) for name in ("Clock", "SystemClock", "ManualClock")
    }
    wanted |= {f"conformance.{name}": getattr(conformance, name) for name in ("Conformance", "Fixtures")}
    assert sorted(name for name, part in wanted.items() if id(part) not in known) == []
    assert len(known) == len(objects)


@pytest.mark.parametrize("page", API, ids=lambda page: page.stem)
def test_the_reference_shows_what_exists(page: Path) -> None:
    """Every name that a page shows exists and has a docstring to be shown."""
    names = shown(page)
    assert names
    for name in names:
        assert inspect.getdoc(resolved(name)), name
