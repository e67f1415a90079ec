"""Groups of several namespaces: what shares one, what does not, and that nobody waits for another."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from holdfast.engine import CannotShareTransaction
from holdfast.errors import OutcomeUnknown, Unavailable
from holdfast.pipeline.batcher import Batcher, GroupDone
from holdfast.verbs.caller import id_maker
from tests.verbs import Verbs

if TYPE_CHECKING:
    from holdfast.commands import Command


class Sharing:
    """An engine whose transactions hold several namespaces, and what it was given."""

    shared = 8

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.unshared: set[str] = set()
        self.apart = False
        self.gates: dict[str, asyncio.Event] = {}
        self.begun = asyncio.Event()

    def shares(self, namespace: str) -> bool:
        """As told."""
        return namespace not in self.unshared

    async def run(self, commands: list[Command]) -> GroupDone:
        """Note the keys by namespace, and answer with them."""
        names = [f"{command.namespace}:{getattr(command, 'key', '')}" for command in commands]
        if self.apart and len({command.namespace for command in commands}) > 1:
            self.groups.append(["apart"])
            raise CannotShareTransaction
        self.groups.append(names)
        self.begun.set()
        for command in commands:
            if command.namespace in self.gates:
                await self.gates[command.namespace].wait()
        await asyncio.sleep(0)
        return GroupDone(list(names))  # type: ignore[arg-type]


def setter(namespace: str) -> Verbs:
    """A maker of commands."""
    return Verbs(namespace, writer="tester", new_id=id_maker(), now=lambda: 0)


def sets(batcher: Batcher, *names: str) -> list[asyncio.Future[Any]]:
    """Submit a set for each namespace and key, written `namespace:key`."""
    made = (name.partition(":") for name in names)
    return [batcher.call(setter(namespace).set(key, 1)) for namespace, _, key in made]


async def test_one_group_for_many_namespaces() -> None:
    """Commands of several namespaces that wait together share one transaction, each in its order."""
    engine = Sharing()
    batcher = Batcher(engine.run, lane_per_namespace=True, sharer=engine)
    names = ["a:1", "b:1", "a:2", "c:1", "b:2"]
    assert await asyncio.gather(*sets(batcher, *names)) == names
    assert engine.groups == [["a:1", "a:2", "b:1", "b:2", "c:1"]]
    await batcher.aclose()


async def test_transaction_holds_at_most_the_engines_number_of_namespaces() -> None:
    """A transaction holds as many namespaces as the engine wants, and no more."""
    engine = Sharing()
    batcher = Batcher(engine.run, lane_per_namespace=True, sharer=engine)
    names = [f"n{number:02}:k" for number in range(20)]
    assert await asyncio.gather(*sets(batcher, *names)) == names
    assert [len(group) for group in engine.groups] == [8, 8, 4]
    await batcher.aclose()


async def test_refused_company_is_executed_one_by_one() -> None:
    """If the engine refuses namespaces together, each one is executed alone, in order and once."""
    engine = Sharing()
    engine.apart = True
    batcher = Batcher(engine.run, lane_per_namespace=True, sharer=engine)
    names = ["a:1", "b:1", "a:2"]
    assert await asyncio.gather(*sets(batcher, *names)) == names
    assert engine.groups == [["apart"], ["a:1", "a:2"], ["b:1"]]
    await batcher.aclose()


async def test_contended_namespace_has_groups_of_its_own() -> None:
    """A namespace that others write to has groups of its own."""
    engine = Sharing()
    engine.unshared = {"b"}
    batcher = Batcher(engine.run, lane_per_namespace=True, sharer=engine)
    names = ["a:1", "b:1", "c:1"]
    assert await asyncio.gather(*sets(batcher, *names)) == names
    assert sorted(engine.groups) == [["a:1", "c:1"], ["b:1"]]
    await batcher.aclose()


async def test_only_plain_changes_share() -> None:
    """A command on many keys does not join the group of others, and keeps its place in its namespace."""
    engine = Sharing()
    batcher = Batcher(engine.run, lane_per_namespace=True, sharer=engine)
    many = setter("a").batch(writes=[{"key": "1", "value": 1}])
    waits = [*sets(batcher, "a:0"), batcher.call(many), *sets(batcher, "a:2", "b:1")]
    await asyncio.gather(*waits)
    assert engine.groups == [["a:0", "b:1"], ["a:", "a:2"]]
    await batcher.aclose()


async def test_a_slow_group_holds_up_nobody_else() -> None:
    """While one transaction waits, the commands of other namespaces go into the next."""
    engine = Sharing()
    engine.gates["a"] = asyncio.Event()
    batcher = Batcher(engine.run, lane_per_namespace=True, sharer=engine)
    slow = sets(batcher, "a:1", "b:1")
    await engine.begun.wait()
    behind = sets(batcher, "a:2")
    assert await asyncio.gather(*sets(batcher, "c:1", "d:1")) == ["c:1", "d:1"]
    assert not any(wait.done() for wait in (*slow, *behind))
    engine.gates["a"].set()
    assert await asyncio.gather(*slow, *behind) == ["a:1", "b:1", "a:2"]
    assert engine.groups == [["a:1", "b:1"], ["c:1", "d:1"], ["a:2"]]
    await batcher.aclose()


async def test_many_namespaces_make_two_groups_that_overlap() -> None:
    """If many namespaces wait, half of them go first, and the others follow before the first are done."""
    engine = Sharing()
    engine.shared = 128
    engine.gates["n00"] = asyncio.Event()
    batcher = Batcher(engine.run, lane_per_namespace=True, sharer=engine)
    names = [f"n{number:02}:k" for number in range(41)]
    first = sets(batcher, *names)
    assert await asyncio.gather(*first[21:]) == names[21:]
    assert not any(wait.done() for wait in first[:21])
    more = [f"m{number:02}:k" for number in range(40)]
    assert await asyncio.gather(*sets(batcher, *more)) == more  # one group: another one is in flight
    engine.gates["n00"].set()
    assert await asyncio.gather(*first) == names
    assert [len(group) for group in engine.groups] == [21, 20, 40]
    await batcher.aclose()


async def test_a_few_namespaces_are_not_worth_two_groups() -> None:
    """Up to a number of namespaces, one group holds all of them."""
    engine = Sharing()
    engine.shared = 128
    batcher = Batcher(engine.run, lane_per_namespace=True, sharer=engine)
    names = [f"n{number:02}:k" for number in range(31)]
    assert await asyncio.gather(*sets(batcher, *names)) == names
    assert [len(group) for group in engine.groups] == [31]
    await batcher.aclose()


async def test_next_call_is_served_after_all_tasks_were_cancelled() -> None:
    """Carriers that are cancelled, at work or before they begin, refuse what is left and leave no lane."""
    engine = Sharing()
    batcher = Batcher(engine.run, lane_per_namespace=True, sharer=engine)
    others = asyncio.all_tasks()
    for begun in (False, True):
        gate = engine.gates["a"] = asyncio.Event()
        calls = sets(batcher, "a:1", "b:1", "c:1")
        if begun:
            engine.begun.clear()
            await engine.begun.wait()
            calls += sets(batcher, "a:2", "d:1")
        carriers = asyncio.all_tasks() - others
        for carrier in carriers:
            carrier.cancel()
        await asyncio.wait(carriers)
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(answer) for answer in answers[:3]] == [OutcomeUnknown if begun else Unavailable] * 3
        assert {type(answer) for answer in answers[3:]} <= {Unavailable}
        gate.set()
        async with asyncio.timeout(60):
            await asyncio.gather(*sets(batcher, "a:3", "b:3", "d:3"))
    await batcher.aclose()
