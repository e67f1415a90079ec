"""Subjects about keys: registers, batches, deadlines, fences, crowds that expire, quotas, lists, order."""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import math
from random import Random
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.errors import (
    Fenced,
    HoldfastError,
    OutcomeUnknown,
    QuotaExceeded,
    Refused,
    ValidationError,
    VersionConflict,
)
from holdfast.model import Entry
from tests.linear.checker import judge
from tests.linear.history import Operation
from tests.simulation.subject import TIMEOUT, Finding, Lane, Subject
from tests.simulation.world import EPOCH

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator
    from datetime import datetime

    from holdfast import Store
    from holdfast.handles.kv import KV
    from tests.simulation.workload import Workload

AGE: Final = 6.0
"""The seconds after which lanes go on to other keys: the judge's work grows fast with those on one key."""
LARGE: Final = ((40, 100), (150, 100), (400, 60), (110, 1_000))
"""How many other keys a large set_many writes, and the bytes of each. The last two are executed alone."""
READER: Final = 3
"""The lane of each client that only reads registers: the others may all wait for a write."""
LARGELY: Final = 0.1
"""How often an addition comes with much else, which the log of a cluster may keep in several parts."""
CLOCKS_DIFFER: Final = 500
"""By how many milliseconds clocks that nobody has set may be wrong."""
REPLAY: Final = 20.0
"""The seconds in which a watch has to show a journal from its beginning."""
AHEAD: Final = 2_100
"""By how many milliseconds a store may start ahead after its machine was switched off."""
SLACK: Final = 100_000_000
"""By how many nanoseconds a deadline may be overrun: the clocks of client and service differ a little."""


class Watch(msgspec.Struct):
    """What a watch has shown."""

    namespace: str
    client: int
    life: int
    since: int = 0
    changes: list[tuple[int, str, str]] = []


