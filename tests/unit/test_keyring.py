"""Where the audit's secrets come from, and what happens when one is missing, short or open to others."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast.audit.keyring import NO_KEYS, FileKeyring, Keyring, add_key, parse_keys
from holdfast.clock import ManualClock
from holdfast.engines.memory import MemoryEngine
from holdfast.engines.postgres import PostgresEngine
from holdfast.registry import keyring_for
from holdfast.store import Store
from tests.unit.audit_ground import Table

if TYPE_CHECKING:
    from pathlib import Path

KEY = "a-secret-of-sixteen"
NEWER = "a-newer-secret-of-more"


def test_the_last_secret_signs_and_each_verifies() -> None:
    """Rotating is adding one more."""
    ring = Keyring(parse_keys(f"{KEY}, {NEWER}\n"))
    name, secret = ring.signing()
    assert secret == NEWER.encode()
    assert ring.secret(name) == secret
    old, _ = Keyring(parse_keys(KEY)).signing()
    assert ring.secret(old) == KEY.encode()
    assert ring.secret("unknown") is None
    assert KEY not in old


@pytest.mark.parametrize("text", ["short", f"{KEY},short", "x" * 15])
def test_a_short_secret_is_refused_at_once(text: str) -> None:
    """Whoever configures a secret that could be guessed learns it when the store is opened."""
    with pytest.raises(holdfast.ValidationError, match="at least 16 are needed") as refused:
        holdfast.open("memory://", audit_key=text)
    assert refused.value.field == "audit_key"
    assert text not in refused.value.message


async def test_a_key_is_made_beside_a_file_when_it_is_first_needed(tmp_path: Path) -> None:
    """A store that audits nothing has no key file; the first record makes one that only its owner reads."""
    path = tmp_path / "store.db.audit-key"
    async with holdfast.open(tmp_path / "store.db", reap=False) as store:
        await store.kv("p").set("k", 1)
        assert (await store.audit("kv/p").verify()).whole
        assert not path.exists()
        await store.semantic("t", "p").set("k", 1)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        made = path.read_text(encoding="ascii")
        assert len(made.split()) == 1
        assert len(made.strip()) == 64
    async with holdfast.open(tmp_path / "store.db", reap=False) as store:
        await store.semantic("t", "p").set("k", 2)
        assert (await store.audit("semantic/t/p").verify()).records == 2
    assert path.read_text(encoding="ascii") == made
    assert [name for name in os.listdir(tmp_path) if "audit" in name] == [path.name]


def test_a_key_that_others_can_read_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The operator is told, and the audit goes on."""
    path = tmp_path / "key"
    path.write_text(KEY, encoding="ascii")
    path.chmod(0o640)
    with caplog.at_level(logging.WARNING, "holdfast"):
        assert FileKeyring(path).signing()[1] == KEY.encode()
    assert "is readable by others; run chmod 600 on it" in caplog.text
    assert KEY not in caplog.text


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"short", "at least 16 are needed"),
        (b"\xff" * 20, "it is no text"),
        (None, "no such file or directory"),
    ],
)
async def test_a_key_file_that_is_no_use_stops_what_is_audited_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes | None, says: str
) -> None:
    """Nothing audited is written without a key; the caller is not told where the file is, the log is."""
    path = tmp_path / "configured"
    if content is not None:
        path.write_bytes(content)
        path.chmod(0o600)
    async with holdfast.open("memory://", audit_key=path, reap=False) as store:
        with pytest.raises(holdfast.Unavailable, match=says) as refused:
            await store.semantic("t", "p").set("k", 1)
        assert str(path) not in refused.value.message
        assert str(path) in caplog.text
        assert await store.semantic("t", "p").get("k") is None
        await store.kv("p").set("k", 1)
        path.write_text(KEY, encoding="ascii")
        path.chmod(0o600)
        await store.semantic("t", "p").set("k", 1)


def test_a_key_file_that_can_t_be_opened_is_unavailable(tmp_path: Path) -> None:
    """The error is one that may pass, and says what is wrong."""
    with pytest.raises(holdfast.Unavailable, match="key file can't be used: is a directory"):
        FileKeyring(tmp_path).signing()


