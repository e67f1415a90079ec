"""Strands' tests of its session manager, with our repository in place of the one of its tests."""

from __future__ import annotations

import itertools
import sys
from typing import Any, Final
from unittest.mock import MagicMock

import pytest

import holdfast.sync
from holdfast.integrations.strands import HoldfastSessionRepository

_NUMBERS: Final = itertools.count()
_STORE: Final = holdfast.sync.open("memory://")
_STORE.start()


sys.modules["moto"] = MagicMock()  # their tests of S3 need it


class Repository(HoldfastSessionRepository):
    """Our repository, made as theirs is, in a namespace of its own."""

    def __init__(self) -> None:
        super().__init__(_STORE, plugin=f"p{next(_NUMBERS)}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put our repository in place of theirs."""
    for item in items:
        module: Any = sys.modules[item.module.__name__]  # type: ignore[attr-defined]
        module.MockedSessionRepository = Repository
