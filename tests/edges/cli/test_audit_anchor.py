"""`holdfast audit anchor`, and what `audit verify` holds against a store: anchors, and the values."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest

import holdfast
from holdfast.clock import ManualClock
from tests.edges.cli.test_audit import ON, WEB, alter, remove, verified
from tests.edges.nats.ground import serving
from tests.edges.running import holdfast_up

if TYPE_CHECKING:
    from holdfast.edges.nats.server import NatsServer
    from tests.edges.cli.conftest import Cli


@pytest.fixture
def filled(url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store in which a project has three records and a plugin two."""
    monkeypatch.delenv("HOLDFAST_PLUGIN")

    async def fill() -> None:
        async with holdfast.open(url, clock=ManualClock(), reap=False) as store:
            for number in range(3):
                await store.semantic("acme", "web").set(f"k{number}", number)
            await store.set_policy("kv/jobs", {"audit": True})
            await store.kv("jobs").set("k", 1)

    asyncio.run(fill())
    return url


def copied(url: str, folder: Path) -> None:
    """Keep a copy of a store that nobody has open."""
    folder.mkdir()
    shutil.copy(url, folder)


def put_back(url: str, folder: Path) -> None:
    """Put the copy in the place of the store."""
    for suffix in ("-wal", "-shm"):
        Path(f"{url}{suffix}").unlink(missing_ok=True)
    shutil.copy(folder / Path(url).name, url)


def test_an_anchor_is_printed_and_holds(cli: Cli, filled: str, tmp_path: Path) -> None:
    """Each audit has a line with its count and head, or a document, and any of it verifies later."""
    lines = cli.did("audit", "anchor").out
    assert [line.split("\t")[:2] for line in lines.splitlines()] == [["kv/jobs", "2"], [WEB, "3"]]
    documents = cli.did("audit", "anchor", "--json").jsons
    assert [(one["namespace"], one["records"]) for one in documents] == [("kv/jobs", 2), (WEB, 3)]
    assert cli.did("audit", "anchor", *ON).out == lines.splitlines(keepends=True)[1]
    plain, as_json = tmp_path / "anchors", tmp_path / "anchors.json"
    plain.write_text(lines + "\n", encoding="utf-8")
    as_json.write_text("\n".join(map(json.dumps, documents)), encoding="utf-8")
    cli.did("set", "k", "1", *ON)
    for given in (plain, as_json, lines.splitlines()[1], json.dumps(documents[1])):
        assert verified(cli, "--anchor", given).out.count("\twhole\t") == 2
    head = documents[1]["head"]
    assert verified(cli, *ON, "--anchor", head).out.startswith(f"{WEB}\twhole\t4\t")
    out = tmp_path / "audit.jsonl"
    out.write_text(cli.did("audit", "log", *ON, "--json").out, encoding="utf-8")
    assert verified(cli, *ON, "--file", out, "--anchor", plain).out.startswith(f"{WEB}\twhole\t4\t")
    for wrong in ("nonsense", "elsewhere 3:feed", "{}", "3"):
        refused = cli("audit", "verify", "--anchor", wrong)
        assert (refused.code, "neither a file nor a line" in refused.err) == (2, True), wrong
    assert cli("audit", "verify", "--anchor", head).code == 2, "of which namespace?"


def test_a_store_that_was_rolled_back(cli: Cli, filled: str, tmp_path: Path) -> None:
    """An older copy of the whole store is whole by itself, and not what was anchored."""
    copied(filled, tmp_path / "old")
    cli.did("set", "k", "1", *ON)
    anchors = tmp_path / "anchors"
    anchors.write_text(cli.did("audit", "anchor").out, encoding="utf-8")
    put_back(filled, tmp_path / "old")
    assert verified(cli).out.count("\twhole\t") == 2, "control: no anchor, no break"
    found = cli("audit", "verify", "--anchor", anchors)
    assert (found.code, found.out.count("\twhole\t")) == (1, 1)
    assert f"{WEB}\tbroken\t4\tthe audit was cut off: it had 4 records once\n" in found.out
    cli.did("set", "k", "2", *ON)
    found = cli("audit", "verify", "--anchor", anchors, "--json")
    assert [one["reason"] for one in found.jsons] == [None, "record 4 is not the one that was noted"]