def test_a_configured_file_is_never_made(tmp_path: Path) -> None:
    """A misspelt path does not become a second key that other instances don't have."""
    ring = keyring_for(tmp_path / "misspelt")
    assert ring is not None
    with pytest.raises(holdfast.Unavailable):
        ring.signing()
    assert ring.secret("any") is None
    assert list(tmp_path.iterdir()) == []


def test_a_file_without_a_secret_is_told_of(tmp_path: Path) -> None:
    """An empty file is no key."""
    path = tmp_path / "key"
    path.touch(mode=0o600)
    with pytest.raises(holdfast.Unsupported, match=r"no key: .* pass audit_key to holdfast\.open"):
        FileKeyring(path).signing()


@pytest.mark.parametrize("content", [KEY, f"{KEY}\n", f"{KEY}\n\n"])
def test_adding_a_key_keeps_the_old_ones(tmp_path: Path, content: str) -> None:
    """However the file ends, the secrets in it stay what they were, and the new one signs."""
    path = tmp_path / "key"
    path.write_text(content, encoding="ascii")
    path.chmod(0o600)
    old, _ = FileKeyring(path).signing()
    name = add_key(path)
    ring = FileKeyring(path)
    assert ring.signing()[0] == name
    assert ring.secret(old) == KEY.encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["key"]


def test_adding_to_no_file_makes_one(tmp_path: Path) -> None:
    """The first key of a configured file is made the same way."""
    name = add_key(tmp_path / "key")
    assert FileKeyring(tmp_path / "key").signing()[0] == name


async def test_postgresql_has_no_key_unless_it_is_given_one(pg_store_url: str) -> None:
    """Without a key nothing audited is written, the refusal says what to set, and the rest works."""
    async with holdfast.open(pg_store_url, reap=False) as store:
        for attempt in (
            store.semantic("t", "p").set("k", 1),
            store.set_policy("kv/p", {"audit": True}),
            store.set_policy("semantic/t/p", {"audit": False}),
        ):
            with pytest.raises(holdfast.Unsupported, match="set audit_key or audit_key_file"):
                await attempt
        assert await store.semantic("t", "p").get("k") is None
        assert await store.policy("kv/p") == holdfast.Policy()
        assert (await store.semantic("t", "p").changes()).changes == []
        await store.kv("p").set("k", 1)
        assert (await store.stats("kv/p")).keys == 1


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
@pytest.mark.parametrize("given", ["another-secret-of-tests", "nowhere"])
async def test_a_second_key_does_not_begin_a_second_audit(
    tmp_path: Path, pg_store_url: str, engine: str, given: str
) -> None:
    """A store keeps the name of its key: another one, or none, signs nothing, also in a new namespace."""
    url = pg_store_url if engine == "postgresql" else str(tmp_path / "store.db")
    async with holdfast.open(url, reap=False, audit_key=KEY) as store:
        await store.semantic("t", "p").set("k", 1)
    name, _ = Keyring(parse_keys(KEY)).signing()
    wrong = tmp_path / given if given == "nowhere" else given
    async with holdfast.open(url, reap=False, audit_key=wrong) as store:
        for project in ("p", "never-written"):
            with pytest.raises(holdfast.Unsupported, match=f"signed with the key {name}, but ") as refused:
                await store.semantic("t", project).set("k", 2)
            assert (str(wrong) if given == "nowhere" else "audit_key") in refused.value.message
        trouble = await store.key_trouble()
        assert (trouble is not None, str(trouble)) == (True, str(refused.value))
        await store.kv("p").set("k", 1)
        assert "nowhere" not in os.listdir(tmp_path)
    async with holdfast.open(url, reap=False, audit_key=KEY) as store:
        assert await store.key_trouble() is None
        await store.semantic("t", "never-written").set("k", 2)
        assert (await store.audit("semantic/t/p").verify()).records == 1


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
async def test_a_store_that_does_not_keep_its_key_yet(tmp_path: Path, pg_store_url: str, engine: str) -> None:
    """A store that an earlier version signed is asked through the heads of its audits, and keeps it then."""
    url = pg_store_url if engine == "postgresql" else str(tmp_path / "store.db")
    async with holdfast.open(url, reap=False, audit_key=KEY) as store:
        await store.semantic("t", "p").set("k", 1)
        await store.semantic("t", "q").set("k", 1)
    table = Table(url, "semantic/t/p")
    await table.run("DELETE FROM holdfast_meta WHERE name = 'audit_key'")
    await table.write(0, "no head")
    async with holdfast.open(url, reap=False, audit_key=NEWER) as store:
        with pytest.raises(holdfast.Unsupported, match="has no key with that fingerprint"):
            await store.semantic("t", "never-written").set("k", 1)
    assert await table.run("SELECT value FROM holdfast_meta WHERE name = 'audit_key'") == []
    async with holdfast.open(url, reap=False, audit_key=f"{KEY},{NEWER}") as store:
        await store.semantic("t", "never-written").set("k", 1)
    names = [Keyring(parse_keys(one)).signing()[0] for one in (KEY, NEWER)]
    [(kept,)] = await table.run("SELECT value FROM holdfast_meta WHERE name = 'audit_key'")
    assert kept.split() == names