class Registers(Subject):
    """Registers and counters are linearizable, watches miss nothing, and a request has one effect."""

    lanes = 4
    share = 0.4
    keys = ("kv/alpha", "kv/beta")
    reads_along = True

    def __init__(self, run: Workload) -> None:
        super().__init__(run)
        chance = Random(f"registers {run.world.seed}")
        self._keys = min(chance.choice((2, 4, 8)), run.limits.keys)
        self._large = chance.choice((0.0, 0.05, 0.2))
        self._twice = chance.choice((0.0, 0.1))
        self._value = 0
        self._versions: dict[tuple[str, str], int] = {}
        self._open: dict[str, Operation] = {}
        self.history: list[Operation] = []
        self.watches: list[Watch] = []
        self._replays: list[Watch] = []
        self.seen = [self.history, self.watches, self._replays]

    def died(self, client: str) -> None:
        """What a client had called without an answer may take effect until its deadline, or never."""
        for name in [name for name in self._open if name.startswith(f"{client} ")]:
            operation = self._open.pop(name)
            deadline = operation.deadline
            if not self.run.urls[operation.client].startswith("nats:"):  # no service knows of a deadline
                deadline = self.run.now() + int(self.run.timeout * 1e9)
            done = msgspec.structs.replace(operation, end=self.run.now(), deadline=deadline)
            self.history.append(done)

    async def act(self, lane: Lane) -> None:
        """Read or write a register."""
        while True:
            operation = self._drawn(lane)
            self._open[lane.name] = operation
            reply = await self._answer(lane, operation)
            del self._open[lane.name]
            done = msgspec.structs.replace(operation, end=self.run.now(), **reply)
            self.history.append(done)
            if self.run.world.tracing:
                self.run.world.detail(lane.machine.name, f"{done} {done.request_id or ''}")
            if done.version is not None:
                self._versions[done.namespace, done.key] = done.version
            if done.outcome != "refused":
                self.calls += 1
                return
            await asyncio.sleep(lane.chance.choice((0.02, 0.2)))

    def _drawn(self, lane: Lane) -> Operation:
        chance = lane.chance
        namespace = chance.choice(("alpha", "beta"))
        key = f"k{chance.randrange(self._keys)}:{int(self.run.world.now / AGE)}"
        verb = chance.choices(["get", "set", "incr", "delete"], [38, 30, 25, 7])[0]
        if lane.number == READER or not self.run.may_write(lane):
            verb = "get"
        fields: dict[str, Any] = {}
        if verb == "set":
            self._value += 1000
            fields["argument"] = self._value
            if chance.random() < self._large:
                fields["beside"] = 1 + chance.randrange(len(LARGE))
        elif verb == "incr":
            fields["argument"] = 1
        if verb != "get" and chance.random() < 0.5:
            known = self._versions.get((namespace, key), 0)
            fields["expected"] = known if chance.random() < 0.7 else 0
        if verb != "get" and chance.random() < 0.5:
            fields["request_id"] = f"r{chance.getrandbits(48)}"
        now = self.run.now()
        return Operation(
            client=lane.client,
            call=now,
            end=now,
            namespace=namespace,
            key=key,
            verb=verb,  # type: ignore[arg-type]
            outcome="unknown",
            deadline=now + int(self.run.timeout * 1e9),
            **fields,
        )

    async def _answer(self, lane: Lane, operation: Operation) -> dict[str, Any]:
        """Call, and call again with the same request id while the outcome is not known."""
        reply = await self._attempt(lane.store, operation)
        if operation.request_id is None:
            return reply
        for _ in range(40):
            if reply["outcome"] != "unknown":
                break
            await asyncio.sleep(0.05)
            deadline = self.run.now() + int(self.run.timeout * 1e9)
            self._open[lane.name] = msgspec.structs.replace(operation, deadline=deadline)
            again = await self._attempt(lane.store, operation)
            if again["outcome"] in {"ok", "unknown"} or again.get("code") == "REUSED":
                reply = again
            elif again["outcome"] == "conflict":  # the first attempt may have caused it
                return reply
        if reply["outcome"] == "ok" and Random(operation.request_id).random() < self._twice:
            again = await self._attempt(lane.store, operation)
            if again["outcome"] != "unknown" and again["outcome"] != "refused" and again != reply:
                text = f"{operation.request_id} was answered {reply} and, sent again, {again}: {operation}"
                self.wrong("request id", text, operation.request_id)
        return reply

    async def _attempt(self, store: Store, operation: Operation) -> dict[str, Any]:
        kv, key, verb = store.kv(operation.namespace), operation.key, operation.verb
        checked: dict[str, Any] = {
            "expected_version": operation.expected,
            "request_id": operation.request_id,
        }
        try:
            if verb == "get":
                return _shown("ok", await kv.get(key))
            if verb == "delete":
                return {"outcome": "ok", "found": await kv.delete(key, **checked), "deadline": None}
            call = self.run.now()
            if operation.beside:
                item = {"key": key, "value": operation.argument}
                if operation.expected is not None:
                    item["expected_version"] = operation.expected
                count, size = LARGE[operation.beside - 1]
                fill = [{"key": f"fill:{n}", "value": "x" * size} for n in range(count)]
                [first, *_] = await kv.set_many([item, *fill], request_id=operation.request_id)
                if isinstance(first, HoldfastError):
                    raise first
                return _shown("ok", first)
            assert operation.argument is not None
            write = kv.set if verb == "set" else kv.incr
            written = await write(key, operation.argument, **checked)
            if operation.request_id is None:
                self.run.clocked.append(Clocked(call, self.run.now(), milliseconds(written.updated_at)))
            return _shown("ok", written)
        except VersionConflict as conflict:
            if conflict.reason is not None:
                return {"outcome": "refused", "code": "REUSED"}
            return _shown("conflict", conflict.current)
        except OutcomeUnknown as error:
            deadline = self.run.now() + int(self.run.timeout * 1e9)
            return {"outcome": "unknown", "code": error.code, "deadline": deadline}
        except HoldfastError as error:
            if isinstance(error, Refused):
                self.wrong("refused", f"nothing is wrong with {operation}: {error.code} {error.message}", key)
            return {"outcome": "refused", "code": error.code}

    # Watches

    async def watch(self, store: Store, client: int) -> None:
        """Watch one of the namespaces, for as long as the client lives."""
        namespace = ("alpha", "beta")[client % 2]
        watch = Watch(namespace, client, self.run.machines[client].life)
        self.watches.append(watch)
        while True:
            try:
                async for change in store.kv(namespace).watch(since=watch.since):
                    if change.op == "gap":
                        self.wrong("watch", f"a watch of {namespace} has a gap after {watch.since}")
                    else:
                        watch.changes.append((change.version, change.op, change.key))
                        watch.since = change.version
            except HoldfastError:
                await asyncio.sleep(0.2)

    @property
    def watched(self) -> bool:
        """Whether the watches of living clients have shown everything."""
        return all(
            watch.life != self.run.machines[watch.client].life
            or len(watch.changes) >= len(self.run.kept[f"kv/{watch.namespace}"].changes)
            for watch in self.watches
        )

    # The end

    async def replay(self, store: Store) -> None:
        """Watch both namespaces from the beginning."""
        self._replays.clear()
        for namespace in ("alpha", "beta"):
            watch, count = Watch(namespace, -1, 0), len(self.run.kept[f"kv/{namespace}"].changes)
            self._replays.append(watch)
            if not count:
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REPLAY):
                    async for change in store.kv(namespace).watch(since=0):
                        watch.changes.append((change.version, change.op, change.key))
                        if len(watch.changes) == count:
                            break

    async def last_look(self, store: Store) -> None:
        """Read every register."""
        for namespace, key in dict.fromkeys((one.namespace, one.key) for one in self.history):
            await self.run.patiently(self._last_get, store, namespace, key)

    async def _last_get(self, store: Store, namespace: str, key: str) -> None:
        call = self.run.now()
        reply = _shown("ok", await store.kv(namespace).get(key))
        self.history.append(
            Operation(
                client=99, call=call, end=self.run.now(), namespace=namespace, key=key, verb="get", **reply
            )
        )

    def findings(self) -> Iterator[Finding]:
        """Not linearizable, executed late, missing in the journal, or not what watches showed."""
        verdict = judge(self.history, slack=SLACK)
        for violation in verdict.violations:
            operation = violation.operation
            about = (operation.key, operation.request_id or "")
            yield Finding("not linearizable", str(violation), about, _end(operation))
        for late in verdict.late:
            yield Finding("executed late", str(late), (late.operation.key,), _end(late.operation))
        journals = {
            namespace: {one.version: one.key for one in self.run.kept[f"kv/{namespace}"].changes}
            for namespace in ("alpha", "beta")
        }
        for one in self.history:
            written = one.outcome == "ok" and one.verb in {"set", "incr"}
            if written and journals[one.namespace].get(one.version or 0) != one.key:
                text = f"acknowledged, but not in the journal: {one}"
                yield Finding("journal", text, (one.key,), _end(one))
        for watch in self.watches:
            whole = [(one.version, one.op, one.key) for one in self.run.kept[f"kv/{watch.namespace}"].changes]
            if watch.life != self.run.machines[watch.client].life:
                whole = whole[: len(watch.changes)]
            if watch.changes != whole:
                yield _difference(watch, whole)
        for clocked in self.run.clocked:
            yield from self._judged(clocked)
        for watch in self._replays:
            whole = [(one.version, one.op, one.key) for one in self.run.kept[f"kv/{watch.namespace}"].changes]
            if watch.changes != whole:
                yield _difference(watch, whole)

    def _judged(self, one: Clocked) -> Iterator[Finding]:
        """While no clock has been set, the store's time is that of the clocks, or ahead after a power cut."""
        if one.end > 1e9 * min(self.run.world.jumps, default=math.inf):
            return
        cuts = sum(1e9 * cut < one.end for cut in self.run.world.power_cuts)
        ahead = one.at - (1000 * EPOCH + one.end / 1e6) - AHEAD * cuts
        behind = 1000 * EPOCH + one.call / 1e6 - one.at
        if max(ahead, behind) > CLOCKS_DIFFER + self.run.skew:
            yield Finding(
                "time", f"the store's time is {ahead:.0f} ms ahead, or {behind:.0f} ms behind: {one}"
            )


def _end(operation: Operation) -> float | None:
    """The virtual second in which an operation ended, if it did."""
    return None if operation.end is None else operation.end / 1e9


def _difference(watch: Watch, changes: list[tuple[int, str, str]]) -> Finding:
    shown, there = set(watch.changes), set(changes)
    missing = [one for one in changes if one not in shown][:3]
    more = [one for one in watch.changes if one not in there][:3]
    return Finding(
        "watch",
        f"a watch of {watch.namespace} by client {watch.client} showed {len(watch.changes)} of "
        f"{len(changes)} changes: {missing} are missing, {more} are not in the journal",
        tuple(key for _, _, key in (*missing, *more)),
    )


def _shown(outcome: str, entry: Entry | None) -> dict[str, Any]:
    reply: dict[str, Any] = {"outcome": outcome, "deadline": None}
    return reply if entry is None else {**reply, "found": entry.value, "version": entry.version}


