"""`holdfast audit`: records on a line each, a verdict with an exit code, and keys."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.clock import ManualClock
from tests.edges.nats.ground import calling, serving

if TYPE_CHECKING:
    from holdfast.edges.nats.server import NatsServer
    from tests.edges.cli.conftest import Cli, Outcome

ON = ("--tenant", "acme", "--project", "web")
WEB = "semantic/acme/web"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture
def filled(url: str) -> str:
    """A store in which a project has four records, a second apart. The second belongs to a trace."""

    async def fill() -> None:
        clock = ManualClock()
        async with holdfast.open(url, clock=clock, reap=False) as store:
            kv = store.semantic("acme", "web")
            for number in range(3):
                with holdfast.traced(f"00-{TRACE}-00f067aa0ba902b7-01" if number == 1 else None):
                    await kv.set(f"k{number}", number, writer="alice", semantics={"purpose": "config"})
                clock.advance(1)
            await kv.delete("k1", writer="bob", request_id="gone")

    asyncio.run(fill())
    return url


def alter(url: str, sql: str, *parameters: Any) -> None:
    """Change the table behind the store's back."""
    with closing(sqlite3.connect(url)) as file, file:
        assert file.execute(sql, parameters).rowcount > 0


def remove(url: str, number: int) -> None:
    """Remove a record."""
    sql = "DELETE FROM holdfast_rows WHERE space = 'audit' AND key = ?"
    alter(url, sql, number.to_bytes(8, "big"))


def verified(cli: Cli, *arguments: object) -> Outcome:
    """Verify an audit that is whole. What stderr says is advice."""
    outcome = cli("audit", "verify", *arguments)
    assert (outcome.code, "broken" in outcome.err) == (0, False)
    return outcome


def test_log(cli: Cli, filled: str) -> None:
    """A record is a line of eight cells in the order of the chain, or a document."""
    rows = [line.split("\t") for line in cli.did("audit", "log", *ON).out.splitlines()]
    assert [row[0] for row in rows] == ["1", "2", "3", "4"]
    assert rows[3][1:] == [
        *("2023-11-14T22:13:23.000Z", "deleted", "4"),
        *("tenant/acme/project/web/k1", "bob", "config", "gone"),
    ]
    documents = cli.did("audit", "log", WEB, "--json").jsons
    assert [one["number"] for one in documents] == [1, 2, 3, 4]
    assert documents[3]["before"] == documents[1]["after"]
    assert documents[3]["previous"] == documents[2]["signature"]
    assert [one.get("trace_id") for one in documents] == [None, TRACE, None, None]
    [traced] = cli.did("audit", "log", WEB, "--json", "--trace-id", TRACE).jsons
    assert traced == documents[1]
    assert cli.did("audit", "log", WEB, "--trace-id", TRACE[::-1]).out == ""


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        (["--key", "tenant/acme/project/web/k1"], [2, 4]),
        (["--writer", "bob"], [4]),
        (["--op", "set"], [1, 2, 3]),
        (["--purpose", "cursor"], []),
        (["--request-id", "gone"], [4]),
        (["--since", "2023-11-14T22:13:22Z"], [3, 4]),
        (["--until", "2023-11-14T22:13:21Z"], [1]),
        (["--after", "2", "--op", "set"], [3]),
    ],
)
def test_log_of_some(cli: Cli, filled: str, options: list[str], numbers: list[int]) -> None:
    """Each filter lets through what fits it."""
    assert [one["number"] for one in cli.did("audit", "log", *ON, "--json", *options).jsons] == numbers


def test_log_in_parts(cli: Cli, filled: str) -> None:
    """A log that ends before the audit does says where to go on."""
    part = cli("audit", "log", *ON, "--limit", "3")
    assert (part.code, part.out.count("\n")) == (0, 3)
    assert part.err == "holdfast: there may be more: --all shows everything, --after 3 continues\n"
    assert cli.did("audit", "log", *ON, "--after", "3").out.startswith("4\t")
    assert cli("audit", "log", *ON, "--limit", "0").code == 2
    assert cli("audit", "log", "elsewhere").code == 2


