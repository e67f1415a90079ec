"""A long commit gives way to others, as long as less than half of it is done.

A statement of the commit says when another job arrives, so that nothing waits for time.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.engines.sqlite import writer as writers
from holdfast.engines.sqlite.setup import prepare
from holdfast.engines.sqlite.writer import GIVES_WAY, Writer, YieldBudget

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STEPS = 10


class Ground:
    """A writer whose statements `SELECT step(n)` are noted; at some of them, another job arrives."""

    def __init__(self, path: Path) -> None:
        self.seen: list[object] = []
        self.at: set[int] = set()
        self.ends_at = -1
        self.writer = Writer(str(path), lambda log_bytes: True, None, lambda: True)
        connection = prepare(path, sync="OFF")
        connection.execute("CREATE TABLE done (name)")
        connection.create_function("step", 1, self._step)
        self.writer.use(connection)
        self.writer.start()

    def _step(self, number: int) -> None:
        self.seen.append(number)
        if number in self.at:
            self.writer._jobs.put(partial(self._insert, f"other at {number}"))
        if number == self.ends_at:
            self.writer._jobs.put(None)

    def _insert(self, name: str) -> bool:
        plan = [("INSERT INTO done VALUES (?)", (name,))]
        self.writer.commit(plan, 1, lambda: 0, None, self.writer.data_version)
        self.seen.append(name)
        return True

    async def run_long(self, yields: YieldBudget | None) -> None:
        """Commit ten steps and a row."""
        plan: list[Any] = [("SELECT step(?)", (number,)) for number in range(STEPS - 1)]
        plan.append(("INSERT INTO done VALUES ('long')", ()))
        seen = self.writer.data_version
        job = partial(self.writer.commit, plan, 1, lambda: 0, None, seen, yields=yields)
        await self.writer.run(job)

    async def commit_long(self, yields: YieldBudget | None) -> list[str]:
        """Commit ten steps and a row. Returns the rows of all commits, in their order."""
        await self.run_long(yields)
        found = await self.writer.run(partial(self.writer.fetch, "SELECT name FROM done ORDER BY rowid"))
        return [str(name) for (name,) in found]


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    """A writer on a file of its own."""
    made = Ground(tmp_path / "store.db")
    yield made
    made.writer.stop(lambda: None)


async def test_a_long_commit_lets_an_early_job_go_first(ground: Ground) -> None:
    """A job that arrives in the first half is done first; the long one then begins again and is whole."""
    ground.at = {2}
    assert await ground.commit_long(YieldBudget(left=1)) == ["other at 2", "long", "other at 2"]
    assert ground.seen[:5] == [0, 1, 2, "other at 2", 0]
    assert ground.seen[4:13] == [*range(STEPS - 1)]


async def test_a_long_commit_in_its_second_half_finishes_first(ground: Ground) -> None:
    """A job that arrives in the second half waits for the rest."""
    ground.at = {STEPS // 2}
    assert await ground.commit_long(YieldBudget()) == ["long", f"other at {STEPS // 2}"]


async def test_a_long_commit_is_interrupted_only_a_few_times(ground: Ground) -> None:
    """However many jobs arrive, a long commit is done after a few of them."""
    ground.at = {0}
    others = ["other at 0"]
    assert await ground.commit_long(YieldBudget()) == [*others * GIVES_WAY, "long", *others]


async def test_a_short_commit_is_not_interrupted(ground: Ground) -> None:
    """A commit of a few rows is done at once."""
    ground.at = {0}
    assert await ground.commit_long(None) == ["long", "other at 0"]


async def test_a_stopping_writer_finishes_an_interrupted_commit(tmp_path: Path) -> None:
    """The end of a writer is no job that a long commit is lost for."""
    ground = Ground(tmp_path / "store.db")
    ground.ends_at = 1
    await ground.run_long(YieldBudget())
    ground.writer._thread.join()
    with closing(sqlite3.connect(tmp_path / "store.db")) as file:
        assert file.execute("SELECT name FROM done").fetchall() == [("long",)]


async def test_interrupted_batches_stay_whole_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside sets of another plugin, calls of a thousand writes are whole, in order, and recorded once."""
    gave: list[int] = []
    give_way = Writer._give_way

    def noted(self: Writer, yields: YieldBudget) -> None:
        try:
            give_way(self, yields)
        except writers.WriteInterrupted:
            gave.append(yields.left)
            raise

    monkeypatch.setattr(Writer, "_give_way", noted)
    async with holdfast.open(tmp_path / "store.db", reap=False) as store:
        busy, quiet = store.kv("busy"), store.kv("quiet")
        running = True

        async def ask() -> int:
            number = 0
            while running:
                number += 1
                await quiet.set("k", number)
            return number

        asking = asyncio.create_task(ask())
        for turn in range(5):
            await busy.set_many([{"key": f"k{n}", "value": turn} for n in range(1_000)])
        running = False
        count = await asking
        changes, since = 0, 0
        while page := (await busy.changes(since)).changes:
            assert [change.version for change in page] == [*range(since + 1, since + len(page) + 1)]
            changes, since = changes + len(page), page[-1].version
        assert changes == 5_000
        found = await busy.get_many([f"k{n}" for n in range(1_000)])
        assert {entry.value for entry in found if isinstance(entry, holdfast.Entry)} == {4}
        assert len(await quiet.history("k", limit=10_000)) == count
    assert gave, "the sets were in the way of none"
