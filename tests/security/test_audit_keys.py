"""Attacks on the audit by somebody who can write to the database and has a key that leaked and was rotated.

The attacker signs with the leaked key in every form that there is or was, never with the key in force.
A control switches each mend off and must let the attack pass.
"""

from __future__ import annotations

import hmac
import json
import os
import random
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest

import holdfast
from holdfast.audit import chain as audit
from holdfast.audit import keyring, verify
from holdfast.audit.chain import AuditRecord, Head
from tests.unit.audit_ground import RECORDS, Ground, Table, key_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

LEAKED: Final = "the-key-that-has-leaked"
NEW: Final = "the-key-that-came-after-it"
NAMESPACE: Final = "semantic/t/p"
ROTATION: Final = RECORDS + 1
"""The number of the record that binds all before it under the new key."""
ROUNDS: Final = int(os.environ.get("HOLDFAST_ATTACK_ROUNDS", "6"))

OLD_NAME: Final = keyring.Keyring([LEAKED.encode()]).newest()[0]
NEW_NAME: Final = keyring.Keyring([NEW.encode()]).newest()[0]


class Attacker:
    """Somebody with SQL and the leaked key."""

    def __init__(self, table: Table) -> None:
        self.table = table

    async def records(self) -> list[AuditRecord]:
        """All records as they are."""
        rows = await self.table.rows()
        return [holdfast_record(value) for _, value in rows]

    async def replace(self, texts: list[str], head: str, *, after: int) -> None:
        """Have these texts as all records after a number, and this head."""
        await self.table.remove(*range(after + 1, 40))
        for number, text in enumerate(texts, start=after + 1):
            await self.table.copy(1, key_of(number))
            await self.table.write(number, text)
        await self.table.write(0, head)

    async def rewrite(self, *, after: int, count: int, old_form: bool = False, terms: str = "plain") -> None:
        """Have other records after a number, all signed with the leaked key, and a head that fits."""
        kept = (await self.records())[:after]
        previous, texts = kept[-1].signature if kept else "", list[str]()
        for number in range(after + 1, after + count + 1):
            made, text = forged(record(number, previous), old_form=old_form)
            previous = made.signature
            texts.append(text)
        number = after + count
        keys = {"plain": ((OLD_NAME, 1),), "back": ((NEW_NAME, 1), (OLD_NAME, after + 1))}[terms]
        head = Head(
            form=2,
            number=number,
            last=previous,
            version=number,
            audited=True,
            retention=None,
            keys=keys,
            signed_by=OLD_NAME,
        )
        await self.replace(texts, old_head(head) if old_form else sealed_head(head), after=after)


def holdfast_record(text: str) -> AuditRecord:
    """A record out of its text."""
    return msgspec.json.decode(text, type=AuditRecord)


def record(number: int, previous: str, **fields: Any) -> AuditRecord:
    """A record that never was."""
    said: dict[str, Any] = {
        "form": 2,
        "number": number,
        "at": 1_700_000_000_000,
        "writer": "alice",
        "principal": "embedded",
        "op": "set",
        "key": "tenant/t/project/p/k",
        "version_before": number - 1,
        "version": number,
        "purpose": "config",
        "request_id": "r",
        "spec_ref": None,
        "before": None,
        "after": "f" * 64,
        "signed_by": OLD_NAME,
        "previous": previous,
    }
    return AuditRecord(**said | fields)


def forged(unsigned: AuditRecord, *, old_form: bool) -> tuple[AuditRecord, str]:
    """A record signed with the leaked key, in today's form or in that of earlier versions."""
    if not old_form:
        return audit.sealed(NAMESPACE, LEAKED.encode(), unsigned)
    plain = msgspec.structs.replace(unsigned, form=msgspec.UNSET, principal=msgspec.UNSET)
    signature = old_mac(b"holdfast audit record\n", msgspec.json.encode(plain))
    made = msgspec.structs.replace(plain, signature=signature)
    return made, msgspec.json.encode(made).decode()


def sealed_head(head: Head) -> str:
    """A head signed with the leaked key."""
    return audit.sealed(NAMESPACE, LEAKED.encode(), head)[1]


