"""The engine on the page about engines passes the suite that Holdfast's own engines have to pass.

The engine and its certificate are taken from the page, word for word. Nothing of them stands here.
"""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import holdfast
from holdfast import engine as contract
from holdfast import registry
from holdfast.clock import ManualClock
from holdfast.edges import cli
from holdfast.errors import DatabaseError, OutcomeUnknown, StorageFull, Unavailable
from holdfast.testing.conformance import Conformance
from tests.docs.test_examples import ROOT, Block, blocks_of, compiled
from tests.docs.test_reference import read, section, table_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE: Final = "howto/write-an-engine.md"
CERTIFICATE: Final = "TestJsonLinesEngine"


def blocks() -> list[Block]:
    """The Python of the page, without the example that prints something."""
    return [block for block in blocks_of(read(PAGE)) if block.info == "python"]


def engine_blocks() -> list[str]:
    """What a reader puts into the module of the engine: all up to the registered scheme."""
    found = [block.text for block in blocks() if CERTIFICATE not in block.text]
    return [*found[:-1], found[-1].partition("\nasync with")[0]]


def loaded() -> dict[str, Any]:
    """The names that the page defines."""
    names: dict[str, Any] = {"__name__": "jsonl_engine"}
    kept = dict(registry._registered)
    for text in [*engine_blocks(), *(block.text for block in blocks() if CERTIFICATE in block.text)]:
        exec(compiled(Block("python", 1, text), Path(PAGE)), names)
    registry._registered.clear()
    registry._registered.update(kept)
    return names


NAMES: Final = loaded()
Certificate: Final[type[Conformance]] = NAMES[CERTIFICATE]


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheme is known for the length of a test."""
    monkeypatch.setitem(registry._registered, "jsonl", NAMES["make"])


class TestTheEngineOfThePage(Certificate):  # type: ignore[misc,valid-type]
    """The whole suite."""


def test_the_suite_is_whole() -> None:
    """The certificate of the page replaces none of the tests, and the engine borrows from no other engine."""
    own = [name for name in vars(Certificate) if name.startswith("test")]
    assert own == []
    assert issubclass(Certificate, Conformance)
    for kind in NAMES["JsonLinesEngine"].__mro__[:-1]:
        assert kind.__module__ == "jsonl_engine"
    assert not any("holdfast.engines" in text for text in engine_blocks())


def test_every_operation_is_explained() -> None:
    """A reader finds every operation of the contract, every capability, and nothing that is not there."""
    page = read(PAGE)
    told = {
        word.strip("` ")
        for row in table_rows(section(page, "The operations"))[1:]
        for word in row[0].split(",")
    }
    operations = {
        name for name, _ in inspect.getmembers(contract.Engine, inspect.isfunction) if name[0] != "_"
    }
    assert told == operations
    rows = table_rows(section(page, "Capabilities"))
    capabilities = {row[0]: row[1].strip("`") for row in rows if row[1].strip("`") in ("True", "False")}
    assert capabilities == {
        name: str(getattr(contract.Capabilities(), name)) for name in contract.Capabilities.__struct_fields__
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the engine keeps its lines."""
    return tmp_path / "state.jsonl"


async def test_a_second_process_is_refused(path: Path) -> None:
    """One process at a time has the file; the next one is told to wait, and loses nothing."""
    async with holdfast.open(f"jsonl:///{path}") as store:
        await store.kv("a").set("k", 1)
        with pytest.raises(Unavailable, match="another process"):
            await holdfast.open(f"jsonl:///{path}").start()
        assert await store.kv("a").get("k") is not None


@pytest.fixture
def damaged(path: Path) -> Path:
    """A file with a line that is no commit."""
    path.write_bytes(b"{]\n")
    return path


async def test_a_line_that_is_damaged_is_told(damaged: Path) -> None:
    """A file that can't be read is not opened, and stays as it is."""
    for _ in range(2):
        with pytest.raises(DatabaseError, match="restore a backup"):
            await holdfast.open(f"jsonl:///{damaged}").start()
    with pytest.raises(Unavailable, match="its folder"):
        await holdfast.open(f"jsonl:///{damaged}/nowhere").start()


async def test_a_line_that_was_cut_off_is_left_out(path: Path) -> None:
    """After a crash in the middle of a commit everything before it is there, and writing goes on."""
    async with holdfast.open(f"jsonl:///{path}") as store:
        await store.kv("a").set("k", 1)
    with path.open("ab") as file:
        file.write(b'{"rows":[["kv/a"')
    async with holdfast.open(f"jsonl:///{path}") as store:
        assert (await store.kv("a").set("k", 2)).version == 2
    async with holdfast.open(f"jsonl:///{path}") as store:
        entry = await store.kv("a").get("k")
        assert entry is not None
        assert entry.value == 2


