"""The PostgreSQL engine and the reference engine, given the same commands, say the same.

Whatever can be seen through the protocol is compared after every group; nothing is known here of what is
right, only that both must agree.
"""

from __future__ import annotations

import os
import random
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest

from holdfast.audit.chain import AUDIT
from holdfast.audit.keyring import Keyring
from holdfast.commands import Command, Get
from holdfast.engine import JournalQuery, Scan, successor
from holdfast.engines.memory import MemoryEngine
from holdfast.engines.postgres import PostgresEngine
from holdfast.errors import HoldfastError, VersionConflict
from holdfast.model import KEEP
from holdfast.rows import GUARD, KV, REQUEST, TRASH, Address
from holdfast.testing import AUDIT_KEY
from holdfast.upkeep_commands import Expire, ExpireRun, Trim
from holdfast.verbs.caller import id_maker
from tests.verbs import Verbs

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.engine import Engine

SOAK: Final = os.environ.get("HOLDFAST_SOAK") == "1"
NAMESPACES: Final = {"kv/a": None, "kv/b": None, "semantic/t/p": "tenant/t/project/p/"}
KEYS: Final = ("a", "a.b", "ab", "b", "game.1", "game.2", "z")
SPACES: Final = (KV, TRASH, GUARD, REQUEST, AUDIT)


