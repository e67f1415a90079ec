"""`./dev browser` brings what the tests of the console need, and says plainly what it can't bring."""

from __future__ import annotations

import base64
import hashlib
import io
import shutil
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from tests.tools.front_door import front_door

if TYPE_CHECKING:
    from pathlib import Path


def test_an_existing_browser_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is installed where there is a Chromium."""
    monkeypatch.setenv("HOLDFAST_BROWSER", "/opt/chromium")
    assert front_door(tmp_path).install_chromium() == 0
    assert "/opt/chromium" in capsys.readouterr().out


def test_a_machine_without_apt_get_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command fails and names the consequence and the remedy."""
    monkeypatch.delenv("HOLDFAST_BROWSER", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name, **_: None)
    assert front_door(tmp_path).install_chromium() == 1
    said = capsys.readouterr().out
    assert "NO TEST WILL OPEN A BROWSER" in said
    assert "HOLDFAST_BROWSER" in said


def _packed(door: Any, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Let npm bring an archive that has the files of axe-core, and return that archive."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz") as archive:
        for name in ("package/axe.min.js", "package/LICENSE"):
            member = tarfile.TarInfo(name)
            member.size = 4
            archive.addfile(member, io.BytesIO(b"text"))

    def npm(what: str, command: list[str], *, where: str) -> None:
        with open(f"{where}/axe-core-1.tgz", "wb") as file:
            file.write(written.getvalue())

    monkeypatch.setattr(door, "quietly", npm)
    monkeypatch.setattr(shutil, "which", lambda name, **_: name)
    return written.getvalue()


def test_another_archive_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file whose hash differs from the one in `./dev` is not kept."""
    door = front_door(tmp_path)
    _packed(door, monkeypatch)
    with pytest.raises(SystemExit):
        door.fetch_axe()
    assert not (tmp_path / ".dev").exists()


def test_the_archive_is_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script is kept with its licence, and the next call fetches nothing."""
    door = front_door(tmp_path)
    digest = hashlib.sha512(_packed(door, monkeypatch)).digest()
    monkeypatch.setattr(door, "AXE_SHA512", base64.b64encode(digest).decode())
    assert door.fetch_axe() == 0
    kept = tmp_path / ".dev" / "tools" / "axe"
    assert {file.name for file in kept.iterdir()} == {"axe.min.js", "LICENSE", "stamp"}
    monkeypatch.setattr(door, "quietly", None)
    assert door.fetch_axe() == 0
