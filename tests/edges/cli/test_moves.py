"""`holdfast backup`, `restore FILE`, `copy` and `diff`, as an operator uses them."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import holdfast
from tests.edges.running import started_up
from tests.moves.contents import KEY, fill
from tests.ports import free_port

if TYPE_CHECKING:
    from tests.edges.cli.conftest import Cli, Program


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with something in every section, to be copied."""
    path = tmp_path_factory.mktemp("template") / "full.db"
    asyncio.run(fill(path))
    return path


@pytest.fixture
def full(template: Path, tmp_path: Path) -> Path:
    """A store with something in every section."""
    return Path(shutil.copy(template, tmp_path))


def test_a_backup_and_its_restore(cli: Cli, full: Path, tmp_path: Path) -> None:
    """A restore into an empty store asks nothing; over another it says what is lost and wants --yes."""
    two = tmp_path / "two.db"
    done = cli.did("backup", "b", "--url", full, "--json").json
    assert (done["namespaces"], done["entries"] > 40, done["parts"]) == (6, True, 2)
    assert (tmp_path / "b").stat().st_mode & 0o77 == 0
    assert cli("backup", "b", "--url", full).code == 2  # nothing is overwritten
    assert cli.did("restore", "b", "--url", two, "--json").json == done
    assert cli.did("diff", full, two, "--json").json == {"equal": True, "namespaces": []}
    cli.did("set", "k", "1", "-p", "other", "--url", two)
    differing = cli("diff", full, two, "--json")
    [found] = differing.json["namespaces"]
    assert (differing.code, found["namespace"], found["versions"]) == (1, "kv/other", [None, 1])
    part = {"after": None, "upto": None, "from": 0, "to": 1, "keys": ["k"]}
    assert found["sections"]["entries"] == [part]
    refused = cli("restore", "b", "--url", two)
    assert (refused.code, "7 namespaces" in refused.err, "--yes" in refused.err) == (2, True, True)
    assert cli("diff", full, two).code == 1
    cli.did("restore", "b", "--url", two, "--yes", "--json")
    assert cli("diff", full, two).code == 0


def test_a_key_of_the_same_name_as_a_backup(cli: Cli, full: Path) -> None:
    """A namespace on the command line makes the argument of restore a key, also where such a file exists."""
    cli.did("backup", "b", "--url", full, "--json")
    assert cli("restore", "b", "-p", "jobs", "--yes").code == 3


def test_the_key_of_the_audit(cli: Cli, full: Path, tmp_path: Path) -> None:
    """Without --with-key both commands warn; with it a restored audit verifies and takes new records."""
    (tmp_path / "full.db.audit-key").write_text(KEY)
    warned = cli("backup", "without", "--url", full)
    assert (warned.code, "which is not in the file" in warned.err) == (0, True)
    assert "put that key" in cli("restore", "without", "--url", tmp_path / "a.db").err
    assert cli("audit", "verify", "-p", "trivia", "--url", tmp_path / "a.db").code != 0
    cli.did("backup", "with", "--with-key", "--url", full, "--json")
    assert "put that key" not in cli("restore", "with", "--url", tmp_path / "b.db").err
    cli.did("set", "k", "1", "-p", "trivia", "--url", tmp_path / "b.db")
    assert cli("audit", "verify", "-p", "trivia", "--url", tmp_path / "b.db").code == 0


def test_a_damaged_backup(cli: Cli, full: Path, tmp_path: Path) -> None:
    """It is refused with what is wrong, and no store is made."""
    cli.did("backup", "b", "--url", full, "--json")
    (tmp_path / "b").write_bytes((tmp_path / "b").read_bytes()[:-1])
    refused = cli("restore", "b", "--url", tmp_path / "two.db")
    assert (refused.code, "it ends too early" in refused.err) == (2, True)
    assert not (tmp_path / "two.db").exists()


