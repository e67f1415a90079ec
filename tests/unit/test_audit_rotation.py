"""How audits go over to a new key: by themselves, on several instances, and from the form of old versions."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.audit.keyring import FileKeyring, Keyring, add_key
from holdfast.commands import Removed
from holdfast.operators import audit as auditing
from holdfast.pipeline.audits import bind_keys
from holdfast.testing import AUDIT_KEY
from holdfast.upkeep import reaper
from holdfast.upkeep_commands import BindKey
from tests.unit.audit_ground import RECORDS, Ground, Table
from tests.unit.test_audit_outside import OLD

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

NEW = "the-newer-key-of-tests"
NAMES = [Keyring([key.encode()]).newest()[0] for key in (AUDIT_KEY, NEW)]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A storage of this test's own."""
    if request.param == "sqlite":
        return str(tmp_path / "store.db")
    found: str = request.getfixturevalue("pg_store_url")
    return found


async def filled(url: str, key: str | Path = AUDIT_KEY) -> None:
    """Make six records."""
    async with holdfast.open(url, reap=False, audit_key=key) as store:
        await Ground(store, store.semantic("t", "p"), url).fill()


async def test_a_key_that_was_retired_does_not_come_back(url: str) -> None:
    """An instance whose newest key is one that the audit has retired goes on with the one that followed."""
    await filled(url)
    async with holdfast.open(url, reap=False, audit_key=f"{AUDIT_KEY},{NEW}") as store:
        assert (await store.bind_keys(), await store.bind_keys()) == (1, 0)
    async with holdfast.open(url, reap=False, audit_key=f"{NEW},{AUDIT_KEY}") as store:
        await store.semantic("t", "p").set("k", "signed with the newer one")
        assert await store.bind_keys() == 0
    async with holdfast.open(url, reap=False, audit_key=f"{AUDIT_KEY},{NEW}") as store:
        ground = Ground(store, store.semantic("t", "p"), url)
        assert await ground.found() == (None, "whole")
        found = [record.signed_by for record in (await ground.audit.log()).records]
        assert found == [NAMES[0]] * RECORDS + [NAMES[1]] * 2


async def test_first_write_switches_to_the_new_key(url: str) -> None:
    """Who has no upkeep goes over with the next record, and a policy that is set is no exception."""
    await filled(url)
    async with holdfast.open(url, reap=False, audit_key=f"{AUDIT_KEY},{NEW}") as store:
        await store.set_policy("semantic/t/p", {"audit_retention": 10**6})
        ground = Ground(store, store.semantic("t", "p"), url)
        assert [one.op for one in (await ground.audit.log(after=6)).records] == ["rotated", "policy"]
        assert await ground.found() == (None, "whole")


async def test_audit_of_an_older_version_switches_to_the_new_key(url: str) -> None:
    """Old records verify in their old form, and the new key binds them; no old form is taken behind that."""
    async with holdfast.open(url, reap=False, audit_key=AUDIT_KEY) as store:
        old = Ground(store, store.kv("old"), url)
        await store.set_policy(old.name, {"audit": True})
        await old.kv.set("k", 1)
        await old.kv.delete("k")
        for number, value in enumerate(OLD):
            await old.table.write(number, value)
    async with holdfast.open(url, reap=False, audit_key=f"{AUDIT_KEY},{NEW}") as store:
        old = Ground(store, store.kv("old"), url)
        assert await old.found() == (None, "whole"), "what an earlier version wrote still verifies"
        assert await store.bind_keys() == 1
        assert await old.found() == (None, "whole")
        await old.kv.set("k", "goes on")
        head = await old.table.value(0)
        assert (head["keys"], head["audited"]) == ([[NAMES[0], 4], [NAMES[1], 4]], True)
        forms = [one.form for one in (await old.audit.log()).records]
        assert forms == [None, None, None, 2, 2]
        await old.table.write(5, OLD[3])
        assert (await old.found())[0] == 5