async def test_two_services_that_need_their_first_key_at_once(tmp_path: Path, pg_store_url: str) -> None:
    """Of two that make a key each, the store keeps one, and the other signs nothing."""
    rings = [FileKeyring(tmp_path / name / "key", make=True) for name in ("one", "two")]
    async with (
        Store(PostgresEngine(pg_store_url, keys=rings[0]), reap=False) as one,
        Store(PostgresEngine(pg_store_url, keys=rings[1]), reap=False) as two,
    ):
        done = await asyncio.gather(
            *(store.semantic("t", f"p{n}").set("k", 1) for n in range(4) for store in (one, two)),
            return_exceptions=True,
        )
        refused = [isinstance(result, holdfast.Unsupported) for result in done]
        assert refused in ([False, True] * 4, [True, False] * 4)
        winner = one if refused[1] else two
        for number in range(4):
            assert (await winner.audit(f"semantic/t/p{number}").verify()).records == 1


async def test_hashes_are_keyed() -> None:
    """Who does not have the key can't find out by trying whether a value was a certain one."""
    found = set()
    for key in (KEY, NEWER):
        async with holdfast.open("memory://", audit_key=key, reap=False) as store:
            await store.semantic("t", "p").set("k", True)
            [record] = (await store.audit("semantic/t/p").log()).records
            found.add(record.after)
    assert len(found) == 2
    assert sha256(b"true").hexdigest() not in found


async def test_audit_without_its_key_does_not_stop_other_sweeps() -> None:
    """An audited entry stays until its expiry can be recorded; expired entries of other namespaces are
    removed.
    """
    engine, clock = MemoryEngine(Keyring(parse_keys(KEY))), ManualClock()
    async with Store(engine, clock=clock, reap=False) as store:
        await store.semantic("t", "p").set("k", 1, ttl=1)
        await store.kv("p").set("k", 1, ttl=1)
        engine.keys = NO_KEYS
        clock.advance(1)
        with pytest.raises(holdfast.Unsupported, match="but audit_key has no key with that fingerprint"):
            await store.sweep()
        assert [change.op for change in await store.kv("p").history("k")] == ["expired", "set"]
        assert [change.op for change in await store.semantic("t", "p").history("k")] == ["set"]
        assert await store.semantic("t", "p").get("k") is None
        engine.keys = Keyring(parse_keys(KEY))
        assert await store.sweep() == 1


@pytest.mark.parametrize("links", [True, False])
def test_two_processes_that_make_a_key_agree_on_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, links: bool
) -> None:
    """If two processes create a store together, the key of the first stays: it may have signed already."""
    if not links:

        def refuse(*_: object) -> None:
            raise PermissionError(1, "no links here")

        monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "store.db.audit-key"
    first, second = FileKeyring(path, make=True), FileKeyring(path, make=True)
    told: list[str] = []
    first.tell = second.tell = told.append
    name = first.choose([])
    if links:
        second._make()  # it did not see the file of the first
    assert second.choose([]) == name
    assert len(told) == 1
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
