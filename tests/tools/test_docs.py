"""`./dev docs` builds the site with tools that are locked, or says plainly that it has not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tools.front_door import ROOT, front_door


@pytest.fixture
def door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A copy of `./dev` for which no package index answers."""
    uv = tmp_path / "uv"
    uv.write_text('#!/bin/sh\necho "error: no route to host"\nexit 2\n')
    uv.chmod(0o755)
    monkeypatch.setenv("HOLDFAST_UV", str(uv))
    folder = tmp_path / "clone"
    folder.mkdir()
    door = front_door(folder)
    door.SITE_LOCK.write_text("generator==1.0 --hash=sha256:00\n")
    return door


def test_without_a_package_index_nothing_is_built(door: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """Where the generator can't be installed, `./dev docs` fails and says why."""
    with pytest.raises(SystemExit) as ended:
        door.docs([])
    assert ended.value.code == 1
    said = capfd.readouterr().err
    assert "no route to host" in said
    assert "a package index has to answer. NOTHING WAS BUILT." in said


def test_the_check_goes_on_without_a_package_index(door: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """`./dev check --network` says that the site was not built, which is no failure."""
    assert door.built() == 0
    assert "NOTHING WAS BUILT" in capfd.readouterr().err


def test_a_site_that_does_not_build_fails_the_check(door: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`./dev check --network` fails if the site has a link that leads nowhere."""
    monkeypatch.setattr(door, "private_python", lambda *arguments: sys.executable)
    door.SITE.write_text("import sys\nsys.exit(3 if sys.argv[1:] == ['build'] else 0)\n")
    assert door.built() == 3


@pytest.mark.parametrize("arguments", [["--fast"], ["serve", "twice"], ["--serve", "--serve"]])
def test_arguments_that_mean_nothing_are_refused(arguments: list[str]) -> None:
    """A verb that is given what it does not know does nothing, and says so."""
    command = [sys.executable, str(ROOT / "dev"), "docs", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 1
    assert "takes --serve or nothing, but was given:" in done.stderr