def old_head(head: Head) -> str:
    """The same in the form of earlier versions."""
    said = {
        "number": head.number,
        "last": head.last,
        "floor": 0,
        "anchor": "",
        "signed_by": OLD_NAME,
        "signature": "",
        "version": head.number,
        "audited": True,
        "retention": None,
    }
    text = json.dumps(said, separators=(",", ":")).encode()
    return json.dumps(said | {"signature": old_mac(b"holdfast audit head\n", text)}, separators=(",", ":"))


def old_mac(kind: bytes, text: bytes) -> str:
    """A signature as earlier versions made it."""
    return hmac.digest(
        LEAKED.encode(), kind + b'["' + NAMESPACE.encode() + b'",' + text + b"]", "sha256"
    ).hex()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A storage of this test's own."""
    if request.param == "sqlite":
        return str(tmp_path / "store.db")
    found: str = request.getfixturevalue("pg_store_url")
    return found


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    """The file of the keys, with the one that is to leak."""
    path = tmp_path / "keys"
    path.write_text(f"{LEAKED}\n")
    path.chmod(0o600)
    return path


@pytest.fixture
async def ground(url: str, ring: Path) -> AsyncIterator[Ground]:
    """Six records of the leaked key, the rotation, and two records of the new key; the old one is retired."""
    async with holdfast.open(url, reap=False, audit_key=ring) as store:
        await Ground(store, store.semantic("t", "p"), url).fill()
    with ring.open("a") as file:
        file.write(f"{NEW}\n")
    async with holdfast.open(url, reap=False, audit_key=ring) as store:
        await store.upkeep()
        ground = Ground(store, store.semantic("t", "p"), url)
        for number in range(2):
            await ground.kv.set("k", f"after {number}")
        assert await ground.found() == (None, "whole")
        assert keyring.read_keys(ring) == [f"retired:{LEAKED}".encode(), NEW.encode()]
        yield ground


async def _forge_the_end(attacker: Attacker) -> None:
    await attacker.rewrite(after=9, count=1)


async def _take_the_end_back(attacker: Attacker) -> None:
    await attacker.rewrite(after=9, count=2, terms="back")


async def _rewrite_from_before(attacker: Attacker) -> None:
    await attacker.rewrite(after=3, count=6)


async def _rewrite_in_old_form(attacker: Attacker) -> None:
    await attacker.rewrite(after=0, count=9, old_form=True)


async def _old_form_at_the_end(attacker: Attacker) -> None:
    await attacker.rewrite(after=9, count=1, old_form=True)


async def _rotate_back(attacker: Attacker) -> None:
    """A record of a rotation that leads back to the leaked key, under the genuine head."""
    last = (await attacker.records())[-1]
    _, text = forged(record(10, last.signature, op="rotated", key=NEW_NAME), old_form=False)
    await attacker.table.copy(1, key_of(10))
    await attacker.table.write(10, text)


async def _replace_one_before(attacker: Attacker) -> None:
    """One record of the leaked key's own time, and what follows it up to the rotation."""
    records = await attacker.records()
    for number in range(4, ROTATION):
        made, text = forged(record(number, records[number - 2].signature), old_form=False)
        records[number - 1] = made
        await attacker.table.write(number, text)


ATTACKS: Final[dict[str, Callable[[Attacker], Awaitable[None]]]] = {
    "a record at the end": _forge_the_end,
    "a head that retires the new key": _take_the_end_back,
    "everything from before the rotation on": _rewrite_from_before,
    "everything in the form of earlier versions": _rewrite_in_old_form,
    "an old form at the end": _old_form_at_the_end,
    "a rotation back": _rotate_back,
    "records before the rotation": _replace_one_before,
}


