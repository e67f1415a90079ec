"""What the tests of clocks share: a world, and a storage of each kind in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clocks.world import Storage, World, make_storage, quiet

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Time that is moved by hand."""
    quiet(monkeypatch)
    return World()


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def storage(request: pytest.FixtureRequest, world: World, tmp_path: Path) -> Storage:
    """An empty storage of each kind."""
    return make_storage(request.param, world, tmp_path, request)


@pytest.fixture(params=["sqlite", "postgresql"])
def lasting(request: pytest.FixtureRequest, world: World, tmp_path: Path) -> Storage:
    """An empty storage of each kind that survives a restart."""
    return make_storage(request.param, world, tmp_path, request)


@pytest.fixture
def database(request: pytest.FixtureRequest, world: World, tmp_path: Path) -> Storage:
    """An empty PostgreSQL."""
    return make_storage("postgresql", world, tmp_path, request)


@pytest.fixture
def file(request: pytest.FixtureRequest, world: World, tmp_path: Path) -> Storage:
    """An empty SQLite file."""
    return make_storage("sqlite", world, tmp_path, request)