def test_verify(cli: Cli, filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole audit is told with its head, and so are all of a store when none is named."""
    head = verified(cli, *ON, "--json").json["head"]
    assert verified(cli, WEB).out == f"{WEB}\twhole\t4\t{head}\n"
    assert verified(cli, "--plugin", "jobs").out == "kv/jobs\twhole\t0\t0:\n"
    cli.did("set", "k", "1")
    monkeypatch.delenv("HOLDFAST_PLUGIN")
    assert verified(cli).out == f"{WEB}\twhole\t4\t{head}\n"
    assert cli("audit", "verify", "--head", head).code == 2


def test_a_broken_audit_is_exit_1(cli: Cli, filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first record that is wrong is named, and a script can tell by the exit code."""
    remove(filled, 2)
    found = cli("audit", "verify", *ON)
    assert (found.code, found.out) == (1, f"{WEB}\tbroken\t2\trecord 2 was removed\n")
    document = cli("audit", "verify", WEB, "--json")
    assert document.code == 1
    assert document.json == {
        "namespace": WEB,
        "whole": False,
        "records": 1,
        "head": document.json["head"],
        "broken_at": 2,
        "reason": "record 2 was removed",
    }
    monkeypatch.delenv("HOLDFAST_PLUGIN")
    assert cli("audit", "verify").code == 1


def test_all_audits_are_found_by_their_records(
    cli: Cli, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a name no audit is passed over, also if the row of its namespace is gone."""
    assert cli("namespace", "set", "kv/jobs", "--audit").code == 0
    cli.did("set", "k", "1")
    cli.did("set", "k", "1", "--plugin", "plain")
    monkeypatch.delenv("HOLDFAST_PLUGIN")
    names = [line.split("\t")[:2] for line in verified(cli).out.splitlines()]
    assert names == [["kv/jobs", "whole"], [WEB, "whole"]]
    alter(filled, "DELETE FROM holdfast_namespaces WHERE name = 'kv/jobs'")
    found = cli("audit", "verify")
    gone = "the row of the namespace was removed, although it has an audit"
    assert (found.code, found.out.splitlines()[0]) == (1, f"kv/jobs\tbroken\t2\t{gone}")
    assert found.out.splitlines()[1].startswith(f"{WEB}\twhole\t4\t")
    doctor = {one["check"]: one for one in cli("doctor", "--json").json["checks"]}
    assert doctor["audit"]["level"] == "fail"
    assert doctor["audit"]["message"] == f"kv/jobs: {gone}"


def test_an_audit_that_was_switched_off_is_exit_1(cli: Cli, filled: str) -> None:
    """A policy that was changed with SQL is told by `audit verify` and by the doctor."""
    assert cli("namespace", "set", "kv/jobs", "--audit", "--ttl-default", "60").code == 0
    assert verified(cli).out.startswith("kv/jobs\twhole\t1\t")
    alter(filled, "UPDATE holdfast_namespaces SET policy = '{\"ttl_default\":60}' WHERE name = 'kv/jobs'")
    found = cli("audit", "verify", "kv/jobs")
    off = "the audit was switched off outside Holdfast"
    assert (found.code, found.out) == (1, f"kv/jobs\tbroken\t1\t{off}\n")
    outcome = cli("doctor")
    assert outcome.code == 1
    assert f"fail  audit      kv/jobs: {off} (the database was changed with SQL" in outcome.out


def test_records_outlive_the_head(cli: Cli, filled: str) -> None:
    """After the head was removed the next record follows the newest, and the break is told for ever."""
    alter(filled, "DELETE FROM holdfast_rows WHERE space = 'audit' AND key = x''")
    before = cli.did("audit", "log", *ON, "--json").jsons
    cli.did("set", "k", "1", *ON)
    assert cli.did("audit", "log", *ON, "--json").jsons[:4] == before
    found = cli("audit", "verify", *ON)
    said = "the head had been removed when record 5 was written"
    assert (found.code, found.out) == (1, f"{WEB}\tbroken\t5\t{said}\n")


@pytest.mark.parametrize("as_json", [False, True])
def test_heads_of_a_log_are_compared(
    cli: Cli, filled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    """An audit that was cut off together with its head is found by what the service has logged."""
    sql = "SELECT value FROM holdfast_rows WHERE space = 'audit' AND key = x''"
    with closing(sqlite3.connect(filled)) as file:
        [(older,)] = file.execute(sql)
    first = verified(cli, *ON, "--json").json["head"]
    cli.did("set", "k", "1", *ON)
    second = verified(cli, *ON, "--json").json["head"]
    messages = [f"audit head of {WEB} is {head}" for head in (first, second)]
    log = tmp_path / "service.log"
    lines = [json.dumps({"message": one, "level": "info"}) if as_json else f"INFO {one}" for one in messages]
    log.write_text("started\n" + "\n".join(lines) + "\n", encoding="utf-8")
    assert verified(cli, *ON, "--log", log).out.startswith(f"{WEB}\twhole\t5\t")
    remove(filled, 5)
    alter(filled, "UPDATE holdfast_rows SET value = ? WHERE space = 'audit' AND key = x''", older)
    assert verified(cli, *ON).out.startswith(f"{WEB}\twhole\t4\t")
    for options in (["--log", log], ["--head", first, "--head", second]):
        found = cli("audit", "verify", *ON, *options)
        assert (found.code, "the audit was cut off: it had 5 records once" in found.out) == (1, True)
    monkeypatch.delenv("HOLDFAST_PLUGIN")
    assert cli("audit", "verify", "--log", log).code == 1
    assert cli("audit", "verify", *ON, "--log", tmp_path / "nowhere").code == 2
    assert cli("audit", "verify", *ON, "--head", "5").code == 2


def test_a_printed_log_verifies_later(cli: Cli, filled: str, tmp_path: Path) -> None:
    """What `audit log --all --json` prints can be verified without the store, with the store's keys."""
    printed = cli.did("audit", "log", *ON, "--all", "--json", "--limit", "1").out
    assert printed == cli.did("audit", "log", WEB, "--json").out
    lines = printed.splitlines(keepends=True)
    assert len(lines) == 4
    out = tmp_path / "audit.jsonl"
    out.write_text(printed, encoding="utf-8")
    head = verified(cli, *ON, "--json").json["head"]
    cli.did("delete", "k0", "--yes", *ON)
    later = verified(cli, *ON, "--json").json["head"]
    for namespace in (ON, [WEB]):
        whole = verified(cli, *namespace, "--file", out, "--head", head)
        assert whole.out == f"{WEB}\twhole\t4\t{head}\n"
    cut = cli("audit", "verify", WEB, "--file", out, "--head", later)
    assert (cut.code, "the file was cut off" in cut.out) == (1, True)
    assert cli("audit", "verify", "kv/jobs", "--file", out).code == 1, "the records are of another namespace"
    for name, changed, number in (
        ("edited", [lines[0], lines[1].replace('"alice"', '"mallory"'), *lines[2:]], 2),
        ("removed", [lines[0], *lines[2:]], 2),
        ("swapped", [lines[0], lines[2], lines[1], lines[3]], 2),
    ):
        out.write_text("".join(changed), encoding="utf-8")
        found = cli("audit", "verify", WEB, "--file", out)
        assert (found.code, f"{WEB}\tbroken\t{number}\t" in found.out) == (1, True), name
    for name, content, message in (
        ("empty", "", f"{out} has no record"),
        ("no record", lines[0] + "no record\n", "line 2 is not a record"),
        ("unknown field", lines[0].replace("{", '{"more":1,', 1), "line 1 is not a record"),
        ("repeated field", lines[0].replace("{", '{"number":9,', 1), "line 1 is not a record"),
    ):
        out.write_text(content, encoding="utf-8")
        refused = cli("audit", "verify", WEB, "--file", out)
        assert (refused.code, message in refused.err) == (2, True), name


def test_a_printed_log_of_odd_names_verifies(cli: Cli, filled: str, tmp_path: Path) -> None:
    """Characters that are escaped for terminals do not change what a record says."""
    cli.did("set", "k", "1", *ON, "--writer", "me\u202e\u00e9\U0001f600", "--spec-ref", "a\u2028b")
    out = tmp_path / "audit.jsonl"
    out.write_text(cli.did("audit", "log", WEB, "--json").out, encoding="utf-8")
    assert "\\u202e" in out.read_text(encoding="utf-8")
    assert verified(cli, WEB, "--file", out).out.startswith(f"{WEB}\twhole\t5\t")


def test_rotate(cli: Cli, filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new secret signs, the old one still verifies, and only a key in a file can be rotated."""
    path = Path(f"{filled}.audit-key")
    before = path.read_text(encoding="ascii")
    told = cli.did("audit", "rotate", "--json").json
    assert (told["file"], told["audits"]) == (str(path), 1)
    assert path.read_text(encoding="ascii").startswith(f"retired:{before}")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    cli.did("set", "k", "1", *ON)
    records = cli.did("audit", "log", *ON, "--json").jsons
    assert records[-1]["signed_by"] == told["signs"] != records[0]["signed_by"]
    assert [one["op"] for one in records[-2:]] == ["rotated", "set"]
    assert verified(cli, *ON).out.startswith(f"{WEB}\twhole\t6\t")
    assert "and signs; audits switched to it: 1" in cli("audit", "rotate").err
    assert "restart what writes to the store, and it signs" in cli("audit", "rotate", "--later").err
    not_yet = cli("audit", "verify", *ON)
    assert (not_yet.code, "signs now: restart what writes to the store" in not_yet.out) == (1, True)
    cli.did("set", "k", "2", *ON)
    assert verified(cli, *ON).out.startswith(f"{WEB}\twhole\t9\t")
    monkeypatch.setenv("HOLDFAST_AUDIT_KEY", "a-secret-of-sixteen")
    assert cli("audit", "rotate").code == 1
    assert "unknown key" in cli("audit", "verify", *ON).out
    monkeypatch.delenv("HOLDFAST_AUDIT_KEY")
    assert cli("audit", "rotate", "--url", "nats://127.0.0.1:1").code == 1


def test_rotate_makes_a_configured_file(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that the configuration names is made by rotating, and used from then on."""
    path = tmp_path / "configured"
    monkeypatch.setenv("HOLDFAST_AUDIT_KEY_FILE", str(path))
    assert cli("set", "k", "1", *ON).code == 5
    assert cli.did("audit", "rotate", "--json").json["audits"] == 0
    cli.did("set", "k", "1", *ON)
    assert verified(cli, *ON).out.startswith(f"{WEB}\twhole\t1\t")
    monkeypatch.setenv("HOLDFAST_AUDIT_KEY_FILE", str(tmp_path / "nowhere" / "key"))
    assert cli("audit", "rotate").code == 2


async def test_tampering_is_told_over_nats(
    cli: Cli, nats_server: NatsServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service finds the audits of its store by their records, and tells what was done to them."""
    async with serving(nats_server.url, storage=url) as running, calling(nats_server.url) as caller:
        await running.store.semantic("acme", "web").set("k", 1)
        await running.store.semantic("acme", "web").set("k", 2)
        await running.store.set_policy("kv/jobs", {"audit": True})
        listed = await caller.ask("db.admin.audits", {})
        assert listed == {"success": True, "namespaces": ["kv/jobs", WEB], "count": 2}
        alter(url, "DELETE FROM holdfast_namespaces WHERE name = ?", WEB)
        alter(url, "UPDATE holdfast_namespaces SET policy = NULL WHERE name = 'kv/jobs'")
        assert (await caller.ask("db.admin.audits", {}))["namespaces"] == ["kv/jobs", WEB]
        part = await caller.ask("db.admin.audit_verify", {"namespace": "kv/jobs"})
        assert (part["broken_at"], part["reason"]) == (1, "the audit was switched off outside Holdfast")
        monkeypatch.delenv("HOLDFAST_PLUGIN")
        found = await asyncio.to_thread(cli, "audit", "verify", "--url", nats_server.url)
        assert found.code == 1
        assert [line.split("\t")[:3] for line in found.out.splitlines()] == [
            ["kv/jobs", "broken", "1"],
            [WEB, "broken", "2"],
        ]
        async with holdfast.open(nats_server.url) as client:
            verdict = await client.audit(WEB).verify()
            assert (await client.audits(), verdict.whole) == (["kv/jobs", WEB], False)
            assert "the row of the namespace was removed" in str(verdict.reason)


async def test_over_nats(cli: Cli, nats_server: NatsServer, tmp_path: Path) -> None:
    """The audit of a service is read and verified with the service's keys."""
    async with serving(nats_server.url):
        await asyncio.to_thread(_over_nats, cli, nats_server.url, tmp_path / "out")


def _over_nats(cli: Cli, url: str, out: Path) -> None:
    on = ["--url", url]
    told = cli("namespace", "set", "kv/jobs", "--audit", "--ttl-default", "60", *on)
    assert told.err == "holdfast: kv/jobs: ttl_default 60, audit yes\n"
    cli.did("set", "k", "1", *on)
    rows = [line.split("\t") for line in cli.did("audit", "log", *on).out.splitlines()]
    assert [(row[2], row[5]) for row in rows] == [("policy", "cli"), ("set", "cli")]
    head = verified(cli, "--json", *on).json["head"]
    assert verified(cli, "--head", head, *on).out == f"kv/jobs\twhole\t2\t{head}\n"
    assert cli("audit", "verify", "--head", "9:feed", *on).code == 1
    out.write_text(cli.did("audit", "log", "--all", "--json", *on).out, encoding="utf-8")
    assert len(out.read_text(encoding="utf-8").splitlines()) == 2
    assert "where the service runs" in cli("audit", "verify", "--file", out, *on).err
    assert "ttl_default\t60\n" in cli.did("namespace", "show", *on).out
    assert cli.did("namespace", "list", *on).out.startswith("kv/jobs\t1\t2\t1\t")
