"""Files from outside: whatever they hold, a command says in one line what is wrong, and changes nothing.

A file may be truncated, altered, made up, a bomb, or no file at all. Every case ends with an exit code and
one line on stderr, without a traceback, within bounded memory.
"""

from __future__ import annotations

import asyncio
import functools
import io
import json
import os
import random
import resource
import shutil
import sqlite3
import struct
import zlib
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest

import holdfast
from holdfast.engine.raw import StoreInfo
from holdfast.moves.backups import MAGIC, BackupHeader, BackupTotals
from holdfast.rows import Namespace
from tests.moves.contents import fill

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.edges.cli.conftest import Cli, Outcome, Program

NAMESPACE: Final = tuple(msgspec.structs.astuple(Namespace(name="kv/p", revision=1)))
ROW: Final = (
    *('"v"', 3, 1, 1_700_000_000_000, 1_700_000_000_000, None, "w"),
    *(None, None, None, None),
)
RECORD: Final = ("kv/p", 1, "set", "k", 1_700_000_000_000, *[None] * 6)


def packed(*chunks: tuple[bytes, Any], line: bytes = MAGIC + b"1\n") -> bytes:
    """A backup with correct checksums of these chunks; bytes are taken as compressed content."""
    file, check = io.BytesIO(), b""
    file.write(line)
    for kind, content in chunks:
        data = content if isinstance(content, bytes) else zlib.compress(msgspec.msgpack.encode(content), 9)
        check = blake2b(check + kind + data, digest_size=16).digest()
        file.write(kind + struct.pack(">I", len(data)) + data + check)
    return file.getvalue()


def header(**other: Any) -> tuple[bytes, Any]:
    """The first chunk."""
    made = BackupHeader(made_at=1_700_000_000_000, facts=StoreInfo(epoch="e"), software="x", with_key=False)
    return b"H", msgspec.to_builtins(made) | other


def end(**totals: int) -> tuple[bytes, Any]:
    """The last chunk."""
    return b"E", msgspec.to_builtins(BackupTotals(**totals))


def section(*held: Any, name: str = "entries", namespace: Any = "kv/p") -> tuple[bytes, Any]:
    """A chunk with a part of a section."""
    return b"S", (namespace, name, list(held))


