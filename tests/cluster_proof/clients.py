"""The clients on one node: what they ask for, and what they write down.

Clients go on through every error of Holdfast's, and judge nothing. Any other error ends the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from holdfast.errors import HoldfastError, OutcomeUnknown, VersionConflict
from tests.cluster_proof.steps import Recorder, Step
from tests.linear.history import Operation
from tests.linear.speakers import Own

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    import holdfast
    from holdfast.model import Entry
    from tests.cluster_proof.turns import Turns
    from tests.linear.history import Outcome

REGISTERS: Final = ("linear-a", "linear-b")
COUNTERS, LISTS, LOCKS, AUDITED = "counters", "lists", "locks", "audited"
KEYS: Final = 12
"""The number of registers of each plugin that are in use at a time."""
KEY_SECONDS: Final = 4.0
REPEATED: Final = 0.3
"""The share of writes with a request id, which are sent again until they are answered."""
STEP: Final = 1000
LIST_SECONDS: Final = 1.5
PAUSE_SECONDS: Final = 0.05
REPEATS: Final = 60
LOCK_TTL: Final = 1


class Clients:
    """The clients of one life of a node.

    Args:
        store: The node.
        folder: Where the histories go.
        number: The number of the node, from 0.
        life: The name of this life of the node.
        seed: Decides what the clients ask for.
        pace: The longest pause of a client between two calls, in seconds.
        start: The instant that the names of keys count from, the same for all nodes.
        turns: Tells whose turn it is.
    """

    def __init__(
        self,
        store: holdfast.Store,
        folder: Path,
        *,
        number: int,
        life: str,
        seed: int,
        pace: float,
        start: int,
        turns: Turns,
    ) -> None:
        self._store = store
        self._own = Own(store, 60.0)
        self._number = number
        self._life = life
        self._seed = seed
        self._pace = pace
        self._start = start
        self._turns = turns
        self._registers = Recorder(folder / f"registers-{life}.jsonl")
        self._steps = Recorder(folder / f"steps-{life}.jsonl")
        self._values = (number + 1) * 10**13 + int(life.rpartition("-")[2]) * 10**10
        self._versions: dict[tuple[str, str], int] = {}
        self._tokens: list[int] = []
        self.ended = 0
        self.stopping = False

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start all clients."""
        work = {
            self._read: 4,
            self._register: 8,
            self._increment: 3,
            self._append: 3,
            self._lock: 1,
            self._fenced: 2,
            self._audited: 1,
        }
        for one, count in work.items():
            for position in range(count):
                group.create_task(self._client(one, f"{self._life}-{one.__name__}-{position}"))
        group.create_task(self._watch())

    def close(self) -> None:
        """Close the histories."""
        self._registers.close()
        self._steps.close()

    async def _client(self, work: Callable[[random.Random, str], Awaitable[bool]], name: str) -> None:
        chance = random.Random(f"{self._seed} {name}")
        while not self.stopping:
            answered = self._turns.reads(self._number) and await work(chance, name)
            self.ended += answered
            await asyncio.sleep(chance.uniform(0, self._pace) if answered else PAUSE_SECONDS)

    # Registers.

    async def _read(self, chance: random.Random, name: str) -> bool:
        return await self._operate(self._request(chance, reads=True))

    async def _register(self, chance: random.Random, name: str) -> bool:
        return await self._operate(self._request(chance, reads=not self._turns.writes(self._number)))

    async def _operate(self, asked: dict[str, Any]) -> bool:
        number = None if asked["verb"] == "get" else -1
        client, call = self._number, time.monotonic_ns()
        if number is not None:
            number = self._registers.begin(
                Operation(client=client, call=call, end=None, outcome="unknown", **asked)
            )
        told = await self._own.ask(asked)
        told.pop("deadline", None)
        if told.get("version") is not None:
            self._versions[asked["namespace"], asked["key"]] = told["version"]
        operation = Operation(client=client, call=call, end=time.monotonic_ns(), **asked, **told)
        self._registers.end(operation, number)
        return operation.outcome != "refused"

    def _request(self, chance: random.Random, *, reads: bool) -> dict[str, Any]:
        number = chance.randrange(KEYS)
        age = (time.monotonic_ns() - self._start) / 1e9 / KEY_SECONDS
        asked: dict[str, Any] = {
            "namespace": chance.choice(REGISTERS),
            "key": f"{number}:{int(age + number / KEYS)}",
            "verb": "get",
        }
        if reads:
            return asked
        verb = asked["verb"] = chance.choices(["get", "set", "incr", "delete"], [38, 40, 15, 7])[0]
        if verb == "set":
            self._values += STEP
            asked["argument"] = self._values
        elif verb == "incr":
            asked["argument"] = 1
        if verb != "get" and chance.random() < 0.5:
            seen = self._versions.get((asked["namespace"], asked["key"]), 0)
            asked["expected"] = chance.choices([seen, 0], [70, 30])[0]
        if verb != "get" and chance.random() < REPEATED:
            asked["request_id"] = f"{self._life}-{chance.getrandbits(48)}"
        return asked

    # Increments.

    async def _increment(self, chance: random.Random, name: str) -> bool:
        if not self._turns.writes(self._number):
            return False
        request = f"{name}-{chance.getrandbits(48)}" if chance.random() < 0.5 else None
        key = f"sum-{chance.randrange(2)}"
        kv = self._store.kv(COUNTERS)

        async def call() -> tuple[int, int]:
            entry = await kv.incr(key, request_id=request)
            return entry.value, entry.version

        step = Step(kind="incr", client=name, call=time.monotonic_ns(), key=key, request_id=request)
        number = self._steps.begin(step)
        fields = await self._answered(call, repeats=REPEATS if request else 0)
        if "reply" in fields:
            replies = [fields.pop("reply")]
            if request and chance.random() < 0.5:
                again = await self._answered(call, repeats=0)
                replies += [again["reply"]] if "reply" in again else []
            fields |= {"value": replies[0][0], "version": replies[0][1], "replies": replies}
        return self._end(step, number, fields)

    async def _answered(self, call: Callable[[], Awaitable[Any]], *, repeats: int) -> dict[str, Any]:
        """Call, and again while the outcome is unknown, and return the fields of the step's end."""
        doubt = False
        for attempt in range(repeats + 1):
            if attempt:
                await asyncio.sleep(PAUSE_SECONDS)
            try:
                return {"outcome": "ok", "reply": await call()}
            except OutcomeUnknown as error:
                doubt, code = True, error.code
            except VersionConflict as error:
                outcome: Outcome = "unknown" if doubt else "conflict"
                return {"outcome": outcome, "code": error.code}
            except HoldfastError as error:
                code = error.code
                if not doubt:
                    return {"outcome": "refused", "code": code}
        return {"outcome": "unknown", "code": code}

    def _end(self, step: Step, number: int | None, fields: dict[str, Any]) -> bool:
        ended = replace(step, end=time.monotonic_ns(), **fields)
        self._steps.end(ended, number)
        return ended.outcome != "refused"

    # Transactions.

    async def _append(self, chance: random.Random, name: str) -> bool:
        age = int((time.monotonic_ns() - self._start) / 1e9 / LIST_SECONDS)
        keys = [f"{number}:{age}" for number in chance.sample(range(4), chance.randint(1, 3))]
        kv, call = self._store.kv(LISTS), time.monotonic_ns()
        try:
            entries = [_entry(one) for one in await kv.get_many(keys)]
        except HoldfastError:
            return False
        found: dict[str, list[int]] = {}
        checks = []
        for key, entry in zip(keys, entries, strict=True):
            found[key] = [] if entry is None else entry.value
            checks.append({"key": key, "version": 0 if entry is None else entry.version})
        if not self._turns.writes(self._number):
            return True  # checks alone would be a write, which keeps the shard with this node
        added = {}
        for key in keys[: chance.randint(0, len(keys))]:
            self._values += 1
            added[key] = self._values
        writes = [{"key": key, "value": [*found[key], one]} for key, one in added.items()]
        step = Step(kind="append", client=name, call=call, found=found, added=added)
        number = self._steps.begin(step) if added else None

        async def confirm() -> object:
            return await kv.batch(checks=checks, writes=writes)

        fields = await self._answered(confirm, repeats=0)
        fields.pop("reply", None)
        return self._end(step, number, fields)

    # Locks.

    async def _lock(self, chance: random.Random, name: str) -> bool:
        """Take the lock if it is free, and leave it to expire."""
        await asyncio.sleep(chance.uniform(0, LOCK_TTL))
        if not self._turns.writes(self._number):
            return False
        holder, kv = f"{name}-{chance.getrandbits(48)}", self._store.kv(LOCKS)
        step = Step(kind="grant", client=name, call=time.monotonic_ns(), request_id=holder)
        number = self._steps.begin(step)

        async def take() -> int:
            result = await kv.batch(
                checks=[{"key": "lock:one", "version": 0}],
                writes=[{"key": "lock:one", "value": holder, "ttl": LOCK_TTL}, {"guard": "one"}],
                request_id=holder,
            )
            assert result.versions[1] is not None
            return result.versions[1]

        fields = await self._answered(take, repeats=REPEATS)
        token = fields.pop("reply", None)
        if token is not None:
            fields["token"] = token
            self._tokens.append(token)
        return self._end(step, number, fields)

    async def _fenced(self, chance: random.Random, name: str) -> bool:
        """Write under a lock that this node has taken, also after others have taken it."""
        if not self._tokens or not self._turns.writes(self._number):
            return False
        token, kv = chance.choice(self._tokens[-2:]), self._store.kv(LOCKS)
        step = Step(kind="fenced", client=name, call=time.monotonic_ns(), key="under", token=token)
        number = self._steps.begin(step)

        async def write() -> int:
            entry = await kv.set("under", chance.getrandbits(32), fence={"lock": "one", "token": token})
            return entry.version

        fields = await self._answered(write, repeats=0)
        if "reply" in fields:
            fields["version"] = fields.pop("reply")
        self._end(step, number, fields)
        await asyncio.sleep(PAUSE_SECONDS)
        return bool(fields["outcome"] == "ok")

    # The audit, and a watch.

    async def _audited(self, chance: random.Random, name: str) -> bool:
        if not self._turns.writes(self._number):
            return False
        key, request = f"key-{chance.randrange(20)}", f"{name}-{chance.getrandbits(48)}"
        kv = self._store.kv(AUDITED)
        step = Step(kind="audited", client=name, call=time.monotonic_ns(), key=key, request_id=request)
        number = self._steps.begin(step)

        async def write() -> int:
            return (await kv.set(key, chance.getrandbits(32), request_id=request)).version

        fields = await self._answered(write, repeats=REPEATS)
        if "reply" in fields:
            fields["version"] = fields.pop("reply")
        return self._end(step, number, fields)

    async def _watch(self) -> None:
        """Watch the counters while this node has its turn: from the beginning, then from the last change."""
        since, number = 0, 0
        while not self._over():
            await asyncio.sleep(PAUSE_SECONDS)
            if not self._turns.writes(self._number):
                continue
            number += 1
            name, began = f"{self._life}-watch-{number}", since
            with contextlib.suppress(HoldfastError, TimeoutError):
                async with asyncio.timeout(self._turns.left()):
                    async for change in self._store.kv(COUNTERS).watch(since=since):
                        now = time.monotonic_ns()
                        since = change.version
                        self._steps.end(
                            Step(
                                kind="watch",
                                client=name,
                                call=now,
                                end=now,
                                outcome="ok",
                                key=change.key if change.op == "set" else f"({change.op})",
                                version=change.version,
                                token=began,
                            )
                        )
                        if self._over():
                            return

    def _over(self) -> bool:
        return self.stopping


def _entry(found: Entry | HoldfastError | None) -> Entry | None:
    if isinstance(found, HoldfastError):
        raise found
    return found
