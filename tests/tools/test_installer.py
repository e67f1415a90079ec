"""uv is installed in exactly the version and with exactly the bytes that the repository names."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.tools.front_door import ROOT, environments

SCRIPT = "#!/bin/sh\necho uv 9.9.9\n"


def made(folder: Path, patch: pytest.MonkeyPatch) -> Any:
    """A copy of `tools/environments.py` whose package index is a folder with one wheel, of an empty uv."""
    clone = folder / "clone"
    clone.mkdir()
    door = environments(clone)
    command = [door.base_python(), "-c", "import pip"]
    if subprocess.run(command, capture_output=True, check=False).returncode:  # Debian's may have none
        pytest.skip(f"{door.base_python()} has no pip, so uv can't be installed with it")
    patch.delenv("HOLDFAST_UV", raising=False)
    patch.setenv("PIP_NO_INDEX", "1")
    patch.setenv("PIP_FIND_LINKS", str(folder / "index"))
    return door


@pytest.fixture
def door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Such a copy, which has installed nothing."""
    return made(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which such a copy has installed uv, while another uv was on the PATH."""
    folder = tmp_path_factory.mktemp("installed")
    other = folder / "bin" / "uv"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho uv 0.0.1\n")
    other.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(other.parent), prepend=":")
        door = made(folder, patch)
        pin(door, publish(folder / "index"))
        with door.alone():
            door.find_uv()
    return folder


@pytest.fixture
def used(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A copy that has installed uv."""
    door = made(tmp_path, monkeypatch)
    shutil.copytree(installed / "index", tmp_path / "index")
    shutil.copytree(installed / "clone" / ".dev", tmp_path / "clone" / ".dev")
    shutil.copy(installed / "clone" / "tools" / door.UV_LOCK.name, door.UV_LOCK)
    return door


def publish(folder: Path, version: str = "9.9.9") -> str:
    """Put a wheel of uv into the index; its hash."""
    folder.mkdir(exist_ok=True)
    wheel = folder / f"uv-{version}-py3-none-any.whl"
    about = f"uv-{version}.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"uv-{version}.data/scripts/uv", SCRIPT)
        archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: uv\nVersion: {version}\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def pin(door: Any, digest: str, version: str = "9.9.9") -> None:
    door.UV_LOCK.write_text(f"uv=={version} --hash=sha256:{digest}\n")


def test_uv_is_installed_by_its_hash(used: Any, tmp_path: Path) -> None:
    """The wheel whose hash is locked is installed once, and again only when the lock file changes."""
    with used.alone():
        uv = Path(used.find_uv())
        assert uv.read_text() == SCRIPT
        assert uv.is_relative_to(tmp_path / "clone" / ".dev")
        uv.write_text("it was here before")
        assert Path(used.find_uv()).read_text() == "it was here before"
        pin(used, publish(tmp_path / "index", "9.9.10"), "9.9.10")
        assert Path(used.find_uv()).read_text() == SCRIPT


def test_a_uv_of_another_hash_is_refused(
    used: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A wheel that is not the one locked is not installed, and the earlier copy is not used instead."""
    digest = publish(tmp_path / "index")
    assert (tmp_path / "clone" / ".dev" / "uv").exists()
    pin(used, ("0" if digest[0] != "0" else "1") + digest[1:])
    with used.alone(), pytest.raises(SystemExit):
        used.find_uv()
    assert not (tmp_path / "clone" / ".dev" / "uv").exists()
    assert "DO NOT MATCH THE HASHES" in capfd.readouterr().err


def test_a_uv_without_a_hash_is_refused(door: Any, tmp_path: Path) -> None:
    """A lock file that names a version alone installs nothing."""
    publish(tmp_path / "index")
    door.UV_LOCK.write_text("uv==9.9.9\n")
    with door.alone(), pytest.raises(SystemExit):
        door.find_uv()


def test_a_uv_on_the_path_is_left_alone(
    used: Any, installed: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The uv of the machine is used only if HOLDFAST_UV names it, and then that is said."""
    other = installed / "bin" / "uv"
    monkeypatch.setenv("PATH", str(other.parent), prepend=":")
    with used.alone():
        assert Path(used.find_uv()).read_text() == SCRIPT
        monkeypatch.setenv("HOLDFAST_UV", str(other))
        assert used.find_uv() == str(other)
    assert "its hash is not checked" in capfd.readouterr().out


@pytest.mark.parametrize("name", ["requirements", "tools/installer", "tools/supply", "tools/site"])
def test_every_locked_package_has_hashes(name: str) -> None:
    """Every package of every lock file is pinned to one version and to hashes, and no index is named."""
    text = (ROOT / f"{name}.lock").read_text()
    assert "://" not in text
    entries = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)
    pinned = [entry for entry in entries if re.match(r"[A-Za-z0-9]", entry)]
    assert pinned
    for entry in pinned:
        assert re.match(r"\S+==\S+ ", entry), entry
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry), entry


@pytest.mark.parametrize("developed", [False, True])
def test_up_needs_no_environment_for_development(
    door: Any, monkeypatch: pytest.MonkeyPatch, developed: bool
) -> None:
    """`./dev up` uses .venv if there is one, and otherwise makes an environment with what a service needs."""
    made: list[tuple[Path, ...]] = []
    monkeypatch.setattr(door, "make", lambda *parts: made.append(parts))
    monkeypatch.setattr(door, "fingerprint", lambda *locks: "")
    if developed:
        door.VENV.mkdir()
    place = door.VENV if developed else door.PRIVATE / "up"
    assert door.ensure_for_service() == place
    assert made == [(place, *([door.LOCK] if developed else door.SERVICE_LOCKS))]
