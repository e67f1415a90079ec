"""The limits that tests raise exist, so that a renamed one is noticed."""

from __future__ import annotations

from importlib import import_module

import pytest

from tests.patience import LIMITS


@pytest.mark.parametrize("limit", LIMITS)
def test_every_limit_that_tests_raise_exists(limit: str) -> None:
    """A limit is a number of seconds in a module of the library."""
    module, _, name = limit.rpartition(".")
    assert isinstance(getattr(import_module(module), name), float | int)