def altered(row: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    """A tuple with one other member."""
    return (*row[:place], value, *row[place + 1 :])


def deep(count: int) -> bytes:
    """A value of MessagePack with many levels, compressed."""
    return zlib.compress(b"\x91" * count + b"\xc0")


NAMED: Final = (b"N", [NAMESPACE])
ONE: Final = end(namespaces=1, entries=1)
MADE_UP: Final[dict[str, bytes]] = {
    "nothing": b"",
    "only the beginning": MAGIC,
    "format 0": packed(header(), end(), line=MAGIC + b"0\n"),
    "format 2": packed(header(), end(), line=MAGIC + b"2\n"),
    "format x": packed(header(), end(), line=MAGIC + b"x\n"),
    "format -1": packed(header(), end(), line=MAGIC + b"-1\n"),
    "an endless first line": MAGIC + b"1" * 100_000,
    "no header": packed(end()),
    "no end": packed(header()),
    "a header that is a number": packed((b"H", 7), end()),
    "a header that is a list": packed((b"H", [1, 2]), end()),
    "a header without facts": packed((b"H", {"made_at": 1}), end()),
    "a header with wrong facts": packed(header(facts={"epoch": 7}), end()),
    "a header of a newer version": packed(header(row=["value", "colour"]), end()),
    "a header without fields": packed(header(row=[], record=[], namespace=[]), NAMED, end(namespaces=1)),
    "no time": packed(header(facts={"epoch": "e", "clock": 2**63}), end()),
    "a time before 1970": packed(header(made_at=-1), end()),
    "a header with a field twice": packed(header(row=["value"] * 11), end()),
    "deep": packed((b"H", deep(100_000))),
    "deep later": packed(header(), (b"N", deep(100_000)), end()),
    "no zlib": packed(header(), (b"N", b"no zlib at all"), end()),
    "cut zlib": packed(header(), (b"N", zlib.compress(bytes(1000))[:-6]), end()),
    "zlib and more": packed(header(), (b"N", zlib.compress(b"\x90") + b"more"), end()),
    "no msgpack": packed(header(), (b"N", zlib.compress(b"\xc1")), end()),
    "two values": packed(header(), (b"N", zlib.compress(b"\x90\x90")), end()),
    "an unknown kind": packed(header(), (b"Z", []), end()),
    "a chunk of 4 GB": packed(header()) + b"N" + b"\xff\xff\xff\xff" + b"x",
    "wrong totals": packed(header(), NAMED, end(namespaces=7)),
    "totals of text": packed(header(), (b"E", {"namespaces": "many"})),
    "an end after the end": packed(header(), end(), end()),
    "namespaces of text": packed(header(), (b"N", ["kv/p"]), end()),
    "a namespace without numbers": packed(header(), (b"N", [altered(NAMESPACE, 1, "x")]), end()),
    "a namespace with too few": packed(header(), (b"N", [NAMESPACE[:3]]), end()),
    "too many of a number": packed(header(), (b"N", [altered(NAMESPACE, 1, 2**64 - 1)]), end()),
    "a section of no name": packed(header(), NAMED, section(name="cellar"), end(namespaces=1)),
    "a section of no list": packed(header(), NAMED, (b"S", ("kv/p", "entries", 7)), end(namespaces=1)),
    "a section of two": packed(header(), NAMED, (b"S", ("kv/p", "entries")), end(namespaces=1)),
    "a namespace of a number": packed(header(), NAMED, section((("k",), ROW), namespace=7), ONE),
    "a position of a number": packed(header(), NAMED, section(((7,), ROW)), ONE),
    "a position of nothing": packed(header(), NAMED, section(((), ROW)), ONE),
    "a position that is text": packed(header(), NAMED, section(("k", ROW)), ONE),
    "a key of bytes": packed(header(), NAMED, section(((b"k",), ROW)), ONE),
    "no value": packed(header(), NAMED, section((("k",), altered(ROW, 0, None))), ONE),
    "a value of a number": packed(header(), NAMED, section((("k",), altered(ROW, 0, 7))), ONE),
    "a negative size": packed(header(), NAMED, section((("k",), altered(ROW, 1, -1))), ONE),
    "a time of text": packed(header(), NAMED, section((("k",), altered(ROW, 3, "now"))), ONE),
    "a huge version": packed(header(), NAMED, section((("k",), altered(ROW, 2, 2**64 - 1))), ONE),
    "a row too short": packed(header(), NAMED, section((("k",), ROW[:4])), ONE),
    "a row too long": packed(header(), NAMED, section((("k",), (*ROW, 1))), ONE),
    "an entry in another section": packed(
        header(), NAMED, section((("kv", b"k"), ROW), name="rows"), end(namespaces=1, rows=1)
    ),
    "a part in another section": packed(
        header(), NAMED, section((("part/1", b"k"), ROW), name="rows"), end(namespaces=1, rows=1)
    ),
    "a record in another place": packed(
        header(), NAMED, section(((2,), RECORD), name="journal"), end(namespaces=1, records=1)
    ),
    "a record of another namespace": packed(
        header(), NAMED, section(((1,), altered(RECORD, 0, "kv/q")), name="journal"), end(records=1)
    ),
    "a key that is no list": packed(header(), (b"K", 7), end()),
    "a key of numbers": packed(header(), (b"K", [7]), end()),
    "a short key": packed(header(), (b"K", [b"short"]), end()),
    "a key that is no text": packed(header(), (b"K", [b"\xff" * 40]), end()),
    "a key of two lines": packed(header(), (b"K", [b"x" * 20 + b"\n" + b"y" * 20]), end()),
}


@functools.cache
def bombs() -> dict[str, bytes]:
    """Small backups that would fill the memory. To make them takes seconds, so nobody does it on import."""
    return {
        "a bomb": packed(header(), (b"N", zlib.compress(bytes(400_000_000), 9)), end()),
        "a bomb of lists": packed(
            header(), (b"N", zlib.compress(b"\xdd\x00\xff\xff\xff" + b"\x90" * 16_000_000))
        ),
        "a bomb of rows": packed(
            header(), NAMED, (b"S", ("kv/p", "entries", [(("k",), ROW)] * 300_000)), ONE
        ),
        "a bomb of keys": packed(
            header(), (b"K", zlib.compress(b"\xdd\x00\xff\xff\xff" + b"\xc4\x00" * 8_000_000))
        ),
    }


def refusal(outcome: Outcome) -> str:
    """The one line in which a command has refused."""
    assert outcome.code not in (0, 130), outcome
    assert outcome.out == ""
    assert outcome.err.count("\n") == 1, outcome.err
    assert "Traceback" not in outcome.err
    return outcome.err


@pytest.fixture
def kept(cli: Cli, tmp_path: Path) -> Iterator[Path]:
    """A store that holds one audited entry, and still does afterwards."""
    store, key = tmp_path / "kept.db", tmp_path / "kept.db.audit-key"
    assert cli("namespace", "set", "kv/mine", "--audit", "--url", store).code == 0
    cli.did("set", "k", "1", "-p", "mine", "--url", store)
    before = key.read_bytes()
    yield store
    assert key.read_bytes() == before
    assert cli("get", "k", "-p", "mine", "--url", store).out == "1\n"
    assert cli("doctor", "--deep", "--url", store).code == 0


def test_backups_that_somebody_made_up(cli: Cli, kept: Path, tmp_path: Path) -> None:
    """Each is refused in one line, over a store that holds something and where there is none."""
    for name, content in (MADE_UP | bombs()).items():
        file = tmp_path / "hostile"
        file.write_bytes(content)
        told = refusal(cli("restore", file, "--yes", "--url", kept))
        assert len(told) < 500, name
        refusal(cli("restore", file, "--yes", "--url", tmp_path / "new.db"))
        assert not (tmp_path / "new.db").exists(), name


def test_backups_that_were_altered(cli: Cli, kept: Path, tmp_path: Path) -> None:
    """Truncated anywhere, or with some bytes changed, a backup is refused in one line."""
    asyncio.run(fill(tmp_path / "full.db"))
    cli.did("backup", "b", "--url", tmp_path / "full.db", "--json")
    whole, chance = (tmp_path / "b").read_bytes(), random.Random(7)
    for number in range(120):
        data = bytearray(whole)
        if number % 3 == 0:
            del data[chance.randrange(1, len(whole)) :]
        else:
            for _ in range(chance.choice([1, 1, 8])):
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        (tmp_path / "hostile").write_bytes(data)
        refusal(cli("restore", tmp_path / "hostile", "--yes", "--url", kept))


async def test_a_store_that_cannot_hold_a_backup_keeps_its_own(pg_store_url: str, tmp_path: Path) -> None:
    """A backup with a text that PostgreSQL can't hold is refused there, and nothing of it is kept."""
    from holdfast.moves.backups import restore
    from holdfast.registry import engine_for

    async with holdfast.open(pg_store_url) as store:
        await store.kv("mine").set("k", 1)
    adopted: list[Any] = []
    hostile = [
        packed(header(), (b"K", [b"x" * 20]), NAMED, section((("nul\x00",), ROW)), ONE),
        packed(header(), NAMED, section(((os.urandom(50_000).hex(),), ROW)), ONE),
        packed(header(), NAMED, section((("k",), altered(ROW, 3, 2**62))), ONE),
        packed(header(), (b"N", [altered(NAMESPACE, 0, "kv/\x00")]), end(namespaces=1)),
        packed(header(facts={"epoch": "\x00", "clock": 2**63}), NAMED, end(namespaces=1)),
    ]
    for content in hostile:
        engine: Any = engine_for(pg_store_url)
        await engine.start()
        try:
            with pytest.raises(holdfast.HoldfastError):
                await restore(engine, io.BytesIO(content), adopt=adopted.append)
        finally:
            await engine.aclose()
    assert adopted == []
    async with holdfast.open(pg_store_url) as store:
        assert [one.namespace for one in await store.namespaces()] == ["kv/mine"]


HEADER: Final = b'{"holdfast":1,"namespace":"kv/mine","exported_at":"2026-11-18T00:00:00Z"}\n'
ENTRY: Final = {
    "key": "k", "value": 1, "version": 1, "created_at": "2026-11-18T00:00:00Z",
    "updated_at": "2026-11-18T00:00:00Z", "expires_at": None, "last_writer": "w", "request_id": None,
}  # fmt: skip


def entry(**other: Any) -> bytes:
    """A line of an export with other fields."""
    return json.dumps(ENTRY | other).encode() + b"\n"


def tables(definition: Any, *lines: Any) -> bytes:
    """An export of tables."""
    first = {"holdfast": 1, "namespace": "table/mine", "exported_at": "2026-11-18T00:00:00Z"}
    return b"\n".join(json.dumps(line).encode() for line in ({**first, "tables": definition}, *lines))


TABLE: Final[dict[str, Any]] = {
    "table": "t", "partition_key": {"name": "p", "type": "string"}, "sort_key": None,
    "ttl_attribute": None, "stream": False, "indexes": [],
}  # fmt: skip
EXPORTS: Final[dict[str, bytes]] = {
    "nothing": b"",
    "no JSON": b"\xff\xfe\x00",
    "a number": b"7\n",
    "format 2": HEADER.replace(b":1,", b":2,"),
    "format of text": HEADER.replace(b":1,", b':"1",'),
    "deep header": b'{"holdfast":1,"policy":' + b'{"a":' * 100_000,
    "a policy of a list": HEADER.replace(b"}", b',"policy":[1]}'),
    "a policy that is wrong": HEADER.replace(b"}", b',"policy":{"quota_bytes":"many"}}') + entry(),
    "a policy that is unknown": HEADER.replace(b"}", b',"policy":{"colour":1}}') + entry(),
    "a system's namespace": HEADER.replace(b"kv/mine", b"system/tokens") + entry(),
    "a path": HEADER.replace(b"kv/mine", b"kv/../../etc") + entry(),
    "a namespace of nothing": HEADER.replace(b"kv/mine", b"") + entry(),
    "an entry of text": HEADER + b'"text"\n',
    "deep entry": HEADER + b'{"value":' + b"[" * 200_000 + b"\n",
    "deep value": HEADER + entry(value=json.loads("[" * 90 + "]" * 90)),
    "a long number": HEADER + entry().replace(b'"value": 1', b'"value": ' + b"9" * 10_000),
    "no number": HEADER + entry().replace(b'"value": 1', b'"value": 1e999'),
    "a large value": HEADER + entry(value="x" * 600_000),
    "a long key": HEADER + entry(key="k" * 300),
    "an empty key": HEADER + entry(key=""),
    "a nul": HEADER + entry(key="\x00"),
    "a surrogate": HEADER + entry(key="\ud800"),
    "a huge version": HEADER + entry(version=2**63),
    "a negative version": HEADER + entry(version=-1),
    "a time of a number": HEADER + entry(created_at=7),
    "a time far away": HEADER + entry(expires_at="9999-12-31T23:59:59.999999-23:59"),
    "tables of a number": tables([7]),
    "tables without names": tables([{}]),
    "a table without keys": tables([{"table": "t"}]),
    "a table of a list": tables([{**TABLE, "table": [1]}]),
    "a key of text": tables([{**TABLE, "partition_key": "p"}]),
    "a key of another type": tables([{**TABLE, "partition_key": {"name": "p", "type": "colour"}}]),
    "indexes of a number": tables([{**TABLE, "indexes": 7}]),
    "an index without a key": tables([{**TABLE, "indexes": [{"name": "i"}]}]),
    "an item of text": tables([TABLE], {"table": "t", "item": "x", "version": 1}),
    "an item of another table": tables([TABLE], {"table": "u", "item": {"p": "1"}, "version": 1}),
    "an item without its key": tables([TABLE], {"table": "t", "item": {"q": "1"}, "version": 1}),
}


def test_exports_that_somebody_made_up(cli: Cli, tmp_path: Path) -> None:
    """Each is refused in one line, and the store has no new key."""
    store, long = tmp_path / "s.db", b"x" * 60_000_000
    for name, content in (EXPORTS | {"a long line": HEADER + long, "a long header": long}).items():
        file = tmp_path / "hostile"
        file.write_bytes(content)
        for more in ((), ("--dry-run",)):
            told = refusal(cli("import", file, "--url", store, *more))
            assert len(told) < 2_000, name
        assert cli("list", "-p", "mine", "--url", store).out == "", name


LINES: Final = [
    b"",
    b"\xff",
    b"7\n",
    b"[" * 200_000,
    b"{}\n",
]


def test_records_of_an_audit_and_anchors(cli: Cli, tmp_path: Path) -> None:
    """A file that is neither is refused in one line."""
    cli.did("set", "k", "1", "-p", "mine", "--url", tmp_path / "s.db")
    for content in (*LINES, b"x" * 60_000_000):
        (tmp_path / "hostile").write_bytes(content)
        file = ("--file", tmp_path / "hostile", "--url", tmp_path / "s.db")
        refusal(cli("audit", "verify", "kv/mine", *file))
    for content in (b"\xff", b"7\n", b"[" * 200_000, b"x" * 60_000_000):
        (tmp_path / "hostile").write_bytes(content)
        refusal(cli("audit", "verify", "--anchor", tmp_path / "hostile", "--url", tmp_path / "s.db"))


def hostile_databases(full: Path, folder: Path) -> Iterator[Path]:
    """Files that are no stores, or damaged ones."""
    whole, chance = full.read_bytes(), random.Random(7)
    contents = [b"x", b"\x00" * 4096, os.urandom(50_000), b"SQLite format 3\x00" + os.urandom(8_000)]
    contents += [whole[: len(whole) * part // 7] for part in range(1, 7)]
    for _ in range(12):
        data = bytearray(whole)
        for _ in range(200):
            data[chance.randrange(100, len(data))] = chance.randrange(256)
        contents.append(bytes(data))
    for number, content in enumerate(contents):
        path = folder / f"hostile-{number}.db"
        path.write_bytes(content)
        yield path
    for number, statement in enumerate(
        (
            "DROP TABLE plugin_kv_storage",
            "DROP TABLE holdfast_journal",
            "UPDATE plugin_kv_storage SET value_json = '{'",
            "DELETE FROM holdfast_namespaces",
        )
    ):
        path = folder / f"changed-{number}.db"
        shutil.copy(full, path)
        connection = sqlite3.connect(path)
        connection.execute(statement)
        connection.commit()
        connection.close()
        yield path


def test_files_that_are_no_stores(cli: Cli, tmp_path: Path) -> None:
    """Commands that read a whole store say in words what is wrong with a file, and never more than that."""
    full = tmp_path / "full.db"
    asyncio.run(fill(full))
    for path in hostile_databases(full, tmp_path):
        for words in (
            ("backup", tmp_path / "out", "--force", "--url", path),
            ("diff", full, path),
            ("doctor", "--url", path),
            ("doctor", "--deep", "--url", path),
            ("rescue", tmp_path / "rescued.db", "--url", path),
            ("copy", "--from", path, "--to", tmp_path / "copied.db"),
            ("stats", "--url", path),
            ("get", "k", "-p", "plain", "--url", path),
        ):
            outcome = cli(*words)
            assert "Traceback" not in outcome.err, (path, words)
            for leftover in (*tmp_path.glob("rescued.db*"), *tmp_path.glob("copied.db*")):
                leftover.unlink()


def test_places_that_are_no_files(cli: Cli, kept: Path, tmp_path: Path) -> None:
    """A folder, a loop of links, a pipe and a missing file are errors of one line."""
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing")
    for place in (tmp_path, tmp_path / "loop", tmp_path / "nowhere", "/dev/null"):
        for words in (
            ("import", place, "--url", kept),
            ("restore", place, "--url", kept),
            ("audit", "verify", "--file", place, "--url", kept),
            ("blob", "put", "b", place, "-p", "mine", "--url", kept),
        ):
            if words[0] == "blob" and place == "/dev/null":
                continue
            assert "Traceback" not in (outcome := cli(*words)).err, words
            assert outcome.code != 0, words


def test_settings_and_credentials(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings, contexts, credentials and keys that are none are errors of one line."""
    store = tmp_path / "s.db"
    cli.did("set", "k", "1", "-p", "mine", "--url", store)
    for content in (b"\xff\xfe", b"[" * 200_000, b"{", b"7", b'{"database": 7}', b"\x00" * 100, b"= = ="):
        for name in ("holdfast.toml", "config.json"):
            (tmp_path / name).write_bytes(content)
            outcome = cli("stats", "--config", tmp_path / name)
            assert "Traceback" not in outcome.err
            (tmp_path / name).unlink()
        (tmp_path / "s.db.audit-key").write_bytes(content)
        for words in (("audit", "verify", "--url", store), ("set", "k", "2", "-p", "mine", "--url", store)):
            assert "Traceback" not in cli(*words).err
        (tmp_path / "s.db.audit-key").unlink()


def test_memory_is_bounded(program: Program, tmp_path: Path) -> None:
    """A small file can't make a command need much memory: a bomb is refused in a process with a limit."""
    for name, content in bombs().items():
        (tmp_path / "hostile").write_bytes(content)

        def limited() -> None:
            resource.setrlimit(resource.RLIMIT_DATA, (300_000_000, 300_000_000))

        done = program.run(
            "restore", tmp_path / "hostile", "--yes", "--url", tmp_path / "n.db", preexec_fn=limited
        )
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), (name, done.stderr)
