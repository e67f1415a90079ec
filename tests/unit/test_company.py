"""Groups of several namespaces: what one of them asks for does not hold up the others.

The groups are run by a stand-in that the test opens and closes like a door; nothing waits for time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest

from holdfast.blobs.commands import PutPart
from holdfast.commands import Batch, Check, Got, Many, Set
from holdfast.origin import Fence, Origin
from holdfast.pipeline.batcher import EXPENSIVE, Batcher, GroupDone

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.commands import Command

ORIGIN = Origin(writer="w", request_id="r")
TURNS = 5


def put(name: str, *, namespace: str = "kv/busy", size: int = 1) -> Set:
    """A command that writes one key."""
    return Set(namespace=namespace, origin=ORIGIN, key=name, value="1", size=size)


def dear(name: str, *, namespace: str = "kv/busy", origin: Origin = ORIGIN) -> Many:
    """A command that takes as long as hundreds."""
    return Many(namespace=namespace, origin=origin, items=(put(name, namespace=namespace),) * 1_000)


def _name(command: Command) -> str:
    match command:
        case Many():
            written: object = command.items[0]
        case Batch():
            written = command.writes[0]
        case _:
            written = command
    assert isinstance(written, Set)
    return written.key


class Engine:
    """Runs groups while its door is open, and remembers them. The `slow` ones also wait for `finish`.

    A real engine decides a group from what the last commit of its namespaces left, so it fails if a namespace
    is in two groups at a time.
    """

    def __init__(self, *, lane_per_namespace: bool = False) -> None:
        self.groups: list[list[str]] = []
        self.running: set[str] = set()
        self.door = asyncio.Event()
        self.door.set()
        self.slow: set[str] = set()
        self.finish = asyncio.Event()
        self.batcher = Batcher(self._run, lane_per_namespace=lane_per_namespace)

    async def _run(self, commands: list[Command]) -> GroupDone:
        names, namespaces = [_name(command) for command in commands], {one.namespace for one in commands}
        assert self.running.isdisjoint(namespaces), f"{names} began beside a group of {self.running}"
        self.running |= namespaces
        self.groups.append(names)
        await self.door.wait()
        if not self.slow.isdisjoint(names):
            await self.finish.wait()
        self.running -= namespaces
        return GroupDone([Got(None)] * len(commands))

    async def behind_a_closed_door(self, commands: Sequence[Command]) -> list[list[str]]:
        """Submit commands while a group commits. Returns the groups that they are executed in."""
        self.door.clear()
        first = self.batcher.call(put("first"))
        await turns()
        futures = [self.batcher.call(command) for command in commands]
        self.door.set()
        await asyncio.gather(first, *futures)
        return self.groups[1:]


async def turns() -> None:
    """Let everything happen that needs no door."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


@pytest.fixture
def engine() -> Engine:
    """An engine with its batcher."""
    return Engine()


async def test_a_read_of_one_namespace_holds_up_no_write_of_another(engine: Engine) -> None:
    """A write that waits for a listing of its namespace lets the writes of other namespaces pass."""
    with engine.batcher.reading("kv/busy"):
        held = [engine.batcher.call(put(name)) for name in ("a", "b")]
        await engine.batcher.call(put("c", namespace="kv/quiet"))
        await turns()
        await engine.batcher.call(put("d", namespace="kv/quiet"))
        assert engine.groups == [["c"], ["d"]]
    await asyncio.gather(*held)
    assert engine.groups[2:] == [["a", "b"]]


async def test_held_writes_continue_when_their_read_ends(engine: Engine) -> None:
    """Held writes are executed when their own read ends, even if another read goes on."""
    with engine.batcher.reading("kv/quiet"):
        with engine.batcher.reading("kv/busy"):
            other = engine.batcher.call(put("a", namespace="kv/quiet"))
            held = engine.batcher.call(put("b"))
            await turns()
            assert engine.groups == []
        await held
        assert not other.done()
    await other
    assert engine.groups == [["b"], ["a"]]


async def test_a_barrier_stays_behind_the_writes_of_its_namespace(engine: Engine) -> None:
    """Waiting for a namespace includes writes that others have passed."""
    with engine.batcher.reading("kv/busy", ["a"]):
        held = engine.batcher.call(put("a"))
        barrier = asyncio.create_task(engine.batcher.settled("kv/busy"))
        await engine.batcher.call(put("c", namespace="kv/quiet"))
        await turns()
        assert not barrier.done()
    await barrier
    assert held.done()