class Play:
    """Makes commands up. The same seed makes the same ones."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        new_id = id_maker()
        self._verbs = {
            name: Verbs(name, writer="tester", new_id=new_id, now=lambda: 0, root=root)
            for name, root in NAMESPACES.items()
        }

    def group(self) -> list[Command]:
        """Some commands for one namespace."""
        verbs = self._verbs[self.dice.choice(list(NAMESPACES))]
        if self.dice.random() < 0.2:
            return [ExpireRun(namespace=verbs.namespace, limit=self.dice.choice([1, 2, 100]))]
        return [self._command(verbs) for _ in range(self.dice.choice((1, 2, 5, 30)))]

    def _command(self, verbs: Verbs) -> Command:
        makers: list[Callable[[Verbs], Command]] = [
            *(self._set, self._set, self._set, self._delete, self._incr, self._set_ttl, self._restore),
            *(self._batch, self._many, self._get, self._expire, self._trim),
        ]
        return self.dice.choice(makers)(verbs)

    def _set(self, verbs: Verbs) -> Command:
        return verbs.set(
            self._key(),
            self.dice.choice([1, 2.5, "text\0é", {"a": [None, True]}, "x" * 5000]),
            ttl=self.dice.choice([None, None, 1, 3, KEEP]),
            semantics=self.dice.choice([None, None, {"purpose": "config"}, {"purpose": "lock"}]),
            **self._expected(),
            **self._provenance(),
        )

    def _delete(self, verbs: Verbs) -> Command:
        return verbs.delete(self._key(), **self._expected(), **self._provenance())

    def _incr(self, verbs: Verbs) -> Command:
        return verbs.incr(self._key(), self.dice.choice([1, -3, 0.5]), ttl=self.dice.choice([None, 2]))

    def _set_ttl(self, verbs: Verbs) -> Command:
        return verbs.set_ttl(self._key(), 2) if self.dice.random() < 0.5 else verbs.remove_ttl(self._key())

    def _restore(self, verbs: Verbs) -> Command:
        return verbs.restore(self._key(), ttl=self.dice.choice([None, 2]))

    def _batch(self, verbs: Verbs) -> Command:
        checks = [{"key": self._key(), "version": self.dice.randrange(3)}] if self.dice.random() < 0.3 else []
        writes = [
            {"key": self._key(), "value": self.dice.random()},
            {"key": self._key(), "delete": True},
            {"guard": self.dice.choice(["lock", "other"])},
        ]
        return verbs.batch(checks=checks, writes=writes, **self._provenance())

    def _many(self, verbs: Verbs) -> Command:
        if self.dice.random() < 0.5:
            return verbs.delete_many([self._key(), self._key()], **self._provenance())[0]
        return verbs.set_many([{"key": self._key(), "value": 1, "expected_version": 0} for _ in range(3)])[0]

    def _get(self, verbs: Verbs) -> Command:
        return Get(namespace=verbs.namespace, key=verbs.key(self._key()))

    def _expire(self, verbs: Verbs) -> Command:
        space = self.dice.choice(SPACES)
        keys = [verbs.key(key) if space == KV else verbs.key(key).encode() for key in KEYS]
        if space == REQUEST:
            keys = [b"r1", b"r2"]
        return Expire(
            namespace=verbs.namespace, space=space, keys=tuple(keys), before=self.dice.choice([None, 2**45])
        )

    def _trim(self, verbs: Verbs) -> Command:
        return Trim(namespace=verbs.namespace, upto=self.dice.randrange(200))

    def _key(self) -> str:
        return self.dice.choice(KEYS)

    def _expected(self) -> dict[str, Any]:
        return {"expected_version": self.dice.choice([None, None, 0, 1, 5])}

    def _provenance(self) -> dict[str, Any]:
        return {
            "request_id": self.dice.choice([None, None, None, "r1", "r2"]),
            "spec_ref": self.dice.choice([None, "doc"]),
            "fence": self.dice.choice([None, None, None, {"lock": "lock", "token": self.dice.randrange(9)}]),
        }


def shown(result: object) -> object:
    """A result in a form that can be compared: errors have no equality of their own."""
    if isinstance(result, VersionConflict):
        return type(result), result.message, result.current, result.conflicts, result.reason
    if isinstance(result, HoldfastError):
        return type(result), result.message, result.field
    if isinstance(result, msgspec.Struct) and hasattr(result, "items"):
        return [shown(item) for item in result.items]
    return result


async def seen(engine: Engine, dice: random.Random, now: int) -> list[object]:
    """What an engine lets be seen, by questions that depend on the dice."""
    found: list[object] = [await engine.totals(now), await engine.totals(now, namespace="kv/a")]
    found += [await due(engine, space, now) for space in SPACES]
    found += [await falling_due(engine, now)]
    for name, root in NAMESPACES.items():
        for space in SPACES:
            found += [await scanned(engine, name, space, dice, now)]
        found += [await recorded(engine, name, dice)]
        keys = [(root or "") + dice.choice(KEYS) for _ in range(4)]
        found += await engine.read([Address(name, KV, key) for key in keys], now)
        found += await engine.read([Address(name, TRASH, key.encode()) for key in keys], now)
    return found


async def scanned(engine: Engine, name: str, space: str, dice: random.Random, now: int) -> object:
    """A scan."""
    start = (NAMESPACES[name] or "") + dice.choice(["", "a", "game."])
    stop = successor(start) if dice.random() < 0.5 else None
    text = space == KV
    query = Scan(
        namespace=name,
        space=space,
        start=start if text else start.encode(),
        stop=stop if text or stop is None else stop.encode(),
        after=dice.choice([None, start + "b" if text else start.encode() + b"b"]),
        limit=dice.choice([1, 3, 100]),
        max_bytes=dice.choice([0, 10, 600, 6000, 10**6]),
        values=dice.random() < 0.5,
    )
    return await engine.scan(query, now)


async def due(engine: Engine, space: str, now: int) -> object:
    """What is due, of all and of each; those of the same instant come in any order."""
    every = await engine.due(space, now, limit=1000)
    of_each = [await engine.due(space, now, limit=1000, namespace=name) for name in NAMESPACES]
    assert every == sorted(every, key=lambda one: one.expires_at)
    assert len(await engine.due(space, now, limit=1)) == min(1, len(every))
    return [sorted(map(repr, found)) for found in (every, *of_each)]


async def falling_due(engine: Engine, now: int) -> object:
    """What means something and falls due soon, or did lately; those of the same instant in any order."""
    meant = await engine.falling_due(now - 5_000, now + 60_000, limit=1000)
    assert meant == sorted(meant, key=lambda one: one.expires_at)
    assert len(await engine.falling_due(now - 5_000, now + 60_000, limit=1)) == min(1, len(meant))
    return sorted(map(repr, meant))


async def recorded(engine: Engine, name: str, dice: random.Random) -> object:
    """A page of the journal; each store has an epoch of its own."""
    start = (NAMESPACES[name] or "") + dice.choice(["", "a", "game."])
    query = JournalQuery(
        namespace=name,
        since=dice.randrange(200),
        key=dice.choice([None, None, start + "b"]),
        start=start,
        stop=successor(start) if dice.random() < 0.5 else None,
        limit=dice.choice([1, 10, 1000]),
        newest_first=dice.random() < 0.5,
    )
    return msgspec.structs.replace(await engine.journal(query), epoch="")


@pytest.mark.unmeasured
@pytest.mark.parametrize("seed", range(600 if SOAK else 3))
async def test_postgres_decides_and_keeps_the_same_as_memory(pg_store_url: str, seed: int) -> None:
    """An engine gives the same results and keeps the same rows for the same commands at the same times."""
    play = Play(seed)
    keys = Keyring([AUDIT_KEY.encode()])
    memory, postgres = MemoryEngine(keys), PostgresEngine(pg_store_url, connections=3, keys=keys)
    await postgres.start()
    now = 1_700_000_000_000
    try:
        for _ in range(60):
            now += play.dice.choice([0, 1, 400, 1000, 5000])
            group = play.group()
            time = partial(int, now)
            expected, given = [await engine.transact(group, time) for engine in (memory, postgres)]
            assert list(map(shown, given.results)) == list(map(shown, expected.results))
            assert (given.namespaces, given.journal) == (expected.namespaces, expected.journal)
            assert given.runs == expected.runs
            later, question = now + play.dice.choice([0, 1000]), play.dice.random()
            assert await seen(postgres, random.Random(question), later) == await seen(
                memory, random.Random(question), later
            )
    finally:
        await postgres.aclose()
