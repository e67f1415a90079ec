"""What a client asks: the same of every side."""

from __future__ import annotations

from collections import Counter

from bench.client import Asker, Plan, Task
from bench.doors import key_of


class Ledger:
    """A door that notes who came."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, str]] = []
        self.written: list[int] = []

    async def open(self, url: str, plugins: list[str]) -> None:
        """There is nothing to open."""

    async def get(self, plugin: int, key: str) -> None:
        """Note a get."""
        self.calls.append(("get", plugin, key))

    async def set(self, plugin: int, key: str, number: int) -> None:
        """Note a set."""
        self.calls.append(("set", plugin, key))
        self.written.append(number)

    async def close(self) -> None:
        """There is nothing to close."""


def asker(door: Ledger) -> Asker:
    """Somebody with three plugins of ten keys."""
    return Asker(Plan(door="nats", url="", plugins=["a", "b", "c"], keys=10), door)


async def test_filling_writes_every_key_once() -> None:
    """Gets must find something: a get of nothing costs less."""
    door = Ledger()
    await asker(door).work(Task(gets=0, seconds=0, in_flight=4, fill=True))
    assert sorted(door.calls) == sorted(
        ("set", plugin, key_of(key)) for plugin in range(3) for key in range(10)
    )


async def test_mixed_work_is_of_all_plugins_and_known_keys() -> None:
    """About as many gets as asked for; every plugin has its turn, and all keys are there."""
    door = Ledger()
    await asker(door).work(Task(gets=0.7, seconds=0.001, per_second=2_000_000))
    count = Counter(verb for verb, _, _ in door.calls)
    assert sum(count.values()) == 2_000
    assert 1_300 < count["get"] < 1_500
    assert {plugin for _, plugin, _ in door.calls} == {0, 1, 2}
    assert {key for _, _, key in door.calls} == {key_of(number) for number in range(10)}


async def test_every_set_writes_something_new() -> None:
    """A database need not write what it has already, and then does not sync."""
    door, plan = Ledger(), Task(gets=0, seconds=0.001, per_second=50_000)
    one = asker(door)
    await one.work(plan)
    await one.work(plan)
    assert len(set(door.written)) == len(door.written) == 100
