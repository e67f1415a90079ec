"""The clients of a run: which subjects they are about, in how many lanes, and the last look at the store.

Every lane of a client has random numbers of its own, so that leaving out a client or a fault does not change
what the others do. Lanes work in bursts with pauses between them: faults find most while much is under way.
"""

from __future__ import annotations

import asyncio
import itertools
import traceback
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

import holdfast
from holdfast.edges.settings.read import KEY_FILE
from holdfast.errors import HoldfastError
from tests.simulation.families import FAMILIES
from tests.simulation.keys import KEYS, Clocked, Registers
from tests.simulation.subject import TIMEOUT, Finding, Lane, keys_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Container, Iterator

    from holdfast import Store
    from tests.simulation.subject import Subject
    from tests.simulation.world import Machine, World

CHOSEN: Final = 0.5
"""The chance of a subject to be part of a run. Registers always are."""


SHARED_KEY: Final = Path(KEY_FILE)
"""The key that signs the audit of a cluster: all its nodes have got it."""
LATEST_WATCH: Final = 20.0
"""The seconds after which a watch must have shown everything. A client has to notice a dead connection."""
SETTLED: Final = 5.0
"""The seconds after the last fault in which everything that has a deadline expires and is removed."""


BUSY: Final = 2.0
"""The seconds in which all clients write, before one of them writes alone."""
ALONE: Final = 4.0
"""The seconds in which a client writes alone, in worlds whose clients take turns."""
TURNS: Final = 0.6
"""The chance of a world that its clients take turns."""
NOBODY: Final = -1
ANSWERED: Final = 40.0
"""The seconds within which every client gets an answer once no fault is left."""
UNREST: Final = 1.0
"""For how many seconds after the death of a process others write as well."""
INTRUDES: Final = (0.0, 0.01, 0.05)
"""How often a client writes although another one writes alone. A seed chooses."""


class Limits(NamedTuple):
    """How much of a workload is run. Shrinking makes these smaller."""

    clients: int = 3
    ops: int = 360
    keys: int = 8
    subjects: int = 99
    """How many beside the registers."""
    only: tuple[str, ...] | None = None
    """Which ones, if not those that the seed has chosen."""


class Change(NamedTuple):
    """A record of a journal."""

    version: int
    op: str
    key: str
    request_id: str | None
    at: int
    expired_version: int | None


class Kept(msgspec.Struct):
    """What a namespace had in the end."""

    changes: list[Change] = []
    listed: dict[str, int] = {}
    """The keys with their versions."""
    corrected: int = 0
    """The counters that were wrong."""