async def test_broken_audit_does_not_switch_keys(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """The newest key vouches for nothing that it finds broken, and no key is retired until all went over."""
    await filled(url)
    table = Table(url, "semantic/t/p")
    await table.edit(0, lambda head: head.update(number=3))
    async with holdfast.open(url, reap=False, audit_key=f"{AUDIT_KEY},{NEW}") as store:
        assert await store.bind_keys() == 0
        assert await store.pipeline.call(BindKey(namespace="semantic/t/none")) == Removed(0)
        await table.write(0, "no head")
        assert await store.bind_keys() == 0
    async with holdfast.open(url, reap=False) as store:
        await table.remove(0)
        assert await store.bind_keys() == 0


async def test_a_key_is_not_retired_before_every_audit_went_over(url: str, tmp_path: Path) -> None:
    """While one audit is broken, the key that signed it stays as it is, although the others went over."""
    ring = tmp_path / "keys"
    add_key(ring)
    await filled(url, ring)
    async with holdfast.open(url, reap=False, audit_key=ring) as store:
        await store.semantic("t", "whole").set("k", 1)
        await Table(url, "semantic/t/p").edit(0, lambda head: head.update(number=3))
        add_key(ring)
        assert await store.bind_keys() == 1
        assert "retired" not in ring.read_text()


async def test_a_running_service_takes_a_key_that_was_added(url: str, tmp_path: Path) -> None:
    """With its next upkeep, without a restart, and the old key is marked in the file."""
    ring = tmp_path / "keys"
    add_key(ring)
    await filled(url, ring)
    async with holdfast.open(url, reap=False, audit_key=ring) as store:
        await store.semantic("t", "p").set("k", "old")
        name = add_key(ring)
        await store.semantic("t", "p").set("k", "still old")
        await store.upkeep()
        await store.semantic("t", "p").set("k", "new")
        ground = Ground(store, store.semantic("t", "p"), url)
        assert [one.op for one in (await ground.audit.log(after=8)).records] == ["rotated", "set"]
        assert await ground.found() == (None, "whole")
    again = FileKeyring(ring)
    assert again.newest()[0] == name
    assert [line.startswith("retired:") for line in ring.read_text().splitlines()] == [True, False]


async def test_a_rotation_while_it_is_verified_is_no_break(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An audit that goes over to a new key after its head was read is not taken for a forged one."""
    ring = tmp_path / "keys"
    add_key(ring)
    await filled(url, ring)
    original = auditing.Audit._scan
    rotated = False
    async with holdfast.open(url, reap=False, audit_key=ring) as store:

        async def rotate_first(audit: auditing.Audit, after: int, limit: int) -> Any:
            nonlocal rotated
            if not rotated:
                rotated = True
                add_key(ring)
                await store.upkeep()
            return await original(audit, after, limit)

        monkeypatch.setattr(auditing.Audit, "_scan", rotate_first)
        verdict = await store.audit("semantic/t/p").verify()
        assert (verdict.reason, verdict.records, rotated) == (None, RECORDS + 1, True)


async def test_an_instance_learns_of_a_key_from_its_file(pg_store_url: str, tmp_path: Path) -> None:
    """A second instance that still has the old key in memory finds the new one where it was copied to."""
    ring = tmp_path / "keys"
    add_key(ring)
    async with (
        holdfast.open(pg_store_url, reap=False, audit_key=ring) as one,
        holdfast.open(pg_store_url, reap=False, audit_key=ring) as two,
    ):
        await two.semantic("t", "p").set("k", 1)
        await one.semantic("t", "p").set("k", 2)
        add_key(ring)
        await one.upkeep()
        await two.semantic("t", "p").set("k", 3)
        await two.semantic("t", "never-written").set("k", 1)
        for name in ("p", "never-written"):
            assert (await one.audit(f"semantic/t/{name}").verify()).whole, name


async def test_upkeep_logs_a_missing_key(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Where the audits can't go over, because there is no key at all, every upkeep says so."""
    await filled(url)
    async with holdfast.open(url, reap=False, audit_key="retired:" + AUDIT_KEY) as store:
        with caplog.at_level(logging.ERROR, "holdfast.reaper"):
            await store.upkeep()
    assert "switching the audits to the newest key failed" in caplog.text


def _then(call: Callable[..., Awaitable[int]], done: asyncio.Event) -> Callable[..., Awaitable[int]]:
    """The call, with an event that is set at its end."""

    async def called(*given: Any) -> int:
        try:
            return await call(*given)
        finally:
            done.set()

    return called


async def test_store_without_its_key_opens_without_a_warning(
    url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening logs nothing above DEBUG, also without the key: a program may never write what is audited."""
    await filled(url)
    caplog.set_level(logging.DEBUG, "holdfast")
    tried = asyncio.Event()
    monkeypatch.setattr(reaper, "bind_keys", _then(bind_keys, tried))
    async with holdfast.open(url, audit_key="retired:" + AUDIT_KEY), asyncio.timeout(60):
        await tried.wait()
    assert "switching the audits to the newest key failed" in caplog.text
    assert [record.getMessage() for record in caplog.records if record.levelno > logging.DEBUG] == []


async def test_sweep_for_a_quota_is_signed(url: str) -> None:
    """What a sweep for a quota records is signed too, also if nothing was signed before it."""
    from holdfast.clock import ManualClock

    clock = ManualClock()
    async with holdfast.open(url, clock=clock, reap=False, audit_key=AUDIT_KEY) as store:
        await store.set_policy("kv/p", {"audit": True, "quota_keys": 1})
        await store.kv("p").set("old", 1, ttl=1)
    clock.advance(5)
    async with holdfast.open(url, clock=clock, reap=False, audit_key=AUDIT_KEY) as store:
        await store.kv("p").set("new", 1)
        assert (await store.audit("kv/p").verify()).records == 4
