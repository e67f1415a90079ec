"""The faults of a run: a list that the seed draws beforehand.

A fault waits for a time, and mostly for some messages after that, so that it strikes while something is under
way. Faults do not know of each other and each mends what it broke. So any of them can be left out, and the
others stay as they are: that is how a run that found something is made smaller.
"""

from __future__ import annotations

import asyncio
import traceback
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.simulation.subject import Finding

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from tests.simulation.network import NatsServer, Wire
    from tests.simulation.target import Target
    from tests.simulation.world import Machine

MOST: Final = 80
SHARES: Final = (0.6, 0.25, 0.08)
"""The part of the kinds that a seed has. With few kinds, each strikes often."""
THEMED: Final = 0.5
"""How often a seed has only faults that go together."""
BEGIN: Final = 0.4
"""The virtual second before which no fault strikes."""
WANT: Final = "hf.store.want"
KINDS: Final = (WANT, "hf.store.index", "hf.store.forward", "hf.store.forward")
"""The messages that nodes of a cluster send to each other, beside the log."""
BACK: Final = (0.02, 0.3, 1.5)
"""The seconds until a machine is back."""

COMMON: Final = (
    *("kill", "power cut", "cut while writing", "cut while writing", "kill in a turn", "stop"),
    *("pause", "pause client", "pause server", "reset", "reset all", "server", "partition", "one way"),
    *("lost messages", "clock jump", "full disk", "slow disk", "write error", "sync error", "kill client"),
    *("read error", "slow link", "kill at a sync", "cut in a message", "pause while writing"),
    *("stalled thread", "client cut off"),
)
ALONE: Final = ("older schema", "newer schema", "shut down")
CLUSTER: Final = (
    *("step down", "step down", "lost acks", "all servers", "partition of servers", "partition of servers"),
    *("stored without an answer", "skipped messages", "deaf holder", "deaf holder", "deaf holder"),
    *("a kind of message", "a kind of message", "away", "cut off"),
    *("holder stands still", "holder stands still", "holder stands still"),
)


THEMES: Final = (
    ("sync error", "kill at a sync"),
    ("client cut off", "power cut", "pause client"),
    ("stalled thread", "pause while writing", "kill"),
    ("clock jump", "kill", "power cut"),
    ("holder stands still",),
    ("deaf holder",),
    ("deaf holder", "a kind of message", "lost messages", "pause"),
    ("lost acks", "stored without an answer", "skipped messages", "deaf holder"),
)
"""Kinds of faults that do more together. A cluster has those that are about its log."""


class Fault(NamedTuple):
    """A fault: when it strikes, what it is, and the number that everything else about it is drawn from."""

    number: int
    time: float
    messages: int
    kind: str

    def __str__(self) -> str:
        after = f" and {self.messages} messages" if self.messages else ""
        return f"fault {self.number}: {self.kind} after {self.time:.2f} s{after}"


def draw(seed: int, kinds: Sequence[str], paces: Sequence[float]) -> list[Fault]:
    """The faults of a seed. Each seed has another choice of kinds and another average pause between them."""
    chance = Random(f"faults {seed}")
    share = chance.choice(SHARES)
    chosen = [kind for kind in kinds if chance.random() < share] or ["cut while writing"]
    themes = [theme for theme in THEMES if set(theme) <= set(kinds)]
    if chance.random() < THEMED:
        chosen = list(chance.choice([theme for theme in themes if set(theme) & set(CLUSTER)] or themes))
    pause = chance.choice(paces)
    time, faults = BEGIN, []
    for number in range(MOST):
        time += chance.expovariate(1 / pause)
        messages = chance.randint(1, 25) if chance.random() < 0.7 else 0
        faults.append(Fault(number, time, messages, chance.choice(chosen)))
    return faults


class Strike(NamedTuple):
    """A fault that strikes now, with what it may strike and the seconds until a machine is back."""

    kind: str
    chance: Random
    service: Machine
    client: Machine
    server: NatsServer
    back: float


