"""Attacks on what an audit is about: entries that SQL has changed, and a store that was put back.

The audit itself stays whole, as it does for somebody who can write to the database and has no key. So
only `verify --values` and `verify --anchor` can tell. A control switches each of them off, and must let the
attack pass.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pytest

import holdfast
from holdfast.operators import audit
from holdfast.testing import AUDIT_KEY
from tests.unit.audit_ground import Table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

ROUNDS: Final = int(os.environ.get("HOLDFAST_ATTACK_ROUNDS", "6"))
KEYS: Final = 6
VERSIONS: Final = 3
"""How many entries there are, and how many times each was set."""
Row: TypeAlias = tuple[Any, ...]


class Entries:
    """The entries of an audited project, and their rows as somebody with SQL sees them."""

    def __init__(self, store: holdfast.Store, url: str) -> None:
        self.kv = store.semantic("t", "p")
        self.audit = store.audit(self.kv.namespace)
        self.table = Table(url, self.kv.namespace)
        self.keys = [f"tenant/t/project/p/k{number}" for number in range(KEYS)]
        self.past: dict[str, list[Row]] = {key: [] for key in self.keys}
        """The rows that each key has had, the last one included."""

    async def fill(self) -> None:
        """Set every entry several times."""
        for version in range(VERSIONS):
            for key in self.keys:
                await self.kv.set(key, {"key": key, "version": version})
                self.past[key].append(await self.row(key))

    async def row(self, key: str) -> Row:
        """The row of a key, with all columns."""
        [row] = await self.table.run("SELECT * FROM plugin_kv_storage WHERE key = ?", key)
        return row

    async def put(self, key: str, row: Row) -> None:
        """Have a row at a key, in place of what is there."""
        await self.table.run("DELETE FROM plugin_kv_storage WHERE key = ?", key)
        marks = ", ".join("?" * len(row))
        await self.table.run(f"INSERT INTO plugin_kv_storage VALUES ({marks})", *row)

    async def update(self, key: str, column: str, value: Any) -> None:
        """Change one column of a key, and put back the version that the change was given."""
        [(version,)] = await self.table.run("SELECT version FROM plugin_kv_storage WHERE key = ?", key)
        await self.table.run(f"UPDATE plugin_kv_storage SET {column} = ? WHERE key = ?", value, key)
        if column == "value_json":
            await self.table.run("UPDATE plugin_kv_storage SET version = ? WHERE key = ?", version, key)

    async def found(self) -> dict[str, str]:
        """What `verify --values` says was done to which key."""
        return {one.key: one.what for one in (await self.audit.verify_values()).found}


Attack: TypeAlias = "Callable[[Entries, str, random.Random], Awaitable[dict[str, str]]]"


async def _another_value(entries: Entries, key: str, chance: random.Random) -> dict[str, str]:
    await entries.update(key, "value_json", f"{chance.randrange(10**9)}")
    return {key: "changed"}


async def _another_spelling(entries: Entries, key: str, chance: random.Random) -> dict[str, str]:
    [(text,)] = await entries.table.run("SELECT value_json FROM plugin_kv_storage WHERE key = ?", key)
    place = chance.choice([at for at, letter in enumerate(text) if letter in "{:,"]) + 1
    await entries.update(key, "value_json", f"{text[:place]} {text[place:]}")
    return {key: "changed"}


async def _value_of_another(entries: Entries, key: str, chance: random.Random) -> dict[str, str]:
    other = chance.choice([one for one in entries.keys if one != key])
    [(text,)] = await entries.table.run("SELECT value_json FROM plugin_kv_storage WHERE key = ?", other)
    await entries.update(key, "value_json", text)
    return {key: "changed"}


async def _as_it_was(entries: Entries, key: str, chance: random.Random) -> dict[str, str]:
    """A whole row of the past, which an earlier record vouches for."""
    await entries.put(key, chance.choice(entries.past[key][:-1]))
    return {key: "changed"}


async def _another_version(entries: Entries, key: str, chance: random.Random) -> dict[str, str]:
    await entries.update(key, "version", chance.randrange(1, 10**6))
    return {key: "changed"}


async def _removed(entries: Entries, key: str, chance: random.Random) -> dict[str, str]:
    await entries.table.run("DELETE FROM plugin_kv_storage WHERE key = ?", key)
    return {key: "deleted"}


async def _renamed(entries: Entries, key: str, chance: random.Random) -> dict[str, str]:
    new = f"{key}-{chance.randrange(10**6)}"
    await entries.update(key, "key", new)
    return {key: "deleted", new: "inserted"}


ATTACKS: Final[dict[str, Attack]] = {
    "another value": _another_value,
    "another spelling of the value": _another_spelling,
    "the value of another entry": _value_of_another,
    "the entry as it was once": _as_it_was,
    "another version": _another_version,
    "no entry": _removed,
    "another key": _renamed,
}


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A storage of this test's own."""
    if request.param == "sqlite":
        return str(tmp_path / "store.db")
    found: str = request.getfixturevalue("pg_store_url")
    return found


