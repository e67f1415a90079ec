"""How what is waiting becomes groups: order, bounds, lanes, barriers, and who may give up.

The groups are run by a stand-in that the test opens and closes like a door; nothing waits for time.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import seams
from holdfast.commands import LEAST_COST, Batch, Delete, Get, Got, Load, Many, Removed, Set, SetPolicy
from holdfast.errors import InternalError, KeyNotFound, OutcomeUnknown, Unavailable
from holdfast.origin import Origin
from holdfast.pace import ALONE, MAX_GROUP
from holdfast.pipeline.batcher import EXPENSIVE, MAX_GROUP_BYTES, Batcher, GroupDone
from holdfast.rows import Row
from holdfast.upkeep_commands import Expire, ExpireRun

if TYPE_CHECKING:
    from holdfast.commands import Command
    from holdfast.errors import HoldfastError

ORIGIN = Origin(writer="w", request_id="r")
DONE = Got(None)


def put(key: str, *, namespace: str = "kv/a", size: int = 1) -> Set:
    """A command that writes."""
    return Set(namespace=namespace, origin=ORIGIN, key=key, value="1", size=size)


class Engine:
    """Runs groups while its door is open, and remembers them."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.begun = asyncio.Event()
        self.door = asyncio.Event()
        self.door.set()
        self.errors: dict[str, HoldfastError] = {}
        self.failure: Exception | None = None
        self.heard: set[str] = set()  # the callers who have their results
        self.told: list[tuple[list[str], list[str]]] = []

    async def run(self, commands: list[Command]) -> GroupDone:
        """What a batcher calls."""
        names = [str(getattr(command, "key", "")) for command in commands]
        self.groups.append(names)
        self.begun.set()
        await self.door.wait()
        if self.failure is not None:
            raise self.failure
        return GroupDone([self.errors.get(name, DONE) for name in names], partial(self._tell, names))

    def hear(self, name: str, _: object) -> None:
        """What a caller does with its result."""
        self.heard.add(name)

    def hear_in_a_turn(self, name: str, _: object) -> None:
        """What a caller does whose result has a way to go."""
        asyncio.get_running_loop().call_soon(self.heard.add, name)

    async def _tell(self, names: list[str]) -> None:
        self.told.append((names, [name for name in names if name in self.heard]))


@pytest.fixture
def engine() -> Engine:
    """What runs the groups."""
    return Engine()


@pytest.fixture
def batcher(engine: Engine) -> Batcher:
    """A batcher with one lane."""
    return Batcher(engine.run, lane_per_namespace=False)


async def test_a_lone_caller_waits_for_nobody(batcher: Batcher, engine: Engine) -> None:
    """What comes alone goes at once, alone."""
    assert await batcher.call(put("a")) == DONE
    assert await batcher.call(put("b")) == DONE
    assert engine.groups == [["a"], ["b"]]


async def test_a_group_forms_while_the_last_commits(batcher: Batcher, engine: Engine) -> None:
    """Whatever comes while a group is under way goes together in the next, in the order in which it came."""
    engine.door.clear()
    first = batcher.call(put("first"))
    await engine.begun.wait()
    later = [batcher.call(put(f"{number}")) for number in range(10)]
    assert batcher.waiting == 10
    engine.door.set()
    await asyncio.gather(first, *later)
    assert engine.groups == [["first"], [f"{number}" for number in range(10)]]
    assert batcher.waiting == 0


async def test_writes_after_a_result_join_the_next_group(batcher: Batcher, engine: Engine) -> None:
    """A caller that writes again as soon as it has its answer shares a group with those that waited
    meanwhile.
    """

    async def again(key: str) -> None:
        await batcher.call(put(key))
        await batcher.call(put(f"{key} again"))

    batcher.turns = 4
    engine.door.clear()
    first = [asyncio.create_task(again(key)) for key in "ab"]
    await engine.begun.wait()
    waiting = batcher.call(put("waiting"))
    engine.door.set()
    await asyncio.gather(*first, waiting)
    assert engine.groups == [["a", "b"], ["waiting", "a again", "b again"]]


async def test_several_commands_wait_for_more(batcher: Batcher, engine: Engine) -> None:
    """Several commands, and one after a group of several, gather for some turns; a lone one does not."""
    batcher.turns = 4

    async def gather(first: str, later: str) -> None:
        begun = [batcher.call(put(key)) for key in first]
        for _ in range(batcher.turns):
            await asyncio.sleep(0)
        begun.append(batcher.call(put(later)))
        await asyncio.gather(*begun)

    await gather("ab", "c")
    await gather("d", "e")
    await batcher.call(put("alone"))
    last = batcher.call(put("alone again"))
    await asyncio.sleep(0)
    assert engine.groups == [["a", "b", "c"], ["d", "e"], ["alone"], ["alone again"]]
    await last


