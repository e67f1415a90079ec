"""What is built once for all tests of the distribution, and environments to install it into."""

from __future__ import annotations

import functools
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from tests.distribution.environments import ROOT, Built, Environment, Uv, built_in


class Install(Protocol):
    """Installs Holdfast with extras into an empty environment."""

    def __call__(self, extras: str = "", *, python: str = ...) -> Environment: ...


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Built:
    """Wheel and sdist of the repository, built once for all workers of a run."""
    own = tmp_path_factory.getbasetemp()
    return built_in((own if worker_id == "master" else own.parent) / "distribution")


@pytest.fixture(scope="session")
def uv(tmp_path_factory: pytest.TempPathFactory) -> Uv:
    """The installer, where there is a registry to install from."""
    found = Uv()
    reason = found.silence(tmp_path_factory.mktemp("asking"))
    if reason is not None:
        pytest.skip(f"no package registry answers: {reason}")
    return found


@pytest.fixture(scope="session")
def install(uv: Uv, built: Built) -> Iterator[Install]:
    """Make an environment, or return the one that was made with the same extras for the same interpreter.

    They are made on the disk of the repository: the installer links files there instead of copying them.
    """
    private = ROOT / ".dev"
    private.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="environments-", dir=private) as folder:

        @functools.cache
        def make(extras: str = "", *, python: str = sys.executable) -> Environment:
            empty = Path(tempfile.mkdtemp(dir=folder), "environment")
            return uv.environment(empty, built.wheel, extras, python)

        yield make