@pytest.fixture
async def entries(url: str) -> AsyncIterator[Entries]:
    """Entries that are as their last records say."""
    async with holdfast.open(url, reap=False, audit_key=AUDIT_KEY) as store:
        filled = Entries(store, url)
        await filled.fill()
        assert await filled.found() == {}
        yield filled


async def test_every_change_of_an_entry_with_sql_is_found(entries: Entries) -> None:
    """A campaign: entries are changed behind the store's back in every way, and all of it is told by key."""
    seed = int(os.environ.get("HOLDFAST_ATTACK_SEED", "0")) or random.randrange(2**32)
    chance = random.Random(seed)
    missed = 0
    for turn in range(max(ROUNDS, len(ATTACKS))):
        name, key = [*ATTACKS][turn % len(ATTACKS)], chance.choice(entries.keys)
        expected = await ATTACKS[name](entries, key, chance)
        assert await entries.found() == expected, (seed, turn, name)
        assert (await entries.audit.verify()).whole, "the audit itself tells nothing of it"
        for changed in expected:
            await entries.table.run("DELETE FROM plugin_kv_storage WHERE key = ?", changed)
        await entries.put(key, entries.past[key][-1])
        missed += await entries.found() != {}
    assert missed == 0, seed
    print(f"\n{max(ROUNDS, len(ATTACKS))} changes of entries by SQL, all found, no false alarm")


@pytest.mark.parametrize("name", ["another value", "the value of another entry"])
async def test_control_without_hashes_a_changed_value_passes(
    entries: Entries, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """If hashes are not compared, a value that SQL has changed passes."""
    key, chance = entries.keys[0], random.Random(1)
    assert await ATTACKS[name](entries, key, chance) == {key: "changed"}
    assert await entries.found() == {key: "changed"}
    monkeypatch.setattr(audit, "same", lambda one, other: True)
    assert await entries.found() == {}


async def test_anchors_find_a_database_that_was_put_back(url: str) -> None:
    """A campaign: a database as it was earlier is whole by itself, and its anchors tell that it is not."""
    seed = int(os.environ.get("HOLDFAST_ATTACK_SEED", "0")) or random.randrange(2**32)
    chance = random.Random(seed)
    rounds = max(2, ROUNDS // 25)
    for turn in range(rounds):
        async with holdfast.open(url, reap=False, audit_key=AUDIT_KEY) as store:
            entries = Entries(store, url)
            await entries.kv.set("k", f"kept in {turn}")
            image = await _image(entries.table)
            anchors = []
            for number in range(chance.randrange(1, 5)):
                await entries.kv.set("k", f"lost {number} in {turn}")
                anchors.append((await entries.audit.verify()).head)
        await _put_back(entries.table, image)
        async with holdfast.open(url, reap=False, audit_key=AUDIT_KEY) as store:
            audit = store.audit(entries.kv.namespace)
            assert (await audit.verify()).whole, "control: without an anchor it is a whole audit"
            assert (await audit.verify_values()).whole, "and its values fit"
            for anchor in anchors:
                assert not (await audit.verify(heads=[anchor])).whole, (seed, turn, anchor)
            for number in range(len(anchors)):
                await store.semantic("t", "p").set("k", f"instead {number} in {turn}")
            found = [(await audit.verify(heads=[anchor])).whole for anchor in anchors]
            assert found == [False] * len(anchors), (seed, turn, "writing on does not make it good")
    print(f"\n{rounds} stores put back, all found by their anchors")


TABLES: Final = ("holdfast_rows", "holdfast_namespaces", "holdfast_journal", "plugin_kv_storage")
"""What a database holds of a store, but for what only upkeep looks at."""


async def _image(table: Table) -> dict[str, list[Row]]:
    return {name: await table.run(f"SELECT * FROM {name}") for name in TABLES}


async def _put_back(table: Table, image: dict[str, list[Row]]) -> None:
    for name, rows in image.items():
        await table.run(f"DELETE FROM {name}")
        for row in rows:
            await table.run(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", *row)