@pytest.mark.parametrize("case", ATTACKS)
async def test_a_retired_key_signs_nothing_new(ground: Ground, case: str) -> None:
    """Whatever the leaked key signs after the rotation is found, at once and after the next writes."""
    await ATTACKS[case](Attacker(ground.table))
    broken_at, reason = await ground.found()
    assert broken_at is not None, reason
    if case == "a rotation back":  # beyond the genuine head: the next record takes its place
        return
    await ground.kv.set("k", "later")
    await ground.store.upkeep()
    await ground.kv.set("k", "still later")
    assert (await ground.found())[0] is not None, "writing on does not make it good"


async def test_a_database_from_before_the_rotation_is_found(url: str, ring: Path) -> None:
    """A database that is put back to before the rotation is found, also by a process that goes on with it."""
    table = Table(url, NAMESPACE)
    async with holdfast.open(url, reap=False, audit_key=ring) as store:
        await Ground(store, store.semantic("t", "p"), url).fill()
    rows, head = await table.rows(), await table.value(0)
    with ring.open("a") as file:
        file.write(f"{NEW}\n")
    async with holdfast.open(url, reap=False, audit_key=ring) as store:
        await store.upkeep()
        ground = Ground(store, store.semantic("t", "p"), url)
        await ground.kv.set("k", "after")
        await table.remove(ROTATION, ROTATION + 1)
        await table.write(0, head)
        assert await table.rows() == rows
        assert await ground.found() == (RECORDS, f"the head is signed with the retired key {OLD_NAME}")
    async with holdfast.open(url, reap=False, audit_key=ring) as store:
        ground = Ground(store, store.semantic("t", "p"), url)
        await store.upkeep()
        await ground.kv.set("k", "later")
        said = "the head had been signed with a retired key when record 7 was written"
        assert await ground.found() == (ROTATION, said)


async def test_a_head_signed_with_an_older_text_key_is_found(url: str) -> None:
    """Where nothing can be marked, a head of an older key is no head of today's form any more."""
    async with holdfast.open(url, reap=False, audit_key=LEAKED) as store:
        await Ground(store, store.semantic("t", "p"), url).fill()
    async with holdfast.open(url, reap=False, audit_key=f"{LEAKED},{NEW}") as store:
        ground = Ground(store, store.semantic("t", "p"), url)
        assert (await ground.found())[1].startswith(
            f"the head is signed with the key {OLD_NAME}, and {NEW_NAME}"
        )
        await store.upkeep()
        assert await ground.found() == (None, "whole")
        await Attacker(ground.table).rewrite(after=3, count=6)
        assert (await ground.found())[1].startswith(f"the head is signed with the key {OLD_NAME}")


async def test_a_rotation_is_a_record(ground: Ground) -> None:
    """It names the retired key, is signed with the new one, and hangs on the last record before it."""
    records = (await ground.audit.log()).records
    rotation, before = records[ROTATION - 1], records[ROTATION - 2]
    assert (rotation.op, rotation.key, rotation.signed_by) == ("rotated", OLD_NAME, NEW_NAME)
    assert (rotation.previous, rotation.writer, rotation.principal) == (
        before.signature,
        "holdfast",
        "holdfast",
    )
    assert [one.signed_by for one in records] == [OLD_NAME] * RECORDS + [NEW_NAME] * 3
    assert (await ground.table.value(0))["keys"] == [[OLD_NAME, 1], [NEW_NAME, ROTATION]]


async def test_a_retired_key_signs_nothing_after_pruning(ground: Ground) -> None:
    """After the rotation was pruned the leaked key still signs nothing."""
    await ground.store.set_policy(NAMESPACE, {"audit_retention": 1})
    await ground.kv.set("k", "kept")
    head = await ground.table.value(0)
    assert [name for name, _ in head["keys"]] == [OLD_NAME, NEW_NAME]
    last = (await Attacker(ground.table).records())[-1]
    _, text = forged(record(last.number + 1, last.signature), old_form=False)
    await ground.table.copy(1, key_of(last.number + 1))
    await ground.table.write(last.number + 1, text)
    assert await ground.found() == (
        last.number + 1,
        f"record {last.number + 1} is signed with the key {OLD_NAME}, which was not in force",
    )