@pytest.mark.parametrize(("busy", "groups"), [(0.0001, [["a", "b", "c"]]), (0.003, [["a", "b"], ["c"]])])
async def test_commands_do_not_wait_during_long_turns(
    batcher: Batcher, engine: Engine, monkeypatch: pytest.MonkeyPatch, busy: float, groups: list[list[str]]
) -> None:
    """Commands gather for some turns, unless these take milliseconds because of what others ask for."""
    batcher.turns = 4
    spent = 0.0
    monkeypatch.setattr(seams, "cpu", lambda: spent)
    begun = [batcher.call(put(key)) for key in "ab"]
    for _ in range(batcher.turns):
        await asyncio.sleep(0)
        spent += busy
    begun.append(batcher.call(put("c")))
    await asyncio.gather(*begun)
    assert engine.groups == groups


async def test_callers_get_results_before_listeners(batcher: Batcher, engine: Engine) -> None:
    """Each caller of a group has its result when the rest of the world is told of it."""
    for key in "ab":
        batcher.submit(put(key), partial(engine.hear, key))
    await batcher.aclose()
    assert engine.told == [(["a", "b"], ["a", "b"])]


async def test_failing_listener_does_not_stop_the_lane(engine: Engine) -> None:
    """If announcing a group fails unexpectedly, the lane goes on."""

    async def run(commands: list[Command]) -> GroupDone:
        return GroupDone((await engine.run(commands)).results, fail)

    async def fail() -> None:
        raise RuntimeError("broken")

    batcher = Batcher(run, lane_per_namespace=False)
    async with asyncio.timeout(60):
        assert [await batcher.call(put(key)) for key in "ab"] == [DONE, DONE]
        await batcher.aclose()


async def test_lone_caller_is_answered_before_listeners(batcher: Batcher, engine: Engine) -> None:
    """What a lone caller does with its answer in the next turn happens before listeners hear of the write."""
    batcher.turns = 4
    for number in range(ALONE):
        batcher.submit(put(f"{number}"), partial(engine.hear_in_a_turn, f"{number}"))
        async with asyncio.timeout(60):
            while len(engine.told) <= number:  # noqa: ASYNC110 - a turn is what is waited for
                await asyncio.sleep(0)
    *company, alone = [heard for _, heard in engine.told]
    assert company == [[]] * (ALONE - 1)
    assert alone == [f"{ALONE - 1}"]


async def test_each_caller_gets_its_own_result(batcher: Batcher, engine: Engine) -> None:
    """A refusal concerns its own command alone."""
    engine.errors["b"] = KeyNotFound("no b")
    a, b, c = (batcher.call(put(key)) for key in "abc")
    assert await a == await c == DONE
    with pytest.raises(KeyNotFound, match="no b"):
        await b