class Batch(msgspec.Struct):
    """A batch that was sent: all of it must be in the journal, or nothing."""

    request_id: str
    keys: list[str]
    poisoned: bool
    outcome: str = "unknown"
    versions: list[int | None] = []


class Batches(Subject):
    """A batch is written whole and once, or not at all, however large it is and whatever its last write is.

    Each lane has a key of its own with a version that it knows, so that a check of it must not fail.
    """

    share = 0.12
    keys = ("kv/batches",)

    def __init__(self, run: Workload) -> None:
        super().__init__(run)
        self._versions: dict[str, int] = {}
        self._own: dict[str, tuple[int, int]] = {}
        """The life of a lane's client, and the version of its own key."""
        self._total: int | None = None
        self.batches: list[Batch] = []
        self.seen = [self.batches]

    async def act(self, lane: Lane) -> None:
        """Send a batch until it is certain what became of it."""
        kv, chance = lane.store.kv("batches"), lane.chance
        own = f"own {lane.name}"
        if not await self._knows(kv, lane, own):
            return
        request_id = f"b{chance.getrandbits(48)}"
        batch = self._drawn(chance, request_id, own)
        writes: list[dict[str, Any]] = [{"key": key, "value": request_id} for key in batch.keys]
        writes.append({"key": "total", "incr": 1})
        if batch.poisoned:
            writes.append({"key": own, "incr": 1})  # the value of this key is text
        batch.keys.append("total")
        checks = [{"key": own, "version": self._own[own][1]}]
        if chance.random() < 0.3:
            checks.append({"key": "a", "version": self._versions.get("a", 0)})
        self.batches.append(batch)
        self._own[own] = (-1, 0)
        for _ in range(20):
            self.calls += 1
            try:
                result = await kv.batch(checks=checks, writes=writes, request_id=request_id)
            except VersionConflict as conflict:
                batch.outcome = "refused"
                for one in conflict.conflicts:
                    current = one.current
                    self._versions[one.key] = 0 if current is None else current.version
                    if one.key == own:
                        text = f"{checks[0]} was refused, and only this lane writes the key: {current}"
                        self.wrong("batch", text, own, request_id)
                self._own[own] = (lane.life, checks[0]["version"])  # type: ignore[assignment]
                return
            except OutcomeUnknown:
                batch.outcome = "perhaps"
            except ValidationError:
                batch.outcome = "refused"
                if not batch.poisoned:
                    self.wrong("batch", f"nothing is wrong with {batch}", request_id)
                self._own[own] = (lane.life, checks[0]["version"])  # type: ignore[assignment]
                return
            except HoldfastError:
                pass
            else:
                batch.outcome, batch.versions = "ok", list(result.versions)
                if batch.poisoned:
                    self.wrong("batch", f"its last write can't be done, and it was: {batch}", request_id)
                if "a" in batch.keys:
                    self._versions["a"] = batch.versions[batch.keys.index("a")] or 0
                self._own[own] = (lane.life, batch.versions[0] or 0)
                return
            await asyncio.sleep(chance.choice((0.02, 0.2)))

    async def _knows(self, kv: KV, lane: Lane, own: str) -> bool:
        """Whether the version of a lane's own key is known, after a look if it is not."""
        life, _ = self._own.get(own, (-1, 0))
        if life == lane.life:
            return True
        await asyncio.sleep(2 * TIMEOUT)  # what a former life has sent is not executed any more
        try:
            entry = await kv.get(own)
        except HoldfastError:
            return False
        self._own[own] = (lane.life, 0 if entry is None else entry.version)
        return True

    def _drawn(self, chance: Random, request_id: str, own: str) -> Batch:
        keys = [own, *chance.sample(["a", "b", "c", "d"], chance.randint(2, 3))]
        large = chance.random() < 0.3
        if large:
            keys += [f"fill:{number}" for number in range(chance.choice((120, 120, 250, 420)))]
        return Batch(request_id, keys, poisoned=chance.random() < (0.6 if large else 0.2))

    async def last_look(self, store: Store) -> None:
        """Read the sum."""
        entry = await store.kv("batches").get("total")
        self._total = 0 if entry is None else entry.value

    def findings(self) -> Iterator[Finding]:
        """A part of a batch, a batch twice, or one that is missing."""
        kept: dict[str | None, list[str]] = {}
        for change in self.run.kept["kv/batches"].changes:
            kept.setdefault(change.request_id, []).append(change.key)
        done = 0
        for batch in self.batches:
            keys = kept.get(batch.request_id, [])
            done += bool(keys)
            about = (batch.request_id,)
            if keys and sorted(keys) != sorted(batch.keys):
                text = f"{len(keys)} of {len(batch.keys)} keys were written, or some twice: {batch}"
                yield Finding("batch", text, about)
            if batch.outcome == "ok" and not keys:
                yield Finding("batch", f"acknowledged, but not in the journal: {batch}", about)
            if batch.outcome == "refused" and keys:
                yield Finding("batch", f"refused, but in the journal: {batch}", about)
        if self._total != done:
            yield Finding("batch", f"{done} batches added one each, and the sum is {self._total}", ("total",))


class Deadline(msgspec.Struct):
    """A look at an entry with a deadline, between two times of the store."""

    key: str
    expires_at: int
    before: int
    after: int
    shown: bool
    same: bool


class Clocked(msgspec.Struct):
    """A time of the store, as a write showed it between two instants."""

    call: int
    end: int
    at: int


class Glance(msgspec.Struct):
    """A look at an entry with a deadline, and nothing else."""

    key: str
    call: int
    end: int
    shown: bool


