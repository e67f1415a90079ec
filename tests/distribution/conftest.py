"""What is built once for all tests of the distribution, and environments to install it into."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pytest

from tests.distribution.environments import Built, Environment, Uv, built_in

if TYPE_CHECKING:
    from pathlib import Path


class Install(Protocol):
    """Installs Holdfast with extras into an empty environment."""

    def __call__(self, extras: str = "", *, python: str = ...) -> Environment: ...


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Built:
    """Wheel and sdist of the repository."""
    base = tmp_path_factory.getbasetemp()
    return built_in((base if worker_id == "master" else base.parent) / "distribution")


@pytest.fixture(scope="session")
def uv(tmp_path_factory: pytest.TempPathFactory) -> Uv:
    """The installer, where there is a registry to install from."""
    found = Uv()
    reason = found.silence(tmp_path_factory.mktemp("asking"))
    if reason is not None:
        pytest.skip(f"no package registry answers: {reason}")
    return found


@pytest.fixture
def install(uv: Uv, built: Built, tmp_path: Path) -> Install:
    """Make an environment for this test."""

    def make(extras: str = "", **python: str) -> Environment:
        return uv.environment(tmp_path / "environment", built.wheel, extras, **python)

    return make