def test_a_store_that_was_emptied(cli: Cli, filled: str, tmp_path: Path) -> None:
    """Also a new store in the place of the old one is held to the anchor, by the names in it."""
    anchors = tmp_path / "anchors"
    anchors.write_text(cli.did("audit", "anchor").out, encoding="utf-8")
    for table in ("plugin_kv_storage", "holdfast_rows", "holdfast_namespaces", "holdfast_journal"):
        alter(filled, f"DELETE FROM {table}")
    assert "this store was audited" in cli("audit", "verify").out
    alter(filled, "DELETE FROM holdfast_meta WHERE name = 'audit_key'")
    assert verified(cli).out == "", "control: a store that remembers nothing has nothing to verify"
    found = cli("audit", "verify", "--anchor", anchors)
    assert (found.code, found.out) == (
        1,
        "kv/jobs\tbroken\t1\tthe audit was cut off: it had 2 records once\n"
        f"{WEB}\tbroken\t1\tthe audit was cut off: it had 3 records once\n",
    )


def test_a_broken_audit_has_no_anchor(cli: Cli, filled: str) -> None:
    """Nothing is printed that would later vouch for a chain that was broken already."""
    remove(filled, 2)
    found = cli("audit", "anchor", *ON)
    assert (found.code, found.out) == (1, "")
    assert "is broken at record 2, and has no anchor" in found.err


def test_values(cli: Cli, filled: str) -> None:
    """What SQL has done to entries is a line each and exit code 1; without --values nobody looks."""
    whole = verified(cli, "--values", *ON).out.splitlines()
    assert whole[1] == f"{WEB}\tvalues\t3\t0\t0"
    root = "tenant/acme/project/web/"
    alter(filled, "UPDATE plugin_kv_storage SET value_json = '9' WHERE key = ?", f"{root}k0")
    alter(filled, "DELETE FROM plugin_kv_storage WHERE key = ?", f"{root}k1")
    alter(filled, "UPDATE plugin_kv_storage SET key = 'other' WHERE plugin_name = 'jobs'")
    assert verified(cli).out.count("\twhole\t") == 2
    found = cli("audit", "verify", "--values")
    assert found.code == 1
    assert [line.split("\t")[1:3] for line in found.out.splitlines() if "\twhole\t" not in line] == [
        ["values", "0"],
        ["deleted", "k"],
        ["inserted", "other"],
        ["values", "1"],
        ["changed", f"{root}k0"],
        ["deleted", f"{root}k1"],
    ]
    document = cli("audit", "verify", "--values", "--json", *ON)
    assert document.code == 1
    assert (document.json["whole"], document.json["values"]["whole"]) == (True, False)
    assert [one["what"] for one in document.json["values"]["found"]] == ["changed", "deleted"]
    assert cli("audit", "verify", "--values", "--file", filled).code == 2


async def test_over_nats(cli: Cli, nats_server: NatsServer) -> None:
    """A service gives anchors and holds itself against them; values are compared where the storage is."""
    async with serving(nats_server.url) as running:
        await running.store.semantic("acme", "web").set("k", 1)
        url = ("--url", nats_server.url)
        line = (await asyncio.to_thread(cli.did, "audit", "anchor", *ON, *url)).out
        assert line.startswith(f"{WEB}\t1\t1:")
        assert (await asyncio.to_thread(cli, "audit", "verify", *ON, "--anchor", line, *url)).code == 0
        cut = await asyncio.to_thread(cli, "audit", "verify", "--anchor", f"{WEB} 9:feed", *ON, *url)
        assert (cut.code, "cut off" in cut.out) == (1, True)
        refused = await asyncio.to_thread(cli, "audit", "verify", *ON, "--values", *url)
        assert (refused.code, "where the storage is" in refused.err) == (1, True)