class Deadlines(Subject):
    """An entry is there until its deadline and then gone, and the store's time never goes back."""

    expires = True
    share = 0.1
    keys = ("kv/deadlines",)

    def __init__(self, run: Workload) -> None:
        super().__init__(run)
        self._looks: list[Deadline] = []
        self._times: list[Clocked] = []
        self._glances: list[Glance] = []
        self.seen = [self._looks, self._times, self._glances]

    async def act(self, lane: Lane) -> None:
        """Set an entry with a ttl and look at it around its deadline."""
        kv, chance = lane.store.kv("deadlines"), lane.chance
        key, made = f"{lane.name} {chance.getrandbits(32)}", None
        while made is None:
            try:
                made = await kv.set(key, chance.getrandbits(16), ttl=chance.choice((1, 2)))
            except HoldfastError:
                await asyncio.sleep(0.1)
                key = f"{lane.name} {chance.getrandbits(32)}"
        self.calls += 1
        assert made.expires_at is not None
        expires_at = milliseconds(made.expires_at)
        gone = False
        if chance.random() < 0.5:
            await self._glance(kv, lane, key)
            return
        for _ in range(5):
            await asyncio.sleep(chance.uniform(0, 0.7))
            try:
                before = await self._time(kv, lane)
                entry = await kv.get(key) if chance.random() < 0.7 else (await kv.get_many([key, "?"]))[0]
                after = await self._time(kv, lane)
            except HoldfastError:
                continue
            if isinstance(entry, HoldfastError):
                continue
            self.calls += 3
            same = entry is None or (entry.value, entry.version) == (made.value, made.version)
            self._looks.append(Deadline(key, expires_at, before, after, entry is not None, same))
            gone = before >= expires_at + self.run.skew
        if gone:
            await self._after(kv, key, made)

    async def _glance(self, kv: KV, lane: Lane, key: str) -> None:
        """Read an entry around its deadline and write nothing: only reads can tell what time it is."""
        for _ in range(lane.chance.randint(10, 40)):
            await asyncio.sleep(lane.chance.choice((0.02, 0.1, 0.3)))
            call = self.run.now()
            with contextlib.suppress(HoldfastError):
                shown = await kv.get(key) is not None
                self._glances.append(Glance(key, call, self.run.now(), shown))

    async def _after(self, kv: KV, key: str, made: Entry) -> None:
        """What has expired does not count for an increment."""
        try:
            again = await kv.incr(key)
        except HoldfastError:
            return
        if again.value != 1 or again.created_at == made.created_at:
            self.wrong("expiry", f"an increment found what had expired: {again}", key)

    async def _time(self, kv: KV, lane: Lane) -> int:
        """The store's time, as a write shows it."""
        call = self.run.now()
        entry = await lane.store.kv(f"clock{lane.client}").set("time", 0)
        clocked = Clocked(call, self.run.now(), milliseconds(entry.updated_at))
        self._times.append(clocked)
        self.run.clocked.append(clocked)
        return clocked.at

    def findings(self) -> Iterator[Finding]:
        """Shown too late, gone too early, another entry, or a time that went back."""
        skew = self.run.skew
        for look in self._looks:
            if look.shown and look.before >= look.expires_at + skew:
                yield Finding("expiry", f"shown {look.before - look.expires_at} ms late: {look}", (look.key,))
            if not look.shown and look.after < look.expires_at - skew:
                yield Finding("expiry", f"gone {look.expires_at - look.after} ms early: {look}", (look.key,))
            if not look.same:
                yield Finding("expiry", f"another entry: {look}", (look.key,))
        gone: dict[str, int] = {}
        for glance in self._glances:  # those of a key are made one after the other
            if not glance.shown:
                gone.setdefault(glance.key, glance.end)
            elif glance.key in gone and not skew:  # clocks of nodes may differ by that
                text = f"gone at {gone[glance.key] / 1e6} ms, and there again: {glance}"
                yield Finding("time", text, (glance.key,))
        latest = place = 0
        by_end = sorted(self._times, key=lambda one: one.end)
        for one in sorted(self._times, key=lambda one: one.call):
            while place < len(by_end) and by_end[place].end < one.call:
                latest = max(latest, by_end[place].at)
                place += 1
            if one.at < latest - skew:
                text = f"the store's time went back by {latest - one.at} ms at {one.call / 1e6} ms"
                yield Finding("time", text)


def milliseconds(at: datetime) -> int:
    """A time of the store as a number."""
    return round(at.timestamp() * 1000)


class Token(msgspec.Struct):
    """A token of a lock that was asked for."""

    call: int
    end: int | None = None
    token: int | None = None
    refused: bool = False


class FencedWrite(msgspec.Struct):
    """A write with a token."""

    token: int
    call: int
    end: int = 0
    live: bool = False
    outcome: str = ""
    version: int = 0


class Fences(Subject):
    """A former holder of a lock writes nothing, and tokens only rise."""

    share = 0.05
    keys = ("kv/fences",)

    def __init__(self, run: Workload) -> None:
        super().__init__(run)
        self._tokens: list[Token] = []
        self._writes: list[FencedWrite] = []
        self.seen = [self._tokens, self._writes]

    async def act(self, lane: Lane) -> None:
        """Get tokens, and write with each of them a few times."""
        for _ in range(lane.chance.randint(1, 4)):
            await self._hold(lane)

    async def _hold(self, lane: Lane) -> None:
        kv, chance = lane.store.kv("fences"), lane.chance
        asked = Token(self.run.now())
        self._tokens.append(asked)
        self.calls += 1
        try:
            result = await kv.batch(writes=[{"guard": "lock"}])
        except OutcomeUnknown:
            await asyncio.sleep(0.1)
            return
        except HoldfastError:
            asked.refused = True
            await asyncio.sleep(0.1)
            return
        [token] = result.versions
        assert token is not None
        asked.token, asked.end = token, self.run.now()
        for _ in range(chance.randrange(1, 5)):
            await asyncio.sleep(chance.uniform(0, 0.15))
            write = FencedWrite(token, self.run.now(), live=chance.random() < 0.3)
            fence: dict[str, Any] = {"fence": {"lock": "lock", "token": token, "live": write.live}}
            if chance.random() < 0.5:
                fence["request_id"] = f"f{chance.getrandbits(48)}"
            self.calls += 1
            try:
                write.version = (await kv.set("guarded", token, **fence)).version
                write.outcome = "ok"
            except Fenced:
                write.outcome = "fenced"
            except HoldfastError as error:
                write.outcome = error.code
            write.end = self.run.now()
            self._writes.append(write)

    def findings(self) -> Iterator[Finding]:
        """A token twice, a former holder that wrote, or a holder that was refused."""
        tokens = [one.token for one in self._tokens if one.token is not None]
        if len(tokens) != len(set(tokens)):
            yield Finding("fence", "a token was given twice")
        versions = {write.version for write in self._writes if write.outcome == "ok"}
        if shared := versions & set(tokens):
            yield Finding("fence", f"a token is the version of a write, too: {sorted(shared)[:3]}")
        for write in self._writes:
            newer = [one for one in self._tokens if one.token is not None and one.token > write.token]
            if write.outcome == "ok" and any(one.end is not None and one.end < write.call for one in newer):
                yield Finding("fence", f"a former holder wrote: {write}", ("guarded",))
            lost = [one for one in self._tokens if one.token is None and not one.refused]
            if write.live and write.outcome == "ok":  # there never is an entry of this lock
                yield Finding("fence", f"a lease that does not run counted: {write}", ("guarded",))
            if write.live:
                continue
            if write.outcome == "fenced" and not any(one.call < write.end for one in (*newer, *lost)):
                yield Finding("fence", f"the newest holder was refused: {write}", ("guarded",))
            if write.outcome == "VALIDATION_ERROR":
                yield Finding("fence", f"a token that was given is not valid: {write}", ("guarded",))