class Nemesis:
    """Lets faults strike.

    Args:
        target: What they strike.
        faults: Those to strike.
    """

    def __init__(self, target: Target, faults: Sequence[Fault]) -> None:
        self._target = target
        self._world = target.world
        self._faults = faults
        self._under_way = 0
        self._has_holder = self._is_cut_off = False

    def start(self) -> None:
        """Begin."""
        for fault in self._faults:
            self._world.outside.spawn(self._strike(fault), name=str(fault))

    @property
    def idle(self) -> bool:
        """Whether nothing is broken at the moment."""
        return not self._under_way

    async def _strike(self, fault: Fault) -> None:
        await asyncio.sleep(fault.time)
        if fault.messages:
            passed = asyncio.Event()
            self._world.network.after_messages(fault.messages, passed.set)
            try:
                async with asyncio.timeout(2):
                    await passed.wait()
            except TimeoutError:
                pass
        if self._target.workload.finished:
            return
        self._under_way += 1
        try:
            await self._do(fault, Random(f"fault {self._world.seed} {fault.number}"))
        except Exception:
            self._target.broken.append(Finding("the simulation failed", traceback.format_exc()))
        finally:
            self._under_way -= 1

    async def _do(self, fault: Fault, chance: Random) -> None:
        target = self._target
        strike = Strike(
            fault.kind,
            chance,
            service=chance.choice(target.writers),
            client=chance.choice(target.clients),
            server=chance.choice(target.servers),
            back=chance.choice(BACK),
        )
        await _STRIKES[fault.kind](self, strike)

    # Processes

    async def _down(self, machine: Machine, seconds: float, *, power: bool = False) -> None:
        self._world.crash(machine, power=power)
        await asyncio.sleep(seconds)
        self._target.start(machine)

    async def _kill(self, strike: Strike) -> None:
        await self._down(strike.service, strike.back, power=strike.kind == "power cut")

    async def _be_away(self, strike: Strike) -> None:
        """Let a machine be off for so long that the log may be trimmed past it."""
        machine, start = strike.service, strike.service.after_crash
        machine.after_crash = lambda: None  # nothing starts it earlier
        self._world.crash(machine, power=True)
        machine.after_crash = start
        await asyncio.sleep(strike.chance.choice((4.0, 12.0)))
        self._target.start(machine)

    async def _kill_client(self, strike: Strike) -> None:
        await self._down(strike.client, strike.back)

    async def _kill_server(self, strike: Strike) -> None:
        servers = self._target.servers if strike.kind == "all servers" else [strike.server]
        await asyncio.gather(*(self._down(one.machine, strike.back) for one in servers))

    async def _kill_within(self, strike: Strike) -> None:
        """Let the process die in the middle of a turn of its loop, or between two accesses to its disk."""
        machine, chance = strike.service, strike.chance
        life = machine.life
        if strike.kind == "kill in a turn":
            machine.doom = chance.randint(1, 60)
        else:
            machine.cut = (chance.randint(1, 25), chance.random() < 0.8)
        await asyncio.sleep(strike.back + 0.2)
        if machine.life == life:  # it has done less than that
            machine.doom = machine.cut = None
        else:
            self._target.start(machine)

    async def _stop(self, strike: Strike) -> None:
        machine = strike.service
        if machine.up and machine.stopping is not None:
            self._world.fault(strike.kind, machine.name)
            self._world.soon(machine, machine.stopping)

    async def _shut_down(self, strike: Strike) -> None:
        """Stop the service, switch its machine off and on again, and start the service."""
        machine, stopped = strike.service, self._target.stopped
        await self._stop(strike)
        for _ in range(50):
            await asyncio.sleep(0.02)
            if self._target.stopped > stopped or not machine.up:
                break
        if self._target.stopped > stopped and not machine.up:
            self._world.fault(strike.kind, machine.name)
            self._world.disk.lose_power(machine.host.number)
            self._world.after_power_cut(machine.host)
            self._world.switch_on(machine.host)

    async def _pause_while_writing(self, strike: Strike) -> None:
        """Let the process stand still between two statements of a transaction."""
        machine, chance = strike.service, strike.chance
        machine.halt = (chance.randint(1, 12), chance.choice((0.5, 2.2, 2.5, 7.0)))
        await asyncio.sleep(strike.back + 0.2)
        machine.halt = None

    async def _stall(self, strike: Strike) -> None:
        """Let one thread of the process stall between two statements, while the others go on."""
        machine, chance = strike.service, strike.chance
        machine.stall = (chance.randint(1, 12), chance.choice((0.5, 2.2, 5.0, 7.0)))
        await asyncio.sleep(strike.back + 0.2)
        machine.stall = None

    async def _pause(self, strike: Strike) -> None:
        machines = {
            "pause": strike.service,
            "pause client": strike.client,
            "pause server": strike.server.machine,
        }
        machine = machines[strike.kind]
        seconds = strike.chance.choice((0.05, 0.5, 2.5, *([12.0] if strike.kind == "pause server" else [])))
        self._world.fault("pause", machine.name, f"{seconds} s")
        self._world.pause(machine, seconds)

    # The network

    async def _reset(self, strike: Strike) -> None:
        wires = strike.server.wires
        if wires and strike.kind == "reset":
            wires = [strike.chance.choice(wires)]
        for wire in wires:
            self._world.fault("reset", strike.server.machine.name, f"by {wire.machines[0].name}")
            wire.reset()

    async def _partition(self, strike: Strike) -> None:
        one, server = (
            strike.chance.choice([*self._target.services, *self._target.clients]),
            strike.server.machine,
        )
        ways = [(one, server), (server, one)]
        if strike.kind == "one way":
            ways = [strike.chance.choice(ways)]
        await self._apart(ways, strike.chance)

    async def _partition_servers(self, strike: Strike) -> None:
        others = [one.machine for one in self._target.servers if one is not strike.server]
        ways = [(strike.server.machine, one) for one in others]
        both = strike.chance.random() < 0.7
        await self._apart([*ways, *((b, a) for a, b in ways if both)], strike.chance)

    async def _apart(self, ways: Sequence[tuple[Machine, Machine]], chance: Random) -> None:
        network = self._world.network
        for sender, receiver in ways:
            self._world.fault("partition", sender.name, f"from {receiver.name}")
            network.cut(sender, receiver)
        await asyncio.sleep(chance.choice((0.1, 0.5, 4.0)))
        for sender, receiver in ways:
            network.heal(sender, receiver)

    async def _lose_messages(self, strike: Strike) -> None:
        network, share = self._world.network, strike.chance.choice((0.02, 0.3))
        self._world.note("", f"servers lose {share:.0%} of all messages")
        network.losing += share
        await asyncio.sleep(strike.chance.choice((0.1, 0.6)))
        network.losing = max(0.0, network.losing - share)

    async def _slow_link(self, strike: Strike) -> None:
        """Let one connection be much slower than the others, so that what they carry is reordered."""
        chance = strike.chance
        if not strike.server.wires:
            return
        wire = chance.choice(strike.server.wires)
        self._world.fault(strike.kind, strike.server.machine.name, f"by {wire.machines[0].name}")
        slower, side = chance.choice((0.05, 0.3, 1.5)), chance.choice((0, 1, 1, None))
        if side is None:
            wire.latency += slower
        else:
            wire.behind[side] += slower
        await asyncio.sleep(chance.choice((0.2, 1.0, 3.0)))
        if side is None:
            wire.latency -= slower
        else:
            wire.behind[side] -= slower

    async def _cut_in_a_message(self, strike: Strike) -> None:
        """Break a connection when the next bytes are under way on it, after some of them."""
        if strike.server.wires:
            wire = strike.chance.choice(strike.server.wires)
            self._world.fault(strike.kind, strike.server.machine.name, f"by {wire.machines[0].name}")
            wire.cut_after = strike.chance.randrange(1, 2000)
            await asyncio.sleep(1.0)
            wire.cut_after = None

    # Clocks and disks

    async def _jump(self, strike: Strike) -> None:
        target, chance = self._target, strike.chance
        machine = chance.choice([*target.services, *target.clients])
        seconds = chance.choice(target.jumps)
        off = target.jumps_stay and chance.random() < 0.5
        if off:  # such as a machine whose battery is empty
            machine = strike.service
            self._world.crash(machine, power=True)
        self._world.fault(strike.kind, machine.name, f"{seconds} s")
        self._world.jumps.append(self._world.now)
        machine.host.wall_offset += seconds
        if off:
            await asyncio.sleep(strike.back)
            target.start(machine)
            return
        await asyncio.sleep(chance.uniform(0.1, 1.5))
        if chance.random() < 0.5 and strike.service.host is machine.host:  # a process starts meanwhile
            await self._down(strike.service, strike.back)
            await asyncio.sleep(chance.uniform(0.5, 2.0))
        if chance.random() < 0.5 or not target.jumps_stay:
            machine.host.wall_offset -= seconds

    async def _fill_disk(self, strike: Strike) -> None:
        room, number = self._world.disk.room, strike.service.host.number
        self._world.fault(strike.kind, strike.service.name)
        room[number] = strike.chance.choice((0, 20_000))
        await asyncio.sleep(strike.chance.uniform(0.05, 1.0))
        room.pop(number, None)

    async def _slow_disk(self, strike: Strike) -> None:
        self._world.fault(strike.kind, strike.service.name)
        strike.service.slow = strike.chance.choice((0.005, 0.05))
        await asyncio.sleep(strike.chance.uniform(0.1, 1.0))
        strike.service.slow = 0.0

    async def _fail_write(self, strike: Strike) -> None:
        self._world.fault(strike.kind, strike.service.name)
        self._world.disk.failing_writes[strike.service.number] = strike.chance.randint(1, 12)

    async def _fail_reads(self, strike: Strike) -> None:
        """Let a few reads of a file fail, one after the other, some reads from now.

        Perhaps a process starts meanwhile.
        """
        chance, disk = strike.chance, self._world.disk
        if not (paths := disk.files(strike.service.host.number)):
            return
        path = chance.choice(paths)
        self._world.fault(strike.kind, strike.service.name, path.rpartition("/")[2])
        disk.failing_reads[path] = [True] * chance.randint(1, 6) + [False] * chance.choice((0, 3, 30))
        if chance.random() < 0.3:
            await self._down(strike.service, 0.02)
        await asyncio.sleep(chance.uniform(0.1, 2.0))
        disk.failing_reads.pop(path, None)

    async def _fail_sync(self, strike: Strike) -> None:
        chance = strike.chance
        self._world.fault(strike.kind, strike.service.name)
        failed, world = asyncio.Event(), self._world
        world.disk.failing_syncs[strike.service.number] = partial(world.soon, world.outside, failed.set)
        try:
            async with asyncio.timeout(2):
                await failed.wait()
        except TimeoutError:
            world.disk.failing_syncs.pop(strike.service.number, None)
            return
        number = strike.service.number
        if chance.random() < 0.5:  # from then on the disk takes nothing
            world.disk.broken.add(number)
        await asyncio.sleep(chance.expovariate(chance.choice((1000, 100, 10))))
        if chance.random() < 0.7:
            self._world.crash(strike.service, power=chance.random() < 0.2)
        world.disk.broken.discard(number)
        await asyncio.sleep(strike.back)
        self._target.start(strike.service)

    async def _kill_at_sync(self, strike: Strike) -> None:
        """Let the power fail, or the process die, right before or after a sync."""
        machine, chance = strike.service, strike.chance
        life = machine.life
        machine.sync_cut = (chance.randint(1, 6), chance.random() < 0.5, chance.random() < 0.5)
        await asyncio.sleep(strike.back + 0.2)
        if machine.life == life:
            machine.sync_cut = None
        else:
            self._target.start(machine)

    async def _older_schema(self, strike: Strike) -> None:
        """Downgrade the store while its service is down: the next start migrates it, if it gets that far."""
        machine, chance = strike.service, strike.chance
        self._world.crash(machine, power=False)
        if self._target.downgrade(chance.choice(("0005", "0006"))):
            self._world.fault(strike.kind, machine.name)
            if chance.random() < 0.5:
                machine.cut = (chance.randint(1, 60), chance.random() < 0.5)
        await asyncio.sleep(strike.back)
        self._target.start(machine)

    async def _newer_schema(self, strike: Strike) -> None:
        """Let the store look like that of a newer version for a while: nobody may change it."""
        machine = strike.service
        self._world.crash(machine, power=False)
        before = self._target.stamp("9999")
        if before is not None:
            self._world.fault(strike.kind, machine.name)
            self._target.start(machine)
            await asyncio.sleep(strike.back + 0.3)
            while self._target.stamp(before[0], before) is None:  # noqa: ASYNC110 - virtual time is cheap
                await asyncio.sleep(0.1)
        self._target.start(machine)

    # The log of a cluster

    async def _step_down(self, strike: Strike) -> None:
        self._world.fault(strike.kind, "")
        self._target.step_down()

    async def _lose_acks(self, strike: Strike) -> None:
        self._world.fault(strike.kind, "")
        with self._target.losing_acks(strike.chance.choice((0.05, 0.5))):
            await asyncio.sleep(strike.chance.uniform(0.1, 1.0))

    async def _store_without_answer(self, strike: Strike) -> None:
        """Lose the answer to a message that is stored, and let another server lead from then on."""
        self._world.fault(strike.kind, "")
        with self._target.losing_acks(1.0):
            await asyncio.sleep(strike.chance.choice((0.005, 0.05)))
        if strike.chance.random() < 0.5:
            self._target.step_down()

    async def _with_holder(self, strike: Strike) -> None:
        """Wait until a node gets a lease, gives it up or writes for others, and do something to it."""
        if self._has_holder:
            return
        self._has_holder = True
        deafen = strike.kind == "deaf holder"
        what = ("grants", "ends", "takes", "takes") if deafen else ("grants", "renews", "renews")
        try:
            async with asyncio.timeout(6):
                wire, lease = await self._target.holder(strike.chance.choice(what))
            await (self._deafen(strike, wire) if deafen else self._keep_standing(strike, wire, lease))
        except TimeoutError:
            return
        finally:
            self._has_holder = False

    async def _deafen(self, strike: Strike, wire: Wire) -> None:
        """Let a node hear late of what happened to it and of what happens next.

        Perhaps it is heard late, too, or another node is killed and starts again.
        """
        self._world.fault(strike.kind, wire.machines[0].name)
        late, sides = (
            strike.chance.choice((0.03, 0.07, 0.09, 0.3, 0.6, 1.5)),
            strike.chance.choice(((1,), (0, 1))),
        )
        for side in sides:
            wire.behind[side] += late
        seconds = strike.chance.choice((0.5, 1.0, 2.5))
        if late < 0.1:
            self._target.workload.rush(seconds, writers={self._target.client_of(wire.machines[0])})
        elif strike.chance.random() < 0.3 and wire.machines[0] is not strike.service:
            await self._down(strike.service, 0.02)
        await asyncio.sleep(seconds)
        for side in sides:
            wire.behind[side] -= late

    async def _keep_standing(self, strike: Strike, wire: Wire, lease: float) -> None:
        chance, holder = strike.chance, wire.machines[0]
        late = chance.choice((0.05, 0.3, 0.6))
        self._world.fault(strike.kind, holder.name, f"{late} s late")
        wire.behind[1] += late
        self._world.network.held[WANT] = None
        restarts = chance.random() < 0.4 and holder is not strike.service
        self._world.pause(holder, lease * chance.uniform(0.3 if restarts else 0.9, 0.998))
        own = self._target.client_of(holder)
        self._target.workload.rush(1.5 * lease, writers=set(range(len(self._target.clients))) - {own})
        if restarts:
            await asyncio.sleep(0.05)
            await self._down(strike.service, 0.02)
        await asyncio.sleep(1.5 * lease)
        wire.behind[1] -= late
        self._world.network.held.pop(WANT, None)

    async def _cut_off_client(self, strike: Strike) -> None:
        """Let a client hear late, and then nothing any more, while it may hold a lock."""
        network, client, chance = self._world.network, strike.client, strike.chance
        if self._is_cut_off:
            return
        self._is_cut_off = True
        late = chance.choice((0.1, 0.3, 0.6))
        self._world.fault(strike.kind, client.name, f"{late} s late")
        wires = list(client.wires.values())
        for wire in wires:
            wire.behind[1] += late
        await asyncio.sleep(late + chance.uniform(0.3, 0.9))
        ways = [way for one in self._target.servers for way in ((client, one.machine), (one.machine, client))]
        for sender, receiver in ways:
            network.cut(sender, receiver)
        await asyncio.sleep(chance.choice((1.5, 3.0)))
        for wire in wires:
            wire.behind[1] -= late
        for sender, receiver in ways:
            network.heal(sender, receiver)
        await asyncio.sleep(1.0)
        self._is_cut_off = False

    async def _cut_off(self, strike: Strike) -> None:
        """Let a node lose all connections, and make none for so long that the log may be trimmed past it."""
        network, node = self._world.network, strike.service
        self._world.fault(strike.kind, node.name)
        ways = [way for one in self._target.servers for way in ((node, one.machine), (one.machine, node))]
        for sender, receiver in ways:
            network.cut(sender, receiver)
        for wire in list(node.wires.values()):
            wire.reset()
        await asyncio.sleep(strike.chance.choice((1.5, 4.0, 8.0)))
        for sender, receiver in ways:
            network.heal(sender, receiver)

    async def _hold_a_kind(self, strike: Strike) -> None:
        """Let one kind of the messages between nodes be lost, or come late."""
        chance, held = strike.chance, self._world.network.held
        kind, late = chance.choice(KINDS), chance.choice((None, 0.3, 1.2, 2.5))
        self._world.fault(strike.kind, "", f"{kind} {'is lost' if late is None else f'{late} s late'}")
        held[kind] = late
        await asyncio.sleep(chance.choice((0.2, 1.0, 3.0)))
        held.pop(kind, None)

    async def _skip(self, strike: Strike) -> None:
        self._world.fault(strike.kind, "")
        with self._target.skipping(strike.chance.choice((0.05, 0.5))):
            await asyncio.sleep(strike.chance.uniform(0.05, 0.5))


