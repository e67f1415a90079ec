"""Dead letters in the pure heart: what they come to is counted exactly, and no missing key loses one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

import holdfast
from holdfast import rules
from holdfast.audit.keyring import NO_KEYS, Keyring
from holdfast.commands import Deleted, LetterStored
from holdfast.decide import Loaded, decide, needs
from holdfast.decide.letters import letter_address
from holdfast.declare import DECLARED
from holdfast.errors import QuotaExceeded, Unavailable, Unsupported, ValueTooLarge
from holdfast.verbs.caller import id_maker
from tests.verbs import Verbs

if TYPE_CHECKING:
    from holdfast.audit.chain import SigningKeys
    from holdfast.commands import Command
    from holdfast.letter_commands import Escalate

NAME = "kv/a"
VERBS = Verbs(NAME, writer="w", new_id=id_maker(), now=lambda: 0)


class Away:
    """Keys in a file that can't be read."""

    def signing(self) -> tuple[str, bytes]:
        """Fail."""
        raise Unavailable("the key file can't be used")

    def secret(self, name: str) -> bytes | None:
        """None."""

    def newest(self) -> tuple[str, bytes]:
        """Fail."""
        return self.signing()

    def retired(self, name: str) -> bool:
        """None is."""
        return False

    def confirm(self) -> None:
        """Fail."""
        self.signing()

    def unknown(self, name: str) -> Unsupported:
        """As any other."""
        return NO_KEYS.unknown(name)


class World:
    """Keeps what is decided, and loads no more than was asked for."""

    def __init__(self, keys: SigningKeys = NO_KEYS) -> None:
        self.kept = Loaded(namespaces={}, rows={})
        self.keys = keys
        self.told: list[Any] = []

    def apply(self, *commands: Command) -> list[Any]:
        """Decide on a group."""
        wanted = needs(commands)
        rows = {address: row for address, row in self.kept.rows.items() if address in wanted.rows}
        outcome = decide(Loaded(self.kept.namespaces, rows), commands, 1_000, self.keys)
        self.kept.namespaces.update({one.name: one for one in outcome.namespaces})
        for address, row in outcome.rows.items():
            if row is None:
                del self.kept.rows[address]
            else:
                self.kept.rows[address] = row
        self.told += [msgspec.json.decode(record.detail or "{}") for record in outcome.journal]
        return cast("list[Any]", outcome.results)

    @property
    def sum(self) -> Any:
        """What the letters come to, as it is kept."""
        return msgspec.json.decode(self.kept.rows[letter_address(NAME, 0)].value or "")

    @property
    def letters(self) -> list[int]:
        """What is there: the sizes of the letters, with what counts for each."""
        return [row.size + 256 for address, row in self.kept.rows.items() if address.key]


def letter(value: object = 1) -> Escalate:
    """A set that was given up."""
    command = VERBS.set("k", value, request_id="r")
    return VERBS.escalate(command, error_code="BUSY", message="later", attempts=5)


def test_total_size_matches_the_letters() -> None:
    """Whatever letters come and go, alone or in one group, the total is that of the letters that are
    there.
    """
    world = World()
    for group in (
        [letter()],
        [letter("x" * 999), letter(), VERBS.drop_letter(1)],
        [VERBS.drop_letter(1), VERBS.drop_letter(77)],
        [VERBS.drop_letter(2), letter(None)],
    ):
        world.apply(*group)
        assert world.sum == {"count": len(world.letters), "bytes": sum(world.letters)}
    assert len(world.letters) == 2


def test_the_bound_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """The letter that fills the bound is kept, the next is refused and leaves no trace."""
    world = World()
    world.apply(letter())
    monkeypatch.setattr(rules, "MAX_LETTERS_BYTES", 2 * world.sum["bytes"])
    kept, refused, dropped, again = world.apply(letter(), letter(), VERBS.drop_letter(1), letter())
    assert (kept, dropped, again) == (LetterStored(2), Deleted(3), LetterStored(4))
    assert type(refused) is QuotaExceeded
    assert len(world.told) == len(world.letters) + 1 == 3


def test_the_hash_is_keyed() -> None:
    """A value has one hash under one key, another under another, and none without a key."""
    hashes: list[Any] = []
    for keys in (Keyring([b"a" * 16]), Keyring([b"b" * 16]), NO_KEYS, Away()):
        world = World(keys)
        world.apply(letter("secret"), letter("secret"), letter("other"))
        one, two, three = (told.get("value_hash") for told in world.told)
        assert one == two
        assert one is None or one != three
        assert len(world.letters) == 3
        hashes.append(one)
    assert hashes[2:] == [None, None]
    assert len({*hashes[:2], None}) == 3


async def test_a_letter_stays_until_all_its_writes_are_done() -> None:
    """A retry does what was refused, and nothing twice. While a write is refused, the letter stays."""
    async with holdfast.open("memory://", reap=False) as store:
        kv, letters = store.kv("a"), store.letters(NAME)
        items = [{"key": "k", "value": 1}, {"key": "large", "value": "x" * 70_000}, {"key": "l", "value": 2}]
        made, _ = DECLARED["set_many"].call(kv.verbs, items=items, request_id="r")
        kept = await store.pipeline.call(
            kv.verbs.escalate(made, error_code="BUSY", message="too many waited", attempts=5)
        )
        assert isinstance(kept, LetterStored)
        for _ in range(2):
            with pytest.raises(ValueTooLarge):
                await letters.retry(kept.number)
        assert await letters.get(kept.number) is not None
        before = await kv.get("k")
        await store.set_policy(NAME, {"max_value_bytes": 100_000})
        await letters.retry(kept.number)
        assert (await letters.get(kept.number), await kv.get("k")) == (None, before)
        assert (await kv.list()).keys == ["k", "l", "large"]