class Crowds(Subject):
    """Of a crowd that expires every entry is recorded once, audited and in the trash as policies say.

    Each client has a namespace with a policy of its own.
    """

    expires = True
    share = 0.03
    POLICIES: Final[tuple[dict[str, Any], ...]] = ({"audit": True}, {"trash": True}, {})

    def __init__(self, run: Workload) -> None:
        super().__init__(run)
        self.keys = tuple(f"kv/crowd{client}" for client in range(len(run.machines)))
        self._set: set[str] = set()
        """The namespaces that have got their policy."""
        self._audited: dict[int, str] = {}
        self._verdict: Any = None
        self._trash: set[str] = set()

    async def act(self, lane: Lane) -> None:
        """Set many entries that expire together, and some of them again at about the time of a sweep."""
        chance, name = lane.chance, f"crowd{lane.client}"
        kv = lane.store.kv(name)
        try:
            if name not in self._set:
                await lane.store.set_policy(f"kv/{name}", self.POLICIES[lane.client])
                self._set.add(name)
            crowd, count = f"{chance.getrandbits(32):08x}", chance.choice((5, 80, 300))
            self.calls += 1
            await kv.set_many(
                [{"key": f"{crowd}:{number:03}", "value": number, "ttl": 1} for number in range(count)]
            )
            if chance.random() < 0.3:
                return
            await asyncio.sleep(chance.uniform(0.8, 1.1))
            for _ in range(chance.choice((5, 30, 90))):
                keys = [f"{crowd}:{chance.randrange(count):03}" for _ in range(6)]
                await asyncio.gather(*(kv.set(key, "again", ttl=1) for key in keys))
                await asyncio.sleep(chance.uniform(0, 0.04))
        except HoldfastError:
            await asyncio.sleep(0.2)

    async def last_look(self, store: Store) -> None:
        """Read audit and trash."""
        if "crowd0" in self._set:
            self._audited = await audited(store, "kv/crowd0")
            self._verdict = await store.audit("kv/crowd0").verify()
        if "crowd1" in self._set:
            self._trash = await trashed(store, "kv/crowd1")

    def findings(self) -> Iterator[Finding]:
        """An expiry that is missing, there twice, not audited, or not in the trash."""
        for name in self.keys:
            live: dict[str, int] = {}
            for change in self.run.kept[name].changes:
                if change.op == "expired" and live.pop(change.key, None) != change.expired_version:
                    yield Finding("expiry", f"expired though it was not there: {change}", (change.key,))
                elif change.op == "set":
                    live[change.key] = change.version
            if live:
                text = f"the expiry of {len(live)} entries was not noticed"
                yield Finding("expiry", text, tuple(live)[:1])
        if self._verdict is not None:
            changes = self.run.kept["kv/crowd0"].changes
            missing = [one for one in changes if self._audited.get(one.version) != one.key]
            if missing:
                yield Finding("audit", f"{len(missing)} changes are not audited: {missing[0]}")
            if not self._verdict.whole:
                yield Finding("audit", f"the audit is broken: {self._verdict}")
        if "crowd1" in self._set:
            kept = self.run.kept["kv/crowd1"]
            gone = {one.key for one in kept.changes if one.op == "expired"} - set(kept.listed)
            if gone - self._trash:
                key = min(gone - self._trash)
                yield Finding("trash", f"{key} has expired and is not in the trash", (key,))


async def audited(store: Store, namespace: str) -> dict[int, str]:
    """The versions that the audit of a namespace has, with their keys."""
    after, found = 0, {}
    while True:
        page = await store.audit(namespace).log(after=after, limit=1_000)
        found.update({one.version: one.key for one in page.records})
        if page.next is None:
            return found
        after = page.next


async def trashed(store: Store, namespace: str) -> set[str]:
    """The keys in the trash of a namespace."""
    cursor, found = None, set[str]()
    while True:
        page = await store.trash(namespace, limit=1_000, cursor=cursor)
        found.update(one.key for one in page.entries)
        cursor = page.cursor
        if cursor is None:
            return found


class Quotas(Subject):
    """A quota counts what lives, and refuses only what would exceed it. Each client has a namespace."""

    expires = True
    share = 0.03
    QUOTA: Final = 10
    TTL: Final = 1

    def __init__(self, run: Workload) -> None:
        super().__init__(run)
        self.keys = tuple(f"kv/quota{client}" for client in range(len(run.machines)))
        self._known: dict[str, tuple[int, bool]] = {}
        """The life of the client for which it is known that nothing lives in a namespace."""

    async def act(self, lane: Lane) -> None:
        """Fill the namespace with entries that expire, and fill it again when they have."""
        name = f"quota{lane.client}"
        kv, chance = lane.store.kv(name), lane.chance
        try:
            await lane.store.set_policy(f"kv/{name}", {"quota_keys": self.QUOTA})
            if self._known.get(name) != (lane.life, True):
                await asyncio.sleep(2 * TIMEOUT + 1.2)
                self._known[name] = (lane.life, True)
            for _ in range(4):
                round_ = f"{chance.getrandbits(32):08x}"
                count = chance.choice((4, self.QUOTA, self.QUOTA + 3))
                items = [
                    {"key": f"{round_}:{number:02}", "value": 1, "ttl": self.TTL} for number in range(count)
                ]
                self.calls += 1
                request_id = f"q{round_}" if chance.random() < 0.5 else None
                results = await kv.set_many(items, request_id=request_id)
                refused = [one for one in results if isinstance(one, HoldfastError)]
                if any(not isinstance(one, QuotaExceeded) for one in refused):
                    raise refused[0]
                made = [one for one in results if not isinstance(one, HoldfastError)]
                ends = [milliseconds(one.expires_at) for one in made if one.expires_at is not None]
                if not ends:
                    self.wrong("quota", f"all of {count} were refused, and nothing lives", round_)
                    return
                last = max(ends)
                # Parts of a call may be made so long after each other that the first ones have expired.
                at_once = last - min(ends) < self.TTL * 1000
                if at_once and len(refused) != max(0, count - self.QUOTA):
                    text = f"{len(refused)} of {count} were refused, of {self.QUOTA} that may live"
                    self.wrong("quota", text, round_)
                await self._passed(lane.store, last + self.run.skew)
        except HoldfastError:
            self._known.pop(name, None)
            await asyncio.sleep(0.2)

    async def _passed(self, store: Store, at: int) -> None:
        """Wait until the store's time is past an instant."""
        while True:
            entry = await store.kv("deadlines").set("quota time", 0)
            if milliseconds(entry.updated_at) > at:
                return
            await asyncio.sleep(0.05)

    def findings(self) -> Iterator[Finding]:
        """An entry that was written twice though it was sent once."""
        for name in self.keys:
            keys = [one.key for one in self.run.kept[name].changes if one.op == "set"]
            twice = [key for key in dict.fromkeys(keys) if keys.count(key) > 1]
            if twice:
                yield Finding("quota", f"{twice[0]} of {name} was written twice", (twice[0],))