async def test_callbacks_get_their_results(
    batcher: Batcher, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever gave a function is told by it; one that fails is logged, and keeps nobody from hearing."""
    engine.errors["b"] = KeyNotFound("no b")
    told: list[object] = []

    def fail(result: object) -> None:
        raise RuntimeError("no ears")

    for key, tell in (("a", told.append), ("x", fail), ("b", told.append)):
        batcher.submit(put(key), tell)
    assert await batcher.call(put("c")) == DONE
    assert told == [DONE, engine.errors["b"]]
    assert "handing a command's result to its caller failed" in caplog.text
    assert await batcher.call(put("d")) == DONE


async def test_error_of_a_group_reaches_all_its_callers(batcher: Batcher, engine: Engine) -> None:
    """When a group as a whole can't be done, each of its callers is told, and the next group is tried."""
    engine.failure = Unavailable("down")
    answers = await asyncio.gather(*(batcher.call(put(key)) for key in "abc"), return_exceptions=True)
    assert [type(answer) for answer in answers] == [Unavailable] * 3
    engine.failure = None
    assert await batcher.call(put("d")) == DONE


async def test_a_defect_does_not_leave_callers_waiting(batcher: Batcher, engine: Engine) -> None:
    """If running a group breaks in a way that nobody foresaw, its callers are told and the lane goes on."""
    engine.failure = RuntimeError("broken")
    async with asyncio.timeout(60):
        answers = await asyncio.gather(*(batcher.call(put(key)) for key in "ab"), return_exceptions=True)
        assert [type(answer) for answer in answers] == [InternalError] * 2
        assert not batcher.writing("kv/a", "a")
        engine.failure = None
        assert await batcher.call(put("c")) == DONE
        await batcher.aclose()


async def test_group_holds_at_most_512_commands(batcher: Batcher, engine: Engine) -> None:
    """A group holds at most 512 commands; the rest goes in the next."""
    await asyncio.gather(*(batcher.call(put(f"{number}")) for number in range(MAX_GROUP + 5)))
    assert [len(group) for group in engine.groups] == [512, 5]


async def test_group_size_can_be_lowered(batcher: Batcher, engine: Engine) -> None:
    """Whoever serves others may want smaller groups."""
    batcher.most = 2
    await asyncio.gather(*(batcher.call(put(key)) for key in "abcde"))
    assert engine.groups == [["a", "b"], ["c", "d"], ["e"]]


async def test_group_holds_at_most_4_mb(batcher: Batcher, engine: Engine) -> None:
    """A group holds at most 4 MB; a command that is larger goes alone rather than never."""
    size = 65_536
    fit = MAX_GROUP_BYTES // (size + LEAST_COST)
    sizes = [size] * (fit + 1) + [MAX_GROUP_BYTES * 2, 1]
    await asyncio.gather(*(batcher.call(put(f"{n}", size=size)) for n, size in enumerate(sizes)))
    assert [len(group) for group in engine.groups] == [fit, 1, 1, 1]


async def test_several_writes_count_as_such(batcher: Batcher, engine: Engine) -> None:
    """Batches and lists weigh what their members weigh."""
    batch = Batch(namespace="kv/a", origin=ORIGIN, checks=(), writes=(put("x", size=EXPENSIVE),))
    many = Many(namespace="kv/b", origin=ORIGIN, items=(put("y", size=EXPENSIVE),))
    small = Many(namespace="kv/c", origin=ORIGIN, items=(put("y"),))
    others = [batcher.call(command) for command in (many, small, put("z", namespace="kv/d"))]
    await asyncio.gather(batcher.call(batch), *others)
    assert [len(group) for group in engine.groups] == [2, 1, 1]


async def test_cancelled_caller_does_not_cancel_its_command(
    batcher: Batcher, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """A caller that is cancelled does not cancel its command, nor anybody else's; it is no error."""
    engine.door.clear()

    async def call(key: str) -> Any:
        return await batcher.call(put(key))

    running, waiting, other = (asyncio.create_task(call(key)) for key in ("running", "waiting", "other"))
    await engine.begun.wait()
    late = asyncio.create_task(call("late"))
    await asyncio.sleep(0)
    for task in (running, waiting, late):
        task.cancel()
    engine.door.set()
    assert await other == DONE
    assert await batcher.call(put("end")) == DONE
    assert [key for group in engine.groups for key in group] == ["running", "waiting", "other", "late", "end"]
    for task in (running, waiting, late):
        with pytest.raises(asyncio.CancelledError):
            await task
    assert caplog.text == ""


async def test_closing_waits_for_accepted_commands(batcher: Batcher, engine: Engine) -> None:
    """Closing accepts nothing more and ends when everything accepted is done."""
    engine.door.clear()
    taken = [batcher.call(put(f"{number}")) for number in range(3)]
    closing = asyncio.create_task(batcher.aclose())
    await engine.begun.wait()
    assert not closing.done()
    with pytest.raises(Unavailable):
        batcher.call(put("more"))
    engine.door.set()
    await closing
    assert [future.result() for future in taken] == [DONE] * 3
    await batcher.aclose()


async def test_key_is_pending_until_its_command_is_done(batcher: Batcher, engine: Engine) -> None:
    """A key counts as being written from the moment its command is submitted until it is done."""
    items = (put("in many"), Delete(namespace="kv/a", origin=ORIGIN, key="deleted"))
    futures = [
        batcher.call(put("a")),
        batcher.call(put("a")),
        batcher.call(Many(namespace="kv/a", origin=ORIGIN, items=items)),
        batcher.call(Batch(namespace="kv/a", origin=ORIGIN, checks=(), writes=(put("in batch"),))),
        batcher.call(Get(namespace="kv/a", key="read")),
    ]
    for key in ("a", "in many", "deleted", "in batch"):
        assert batcher.writing("kv/a", key), key
        assert not batcher.writing("kv/b", key), key
    assert not batcher.writing("kv/a", "read")
    await asyncio.gather(*futures)
    for key in ("a", "in many", "deleted", "in batch"):
        assert not batcher.writing("kv/a", key), key


async def test_barrier_waits_for_earlier_commands(batcher: Batcher, engine: Engine) -> None:
    """Waiting until a namespace is settled waits for what came before, and for nothing when it is idle."""
    await batcher.settled("kv/a")
    assert engine.groups == []
    engine.door.clear()
    before = batcher.call(put("before"))
    barrier = asyncio.create_task(batcher.settled("kv/a"))
    await engine.begun.wait()
    await batcher.settled("kv/other")
    assert not barrier.done()
    engine.door.set()
    await barrier
    assert before.done()
    assert engine.groups == [["before"]]


async def test_a_refused_command_settles_too(batcher: Batcher, engine: Engine) -> None:
    """A barrier waits for an end, not for a success."""
    engine.errors["a"] = KeyNotFound("no a")
    future = batcher.call(put("a"))
    await batcher.settled("kv/a")
    assert isinstance(future.exception(), KeyNotFound)


async def test_a_write_does_not_overtake_a_read(batcher: Batcher, engine: Engine) -> None:
    """While a read of a key is under way, writes of it that come later wait, and those of others don't."""
    with batcher.reading("kv/a", ["k", "k"]):
        earlier = batcher.call(put("other"))
        await earlier
        later = batcher.call(put("k"))
        after = batcher.call(put("after"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert engine.groups == [["other"]]
        assert not later.done()
    await asyncio.gather(later, after)
    assert engine.groups == [["other"], ["k", "after"]]


async def test_a_read_of_everything_holds_every_write(batcher: Batcher, engine: Engine) -> None:
    """A listing is not overtaken by any write of its namespace."""
    with batcher.reading("kv/a"):
        await batcher.call(put("k", namespace="kv/b"))
        later = batcher.call(put("k"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert engine.groups == [["k"]]
    assert await later == DONE


async def test_one_lane_keeps_the_order_of_all(batcher: Batcher, engine: Engine) -> None:
    """With one lane a group holds several namespaces, and groups go one after the other."""
    engine.door.clear()
    futures = [batcher.call(put("first"))]
    await engine.begun.wait()
    futures += [batcher.call(put(f"{number}", namespace=f"kv/{number}")) for number in range(3)]
    engine.door.set()
    await asyncio.gather(*futures)
    assert engine.groups == [["first"], ["0", "1", "2"]]


async def test_a_lone_caller_who_goes_on_at_once_needs_one_task(batcher: Batcher) -> None:
    """Calls that follow each other are executed by the task that executed the first, which then ends."""
    tasks: list[object] = []

    def noting(loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> asyncio.Task[Any]:
        tasks.append(work)
        return asyncio.Task(work, loop=loop, **more)

    others = asyncio.all_tasks()
    asyncio.get_running_loop().set_task_factory(noting)
    for key in "abc":
        await batcher.call(put(key))
    assert len(tasks) == 1
    await asyncio.wait(asyncio.all_tasks() - others)
    await batcher.call(put("d"))
    assert len(tasks) == 2


async def test_a_caller_who_cancels_all_other_tasks_is_still_served(batcher: Batcher) -> None:
    """A program that ends cancels what is left, and may write after that."""
    await batcher.call(put("a"))
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.wait(left)
    async with asyncio.timeout(60):
        await batcher.call(put("b"))


async def test_closing_does_not_wait_for_a_task_that_was_cancelled_before_it_began(batcher: Batcher) -> None:
    """A program that cancels all tasks right after a call can still close the store."""
    others = asyncio.all_tasks()
    call = batcher.call(put("a"))
    await cancel_all_but(others)
    with pytest.raises(Unavailable):
        await call
    async with asyncio.timeout(60):
        await batcher.aclose()


async def test_what_was_not_begun_when_all_tasks_are_cancelled_is_refused(
    batcher: Batcher, engine: Engine
) -> None:
    """What was pending is refused and never executed, and the next call is served."""
    others = asyncio.all_tasks()
    calls = [batcher.call(put("pending")), batcher.call(put("later"))]
    await cancel_all_but(others)
    for call in calls:
        with pytest.raises(Unavailable, match="cancelled"):
            await call
    assert not batcher.busy
    async with asyncio.timeout(60):
        await batcher.call(put("next"))
    assert engine.groups == [["next"]]


async def test_large_command_that_was_not_begun_when_all_tasks_are_cancelled_is_refused(
    batcher: Batcher, engine: Engine
) -> None:
    """The same for a command that has a task of its own."""
    others = asyncio.all_tasks()
    many = Many(namespace="kv/b", origin=ORIGIN, items=(put("large", size=EXPENSIVE),))
    call = batcher.call(many)
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks() - others) == 2
    await cancel_all_but(others)
    with pytest.raises(Unavailable, match="cancelled"):
        await call
    async with asyncio.timeout(60):
        await batcher.call(put("next", namespace="kv/b"))
    assert engine.groups == [["next"]]


async def test_outcome_is_unknown_when_the_task_that_executes_is_cancelled(
    batcher: Batcher, engine: Engine
) -> None:
    """What the engine has begun may happen; what waited behind it is refused."""
    others = asyncio.all_tasks()
    engine.door.clear()
    calls = [batcher.call(put("a"))]
    await engine.begun.wait()
    calls.append(batcher.call(put("b")))
    await cancel_all_but(others)
    with pytest.raises(OutcomeUnknown):
        await calls[0]
    with pytest.raises(Unavailable, match="cancelled"):
        await calls[1]
    engine.door.set()
    async with asyncio.timeout(60):
        await batcher.call(put("c"))
    assert engine.groups == [["a"], ["c"]]


async def cancel_all_but(others: set[asyncio.Task[Any]]) -> None:
    """Cancel all tasks but these, as a program may, and let them end."""
    tasks = asyncio.all_tasks() - others
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    await asyncio.sleep(0)  # what they have left is refused


async def test_lane_for_each_namespace_keeps_groups_apart(engine: Engine) -> None:
    """With a lane for each namespace a group holds one alone, and a slow one holds up no other."""
    batcher = Batcher(engine.run, lane_per_namespace=True)
    engine.door.clear()
    futures = [batcher.call(put(f"{number}", namespace=f"kv/{number % 2}")) for number in range(4)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert engine.groups == [["0", "2"], ["1", "3"]]
    engine.door.set()
    await asyncio.gather(*futures)


async def test_runs_are_grouped_with_runs_alone() -> None:
    """A run of expired entries shares its group with no command that could be about one of them."""
    groups: list[list[type]] = []

    async def run(commands: list[Command]) -> GroupDone:
        groups.append([type(command) for command in commands])
        return GroupDone([Removed(0)] * len(commands))

    batcher = Batcher(run, lane_per_namespace=False)
    runs = [ExpireRun(namespace=f"kv/{name}", limit=9) for name in "ab"]
    await asyncio.gather(*map(batcher.call, [put("a"), put("b"), *runs, put("c"), runs[0]]))
    assert groups == [[Set, Set], [ExpireRun, ExpireRun], [Set], [ExpireRun]]


async def test_a_policy_change_is_the_last_of_its_group() -> None:
    """What comes after a change of policy is grouped anew, so that it is loaded as the new policy asks."""
    groups: list[list[type]] = []

    async def run(commands: list[Command]) -> GroupDone:
        groups.append([type(command) for command in commands])
        return GroupDone([DONE] * len(commands))

    batcher = Batcher(run, lane_per_namespace=False)
    change = SetPolicy(namespace="kv/a", origin=ORIGIN, policy="{}")
    await asyncio.gather(*map(batcher.call, [put("a"), change, put("b"), change, change, put("c")]))
    assert groups == [[Set, SetPolicy], [Set, SetPolicy], [SetPolicy], [Set]]


async def test_groups_are_measured(batcher: Batcher) -> None:
    """Whoever wants to know is told how large each group is."""
    sizes: list[int] = []
    batcher.grouped = sizes.append
    await asyncio.gather(*(batcher.call(put(key)) for key in "abc"))
    assert sizes == [3]


def test_commands_are_weighed_by_what_they_bring() -> None:
    """The bound of a group is about bytes, that of the work in one go about rows."""
    row = Row(value="1", size=1000, version=1, created_at=0, updated_at=0)
    load = Load(namespace="kv/a", origin=ORIGIN, entries=(("k", row), ("l", row)), keep_versions=False)
    expire = Expire(namespace="kv/a", space="kv", keys=("a", "b", "c"))
    read = Get(namespace="kv/a", key="k")
    assert [command.cost for command in (put("k", size=1000), load, expire, read)] == [1256, 2512, 1536, 256]
    many = Many(namespace="kv/a", origin=ORIGIN, items=(put("a"), put("b")))
    batch = Batch(namespace="kv/a", origin=ORIGIN, checks=(), writes=(put("a"),))
    assert [command.rows for command in (put("k"), load, expire, many, batch)] == [1, 2, 3, 2, 1]