def test_a_service_or_missing_store_can_not_be_moved(cli: Cli, tmp_path: Path) -> None:
    """A service and a store that does not exist are refused, and nothing is made."""
    refused = cli("backup", "b", "--url", "nats://127.0.0.1:1")
    assert (refused.code, "the URL of its database" in refused.err) == (1, True)
    refused = cli("copy", "nats://127.0.0.1:1", tmp_path / "two.db")
    assert (refused.code, "the path of the store's file" in refused.err) == (1, True)
    assert cli("diff", tmp_path / "no.db", tmp_path / "neither.db").code == 5
    assert cli("copy", tmp_path / "no.db", tmp_path / "neither.db").code == 5
    assert list(tmp_path.iterdir()) == []


def test_a_copy_to_postgresql_and_back(cli: Cli, full: Path, tmp_path: Path, pg_url: str) -> None:
    """Both hold the same, over a store that holds something only with --yes."""
    done = cli.did("copy", full, pg_url, "--json").json
    assert (done["switched"], done["put"] > 100) == (False, True)
    assert cli("diff", full, pg_url).code == 0
    back = tmp_path / "back.db"
    cli.did("set", "k", "1", "-p", "lost", "--url", back)
    refused = cli("copy", pg_url, back)
    assert (refused.code, "kv/lost" in refused.err) == (2, True)
    cli.did("copy", pg_url, back, "--yes", "--json")
    assert cli("diff", full, back).code == 0
    assert cli("copy", full, full).code == 2


def test_a_switch(cli: Cli, full: Path, tmp_path: Path, pg_url: str) -> None:
    """The source refuses writes and names the target; the target continues with the same epoch."""
    done = cli.did("copy", full, pg_url, "--switch", "--json").json
    assert (done["switched"], done["paused"] >= 0) == (True, True)
    refused = cli("set", "k", "2", "-p", "plain", "--url", full)
    assert (refused.code, "has moved to postgresql://" in refused.err) == (5, True)
    assert json.loads(cli.did("get", "k", "-p", "plain", "--url", full).out) == [1, 2.5, None]
    cli.did("set", "k", "2", "-p", "plain", "--url", pg_url)
    assert cli("copy", full, pg_url, "--switch").code == 0  # it has moved already
    assert cli("copy", full, pg_url, "--cancel").code == 2
    back = tmp_path / "back.db"
    assert cli.did("copy", pg_url, back, "--switch", "--json").json["switched"]
    refused = cli("set", "k", "3", "-p", "plain", "--url", pg_url)
    assert (refused.code, f"has moved to {back}" in refused.err) == (5, True)
    assert cli.did("get", "k", "-p", "plain", "--url", back).json == 2
    assert cli.did("set", "k", "3", "-p", "plain", "--url", back).out == "3\n"