class Lists(Subject):
    """A walk shows every key that is there throughout exactly once; what a prefix removes is gone."""

    share = 0.08
    keys = ("kv/lists",)
    STABLE: Final = tuple(f"s{number:02}" for number in range(0, 60, 3))

    def __init__(self, run: Workload) -> None:
        super().__init__(run)
        self._ready = False

    async def act(self, lane: Lane) -> None:
        """Let keys come and go, walk through all of them, or remove some by their prefix."""
        kv, chance = lane.store.kv("lists"), lane.chance
        try:
            if not self._ready:
                await kv.set_many([{"key": key, "value": 1} for key in self.STABLE])
                self._ready = True
            draw = chance.random()
            self.calls += 1
            if draw < 0.4:
                await self._walk(kv, chance)
            elif draw < 0.7:
                key = f"s{chance.randrange(60):02}x"
                await (kv.delete(key) if chance.random() < 0.5 else kv.set(key, 1))
            else:
                await self._remove(kv, chance)
        except HoldfastError:
            await asyncio.sleep(0.1)

    async def _walk(self, kv: KV, chance: Random) -> None:
        keys: list[str] = []
        cursor = None
        while True:
            page = await kv.list("s", limit=chance.choice((3, 7, 20)), cursor=cursor)
            keys += page.keys
            cursor = page.cursor
            if cursor is None:
                break
            await asyncio.sleep(chance.uniform(0, 0.05))
        if keys != sorted(set(keys)) or set(self.STABLE) - set(keys):
            self.wrong("list", f"a walk showed {keys}")

    async def _remove(self, kv: KV, chance: Random) -> None:
        prefix = f"p{chance.getrandbits(32):08x}:"
        names = [f"{prefix}{number:03}" for number in range(chance.choice((3, 40, 250)))]
        items = [{"key": name, "value": "x" * 50} for name in names]
        results = await kv.set_many(items)
        if any(isinstance(one, HoldfastError) for one in results):
            return
        for _ in range(chance.choice((0, 12))):
            if any(not isinstance(one, HoldfastError | Entry) for one in await kv.get_many(names)):
                self.wrong("list", f"of {len(names)} keys that were set some are not there", prefix)
        removed: list[str] = []
        cursor = None
        while True:
            page = await kv.delete_prefix(prefix, limit=chance.choice((20, 200)), cursor=cursor)
            removed += page.keys
            cursor = page.cursor
            if cursor is None:
                break
        left = await kv.list(prefix)
        if removed != names or left.keys:
            text = f"{len(removed)} of {len(names)} were removed, {len(left.keys)} are left"
            self.wrong("delete_prefix", text, prefix)


class Order(Subject):
    """What a connection sends without waiting takes effect in that order."""

    share = 0.05
    keys = ("kv/order",)
    only_alone = True
    READS: Final = ("get", "get_many", "list", "history", "history", "list")

    async def act(self, lane: Lane) -> None:
        """Send reads and writes of one key at once."""
        kv, chance = lane.store.kv("order"), lane.chance
        key = f"{chance.getrandbits(32):08x}"
        before, after = (chance.choices(self.READS, k=chance.randint(1, 3)) for _ in range(2))
        self.calls += 1 + len(before) + len(after)
        wires = set(lane.machine.wires)
        reads = [self._read(kv, verb, key) for verb in before]
        write = kv.set(key, 1)
        behind = [self._read(kv, verb, key) for verb in after]
        answers = await asyncio.gather(*reads, write, *behind, return_exceptions=True)
        early, written, late = answers[: len(reads)], answers[len(reads)], answers[len(reads) + 1 :]
        # A read whose connection is lost is sent again over the next one.
        if True in early and wires == set(lane.machine.wires):
            self.wrong("order", f"one of {before} shows what was set after it", key)
        if False in late and not isinstance(written, BaseException):
            self.wrong("order", f"one of {after} does not show what was set before it", key)
        for one in answers:
            if isinstance(one, BaseException) and not isinstance(one, HoldfastError):
                raise one
            if isinstance(one, Refused):
                raise one

    async def _read(self, kv: KV, verb: str, key: str) -> bool:
        """Whether a read shows a key."""
        if verb == "get":
            return await kv.get(key) is not None
        if verb == "get_many":
            [entry] = await kv.get_many([key])
            if isinstance(entry, HoldfastError):
                raise entry
            return entry is not None
        if verb == "history":
            return bool(await kv.history(key))
        return key in (await kv.list(key)).keys


