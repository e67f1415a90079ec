"""The machine: random steps, the same for every store and for the oracle, and their answers compared.

A step is a call of a verb. The machine decides which calls are made and when time passes; what is right
is the oracle's word alone.

Two entries of one namespace never have the same deadline, since nothing says which of two that expire
together expires first: before a step that sets a deadline, time moves to a millisecond of the second that no
earlier one used, and of several writes in one step only one sets a deadline.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar
from unittest import mock

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.clock import ManualClock
from holdfast.errors import HoldfastError
from holdfast.model import KEEP
from holdfast.upkeep import reaper
from tests.machine import steps
from tests.machine.ledger import Plain, Refusal
from tests.machine.oracle import Oracle
from tests.machine.plain import plain
from tests.machine.targets import Memory

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from holdfast.handles.kv import KV
    from holdfast.store import Store
    from tests.machine.targets import Target

ROOTS = {"plugin": "", "project": "tenant/acme/project/web/"}
LIVE, NUMBER, TRASHED = "live", "number", "trashed"
"""What a key can be for a call to succeed on it."""

PATIENCE = 60.0

T = TypeVar("T")
Call = tuple[str, str, tuple[Any, ...], Plain]
"""A verb, a namespace, and what the verb is given."""


class Machine(RuleBasedStateMachine):
    """Drives the stores of its targets."""

    targets: ClassVar[Sequence[Target]] = (Memory(),)

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = ManualClock()
        self.oracles = {name: Oracle(self.clock.now, root) for name, root in ROOTS.items()}
        self.stores: list[Store] = []
        self.touched = "plugin"
        self.last: Call | None = None
        self.last_named: Call | None = None
        self.used: set[int] = set()

    @initialize()
    def begin(self) -> None:
        """Open a store of every kind."""
        for target in self.targets:
            self.stores.append(self.run(target.fresh(self.clock)))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something asynchronous. (`Runner.run` would install a signal handler each time.)"""
        return self.runner.get_loop().run_until_complete(_in_time(work))

    def teardown(self) -> None:
        """Close what is open."""
        for store in self.stores:
            self.run(store.aclose())
        self.runner.close()

    # Writing

    @rule(name=steps.NAMES, key=steps.KEYS, value=steps.VALUES, how=steps.SETS, given=steps.PROVENANCE)
    def set(self, name: str, key: str, value: Any, how: Plain, given: Plain) -> None:
        """Put a value."""
        self._write("set", name, (key, value), how, given)

    @rule(name=steps.NAMES, key=steps.KEYS, aim=steps.AIMED, how=steps.EXPECTED, given=steps.PROVENANCE)
    def delete(self, name: str, key: str, aim: bool, how: Plain, given: Plain) -> None:
        """Remove a key."""
        self._write("delete", name, (self._aimed(name, key, aim and LIVE),), how, given)

    @rule(name=steps.NAMES, key=steps.KEYS, aim=steps.AIMED, how=steps.INCRS, given=steps.PROVENANCE)
    def incr(self, name: str, key: str, aim: bool, how: Plain, given: Plain) -> None:
        """Add to a number."""
        by = how["by"]
        how = {field: value for field, value in how.items() if field != "by"}
        self._write("incr", name, (self._aimed(name, key, aim and NUMBER), by), how, given)

    @rule(name=steps.NAMES, log=steps.LOGS, value=steps.VALUES, how=steps.APPENDS, given=steps.PROVENANCE)
    def append(self, name: str, log: str, value: Any, how: Plain, given: Plain) -> None:
        """Add an item to a log."""
        self._write("append", name, (log, value), how, given)

    @rule(name=steps.NAMES, verb=steps.INTENDING, key=steps.KEYS, value=steps.VALUES, once=steps.INTENDED)
    def intend(self, name: str, verb: str, key: str, value: Any, once: str) -> None:
        """Make a call with the id of an intention, which an earlier call may have carried out."""
        arguments = {"set": (key, value), "append": (key, value), "incr": (key, 2), "delete": (key,)}[verb]
        self._write(verb, name, arguments, {}, {"once": once})

    @rule(name=steps.NAMES, key=steps.KEYS, ttl=steps.TTLS, how=steps.EXPECTED, given=steps.PROVENANCE)
    def set_ttl(self, name: str, key: str, ttl: int, how: Plain, given: Plain) -> None:
        """Move a deadline."""
        self._tick()
        self._write("set_ttl", name, (self._aimed(name, key, LIVE), ttl), how, given)

    @rule(name=steps.NAMES, key=steps.KEYS, ttl=steps.TTLS, how=steps.EXPECTED, given=steps.PROVENANCE)
    def touch(self, name: str, key: str, ttl: int, how: Plain, given: Plain) -> None:
        """Move a deadline, if there is an entry."""
        self._tick()
        self._write("touch", name, (key, ttl), how, given)

    @rule(name=steps.NAMES, key=steps.KEYS, how=steps.EXPECTED, given=steps.PROVENANCE)
    def remove_ttl(self, name: str, key: str, how: Plain, given: Plain) -> None:
        """Take a deadline away."""
        self._write("remove_ttl", name, (key,), how, given)

    @rule(name=steps.NAMES, key=steps.KEYS, late=steps.LATE, how=steps.RESTORES, given=steps.PROVENANCE)
    def restore(self, name: str, key: str, late: bool | None, how: Plain, given: Plain) -> None:
        """Bring a key back from the trash, sometimes at the instant at which it is too late."""
        key = self._aimed(name, key, late is not None and TRASHED)
        kept = self.oracles[name].state.trash.get(ROOTS[name] + key)
        if late and kept is not None and kept[1] > self.clock.now():
            self.clock.advance((kept[1] - self.clock.now()) / 1000)
        self._write("restore", name, (key,), how, given)

    @rule(name=steps.NAMES, items=steps.ITEMS, given=steps.PROVENANCE)
    def set_many(self, name: str, items: list[Plain], given: Plain) -> None:
        """Put several values."""
        self._write("set_many", name, ([self._expecting(name, item) for item in items],), {}, given)

    @rule(name=steps.NAMES, keys=st.lists(steps.KEYS, min_size=1, max_size=3), given=steps.PROVENANCE)
    def delete_many(self, name: str, keys: list[str], given: Plain) -> None:
        """Remove several keys."""
        self._write("delete_many", name, (keys,), {}, given)

    @rule(name=steps.NAMES, checks=steps.CHECKS, writes=steps.WRITES, given=steps.PROVENANCE)
    def batch(self, name: str, checks: list[Plain], writes: list[Plain], given: Plain) -> None:
        """Several writes that are one."""
        expected = [self._expecting(name, check) for check in checks]
        made = [{"key": check["key"], "version": check["expected_version"]} for check in expected]
        self._write("batch", name, (), {"checks": made, "writes": writes}, given)

    @rule(pause=steps.PAUSES, named=st.booleans())
    def repeat(self, pause: int, named: bool) -> None:
        """Make the last write again, exactly as it was, or the last that had a request id."""
        last = self.last_named if named else self.last
        if last is not None:
            self.clock.advance(pause)
            self._tick()
            verb, name, args, given = last
            self._ask(name, verb, *args, **given)
            self.touched = name

    # Steps that are rarely met by chance one after the other

    @rule(name=steps.NAMES, key=steps.KEYS, value=steps.VALUES, meaning=steps.SEMANTICS, early=steps.EARLY)
    def outlive(self, name: str, key: str, value: Any, meaning: Plain | None, early: float) -> None:
        """Put a value with a deadline, and wait until it is reached."""
        self._write("set", name, (key, value), {"ttl": 2, "semantics": meaning}, {})
        self.clock.advance(2 - early)

    @rule(name=steps.NAMES, key=steps.KEYS, meaning=steps.SEMANTICS, expire=st.booleans(), late=steps.SELDOM)
    def lose_and_restore(self, name: str, key: str, meaning: Plain | None, expire: bool, late: bool) -> None:
        """Put a value, let it go in one way or the other, and bring it back, or find that it is too late."""
        self._write("set", name, (key, "kept"), {"ttl": 2, "semantics": meaning}, {})
        if expire:
            self.clock.advance(2)
        else:
            self._write("delete", name, (key,), {}, {})
        self.clock.advance(604_800 if late else 0)
        self._write("restore", name, (key,), {}, {})

    @rule(name=steps.NAMES, key=steps.KEYS, add=st.booleans())
    def keep_a_deadline(self, name: str, key: str, add: bool) -> None:
        """Put a number with a deadline, and change it in one of the ways that keep the deadline."""
        self._write("set", name, (key, 1), {"ttl": 60}, {})
        verb, how = ("incr", {"ttl": 2}) if add else ("set", {"ttl": KEEP})
        self._write(verb, name, (key, 2), how, {})

    @rule(name=steps.NAMES, key=steps.KEYS, other=steps.KEYS, word=st.sampled_from(["right", "next"]))
    def check_and_write(self, name: str, key: str, other: str, word: str) -> None:
        """Put a value, and replace it and another in a batch that checks its version."""
        self._write("set", name, (key, 1), {}, {})
        version = self._expecting(name, {"key": key, "expected_version": word})["expected_version"]
        writes = [{"key": one, "value": 2, "ttl": None, "semantics": None} for one in (other, key)]
        self._write("batch", name, (), {"checks": [{"key": key, "version": version}], "writes": writes}, {})

    @rule(name=steps.NAMES, keys=st.lists(steps.KEYS, min_size=1, unique=True), meaning=steps.SEMANTICS)
    def outlive_together(self, name: str, keys: list[str], meaning: Plain | None) -> None:
        """Put values with deadlines, the first perhaps with semantics; wait for them, and notice it."""
        for key in keys:
            self._write("set", name, (key, key), {"ttl": 2, "semantics": meaning}, {})
            meaning = None
        self.clock.advance(3)
        self.sweep(1)

    @rule(name=steps.NAMES, items=steps.ITEMS, refused=st.booleans())
    def send_again(self, name: str, items: list[Plain], refused: bool) -> None:
        """Put several values, let go of the first, and put them again under the same request id."""
        key = items[0]["key"]
        if refused:
            self._write("set", name, (key, 0), {}, {})
            items = [{**items[0], "expected_version": "zero"}, *items[1:]]
        given = {"request_id": "r3"}
        items = [self._expecting(name, item) for item in items]
        self._write("set_many", name, (items,), {}, given)
        self._write("delete", name, (key,), {}, {})
        self._write("set_many", name, (items,), {}, given)

    @rule(name=steps.NAMES, calls=st.lists(steps.CALLS, min_size=2, max_size=8))
    def crowd(self, name: str, calls: list[tuple[str, tuple[Any, ...]]]) -> None:
        """Make several calls without waiting for the answers: each sees those before it and none after."""
        self.touched = name
        expected = [_answer(getattr(self.oracles[name], verb), *args) for verb, args in calls]
        for store in self.stores:
            kv = _handle(store, name)
            found = self.run(_gathered([getattr(kv, verb)(*args) for verb, args in calls]))
            assert found == expected, (store.capabilities, calls)

    # Reading

    @rule(name=steps.NAMES, key=steps.KEYS)
    def look(self, name: str, key: str) -> None:
        """Ask for a key in every way."""
        self._ask(name, "get", key)
        self._ask(name, "exists", key)
        self._ask(name, "get_ttl", key)
        self._ask(name, "get_many", [key, "b", key])
        self._ask(name, "history", key, limit=3)

    @rule(name=steps.NAMES, prefix=steps.PREFIXES, limit=st.integers(1, 3), values=st.booleans())
    def walk(self, name: str, prefix: str, limit: int, values: bool) -> None:
        """List with a small limit, following the cursors."""
        after, cursor, more = None, None, True
        while more:
            expected = self.oracles[name].listing(prefix, limit=limit, after=after, values=values)
            cursors = set()
            for store in self.stores:
                page = self.run(_handle(store, name).list(prefix, limit=limit, cursor=cursor, values=values))
                assert plain(page) == expected, store.capabilities
                assert (page.cursor is not None) is expected["truncated"]
                cursors.add(page.cursor)
            assert len(cursors) == 1
            more = expected["truncated"]
            [cursor] = cursors
            after = expected["keys"][-1] if more else None

    @rule(name=steps.NAMES, prefix=steps.PREFIXES, limit=st.integers(1, 4), back=st.integers(-2, 30))
    def follow(self, name: str, prefix: str, limit: int, back: int) -> None:
        """Read the journal from somewhere before, at or beyond its end."""
        since = max(0, self.oracles[name].state.revision - back)
        self._ask(name, "changes", since, prefix=prefix, limit=limit)

    # Time

    @rule(seconds=st.sampled_from([0.001, 0.5, 1, 2, 3600, 43_200, 86_400, 604_800]))
    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(seconds)

    @rule(early=st.sampled_from([0, 1]))
    def wait_for_a_deadline(self, early: int) -> None:
        """Let time pass up to the next instant at which something ends, or to the millisecond before."""
        now = self.clock.now()
        ends = [end for oracle in self.oracles.values() for end in _ends(oracle) if end - early > now]
        if ends:
            self.clock.advance((min(ends) - early - now) / 1000)

    @rule(crowd=st.sampled_from((1, 1000)))
    def sweep(self, crowd: int) -> None:
        """Notice what has expired: in runs, or one by one."""
        expected = sum(oracle.sweep(together=crowd == 1) for oracle in self.oracles.values())
        with mock.patch.object(reaper, "CROWD", crowd):
            for store in self.stores:
                assert self.run(store.sweep()) == expected

    @rule()
    def upkeep(self) -> None:
        """Drop what was kept long enough."""
        for oracle in self.oracles.values():
            oracle.upkeep()
        for store in self.stores:
            self.run(store.upkeep())

    @rule()
    def reopen(self) -> None:
        """Close every store and open its storage again."""
        self.stores = [
            self.run(target.again(store, self.clock))
            for target, store in zip(self.targets, self.stores, strict=True)
        ]

    @invariant()
    def all_agree(self) -> None:
        """Whatever a step did, all stores hold what the oracle holds, and tell the same of it."""
        oracle, name = self.oracles[self.touched], self.touched
        floor = oracle.state.floor
        held = oracle.listing("", limit=100, values=True)
        told = oracle.changes(floor, prefix="", limit=1000)
        for store in self.stores:
            kv = _handle(store, name)
            looks = [kv.list(values=True), kv.changes(floor, limit=1000), store.stats(kv.namespace)]
            assert self.run(_gathered(looks)) == [held, told, oracle.stats()], store.capabilities

    # How a step is made

    def _write(self, verb: str, name: str, args: tuple[Any, ...], how: Plain, given: Plain) -> None:
        """Make a call that writes, with the words of its fields turned into what they mean now."""
        if "expected_version" in how:
            how = self._expecting(name, {"key": args[0], **how})
            del how["key"]
        given = {**how, **self._fenced(name, given)}
        if steps.sets_deadline((args, given)):
            self._tick()
        self.touched = name
        self.last = (verb, name, args, given)
        if "request_id" in given or "once" in given:
            self.last_named = self.last
        self._ask(name, verb, *args, **given)

    def _ask(self, name: str, verb: str, *args: Any, **given: Any) -> None:
        """Make a call of the oracle and of every store, and compare the answers."""
        expected = _answer(getattr(self.oracles[name], verb), *args, **given)
        for store in self.stores:
            call = getattr(_handle(store, name), verb)
            [found] = self.run(_gathered([call(*args, **given)]))
            assert found == expected, (store.capabilities, verb, args, given)

    def _aimed(self, name: str, key: str, at: str | Literal[False]) -> str:
        """A key on which a call can succeed, if there is one; else the key that was drawn."""
        oracle = self.oracles[name]
        found = {
            LIVE: [key for key in steps.ALL_KEYS if oracle.get(key) is not None],
            NUMBER: [
                key for key in steps.ALL_KEYS if (oracle.get(key) or {"value": ""})["value"][:1].isdigit()
            ],
            TRASHED: [
                key
                for key in steps.ALL_KEYS
                if ROOTS[name] + key in oracle.state.trash and oracle.get(key) is None
            ],
        }
        keys = found[at] if at else []
        return keys[steps.ALL_KEYS.index(key) % len(keys)] if keys else key

    def _expecting(self, name: str, how: Plain) -> Plain:
        """The fields of a call, with the word for the version that it expects turned into one."""
        current = self.oracles[name].get(how["key"])
        version = 0 if current is None else current["version"]
        words = {"right": version, "next": version + 1, "last": max(version - 1, 0), "zero": 0, "any": None}
        return {**how, "expected_version": words[how["expected_version"]]}

    def _fenced(self, name: str, given: Plain) -> Plain:
        """The provenance of a call, with the word for the fence turned into one."""
        token = self.oracles[name].state.guards.get("lock", 0)
        fences = {None: None, "newest": {"lock": "lock", "token": token}, "old": {"lock": "lock", "token": 1}}
        return {**given, "fence": fences[given.get("fence")]}

    def _tick(self) -> None:
        while self.clock.now() % 1000 in self.used:
            self.clock.advance(0.001)
        self.used.add(self.clock.now() % 1000)


def _handle(store: Store, name: str) -> KV:
    return store.kv("plugin") if name == "plugin" else store.semantic("acme", "web")


def _ends(oracle: Oracle) -> list[int]:
    state = oracle.state
    deadlines = [entry["expires_at"] for entry in state.entries.values() if entry["expires_at"] is not None]
    return [
        *deadlines,
        *(kept[1] for kept in state.trash.values()),
        *(one[2] for one in state.requests.values()),
    ]


def _answer(call: Callable[..., Any], *args: Any, **given: Any) -> Any:
    try:
        return call(*args, **given)
    except Refusal as refusal:
        return refusal.plain


async def _in_time(work: Coroutine[Any, Any, T]) -> T:
    """Wait for an answer, but not for one that never comes."""
    try:
        async with asyncio.timeout(PATIENCE):
            return await work
    except TimeoutError:
        raise AssertionError("no answer came") from None


async def _gathered(calls: Sequence[Awaitable[Any]]) -> list[Any]:
    answers = await asyncio.gather(*calls, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, HoldfastError):
            raise answer
    return [plain(answer) for answer in answers]