_STRIKES: Final[dict[str, Callable[[Nemesis, Strike], Awaitable[None]]]] = {
    "kill": Nemesis._kill,
    "power cut": Nemesis._kill,
    "away": Nemesis._be_away,
    "kill client": Nemesis._kill_client,
    "server": Nemesis._kill_server,
    "all servers": Nemesis._kill_server,
    "kill in a turn": Nemesis._kill_within,
    "cut while writing": Nemesis._kill_within,
    "stop": Nemesis._stop,
    "pause": Nemesis._pause,
    "pause client": Nemesis._pause,
    "pause server": Nemesis._pause,
    "reset": Nemesis._reset,
    "reset all": Nemesis._reset,
    "partition": Nemesis._partition,
    "one way": Nemesis._partition,
    "partition of servers": Nemesis._partition_servers,
    "lost messages": Nemesis._lose_messages,
    "clock jump": Nemesis._jump,
    "full disk": Nemesis._fill_disk,
    "slow disk": Nemesis._slow_disk,
    "write error": Nemesis._fail_write,
    "sync error": Nemesis._fail_sync,
    "read error": Nemesis._fail_reads,
    "step down": Nemesis._step_down,
    "lost acks": Nemesis._lose_acks,
    "slow link": Nemesis._slow_link,
    "cut in a message": Nemesis._cut_in_a_message,
    "kill at a sync": Nemesis._kill_at_sync,
    "pause while writing": Nemesis._pause_while_writing,
    "stalled thread": Nemesis._stall,
    "shut down": Nemesis._shut_down,
    "stored without an answer": Nemesis._store_without_answer,
    "skipped messages": Nemesis._skip,
    "deaf holder": Nemesis._with_holder,
    "holder stands still": Nemesis._with_holder,
    "cut off": Nemesis._cut_off,
    "client cut off": Nemesis._cut_off_client,
    "a kind of message": Nemesis._hold_a_kind,
    "older schema": Nemesis._older_schema,
    "newer schema": Nemesis._newer_schema,
}