class Bursts(Subject):
    """Small and large calls that are made at once all succeed, each once."""

    share = 0.03
    keys = ("kv/bursts",)

    def __init__(self, run: Workload) -> None:
        super().__init__(run)
        self._added: list[str] = []
        self._sum = 0
        self.seen = [self._added]

    async def act(self, lane: Lane) -> None:
        """Add to a counter beside large calls, and change an entry in all ways, without waiting."""
        for number in range(3):
            await self._burst(lane.store.kv("bursts"), lane.chance, large=0 if number else 1)

    async def _burst(self, kv: KV, chance: Random, *, large: int) -> None:
        calls = [self._call(kv.incr("sum"), adds=True) for _ in range(chance.randint(2, 6))]
        for _ in range(chance.randint(2, 8)):
            draw = chance.random()
            if draw < 0.5:
                calls.append(self._call(kv.incr("mixed"), adds=False))
            elif draw < 0.8:
                calls.append(self._call(kv.set("mixed", 1), adds=False))
            else:
                calls.append(self._call(kv.delete("mixed"), adds=False))
        for _ in range(large):
            count, size = chance.choice(LARGE)
            fill = [{"key": f"fill:{number}", "value": "x" * size} for number in range(count)]
            if chance.random() < 0.5:
                calls.append(self._call(kv.set_many(fill), adds=False))
            else:
                calls.append(self._call(kv.batch(writes=[{"key": "sum", "incr": 1}, *fill]), adds=True))
        chance.shuffle(calls)
        await asyncio.gather(*calls)

    async def _call(self, call: Awaitable[object], *, adds: bool) -> None:
        place = len(self._added)
        self._added.append("perhaps" if adds else "")
        self.calls += 1
        try:
            await call
        except OutcomeUnknown:
            return
        except HoldfastError as error:
            self._added[place] = "refused"
            if isinstance(error, Refused):
                self.wrong("burst", f"{error.code} {error.message}")
        else:
            self._added[place] = "ok" if adds else ""

    async def last_look(self, store: Store) -> None:
        """Read the counter."""
        entry = await store.kv("bursts").get("sum")
        self._sum = 0 if entry is None else entry.value

    def findings(self) -> Iterator[Finding]:
        """Increments that were lost or made twice."""
        sure, perhaps = self._added.count("ok"), self._added.count("perhaps")
        if not sure <= self._sum <= sure + perhaps:
            yield Finding("burst", f"{sure} increments, and perhaps {perhaps} more, made {self._sum}")


class Shown(msgspec.Struct):
    """A number that a counter has shown, to a reader or to one who added."""

    key: str
    call: int
    end: int
    value: int
    added: bool


class Tallies(Subject):
    """A counter that all add to gives no number twice, and nobody sees less than was shown before."""

    lanes = 4
    share = 0.2
    keys = ("kv/tallies",)
    reads_along = True

    def __init__(self, run: Workload) -> None:
        super().__init__(run)
        self._together = Random(f"tallies {run.world.seed}").random() < 0.5
        self._added: dict[str, list[str]] = {"one": [], "two": []}
        """What became of each addition."""
        self._latest: dict[str, list[float]] = {"one": [], "two": []}
        """When it can have taken effect at the latest."""
        self._shown: list[Shown] = []
        self._end: dict[str, int] = {}
        self.seen = [self._added, self._shown]

    async def act(self, lane: Lane) -> None:
        """Add and read in turn, or in half of the lanes of each client only read.

        Most of the time only one client adds, and another one some seconds later.
        """
        kv, chance = lane.store.kv("tallies"), lane.chance
        key = chance.choice(("one", "two"))
        alone = self.run.writer is not None
        for _ in range(chance.randint(10, 30) if alone else chance.randint(5, 15)):
            hurries = self.run.rushing
            await asyncio.sleep(
                chance.choice((0.0, 0.001, 0.02, 0.02 if hurries else 0.05 if alone else 0.2))
            )
            call, adds = self.run.now(), self._may_add(lane) and chance.random() < 0.4
            self.calls += 1
            try:
                value = await (self._add(kv, chance, key) if adds else self._read(kv, chance, key))
            except HoldfastError as error:
                if isinstance(error, Refused):
                    self.wrong("tally", f"{error.code} {error.message}", key)
                await asyncio.sleep(chance.choice((0.02, 0.2)))
            else:
                if value is not None:
                    self._shown.append(Shown(key, call, self.run.now(), value, adds))

    def _may_add(self, lane: Lane) -> bool:
        if lane.number > 1:
            return False
        if self.run.writer is not None or self.run.rushing:
            return self.run.may_write(lane)
        phase = int(self.run.world.now / 1.5)
        return self._together or phase % 4 == 0 or phase % len(self.run.machines) == lane.client

    async def _add(self, kv: KV, chance: Random, key: str) -> int | None:
        """Add one, alone or with much else. Return what the counter shows, if that is known."""
        place, latest = len(self._added[key]), self._latest[key]
        self._added[key].append("perhaps")
        latest.append(math.inf)
        request_id = f"n{chance.getrandbits(48)}" if chance.random() < 0.5 else None
        try:
            value: int | None = None
            if chance.random() < LARGELY:
                fill = [{"key": f"fill:{number}", "value": "x" * 100} for number in range(40)]
                await kv.batch(writes=[{"key": key, "incr": 1}, *fill], request_id=request_id)
            else:
                value = (await kv.incr(key, request_id=request_id)).value
        except OutcomeUnknown:
            latest[place] = self.run.now() + self.run.timeout * 1e9 + SLACK
            raise
        except HoldfastError:
            self._added[key][place], latest[place] = "refused", -math.inf
            raise
        self._added[key][place], latest[place] = "ok", self.run.now()
        return value

    async def _read(self, kv: KV, chance: Random, key: str) -> int:
        draw = chance.random()
        if draw < 0.6:
            entry = await kv.get(key)
        elif draw < 0.8:
            beside = [f"fill:{number}" for number in range(chance.choice((0, 0, 150)))]
            one = (await kv.get_many([key, *beside]))[0]
            if isinstance(one, HoldfastError):
                raise one
            entry = one
        else:
            page = await kv.list(key, values=True)
            entry = next(iter(page.entries or ()), None)
        return 0 if entry is None else entry.value

    async def last_look(self, store: Store) -> None:
        """Read the counters."""
        for key in self._added:
            entry = await store.kv("tallies").get(key)
            self._end[key] = 0 if entry is None else entry.value

    def findings(self) -> Iterator[Finding]:
        """A number twice, one that is less than what was shown before, additions that were lost."""
        for key, added in self._added.items():
            shown = [one for one in self._shown if one.key == key]
            numbers = [one.value for one in shown if one.added]
            if len(numbers) != len(set(numbers)):
                yield Finding("tally", f"{key} gave a number twice", (key,))
            by_end, place, latest = sorted(shown, key=lambda one: one.end), 0, 0
            for one in sorted(shown, key=lambda one: one.call):
                while place < len(by_end) and by_end[place].end < one.call:
                    latest = max(latest, by_end[place].value)
                    place += 1
                if one.value < latest + one.added:
                    yield Finding("tally", f"{latest} was shown before {one}", (key,))
                    break
            latest_of = sorted(self._latest[key])
            for one in shown:
                still = len(added) - bisect.bisect_left(latest_of, one.call)
                if self._end[key] - one.value > still:
                    text = f"{self._end[key]} in the end, with {still} additions that may come after {one}"
                    yield Finding("executed late", text, (key,), one.end / 1e9)
                    break
            sure, perhaps = added.count("ok"), added.count("perhaps")
            if not sure <= self._end[key] <= sure + perhaps:
                yield Finding(
                    "tally", f"{sure} additions, and perhaps {perhaps}, made {self._end[key]}", (key,)
                )