async def test_a_dear_command_is_executed_alone_and_after_cheap_ones(engine: Engine) -> None:
    """A write of another plugin shares no group with a thousand writes, and waits for none that wait too."""
    asked: list[Command] = [dear("A"), dear("B"), put("c"), put("d", namespace="kv/quiet")]
    assert await engine.behind_a_closed_door(asked) == [["d"], ["A"], ["B"], ["c"]]


async def test_cheap_commands_do_not_hold_up_a_dear_one(engine: Engine) -> None:
    """A dear command begins beside the next group, however many groups of cheap commands wait."""
    engine.batcher.most = engine.batcher.turns = 1
    asked: list[Command] = [dear("A"), *(put(name, namespace="kv/quiet") for name in "bcd")]
    assert await engine.behind_a_closed_door(asked) == [["b"], ["A"], ["c"], ["d"]]


async def test_a_dear_command_holds_up_no_other_namespace(engine: Engine) -> None:
    """While a thousand writes are under way, other plugins write; those of its own namespace wait for it."""
    engine.slow.add("A")
    running = engine.batcher.call(dear("A"))
    behind = engine.batcher.call(put("b"))
    for name in "cd":
        await engine.batcher.call(put(name, namespace="kv/quiet"))
    barrier = asyncio.create_task(engine.batcher.settled("kv/busy"))
    await turns()
    assert engine.groups == [["c"], ["A"], ["d"]]
    assert not any(waiting.done() for waiting in (running, behind, barrier))
    engine.finish.set()
    await asyncio.gather(running, behind, barrier)
    assert engine.groups[3:] == [["b"]]


async def test_a_thousand_checks_are_dear(engine: Engine) -> None:
    """A batch that checks a thousand versions holds up no other plugin, whatever it writes."""
    checks = (Check(key="k", version=1),) * 1_000
    engine.slow.add("A")
    batch = engine.batcher.call(Batch(namespace="kv/busy", origin=ORIGIN, checks=checks, writes=(put("A"),)))
    for name in "bc":
        await engine.batcher.call(put(name, namespace="kv/quiet"))
    assert engine.groups == [["b"], ["A"], ["c"]]
    engine.finish.set()
    await batch


async def test_cost_of_a_command_is_summed_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many groups pass a dear command, its thousand writes are weighed when it comes."""
    weighed: list[Many] = []
    cost = Many.cost.fget  # type: ignore[attr-defined]  # it is a property

    def noted(many: Many) -> int:
        weighed.append(many)
        return int(cost(many))

    monkeypatch.setattr(Many, "cost", property(noted))
    engine.slow.add("A")
    asked = [engine.batcher.call(dear(name)) for name in "AB"]
    for name in "cdef":
        await engine.batcher.call(put(name, namespace="kv/quiet"))
    engine.finish.set()
    await asyncio.gather(*asked)
    assert len(weighed) == 2


async def test_one_dear_command_runs_at_a_time(engine: Engine) -> None:
    """Dear commands of several plugins run one after the other, however many cheap ones there are."""
    engine.slow.add("A")
    asked = [engine.batcher.call(dear(name, namespace=f"kv/{name}")) for name in "AB"]
    for name in "cd":
        await engine.batcher.call(put(name, namespace="kv/quiet"))
    assert engine.groups == [["c"], ["A"], ["d"]]
    engine.finish.set()
    await asyncio.gather(*asked)
    assert engine.groups[3:] == [["B"]]


async def test_closing_waits_for_a_dear_command(engine: Engine) -> None:
    """A store that is closed while a thousand writes are under way waits for them."""
    engine.slow.add("A")
    running = engine.batcher.call(dear("A"))
    await turns()
    closing = asyncio.create_task(engine.batcher.aclose())
    await turns()
    assert not closing.done()
    engine.finish.set()
    await closing
    assert running.done()


async def test_a_namespace_keeps_its_order(engine: Engine) -> None:
    """A dear command passes no earlier command of its namespace, and no later one passes it."""
    asked = [put("a"), dear("B"), put("c"), dear("D"), put("e", namespace="kv/quiet")]
    assert await engine.behind_a_closed_door(asked) == [["a", "e"], ["B"], ["c"], ["D"]]


@pytest.mark.parametrize("lane_per_namespace", [False, True], ids=["one lane", "a lane for each"])
async def test_a_dear_command_waits_for_the_group_of_its_namespace(lane_per_namespace: bool) -> None:
    """A dear command begins only once the commands before it are done, not beside the group they are in."""
    engine = Engine(lane_per_namespace=lane_per_namespace)
    engine.slow.add("a")
    asked = [engine.batcher.call(one) for one in (put("a"), dear("B"), put("c"))]
    await turns()
    assert engine.groups == [["a"]]
    engine.finish.set()
    await asyncio.gather(*asked)
    assert engine.groups == [["a"], ["B"], ["c"]]


async def test_a_dear_command_of_another_namespace_does_not_wait(engine: Engine) -> None:
    """Where the first dear command waits for the group of its namespace, that of another begins beside it."""
    engine.slow.add("a")
    commands = (put("a"), dear("B"), dear("C", namespace="kv/quiet"))
    asked = [engine.batcher.call(command) for command in commands]
    await asked[2]
    assert engine.groups == [["a"], ["C"]]
    engine.finish.set()
    await asyncio.gather(*asked)
    assert engine.groups[2:] == [["B"]]


async def test_a_fenced_write_is_not_executed_beside_what_may_take_its_lock(engine: Engine) -> None:
    """A fenced write to a table or a blob runs beside no group of the plugin's keys, where its lock is."""
    fenced = Origin(writer="w", request_id="r", fence=Fence(lock="l", token=1))
    engine.slow.add("A")
    running = engine.batcher.call(dear("A"))  # keys that take long, beside the groups of other namespaces
    write = msgspec.structs.replace(put("b", namespace="table/busy"), origin=fenced)
    behind = engine.batcher.call(write)
    await engine.batcher.call(put("c", namespace="table/quiet"))
    await turns()
    assert (engine.groups, behind.done()) == ([["c"], ["A"]], False)
    engine.finish.set()
    await asyncio.gather(running, behind)
    engine.groups.clear()
    asked: list[Command] = [dear("D", namespace="blob/busy", origin=fenced), put("e"), put("f")]
    assert await engine.behind_a_closed_door(asked) == [["D", "e", "f"]]