GONE = "DELETE FROM holdfast_rows WHERE space = 'audit'"


@pytest.mark.parametrize("writes", [False, True])
def test_an_audit_that_is_gone_altogether(cli: Cli, filled: str, *, writes: bool) -> None:
    """The store knows that it was audited: without head and records it is broken, also after a new record."""
    alter(filled, GONE)
    if writes:
        cli.did("set", "k9", "1", *ON)
        cli.did("set", "k", "2", "--plugin", "jobs")
    found = cli("audit", "verify")
    lines = [line.split("\t") for line in found.out.splitlines()]
    assert (found.code, [line[:2] for line in lines]) == (1, [["kv/jobs", "broken"], [WEB, "broken"]])
    assert all("the whole audit" in line[3] for line in lines)
    assert cli("doctor").code == (0 if writes else 1)


def test_a_store_without_audits_that_had_some(cli: Cli, filled: str) -> None:
    """If the rows of the namespaces are gone too, the key that the store remembers tells of the audit."""
    alter(filled, GONE)
    alter(filled, "DELETE FROM holdfast_namespaces")
    found = cli("audit", "verify")
    assert (found.code, found.out.split("\t")[:2]) == (1, ["the store", "broken"])
    assert "this store was audited, with the key " in found.out
    assert "this store was audited" in cli("doctor").out


def test_a_verification_says_what_it_leaves_out(cli: Cli, filled: str, tmp_path: Path) -> None:
    """Without --values and without an anchor it says what each of them adds; with both it says nothing."""
    told = cli("audit", "verify").err
    assert ("--values also finds" in told, "--anchor FILE also finds" in told) == (True, True)
    (tmp_path / "anchors").write_text(cli.did("audit", "anchor").out, encoding="utf-8")
    assert "--anchor FILE" not in cli("audit", "verify", "--anchor", tmp_path / "anchors").err
    assert "--values also" not in cli("audit", "verify", "--values").err
    assert cli("audit", "verify", "--values", "--anchor", tmp_path / "anchors").err == ""
    assert cli("audit", "verify", "--json").err == ""


async def test_an_audit_that_is_gone_from_postgresql(pg_store_url: str) -> None:
    """There too the store knows that it was audited, before and after the next record."""

    async def altered(sql: str) -> None:
        connection = await asyncpg.connect(pg_store_url)
        await connection.execute(sql)
        await connection.close()

    async with holdfast.open(pg_store_url, audit_key="a-secret-for-the-tests", reap=False) as store:
        kv, audit = store.semantic("acme", "web"), store.audit(WEB)
        await kv.set("k", 1)
        await altered(GONE)
        assert await store.audits() == [WEB]
        assert "the whole audit was removed" in str((await audit.verify()).reason)
        assert list(await store.suspected_audits()) == [WEB]
        await altered("DELETE FROM holdfast_namespaces")
        assert list(await store.suspected_audits()) == [""]
    async with holdfast.open(pg_store_url, audit_key="a-secret-for-the-tests", reap=False) as store:
        await store.semantic("acme", "other").set("k", 1)
        await altered(GONE)
        await store.semantic("acme", "other").set("k", 2)
        found = await store.audit("semantic/acme/other").verify()
        assert (found.whole, "the whole audit had been removed" in str(found.reason)) == (False, True)


async def test_the_log_of_a_service_has_anchors(tmp_path: Path) -> None:
    """`holdfast up` logs the head of each audit when it starts and when it stops, for --log."""
    async with holdfast.open(tmp_path / "s.db") as store:
        await store.semantic("acme", "web").set("k", 1)
        before = await store.audit_heads()
    async with holdfast_up(tmp_path / "home", "--db", tmp_path / "s.db") as up:
        await up.stop()
        told = up.complaints
    assert told.count(f"audit head of {WEB} is {before[WEB]}") == 2
    assert "holdfast audit verify --log" in told