class Baton(Subject):
    """Who alone may write an entry, and knows it from the one before, finds it so and can replace it."""

    share = 0.06
    keys = ("kv/baton",)

    def __init__(self, run: Workload) -> None:
        super().__init__(run)
        self._holder: tuple[str, int] | None = None
        """The client that may write now, and its life."""
        self._known: Own | None = None

    def died(self, client: str) -> None:
        """A client that died while it held the baton may have sent something."""
        if self._holder is not None and self._holder[0] == client:
            self._holder = self._known = None

    async def act(self, lane: Lane) -> None:
        """Take the baton, look at the entry or replace it, and pass the baton on."""
        for _ in range(8):
            await self._take(lane)
            await asyncio.sleep(lane.chance.choice((0.02, 0.02, 0.4)))

    async def _take(self, lane: Lane) -> None:
        while self._holder is not None:  # noqa: ASYNC110 - virtual time is cheap
            await asyncio.sleep(0.01)
        self._holder = lane.machine.name, lane.life
        try:
            await self._hold(lane)
        except HoldfastError:
            self._known = None
            await asyncio.sleep(0.1)
        self._holder = None

    async def _hold(self, lane: Lane) -> None:
        kv, chance = lane.store.kv("baton"), lane.chance
        if self._known is None:
            await asyncio.sleep(2 * TIMEOUT)  # what was sent before is not executed any more
            self._keep(await kv.get("baton"))
        known = self._known
        assert known is not None
        draw = chance.random()
        if draw < 0.3:
            await self._look(await kv.get("baton"), known)
        elif draw < 0.5:
            try:
                await kv.set("baton", "", expected_version=known.version + 1)
            except VersionConflict as conflict:
                await self._look(conflict.current, known)
            else:
                self.wrong("baton", f"replaced although its version is {known.version}", "baton")
        for _ in range(chance.choice((1, 1, 2, 5, 12))):
            known, self._known = self._known or known, None
            value = f"{chance.getrandbits(48):012x}"
            self.calls += 1
            try:
                self._keep(await kv.set("baton", value, expected_version=known.version))
            except VersionConflict as conflict:
                self.wrong("baton", f"nobody else has replaced version {known.version}: {conflict}", "baton")

    def _keep(self, entry: Entry | None) -> None:
        self._known = Own(0) if entry is None else Own(0, entry.value, entry.version)

    async def _look(self, entry: Entry | None, known: Own) -> None:
        self.calls += 1
        shown = (None, 0) if entry is None else (entry.value, entry.version)
        if shown != (known.value, known.version):
            self.wrong("baton", f"version {known.version} was written, {shown[1]} is shown", "baton")


class Own(msgspec.Struct):
    """What is known of a key that only one lane writes: in which life, its value and version."""

    life: int
    value: Any = None
    version: int = 0


class Sizes(Subject):
    """Who alone writes a key finds what was written last, whatever its size; a full namespace may shrink."""

    share = 0.04
    SIZES: Final = (1, 100, 3_000, 20_000)

    def __init__(self, run: Workload) -> None:
        super().__init__(run)
        self.keys = tuple(f"kv/sizes{client}" for client in range(len(run.machines)))
        self._own: dict[str, Own] = {}

    async def act(self, lane: Lane) -> None:
        """Write values of different sizes and read them, or make a namespace over its quota smaller."""
        kv, chance = lane.store.kv(f"sizes{lane.client}"), lane.chance
        keys = [f"{lane.name} {number}" for number in range(4)]
        try:
            if any(key not in self._own or self._own[key].life != lane.life for key in keys):
                await asyncio.sleep(2 * TIMEOUT)  # what was sent before is not executed any more
                for key in keys:
                    self._keep(lane, key, await kv.get(key))
            for _ in range(chance.randint(6, 20)):
                draw, key = chance.random(), chance.choice(keys)
                self.calls += 1
                if draw < 0.4:
                    await self._write(kv, lane, key, "x" * chance.choice(self.SIZES))
                elif draw < 0.55:
                    await self._write(kv, lane, key, None)
                    await self._read(kv, key, alone=True)
                elif draw < 0.9:
                    await self._read(kv, key, alone=draw < 0.7)
                else:
                    await self._shrink(lane)
        except HoldfastError:
            await asyncio.sleep(0.2)

    def _keep(self, lane: Lane, key: str, entry: Entry | None) -> None:
        self._own[key] = Own(lane.life) if entry is None else Own(lane.life, entry.value, entry.version)

    async def _write(self, kv: KV, lane: Lane, key: str, value: str | None) -> None:
        """Replace or delete the value; what is not certain is forgotten."""
        known = self._own.pop(key)
        try:
            if value is not None:
                self._keep(lane, key, await kv.set(key, value, expected_version=known.version))
            else:
                if await kv.delete(key) != (known.value is not None):
                    self.wrong("size", f"a delete did not know {known.version}", key)
                self._keep(lane, key, None)
        except VersionConflict as conflict:
            if conflict.reason is None:
                self.wrong("size", f"only this lane writes it: version {known.version}: {conflict}", key)

    async def _read(self, kv: KV, key: str, *, alone: bool) -> None:
        known = self._own.get(key)
        if known is None:
            return
        entry = await kv.get(key) if alone else (await kv.get_many([key, "?"]))[0]
        if isinstance(entry, HoldfastError):
            raise entry
        shown = (None, 0) if entry is None else (entry.value, entry.version)
        if shown != (known.value, known.version):
            self.wrong("size", f"version {known.version} was written, {shown[1]} is shown", key)

    async def _shrink(self, lane: Lane) -> None:
        name = f"full{lane.client}"
        kv, key = lane.store.kv(name), lane.name
        await lane.store.set_policy(f"kv/{name}", {})
        for number in range(2):
            await kv.set(f"{key} {number}", "x" * 3_000)
        try:
            await lane.store.set_policy(f"kv/{name}", {"quota_bytes": 1_000})
            await kv.set(f"{key} 0", "x")
        except QuotaExceeded as refusal:
            self.wrong("quota", f"nothing becomes larger, and it was refused: {refusal}", key)


KEYS: Final[tuple[type[Subject], ...]] = (
    *(Registers, Tallies, Baton, Batches, Bursts, Deadlines, Fences, Crowds, Quotas, Lists, Order, Sizes),
)
"""The subjects about keys."""