async def test_a_full_disk_refuses_and_keeps_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure before the commit leaves nothing behind; the next write is done as if it had not been."""
    async with holdfast.open(f"jsonl:///{path}") as store:
        await store.kv("a").set("k", 1)
        file = store._engine.file  # type: ignore[attr-defined]
        monkeypatch.setattr(store._engine, "file", Short(file))
        with pytest.raises(StorageFull):
            await store.kv("a").set("k", 2)
        monkeypatch.setattr(store._engine, "file", file)
        assert (await store.kv("a").set("k", 3)).version == 2
    async with holdfast.open(f"jsonl:///{path}") as store:
        entry = await store.kv("a").get("k")
        assert entry is not None
        assert entry.value == 3


class Short:
    """A file of which only a part is written."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, text: bytes) -> int:
        """Write half of it."""
        written: int = self._file.write(text[: len(text) // 2])
        return written


async def test_a_commit_that_was_not_confirmed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the disk does not confirm a commit its outcome is unknown, and nothing is written after it."""
    async with holdfast.open(f"jsonl:///{path}") as store:
        await store.kv("a").set("k", 1)

        def fail(descriptor: int) -> None:
            raise OSError(5, "it failed")

        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(OutcomeUnknown):
            await store.kv("a").set("k", 2)
        monkeypatch.undo()
        with pytest.raises(Unavailable):
            await store.kv("a").set("k", 3)
    monkeypatch.setitem(registry._registered, "jsonl", NAMES["make"])
    async with holdfast.open(f"jsonl:///{path}") as store:
        entry = await store.kv("a").get("k")
        assert entry is not None
        assert entry.value == 2


async def test_nothing_is_committed_after_its_deadline(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write whose caller gave up while it was being decided is refused, and nothing of it is kept."""
    clock, decide = ManualClock(), NAMES["decide"]

    def slowly(*arguments: Any) -> Any:
        outcome = decide(*arguments)
        clock.advance(10)
        return outcome

    async with holdfast.open(f"jsonl:///{path}", clock=clock, reap=False) as store:
        kv = store.kv("a")
        await kv.set("k", 1, timeout=5)
        monkeypatch.setitem(NAMES, "decide", slowly)
        with pytest.raises(holdfast.Timeout):
            await kv.set("k", 2, timeout=5)
        entry = await kv.get("k")
        assert entry is not None
        assert entry.value == 1


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The engine as a package that is installed, and that nothing has imported or registered."""
    monkeypatch.delitem(registry._registered, "jsonl")
    (tmp_path / "jsonl_engine.py").write_text("\n".join(engine_blocks()), encoding="utf-8")
    [named] = [block.text for block in blocks_of(read(PAGE)) if block.info == "toml"]
    points = tomllib.loads(named)["project"]["entry-points"]
    lines = [f"[{group}]\n{name} = {value}\n" for group, of in points.items() for name, value in of.items()]
    about = tmp_path / "jsonl_engine-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: jsonl-engine\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("".join(lines))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("HOLDFAST_URL", "jsonl:///state.jsonl")
    yield tmp_path
    sys.modules.pop("jsonl_engine", None)


@pytest.mark.usefixtures("installed")
def test_the_command_line_takes_the_scheme(capsys: pytest.CaptureFixture[str]) -> None:
    """An installed engine is used by its URL alone, and the audit is signed with a key of this machine."""
    semantic = ["--tenant", "acme", "--project", "web"]
    assert cli.run(["set", "k", "1", "--plugin", "a"]) == 0
    assert cli.run(["set", "k", "2", *semantic]) == 0
    assert cli.run(["get", "k", *semantic]) == 0
    assert cli.run(["audit", "verify"]) == 0
    assert cli.run(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("1\n1\n2\nsemantic/acme/web\twhole\t1\t")
    assert "a write would be accepted" in shown


def test_the_page_is_followed_outside_of_this_repository(tmp_path: Path) -> None:
    """A reader who puts the page into two files and runs its command has a suite that runs."""
    (tmp_path / "jsonl_engine.py").write_text("\n".join(engine_blocks()), encoding="utf-8")
    [certificate] = [block.text for block in blocks() if CERTIFICATE in block.text]
    (tmp_path / "test_jsonl_engine.py").write_text(
        f"import holdfast\nimport jsonl_engine\n{certificate}", encoding="utf-8"
    )
    [command] = [
        line.removeprefix("$ pytest ")
        for block in blocks_of(read(PAGE))
        for line in block.text.splitlines()
        if line.startswith("$ pytest ")
    ]
    environment = {
        name: one
        for name, one in os.environ.items()
        if name not in ("PYTHONDONTWRITEBYTECODE", "PYTEST_ADDOPTS")
    }
    # Plugins of other projects, which take as long to import as all the rest, have no part in it.
    without = [
        word
        for name in ("cacheprovider", "hypothesispytest", "langsmith_plugin")
        for word in ("-p", f"no:{name}")
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *command.split(), "-q", "-k", "survives", *without],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert ROOT not in tmp_path.parents
