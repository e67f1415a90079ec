"""What clients do with a store, and what they saw: the material for the judge.

Every lane of a client has random numbers of its own, so that leaving out a client or a fault does not change
what the others do. Lanes work in bursts with pauses between them: faults find most while much is under way.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

import holdfast
from holdfast.errors import Fenced, HoldfastError, OutcomeUnknown, VersionConflict
from tests.linear.history import Operation

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from holdfast import Store
    from holdfast.model import Entry
    from tests.simulation.world import Machine, World

REGISTERS: Final = ("alpha", "beta")
"""The namespaces whose keys are registers and counters."""
BATCHES, DEADLINES, FENCES = "batches", "deadlines", "fences"
TIMEOUT: Final = 2.0
"""The seconds after which a client gives up."""
AGE: Final = 6.0
"""The seconds after which lanes go on to other keys: the judge's work grows fast with those on one key."""
BIG_BATCHES: Final = (40, 150, 400)
"""How many other keys a large set_many writes."""


class Limits(NamedTuple):
    """How much of a workload is run. Shrinking makes these smaller."""

    clients: int = 3
    ops: int = 360
    keys: int = 8


class Batch(msgspec.Struct):
    """A batch that was sent: all of it must be in the journal, or nothing."""

    request_id: str
    keys: list[str]
    outcome: str = "unknown"
    versions: list[int | None] = []


class Deadline(msgspec.Struct):
    """A look at an entry with a deadline, between two times of the store."""

    key: str
    expires_at: int
    before: int
    after: int
    shown: bool
    same: bool


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
    outcome: str = ""


class Watch(msgspec.Struct):
    """What a watch has shown."""

    namespace: str
    client: int
    life: int
    since: int = 0
    changes: list[tuple[int, str, str]] = []


class Change(NamedTuple):
    """A record of a journal."""

    version: int
    op: str
    key: str
    request_id: str | None


class Clocked(NamedTuple):
    """A time of the store, as a write showed it between two instants."""

    call: int
    end: int
    at: int


class Seen(msgspec.Struct):
    """All that the clients of a run saw."""

    history: list[Operation] = []
    batches: list[Batch] = []
    deadlines: list[Deadline] = []
    tokens: list[Token] = []
    fenced: list[FencedWrite] = []
    watches: list[Watch] = []
    times: list[Clocked] = []
    faults: list[str] = []
    """What a lane itself found to be wrong."""
    journals: dict[str, list[Change]] = {}
    lists: dict[str, list[str]] = {}
    total: int | None = None

    @property
    def operations(self) -> int:
        """How many calls were made, without those that were refused."""
        answered = sum(one.outcome != "refused" for one in self.history)
        return answered + len(self.batches) + 3 * len(self.deadlines) + len(self.fenced)


