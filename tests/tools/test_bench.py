"""`./dev bench` installs a store like S3 when blobs are measured, and measures without it otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tools.front_door import front_door


@pytest.fixture
def door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A copy of `./dev` for which no package index answers, and which starts no benchmark."""
    door = front_door(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_UV", "false")
    monkeypatch.setattr(door, "ensure", lambda: None)
    monkeypatch.setattr(door.fetch, "redis", lambda: None)
    monkeypatch.setattr(door, "become", lambda *command, where: 0)
    door.S3_LOCK.write_text("store==1.0 --hash=sha256:00\n")
    return door


@pytest.mark.parametrize(("asked", "left_out"), [("blobs", True), ("full", True), ("http", False)])
def test_blobs_are_measured_without_a_package_index(
    door: Any, capfd: pytest.CaptureFixture[str], asked: str, left_out: bool
) -> None:
    """Where the store can't be installed, the benchmark says so and goes on; others do not ask for it."""
    door.bench([asked])
    assert ("the benchmark leaves the store like S3 out" in capfd.readouterr().out) is left_out