class Workload:
    """The clients of a run.

    Args:
        world: The world.
        machines: A machine for each client.
        urls: What each client opens.
        limits: How much they do.
        alone: Whether one service serves all of them.
        skew: By how many milliseconds the clocks of services may differ.
    """

    def __init__(
        self,
        world: World,
        machines: list[Machine],
        urls: list[str],
        limits: Limits,
        *,
        alone: bool = True,
        skew: int = 0,
    ) -> None:
        self.world = world
        self.machines = machines[: limits.clients]
        self.limits = limits
        self.skew = skew
        self.timeout = TIMEOUT if alone else 2 * TIMEOUT
        """The seconds after which a client gives up, as its URL says."""
        self.calm = False
        """Whether all faults are over. Then the last look at the store is taken."""
        self.over = False
        self._rush_until = 0.0
        self._rush_writers: Container[int] = ()
        self.watches_waited = 0.0
        """The seconds that watches took to show what was written before the end."""
        self.kept: dict[str, Kept] = {}
        self.clocked: list[Clocked] = []
        """The times of the store that writes have shown."""
        self.faults: list[Finding] = []
        """What was found to be wrong at once. It ends the run."""
        self.urls = urls
        chance = Random(f"workload {world.seed}")
        self._think = chance.choice((0.5, 1.0, 2.0))
        self._intrudes = chance.choice(INTRUDES)
        self._takes_turns = Random(f"turns {world.seed}").random() < TURNS
        kinds = [kind for kind in (*KEYS, *FAMILIES) if chance.random() < CHOSEN or kind is Registers]
        if limits.only is not None:
            kinds = [
                kind for kind in (*KEYS, *FAMILIES) if kind.__name__.lower() in ("registers", *limits.only)
            ]
        embedded = any(url.startswith("sqlite:") for url in urls)
        kinds = [kind for kind in kinds if alone or not kind.only_alone]
        kinds = [kind for kind in kinds if embedded or not kind.only_embedded]
        others = [kind for kind in kinds if kind is not Registers]
        Random(f"subjects {world.seed}").shuffle(others)
        left_out = others[limits.subjects :]
        self.subjects: list[Subject] = [kind(self) for kind in kinds if kind not in left_out]
        self._left: dict[Subject, int] = {}
        """What the lanes have still to do for each subject. So all of them are busy until the end."""
        self._acting = dict.fromkeys(range(len(self.machines)), 0)
        """The lanes of each client that are doing something."""
        for subject in self.subjects:
            self._left[subject] = max(subject.lanes, round(limits.ops * subject.share))

    @property
    def finished(self) -> bool:
        """Whether everything is done."""
        return not any(self._left.values()) and not any(self._acting.values())

    @property
    def operations(self) -> int:
        """How many calls were made."""
        return sum(subject.calls for subject in self.subjects)

    @property
    def registers(self) -> Registers:
        """The subject that every run has."""
        return next(one for one in self.subjects if isinstance(one, Registers))

    def now(self) -> int:
        """The world's time, in nanoseconds."""
        return int(self.world.now * 1e9)

    @property
    def writer(self) -> int | None:
        """The client that alone may write now, or `NOBODY`; None while all may."""
        turn, place = divmod(self.world.now, BUSY + ALONE)
        if not self._takes_turns or place < BUSY:
            return None
        return NOBODY + (self.world.seed + int(turn)) % (len(self.machines) + 1)

    def rush(self, seconds: float, *, writers: Container[int]) -> None:
        """Let these clients write for some seconds and the others read, without long pauses."""
        self._rush_until, self._rush_writers = self.world.now + seconds, writers

    @property
    def rushing(self) -> bool:
        """Whether clients write or read now without long pauses."""
        return self.world.now < self._rush_until

    def may_write(self, lane: Lane) -> bool:
        """Whether a lane may write now. While another client writes alone, a write of a third is rare."""
        if self.rushing:
            return lane.client in self._rush_writers
        if self.writer in {None, lane.client}:
            return True
        if self.world.now - self.world.crashed_at < UNREST:
            return lane.chance.random() < 0.5
        return lane.chance.random() < self._intrudes

    def start(self, machine: Machine) -> None:
        """Start a client, or start it again after its process has died."""
        self._acting[self.machines.index(machine)] = 0
        for subject in self.subjects:
            subject.died(machine.name)
        machine.spawn(self._client(machine), name=machine.name)

    async def _client(self, machine: Machine) -> None:
        client = self.machines.index(machine)
        while not self.over:
            try:
                url = self.urls[client]
                key = SHARED_KEY if url.startswith("cluster:") else None
                async with holdfast.open(url, sweep_interval=2.0, audit_key=key) as store:
                    await self._work(store, client)
            except HoldfastError as error:
                self.world.note(machine.name, f"the store can't be used: {error.code} {error.message}")
                await asyncio.sleep(0.5)
            except Exception:
                self.faults.append(Finding("client failed", traceback.format_exc()))
                self.over = True

    async def _work(self, store: Store, client: int) -> None:
        watch = asyncio.create_task(self.registers.watch(store, client))
        lanes = [(subject, number) for subject in self.subjects for number in range(subject.lanes)]
        await asyncio.gather(*(self._lane(store, client, *lane) for lane in lanes))
        while not self.calm:  # noqa: ASYNC110 - virtual time is cheap
            await asyncio.sleep(0.1)
        await self._is_answered(store, client)
        if client == 0:
            await self._last_look(store)
            self.over = True
        await asyncio.sleep(600)
        watch.cancel()

    async def _lane(self, store: Store, client: int, subject: Subject, number: int) -> None:
        machine, name = self.machines[client], f"{type(subject).__name__.lower()} {number}"
        chance = Random(f"{self.world.seed} {client} {name} {machine.life}")
        lane = Lane(store, client, machine, f"{machine.name} {name}", number, chance)
        while self._left[subject]:
            if not subject.reads_along:
                await self._turn(client)
                if not self._left[subject]:
                    break
            self._left[subject] -= 1
            self._acting[client] += 1
            try:
                await subject.act(lane)
            finally:
                self._acting[client] -= 1
            if chance.random() < 0.2 and not self.rushing:
                await asyncio.sleep(chance.expovariate(1 / self._think))

    async def _turn(self, client: int) -> None:
        """Wait while another client writes alone."""
        while self.writer not in {None, client}:  # noqa: ASYNC110 - virtual time is cheap
            await asyncio.sleep(0.2)

    # The end

    async def _is_answered(self, store: Store, client: int) -> None:
        """Read once no fault is left: every client is served, whichever node or process it calls."""
        try:
            async with asyncio.timeout(ANSWERED):
                await self.patiently(store.kv("alpha").get, "anything")
        except TimeoutError:
            self.faults.append(Finding("no end", f"client {client} gets no answer within {ANSWERED} s"))
            self.over = True

    async def _last_look(self, store: Store) -> None:
        """Read everything once no fault is left: it must explain what the clients were told."""
        self.world.note("", "all faults are over")
        await asyncio.sleep(SETTLED)
        for subject in self.subjects:
            await self.patiently(subject.last_look, store)
        for namespace in self.namespaces:
            self.kept[namespace] = kept = Kept()
            for look in (self._journal, self._list, self._recount):
                await self.patiently(look, store, namespace, kept)
        await self.patiently(self.registers.replay, store)
        while self.watches_waited < LATEST_WATCH and not self.registers.watched:
            await asyncio.sleep(0.1)
            self.watches_waited += 0.1

    @property
    def namespaces(self) -> list[str]:
        """All namespaces of keys."""
        return [namespace for subject in self.subjects for namespace in subject.keys]

    @property
    def lasting(self) -> list[str]:
        """The namespaces whose entries have no deadlines."""
        return [name for subject in self.subjects if not subject.expires for name in subject.keys]

    async def look_at_copy(self, store: Store, namespace: str) -> tuple[Kept, list[Finding]]:
        """What a copy of the store has in a namespace, and what of it does not agree."""
        kept = Kept()
        for look in (self._journal, self._list, self._recount):
            await look(store, namespace, kept)
        return kept, list(_disagreements(namespace, kept))

    async def patiently(self, look: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Look again until the service answers."""
        for _ in range(300):
            try:
                await look(*args)
            except HoldfastError as error:
                self.world.note("", f"the last look has to wait: {error.code} {error.message}")
                await asyncio.sleep(0.1)
            else:
                return
        self.faults.append(Finding("no end", "the service does not come back"))
        self.over = True

    async def _journal(self, store: Store, namespace: str, kept: Kept) -> None:
        since, kept.changes = 0, []
        while True:
            page = await keys_of(store, namespace).changes(since, limit=1_000)
            if page.gap:
                self.faults.append(Finding("journal", f"the journal of {namespace} has a gap"))
            if not page.changes:
                return
            kept.changes += [
                Change(
                    *(one.version, one.op, one.key, one.request_id),
                    *(round(one.at.timestamp() * 1000), one.expired_version),
                )
                for one in page.changes
            ]
            since = page.next

    async def _list(self, store: Store, namespace: str, kept: Kept) -> None:
        cursor, kept.listed = None, {}
        while True:
            page = await keys_of(store, namespace).list(limit=300, cursor=cursor, values=True)
            for entry in page.entries or ():
                kept.listed[entry.key] = entry.version
            cursor = page.cursor
            if cursor is None:
                return

    async def _recount(self, store: Store, namespace: str, kept: Kept) -> None:
        kept.corrected = await store.recount(namespace)

    # The rules

    def findings(self) -> list[Finding]:
        """Everything that breaks a rule."""
        return self.faults or [
            *(one for subject in self.subjects for one in subject.findings()),
            *(one for namespace, kept in self.kept.items() for one in _disagreements(namespace, kept)),
        ]


def _disagreements(namespace: str, kept: Kept) -> Iterator[Finding]:
    """Journal, list and counters of a namespace agree, and its versions and times only rise."""
    versions = [change.version for change in kept.changes]
    if versions != sorted(set(versions)):
        odd = [two for one, two in itertools.pairwise(versions) if two <= one]
        yield Finding("journal", f"versions of {namespace} are out of order or there twice: {odd[:5]}")
    times = [change.at for change in kept.changes]
    if times != sorted(times):
        yield Finding("journal", f"the times in the journal of {namespace} go back")
    live: dict[str, int] = {}
    for change in kept.changes:
        if change.op in {"set", "restored"}:
            live[change.key] = change.version
        elif change.op in {"deleted", "expired"}:
            live.pop(change.key, None)
    if (keys := list(kept.listed)) != sorted(keys, key=str.encode):
        yield Finding("list", f"keys of {namespace} are out of order")
    for key in sorted(set(live) | set(kept.listed)):
        if live.get(key) != kept.listed.get(key):
            text = f"{key} of {namespace} has version {kept.listed.get(key)}, in the journal {live.get(key)}"
            yield Finding("list", text, (key,))
            break
    if kept.corrected:
        yield Finding("counters", f"{kept.corrected} counters of {namespace} were wrong")