class Workload:
    """The clients of a run.

    Args:
        world: The world.
        machines: A machine for each client.
        url: What the clients open.
        limits: How much they do.
    """

    def __init__(self, world: World, machines: list[Machine], url: str, limits: Limits) -> None:
        self.seen = Seen()
        self.calm = False
        """Whether all faults are over. Then the last look at the store is taken."""
        self.over = False
        self._world = world
        self._machines = machines[: limits.clients]
        self._url = url
        chance = Random(f"workload {world.seed}")
        self._keys = min(chance.choice((2, 4, 8)), limits.keys)
        self._think = chance.choice((0.5, 1.0, 2.0))
        self._big = chance.choice((0.0, 0.05, 0.15))
        self._twice = chance.choice((0.0, 0.1))
        self._value = 0
        self._versions: dict[tuple[str, str], int] = {}
        self._open: dict[str, Operation] = {}
        registers = 4 * limits.ops // 5
        shares = {
            "register": (4, registers // 4),
            "batch": (1, limits.ops // 12),
            "fence": (1, limits.ops // 16),
        }
        shares["deadline"] = (1, limits.ops // 40)
        self._left: dict[tuple[int, str], int] = {}
        """The calls that each lane has still to make."""
        for client in range(len(self._machines)):
            for kind, (lanes, share) in shares.items():
                for lane in range(lanes):
                    self._left[client, f"{kind} {lane}"] = -(-share // len(self._machines))

    @property
    def finished(self) -> bool:
        """Whether every lane has done its part."""
        return not any(self._left.values())

    def start(self, machine: Machine) -> None:
        """Start a client, or start it again after its process has died."""
        for name in [name for name in self._open if name.startswith(f"{machine.name} ")]:
            operation = self._open.pop(name)
            self.seen.history.append(msgspec.structs.replace(operation, end=self._now()))
        machine.spawn(self._client(machine), name=machine.name)

    def _now(self) -> int:
        return int(self._world.now * 1e9)

    async def _client(self, machine: Machine) -> None:
        client = self._machines.index(machine)
        while not self.over:
            try:
                async with holdfast.open(self._url) as store:
                    await self._work(store, client)
            except HoldfastError as error:
                self._world.note(machine.name, f"the store can't be used: {error.code}")
                await asyncio.sleep(0.5)

    async def _work(self, store: Store, client: int) -> None:
        watch = asyncio.create_task(self._watch(store, client))
        lanes: dict[str, Callable[..., Awaitable[None]]] = {
            "register": self._register,
            "batch": self._batch,
            "fence": self._fence,
            "deadline": self._deadline,
        }
        own = [name for number, name in self._left if number == client]
        await asyncio.gather(*(self._lane(store, client, name, lanes[name.split()[0]]) for name in own))
        while not self.calm:  # noqa: ASYNC110 - virtual time is cheap
            await asyncio.sleep(0.1)
        if client == 0:
            await self._last_look(store)
            self.over = True
        await asyncio.sleep(60)
        watch.cancel()

    async def _lane(self, store: Store, client: int, name: str, call: Callable[..., Awaitable[None]]) -> None:
        life = self._machines[client].life
        chance = Random(f"{self._world.seed} {client} {name} {life}")
        while self._left[client, name] > 0:
            await call(store, client, f"{self._machines[client].name} {name}", chance)
            self._left[client, name] -= 1
            if chance.random() < 0.2:
                await asyncio.sleep(chance.expovariate(1 / self._think))

    # Registers and counters

    async def _register(self, store: Store, client: int, name: str, chance: Random) -> None:
        while True:
            operation = self._asked(client, chance)
            self._open[name] = operation
            reply = await self._answer(store, name, operation)
            del self._open[name]
            done = msgspec.structs.replace(operation, end=self._now(), **reply)
            self.seen.history.append(done)
            if self._world.tracing:
                self._world.detail(self._machines[client].name, f"{done} {done.request_id or ''}")
            if done.version is not None:
                self._versions[done.namespace, done.key] = done.version
            if done.outcome != "refused":
                return
            await asyncio.sleep(chance.choice((0.02, 0.2)))

    def _asked(self, client: int, chance: Random) -> Operation:
        namespace = chance.choice(REGISTERS)
        key = f"k{chance.randrange(self._keys)}:{int(self._world.now / AGE)}"
        verb = chance.choices(["get", "set", "incr", "delete"], [38, 30, 25, 7])[0]
        fields: dict[str, Any] = {}
        if verb == "set":
            self._value += 1000
            fields["argument"] = self._value
            if chance.random() < self._big:
                fields["beside"] = chance.choice(BIG_BATCHES)
        elif verb == "incr":
            fields["argument"] = 1
        if verb != "get" and chance.random() < 0.5:
            known = self._versions.get((namespace, key), 0)
            fields["expected"] = known if chance.random() < 0.7 else 0
        if verb != "get" and chance.random() < 0.5:
            fields["request_id"] = f"r{chance.getrandbits(48)}"
        now = self._now()
        return Operation(
            client=client,
            call=now,
            end=now,
            namespace=namespace,
            key=key,
            verb=verb,  # type: ignore[arg-type]
            outcome="unknown",
            deadline=now + int(TIMEOUT * 1e9),
            **fields,
        )

    async def _answer(self, store: Store, name: str, operation: Operation) -> dict[str, Any]:
        """Call, and call again with the same request id while the outcome is not known."""
        reply = await self._attempt(store, operation)
        if operation.request_id is None:
            return reply
        for _ in range(40):
            if reply["outcome"] != "unknown":
                break
            await asyncio.sleep(0.05)
            deadline = self._now() + int(TIMEOUT * 1e9)
            self._open[name] = msgspec.structs.replace(operation, deadline=deadline)
            again = await self._attempt(store, operation)
            if again["outcome"] in {"ok", "unknown"} or again.get("code") == "REUSED":
                reply = again
            elif again["outcome"] == "conflict":  # the first attempt may have caused it
                return reply
        if reply["outcome"] == "ok" and Random(operation.request_id).random() < self._twice:
            again = await self._attempt(store, operation)
            if again["outcome"] != "unknown" and again["outcome"] != "refused" and again != reply:
                self.seen.faults.append(
                    f"{operation.request_id} was answered {reply} and, sent again, {again}: {operation}"
                )
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
            if operation.beside:
                item = {"key": key, "value": operation.argument}
                if operation.expected is not None:
                    item["expected_version"] = operation.expected
                fill = [{"key": f"fill:{n}", "value": "x" * 100} for n in range(operation.beside)]
                [first, *_] = await kv.set_many([item, *fill], request_id=operation.request_id)
                if isinstance(first, HoldfastError):
                    raise first
                return _shown("ok", first)
            assert operation.argument is not None
            write = kv.set if verb == "set" else kv.incr
            return _shown("ok", await write(key, operation.argument, **checked))
        except VersionConflict as conflict:
            if conflict.reason is not None:
                return {"outcome": "refused", "code": "REUSED"}
            return _shown("conflict", conflict.current)
        except OutcomeUnknown as error:
            return {"outcome": "unknown", "code": error.code, "deadline": self._now() + int(TIMEOUT * 1e9)}
        except HoldfastError as error:
            return {"outcome": "refused", "code": error.code}

    # Batches: all or nothing, once

    async def _batch(self, store: Store, client: int, name: str, chance: Random) -> None:
        kv = store.kv(BATCHES)
        request_id = f"b{chance.getrandbits(48)}"
        keys = chance.sample(["a", "b", "c", "d"], chance.randint(2, 3))
        writes: list[dict[str, Any]] = [{"key": key, "value": request_id} for key in keys]
        writes.append({"key": "total", "incr": 1})
        checks = []
        if chance.random() < 0.5:
            version = self._versions.get((BATCHES, keys[0]), 0)
            checks.append({"key": keys[0], "version": version})
        batch = Batch(request_id, [*keys, "total"])
        self.seen.batches.append(batch)
        for _ in range(20):
            try:
                result = await kv.batch(checks=checks, writes=writes, request_id=request_id)
            except VersionConflict as conflict:
                batch.outcome = "refused" if batch.outcome == "unknown" and _ == 0 else batch.outcome
                for one in conflict.conflicts:
                    current = one.current
                    self._versions[BATCHES, one.key] = 0 if current is None else current.version
                return
            except OutcomeUnknown:
                batch.outcome = "perhaps"
            except HoldfastError:
                pass
            else:
                batch.outcome, batch.versions = "ok", list(result.versions)
                self._versions[BATCHES, keys[0]] = batch.versions[0] or 0
                return
            await asyncio.sleep(chance.choice((0.02, 0.2)))

    # Entries with a deadline, and the store's time

    async def _deadline(self, store: Store, client: int, name: str, chance: Random) -> None:
        kv = store.kv(DEADLINES)
        key, made = f"{name} {chance.getrandbits(32)}", None
        while made is None:
            try:
                made = await kv.set(key, chance.getrandbits(16), ttl=chance.choice((1, 2)))
            except HoldfastError:
                await asyncio.sleep(0.1)
                key = f"{name} {chance.getrandbits(32)}"
        assert made.expires_at is not None
        for _ in range(5):
            await asyncio.sleep(chance.uniform(0, 0.7))
            try:
                before = await self._time(kv, name)
                entry = await kv.get(key)
                after = await self._time(kv, name)
            except HoldfastError:
                continue
            same = entry is None or (entry.value, entry.version) == (made.value, made.version)
            shown = entry is not None
            expires_at = _milliseconds(made.expires_at)
            self.seen.deadlines.append(Deadline(key, expires_at, before, after, shown, same))

    async def _time(self, kv: Any, name: str) -> int:
        """The store's time, as a write shows it."""
        call = self._now()
        entry = await kv.set(f"{name} time", 0)
        clocked = Clocked(call, self._now(), _milliseconds(entry.updated_at))
        self.seen.times.append(clocked)
        return clocked.at

    # Fences

    async def _fence(self, store: Store, client: int, name: str, chance: Random) -> None:
        kv = store.kv(FENCES)
        asked = Token(self._now())
        self.seen.tokens.append(asked)
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
        asked.token, asked.end = token, self._now()
        for _ in range(chance.randrange(1, 5)):
            await asyncio.sleep(chance.uniform(0, 0.15))
            write = FencedWrite(token, self._now())
            try:
                await kv.set("guarded", token, fence={"lock": "lock", "token": token})
                write.outcome = "ok"
            except Fenced:
                write.outcome = "fenced"
            except HoldfastError as error:
                write.outcome = error.code
            write.end = self._now()
            self.seen.fenced.append(write)

    # Watches

    async def _watch(self, store: Store, client: int) -> None:
        namespace = REGISTERS[client % 2]
        watch = Watch(namespace, client, self._machines[client].life)
        self.seen.watches.append(watch)
        while True:
            try:
                async for change in store.kv(namespace).watch(since=watch.since):
                    if change.op == "gap":
                        self.seen.faults.append(f"a watch of {namespace} has a gap after {watch.since}")
                    else:
                        watch.changes.append((change.version, change.op, change.key))
                        watch.since = change.version
            except HoldfastError:
                await asyncio.sleep(0.2)

    # The end

    async def _last_look(self, store: Store) -> None:
        """Read everything once no fault is left: it must explain what the clients were told."""
        self._world.note("", "all faults are over")
        for namespace, key in dict.fromkeys((one.namespace, one.key) for one in self.seen.history):
            await self._patiently(self._last_get, store, namespace, key)
        for namespace in (*REGISTERS, BATCHES, DEADLINES):
            kv = store.kv(namespace)
            await self._patiently(self._journal, kv, namespace)
            await self._patiently(self._list, kv, namespace)
        await self._patiently(self._total, store.kv(BATCHES))
        for _ in range(200):  # a client may take some seconds to notice that its connection is gone
            await asyncio.sleep(0.1)
            if all(self._is_whole(watch) for watch in self.seen.watches):
                break

    def _is_whole(self, watch: Watch) -> bool:
        """Whether a watch of a living client has shown everything."""
        dead = watch.life != self._machines[watch.client].life
        return dead or len(watch.changes) >= len(self.seen.journals.get(watch.namespace, ()))

    async def _patiently(self, look: Callable[..., Awaitable[None]], *args: Any) -> None:
        for _ in range(300):
            try:
                await look(*args)
            except HoldfastError:
                await asyncio.sleep(0.1)
            else:
                return
        self.seen.faults.append("the service does not come back")
        self.over = True

    async def _last_get(self, store: Store, namespace: str, key: str) -> None:
        call = self._now()
        entry = await store.kv(namespace).get(key)
        reply = _shown("ok", entry)
        self.seen.history.append(
            Operation(
                client=99, call=call, end=self._now(), namespace=namespace, key=key, verb="get", **reply
            )
        )

    async def _journal(self, kv: Any, namespace: str) -> None:
        since, changes = 0, []
        while True:
            page = await kv.changes(since, limit=1_000)
            if page.gap:
                self.seen.faults.append(f"the journal of {namespace} has a gap")
            if not page.changes:
                break
            changes += [Change(one.version, one.op, one.key, one.request_id) for one in page.changes]
            since = page.next
        self.seen.journals[namespace] = changes

    async def _list(self, kv: Any, namespace: str) -> None:
        keys: list[str] = []
        cursor = None
        while True:
            page = await kv.list(limit=300, cursor=cursor)
            keys += page.keys
            cursor = page.cursor
            if cursor is None:
                break
        self.seen.lists[namespace] = keys

    async def _total(self, kv: Any) -> None:
        entry = await kv.get("total")
        self.seen.total = 0 if entry is None else entry.value


def _shown(outcome: str, entry: Entry | None) -> dict[str, Any]:
    reply: dict[str, Any] = {"outcome": outcome, "deadline": None}
    return reply if entry is None else {**reply, "found": entry.value, "version": entry.version}


def _milliseconds(at: datetime) -> int:
    return round(at.timestamp() * 1000)