@pytest.mark.parametrize(
    "case", ["everything from before the rotation on", "a head that retires the new key"]
)
async def test_control_without_the_key_range_the_attack_passes(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """With the mend switched off the same attack passes for a whole audit."""
    await ATTACKS[case](Attacker(ground.table))
    assert (await ground.found())[0] is not None
    monkeypatch.setattr(verify, "_out_of_force", lambda keys, head: None)
    monkeypatch.setattr(verify.Chain, "_wrongly_signed", lambda chain, record: None)
    assert await ground.found() == (None, "whole")


SPELLINGS: Final[dict[str, Callable[[str], str]]] = {
    "a field twice": lambda text: text.replace('"writer":', '"writer":"mallory","writer":', 1),
    "a field twice, the last one wrong": lambda text: text.replace(',"op":', ',"writer":"mallory","op":', 1),
    "an unknown field": lambda text: text.replace('"writer":', '"approved":true,"writer":', 1),
    "white space": lambda text: text.replace('"writer":', '"writer": ', 1),
    "an escape": lambda text: text.replace('"alice"', '"\\u0061lice"', 1),
    "another order": lambda text: json.dumps(dict(sorted(json.loads(text).items())), separators=(",", ":")),
    "something behind it": lambda text: text + " ",
    "a number as another": lambda text: text.replace('"number":3', '"number":3.0', 1),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_every_stored_byte_is_signed(ground: Ground, spelling: str) -> None:
    """A record that says the same in other bytes is broken."""
    rows = dict(await ground.table.rows())
    changed = SPELLINGS[spelling](rows[3])
    assert changed != rows[3]
    await ground.table.write(3, changed)
    assert (await ground.found())[0] == 3
    await ground.table.write(3, rows[3])
    assert await ground.found() == (None, "whole")


@pytest.mark.parametrize("spelling", ["a field twice", "an unknown field", "white space"])
def test_not_even_a_signed_record_may_have_a_field_twice(spelling: str) -> None:
    """Who holds the key can't make a record that two readers understand differently."""
    made, text = audit.sealed(NAMESPACE, LEAKED.encode(), record(3, "", signed_by=OLD_NAME))
    assert audit.genuine(NAMESPACE, LEAKED.encode(), made, text)
    body = SPELLINGS[spelling](text)[: -len(made.signature) - len(',"signature":""}')]
    signature = audit._mac(LEAKED.encode(), audit._RECORD, NAMESPACE, body.encode())
    signed = f'{body},"signature":"{signature}"}}'
    try:
        read = holdfast_record(signed)
    except msgspec.ValidationError:
        assert spelling == "an unknown field"
    else:
        assert not audit.genuine(NAMESPACE, LEAKED.encode(), read, signed)


@pytest.mark.parametrize("field", ["approved", "number"])
async def test_every_byte_of_the_head_is_signed(ground: Ground, field: str) -> None:
    """The same holds for the head, which says which key signs what."""
    head = await ground.table.value(0)
    text = json.dumps(head, separators=(",", ":"))
    await ground.table.write(0, text.replace('{"form":2', f'{{"form":2,"{field}":1', 1))
    assert (await ground.found())[0] is not None


async def test_any_change_of_any_byte_is_found(ground: Ground) -> None:
    """A campaign: bytes of records and of the head are changed, put in and taken out at random."""
    seed = int(os.environ.get("HOLDFAST_ATTACK_SEED", "0")) or random.randrange(2**32)
    chance = random.Random(seed)
    rows = dict(await ground.table.rows())
    head = json.dumps(await ground.table.value(0), separators=(",", ":"))
    rows[0] = head
    for _ in range(ROUNDS):
        number = chance.choice(list(rows))
        text, place = rows[number], chance.randrange(len(rows[number]))
        letter = chance.choice('0123456789abcdef",:{}[] \\x')
        changed = chance.choice(
            [text[:place] + letter + text[place + 1 :], text[:place] + letter + text[place:], text[:place]]
        )
        if changed == text:
            continue
        await ground.table.write(number, changed)
        assert (await ground.found())[0] is not None, (seed, number, changed)
        await ground.table.write(number, text)
    assert await ground.found() == (None, "whole"), seed