async def test_a_write_of_locks_waits_for_a_fenced_write(engine: Engine) -> None:
    """Keys that take long wait for a group with a fenced write to a table or a blob of their plugin."""
    fenced = Origin(writer="w", request_id="r", fence=Fence(lock="l", token=1))
    engine.slow.add("a")
    write = msgspec.structs.replace(put("a", namespace="table/busy"), origin=fenced)
    asked = [engine.batcher.call(one) for one in (write, dear("B"), dear("C", namespace="kv/quiet"))]
    await asked[2]
    assert engine.groups == [["a"], ["C"]]
    engine.finish.set()
    await asyncio.gather(*asked)
    assert engine.groups[2:] == [["B"]]


async def test_the_largest_value_is_not_dear(engine: Engine) -> None:
    """Single keys are grouped, whatever the size of their values, and so are parts of blobs."""
    large = [put(name, size=524_288) for name in "ab"]
    assert all(one.cost > EXPENSIVE for one in large)
    assert PutPart.bulky
    assert await engine.behind_a_closed_door([*large]) == [["a", "b"]]


async def test_a_dear_command_waits_for_a_read(engine: Engine) -> None:
    """A dear command does not overtake a listing of its namespace that came before it."""
    with engine.batcher.reading("kv/busy"):
        held = engine.batcher.call(dear("A"))
        await engine.batcher.call(put("b", namespace="kv/quiet"))
        await turns()
        assert engine.groups == [["b"]]
    await held
    assert engine.groups == [["b"], ["A"]]


async def test_a_dear_command_passes_none_of_its_namespace(engine: Engine) -> None:
    """Where a dear command of another namespace has to wait, the next one still keeps its place."""
    engine.batcher.most = 1
    with engine.batcher.reading("kv/other"):
        held = engine.batcher.call(dear("X", namespace="kv/other"))
        asked: list[Command] = [put("a"), put("b"), dear("C")]
        await asyncio.gather(*(engine.batcher.call(command) for command in asked))
        assert engine.groups == [["a"], ["b"], ["C"]]
    await held


@pytest.mark.parametrize("gathered", range(12))
async def test_a_dear_command_ends_while_others_are_gathered(engine: Engine, gathered: int) -> None:
    """However long a batcher gathers before a group, it ends once all commands have, so a store can close."""
    engine.batcher.turns = 6
    engine.slow = {"large"}
    large = engine.batcher.call(dear("large"))
    small = [engine.batcher.call(put(name, namespace="kv/quiet")) for name in ("a", "b")]
    await asyncio.gather(*small)
    for _ in range(gathered):
        await asyncio.sleep(0)
    engine.finish.set()
    await large
    async with asyncio.timeout(60):
        await engine.batcher.aclose()
