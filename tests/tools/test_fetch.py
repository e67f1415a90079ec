"""`./dev browser` brings what the tests of the console need, and says plainly what it can't bring."""

from __future__ import annotations

import base64
import hashlib
import io
import shutil
import tarfile
from typing import TYPE_CHECKING

import pytest

from tools import fetch

if TYPE_CHECKING:
    from pathlib import Path


def test_an_existing_browser_is_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is installed where there is a Chromium."""
    monkeypatch.setenv("HOLDFAST_BROWSER", "/opt/chromium")
    assert fetch.chromium() == 0
    assert "/opt/chromium" in capsys.readouterr().out


def test_a_machine_without_apt_get_is_told_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command fails and names the consequence and the remedy."""
    monkeypatch.delenv("HOLDFAST_BROWSER", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name, **_: None)
    assert fetch.chromium() == 1
    said = capsys.readouterr().out
    assert "NO TEST WILL OPEN A BROWSER" in said
    assert "HOLDFAST_BROWSER" in said


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """An archive with the files of axe-core that npm brings, and which is kept in the test's folder."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz") as packed:
        for name in ("package/axe.min.js", "package/LICENSE"):
            member = tarfile.TarInfo(name)
            member.size = 4
            packed.addfile(member, io.BytesIO(b"text"))

    def npm(what: str, command: list[str], *, where: str) -> None:
        with open(f"{where}/axe-core-1.tgz", "wb") as file:
            file.write(written.getvalue())

    monkeypatch.setattr(fetch, "quietly", npm)
    monkeypatch.setattr(fetch, "AXE", tmp_path / "axe")
    monkeypatch.setattr(shutil, "which", lambda name, **_: name)
    return written.getvalue()


def test_another_archive_is_refused(archive: bytes, tmp_path: Path) -> None:
    """A file whose hash differs from the one that is expected is not kept."""
    with pytest.raises(SystemExit):
        fetch.axe()
    assert not (tmp_path / "axe").exists()


def test_the_archive_is_fetched_once(archive: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script is kept with its licence, and the next call fetches nothing."""
    digest = hashlib.sha512(archive).digest()
    monkeypatch.setattr(fetch, "AXE_SHA512", base64.b64encode(digest).decode())
    assert fetch.axe() == 0
    assert {file.name for file in (tmp_path / "axe").iterdir()} == {"axe.min.js", "LICENSE", "stamp"}
    monkeypatch.setattr(fetch, "quietly", None)
    assert fetch.axe() == 0
