"""From a URL to an engine: every form that the contract names.

A form is tested by the engine that it gives, or by where its file appears.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.audit.keyring import Keyring
from holdfast.engines.memory import MemoryEngine
from holdfast.engines.postgres import PostgresEngine
from holdfast.engines.sqlite import SqliteEngine
from holdfast.errors import Unsupported, ValidationError
from holdfast.registry import BACKENDS, DRIVERS, ENTRY_POINTS, engine_for
from holdfast.testing.exact import refusal


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that relative paths are relative to."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_memory_url_opens_the_reference_engine() -> None:
    """`memory://` is the reference engine; it has no name to give."""
    assert isinstance(engine_for("memory://"), MemoryEngine)
    with refusal(ValidationError, field="url", says="memory://name"):
        engine_for("memory://name")


@pytest.mark.parametrize(
    "url", ["state.db", "sqlite:///state.db", "sqlite+aiosqlite:///state.db", "./state.db"]
)
async def test_relative_paths_are_relative_to_the_current_folder(url: str, here: Path) -> None:
    """A bare path and `sqlite:///path` are relative to the current folder."""
    async with holdfast.open(url, reap=False) as store:
        await store.kv("a").set("k", 1)
        assert store.capabilities.durable
    assert (here / "state.db").is_file()


@pytest.mark.parametrize("form", ["{}", "sqlite:///{}", "sqlite+aiosqlite:///{}"])
async def test_absolute_path_and_url_name_the_same_file(form: str, here: Path) -> None:
    """A bare absolute path and `sqlite:////path` name the same file."""
    path = here / "folder" / "state.db"
    path.parent.mkdir()
    async with holdfast.open(form.format(path), reap=False) as store:
        await store.kv("a").set("k", 1)
    assert path.is_file()


async def test_path_objects_are_files(here: Path) -> None:
    """A path object is a file, whatever characters are in it."""
    path = here / "sqlite:?#% é.db"
    async with holdfast.open(path, reap=False) as store:
        await store.kv("a").set("k", 1)
    assert path.is_file()


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///:memory:", "sqlite:///", ":memory:", "sqlite+aiosqlite://"]
)
async def test_memory_urls_leave_no_file(url: str, here: Path) -> None:
    """Stores in memory leave nothing behind: no file appears, and the next store is empty."""
    async with holdfast.open(url, reap=False) as store:
        assert isinstance(engine_of(store), SqliteEngine)
        assert not store.capabilities.durable
        await store.kv("a").set("k", 1)
    assert files(here) == []


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+asyncpg"])
def test_both_postgres_schemes_open_the_same_engine(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both schemes are the same engine, which gets the plain one."""
    asked: list[str] = []
    monkeypatch.setattr(PostgresEngine, "__init__", lambda engine, url, keys: asked.append(url))
    assert isinstance(engine_for(f"{scheme}://user:secret@host:5432/db?x=1"), PostgresEngine)
    assert asked == ["postgresql://user:secret@host:5432/db?x=1"]


def test_missing_driver_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its driver an engine is unsupported, and the message says what to install."""
    for name in list(sys.modules):
        if name.startswith("holdfast.engines.postgres"):
            monkeypatch.delitem(sys.modules, name)
    missing: Any = None
    monkeypatch.setitem(sys.modules, "asyncpg", missing)
    with refusal(Unsupported, says="pip install 'holdfast-kv[postgres]'"):
        engine_for("postgresql://host/db")


@pytest.mark.parametrize(
    ("module", "url"),
    [("holdfast.engines.postgres", "postgresql://host/db"), ("holdfast.client.nats", "nats://host")],
)
def test_broken_engine_is_not_taken_for_a_missing_driver(
    module: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module that is missing for another reason is not taken for a missing driver."""
    broken: Any = None
    monkeypatch.setitem(sys.modules, module, broken)
    with pytest.raises(ModuleNotFoundError):
        engine_for(url)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "empty"),
        ("mysql://host/db", "'mysql'"),
        ("sqlite+pysqlite:///x", "'sqlite+pysqlite'"),
        ("postgresql+psycopg://x", "'postgresql+psycopg'"),
        ("memory+x://", "'memory+x'"),
        ("sqlite://state.db", "sqlite:///path"),
        ("sqlite://host/state.db", "sqlite:///path"),
        ("sqlite:///state.db?mode=ro", "?"),
        ("memory:", "memory://"),
        ("sqlite:state.db", "sqlite:///path"),
        ("sqlite+aiosqlite:state.db", "sqlite+aiosqlite:///path"),
        ("nats:user:secret@localhost", "write nats://…, or"),
        ("postgresql:/db", "postgresql://"),
    ],
)
def test_unknown_urls_are_refused(url: str, words: str, here: Path) -> None:
    """What is none of these is refused, and nothing is made."""
    with refusal(ValidationError, field="url", says=words):
        holdfast.open(url)
    assert files(here) == []


