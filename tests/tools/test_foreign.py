"""`./dev foreign`: other projects' tests are run only as they were published."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

import pytest

from tools import published

ROOT: Final = Path(__file__).parents[2]
FILE: Final = "some-1.0.tar.gz"


def package(folder: str = "some-1.0") -> bytes:
    """A source package with one file."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        entry = tarfile.TarInfo(f"{folder}/tests.py")
        entry.size = 4
        archive.addfile(entry, io.BytesIO(b"pass"))
    return data.getvalue()


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """An index that has one package, and its bytes."""
    data = package()
    pages = {
        "https://index.example/simple/some/": f'<a href="../../files/{FILE}#sha256=x">{FILE}</a>'.encode(),
        f"https://index.example/files/{FILE}": data,
    }
    monkeypatch.setattr(published, "_settings", lambda: {"index-url": "https://index.example/simple"})
    monkeypatch.setattr(published, "_read", pages.__getitem__)
    return data


def test_a_package_with_its_hash_is_unpacked(index: bytes, tmp_path: Path) -> None:
    """A package that is as expected is fetched once and unpacked."""
    folder = published.fetch(FILE, hashlib.sha256(index).hexdigest(), tmp_path)
    assert (folder / "tests.py").read_text() == "pass"


def test_a_package_with_another_hash_is_refused(index: bytes, tmp_path: Path) -> None:
    """Nothing of a package that was changed is unpacked, and the message says that nothing was run."""
    with pytest.raises(SystemExit, match="NOTHING WAS RUN"):
        published.fetch(FILE, "0" * 64, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_package_that_is_not_there(index: bytes, tmp_path: Path) -> None:
    """A version that the index does not have is named."""
    with pytest.raises(SystemExit, match=r"no some-2\.0\.tar\.gz"):
        published.fetch("some-2.0.tar.gz", "0" * 64, tmp_path)


def test_a_project_without_published_tests_needs_a_checkout() -> None:
    """Whoever names such a project is told to name a checkout."""
    command = [sys.executable, "-m", "tools.foreign", "keyvalue"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--source FOLDER" in done.stderr


TESTS: Final = """
from holdfast.integrations.langgraph import HoldfastGraphStore
import holdfast.sync

def test_that_reaches():
    with holdfast.sync.open("memory://") as store:
        assert HoldfastGraphStore(store).get(("n",), "k") is None

def test_that_does_not():
    with holdfast.sync.open("memory://") as store:
        assert HoldfastGraphStore(store).supports_ttl

def test_that_fails():
    raise AssertionError
"""


@pytest.mark.parametrize(
    ("unreachable", "passed"),
    [("", {"reaches", "does_not"}), ("langgraph:HoldfastGraphStore", {"does_not"})],
)
def test_an_adapter_that_raises_fails_the_tests_that_reach_it(
    tmp_path: Path, unreachable: str, passed: set[str]
) -> None:
    """When an adapter's methods raise, exactly the tests that call one of them pass no longer."""
    (tmp_path / "test_theirs.py").write_text(TESTS)
    noted = tmp_path / "passed"
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "tools" / "foreign"),
        "HOLDFAST_PASSED": str(noted),
        "HOLDFAST_UNREACHABLE": unreachable,
    }
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "outcomes",
        "-p",
        "no:cacheprovider",
        str(tmp_path),
    ]
    subprocess.run(command, cwd=tmp_path, env=env, check=False, capture_output=True)
    names = {line.rpartition("::test_that_")[2] for line in noted.read_text().splitlines()}
    assert names == passed