def test_after_a_switch_everything_names_the_new_place(
    cli: Cli, program: Program, full: Path, pg_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old store warns those who read it, and hints, contexts and a service name the new one."""
    two = full.with_name("two.db")
    assert cli("context", "add", "old", "--url", full).code == 0
    assert cli("context", "add", "other", "--url", full.with_name("other.db")).code == 0
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    for source, target in ((full, two), (two, pg_url)):
        assert "has moved" not in cli("get", "k", "-p", "plain", "--url", source).err
        done = cli("copy", source, target, "--switch")
        place = str(target).partition("://")[2].rpartition("@")[2].partition("?")[0] or str(target)
        assert ("use " in done.err, place in done.err, "from now on" in done.err) == (True, True, True)
        assert ("the context old still names" in done.err, "context other" in done.err) == (
            source is full,
            False,
        )
        for command in (("get", "k", "-p", "plain"), ("stats",), ("backup", "b", "--force")):
            told = cli(*command, "--url", source).err
            assert f"{source} has moved to " in told, command
            assert place in told
            assert "has moved" not in cli(*command, "--url", target).err
        [writing] = [
            one
            for one in cli("doctor", "--url", source, "--json").json["checks"]
            if one["check"] == "writing"
        ]
        assert (writing["level"], place in writing["advice"]) == ("warn", True)
        refused = program("up", "--db", source, "--nats-port", free_port(), "--http-port", "0")
        assert refused.returncode == 5, refused.stderr
        assert "Start Holdfast with the store there: --db " in refused.stderr


def test_a_copy_that_is_not_complete(cli: Cli, full: Path, tmp_path: Path) -> None:
    """The target can't be opened before it is complete; after --cancel the source accepts writes again."""
    two = tmp_path / "two.db"
    asyncio.run(_begun(full, two))
    refused = cli("get", "k", "-p", "plain", "--url", two)
    assert (refused.code, "a copy into this store is not complete" in refused.err) == (5, True)
    assert cli("set", "k", "9", "-p", "plain", "--url", full).code == 5
    assert cli("copy", full, two, "--cancel").code == 0
    cli.did("set", "k", "9", "-p", "plain", "--url", full)
    assert cli("copy", full, two).code == 0
    assert cli("diff", full, two).code == 0
    assert cli.did("get", "k", "-p", "plain", "--url", two).json == 9


async def _begun(source: Path, target: Path) -> None:
    """Leave what a switch leaves that was killed before its end."""
    from holdfast.edges.cli.commands.stores import reading, writing
    from holdfast.moves.transfers import StoreTransfer

    async with (
        reading(str(source)) as engine,
        StoreTransfer(
            engine, lambda: writing(str(target)), lambda: reading(str(target)), where=str(target)
        ) as transfer,
    ):
        await transfer.begin(lambda names: None)
        await engine.close_to_writes(f"this store has moved to {target}", instead_of=None)


async def test_the_switch_of_a_store_in_use(tmp_path: Path, full: Path) -> None:
    """A program that has the store open is refused with the new place, and can still read."""
    from holdfast.edges.cli.commands.stores import reading, writing
    from holdfast.moves.transfers import StoreTransfer

    async with holdfast.open(full, audit_key=KEY) as store:
        await store.kv("plain").set("before", 1)
        async with (
            reading(str(full)) as engine,
            StoreTransfer(
                engine,
                lambda: writing(str(tmp_path / "two.db")),
                lambda: reading(str(tmp_path / "two.db")),
                where="two.db",
            ) as transfer,
        ):
            await transfer.begin(lambda names: None)
            await transfer.step()
            await store.kv("plain").set("meanwhile", 2)
            await transfer.switch()
        with pytest.raises(holdfast.Unavailable, match=r"has moved to two\.db"):
            await store.kv("plain").set("after", 3)
        assert await store.kv("plain").get("before") is not None
    async with holdfast.open(tmp_path / "two.db", audit_key=KEY) as store:
        found = await store.kv("plain").get("meanwhile")
        assert (found is not None, await store.kv("plain").get("after")) == (True, None)


async def test_a_service_that_cannot_open_the_target(cli: Cli, tmp_path: Path) -> None:
    """A service without the driver of the target says so before anything is switched, and goes on."""
    source = tmp_path / "home" / "holdfast" / "holdfast.db"
    target = "postgresql://127.0.0.1:1/state"
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "asyncpg.py").write_text("raise ModuleNotFoundError(name='asyncpg')\n")
    async with started_up(tmp_path / "home", PYTHONPATH=str(tmp_path / "without")) as up:
        refused = await asyncio.to_thread(cli, "copy", source, target, "--switch")
        assert refused.code != 0
        assert f"nothing was switched: the service at {up.url} can't open {target}" in refused.err
        assert "pip install 'holdfast-kv[postgres]'" in refused.err
        async with holdfast.open(up.url) as store:
            await store.kv("p").set("k", 1)
        assert (await asyncio.to_thread(cli, "copy", source, tmp_path / "next.db", "--switch")).code == 0