async def test_path_like_a_scheme_is_a_file(here: Path) -> None:
    """A path that cannot be mistaken for a URL is a file."""
    for url in ("./memory:", Path("nats:x")):
        async with holdfast.open(url, reap=False):
            pass
    assert {"memory:", "nats:x"} <= {path.name for path in files(here)}


@pytest.mark.parametrize("url", [None, 7, b"state.db", object()])
def test_open_rejects_objects_that_are_no_url_or_path(url: Any, here: Path) -> None:
    """An object that is neither a string nor a path is refused, and no file is named after it."""
    with refusal(ValidationError, field="url", says=f"not a {type(url).__name__}"):
        holdfast.open(url)
    assert not list(here.iterdir())


def test_driver_suffix_needs_a_known_engine() -> None:
    """A scheme that names a driver is accepted only of an engine that there is."""
    assert {scheme.partition("+")[0] for scheme in DRIVERS} <= set(BACKENDS)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Schemes that a test registers are forgotten after it."""
    monkeypatch.setattr("holdfast.registry._registered", {})


@pytest.mark.usefixtures("registered")
async def test_registered_engine_gets_the_whole_url() -> None:
    """A registered scheme is opened with the whole URL, and with the keys that the caller has given."""
    asked: list[tuple[str, Keyring]] = []

    def make(url: str, keys: Keyring) -> MemoryEngine:
        asked.append((url, keys))
        return MemoryEngine(keys)

    holdfast.register_engine("mine", make)
    async with holdfast.open("mine://host/x?y", reap=False, audit_key="a-secret-of-this-test") as store:
        assert (await store.semantic("acme", "web").set("k", 1)).version == 1
    async with holdfast.open("mine://", reap=False) as store:
        with refusal(Unsupported, says="set audit_key"):
            await store.semantic("acme", "web").set("k", 1)
    assert [url for url, _ in asked] == ["mine://host/x?y", "mine://"]
    with refusal(
        ValidationError,
        field="url",
        says="memory, sqlite, postgresql, nats, tls, http, https, cluster, mine, or",
    ):
        engine_for("mein://")


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("scheme", ["sqlite", "nats", "", "Mine", "mine+x", "1st", "a b"])
def test_reserved_and_illegal_schemes_are_refused(scheme: str) -> None:
    """Nothing takes the place of an engine of Holdfast, and what no URL can begin with is refused."""
    with refusal(ValidationError, field="scheme", says=repr(scheme)):
        holdfast.register_engine(scheme, lambda url, keys: MemoryEngine(keys))


def test_entry_point_engine_is_imported_on_demand(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that names its engine as an entry point is imported when a URL of the scheme is opened."""
    (here / "theirs.py").write_text(
        "from holdfast.engines.memory import MemoryEngine\n"
        "def make(url, keys):\n    return MemoryEngine(keys)\n"
    )
    about = here / "theirs-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\ntheirs = theirs:make\n")
    monkeypatch.syspath_prepend(str(here))
    assert isinstance(engine_for("theirs://"), MemoryEngine)
    assert "theirs" in sys.modules
    monkeypatch.delitem(sys.modules, "theirs")


def files(folder: Path) -> list[Path]:
    """What is in a folder."""
    return list(folder.iterdir())


def engine_of(store: holdfast.Store) -> object:
    """The engine behind a store."""
    return store._engine
