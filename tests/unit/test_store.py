"""The store around an engine: what fails alone, what is told, and what is logged.

The engine is the reference one behind a stand-in that fails where a test says so.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock

import msgspec
import pytest

from holdfast import store as store_module
from holdfast.clock import ManualClock
from holdfast.commands import Set
from holdfast.engine import LATER
from holdfast.engines.memory import MemoryEngine
from holdfast.engines.sqlite import SqliteEngine
from holdfast.errors import (
    DatabaseError,
    InternalError,
    OutcomeUnknown,
    Unavailable,
    ValidationError,
    VersionConflict,
)
from holdfast.rows import KV, Address
from holdfast.store import Store
from holdfast.testing.conformance.fixtures import on_key
from holdfast.testing.exact import present, refusal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from pathlib import Path

    from holdfast.commands import Command
    from holdfast.decide import Outcome
    from holdfast.rows import Record


class Engine(MemoryEngine):
    """The reference engine, with faults."""

    def __init__(self) -> None:
        super().__init__()
        self.poison: Exception | None = None
        self.failure: Exception | None = None
        self.groups: list[int] = []

    async def transact(self, commands: Sequence[Command], now: Callable[[], int]) -> Outcome:
        """A group with the key `poison` fails; so does every group while there is a failure."""
        self.groups.append(len(commands))
        if self.failure is not None:
            raise self.failure
        if self.poison is not None and any(getattr(command, "key", "") == "poison" for command in commands):
            raise self.poison
        return await super().transact(commands, now)


@pytest.fixture
def engine() -> Engine:
    """Where the rows are."""
    return Engine()


@pytest.fixture
async def store(engine: Engine) -> AsyncIterator[Store]:
    """An open store."""
    async with Store(engine, clock=ManualClock(), reap=False) as store:
        yield store


@pytest.mark.parametrize(
    ("fault", "seen"), [(RuntimeError("secret"), InternalError), (DatabaseError("bad row"), DatabaseError)]
)
async def test_a_poison_command_fails_alone(
    store: Store, engine: Engine, fault: Exception, seen: type, caplog: pytest.LogCaptureFixture
) -> None:
    """When a group can't be saved its commands are tried one by one, and only the culprit fails.

    Whoever listens is told of the others.
    """
    engine.poison = fault
    told: list[str] = []
    store.pipeline.listen(lambda journal: told.extend(record.key for record in journal))
    kv = store.kv("a")
    calls = (kv.set("before", 1), kv.set("poison", 1, request_id="r-7"), kv.set("after", 1))
    before, poisoned, after = await asyncio.gather(*calls, return_exceptions=True)
    assert [entry.version for entry in (before, after) if not isinstance(entry, BaseException)] == [1, 2]
    assert type(poisoned) is seen
    assert "secret" not in str(poisoned)
    assert engine.groups == [3, 1, 1, 1]
    await kv.set("last", 1)
    assert told[:2] == ["before", "after"]
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert any("r-7" in record.getMessage() and record.exc_info for record in errors)


async def test_poison_command_on_its_own_is_tried_once(store: Store, engine: Engine) -> None:
    """A command that comes alone is not tried twice."""
    engine.poison = RuntimeError()
    with refusal(InternalError, says="Set"):
        await store.kv("a").set("poison", 1)
    assert engine.groups == [1]


@pytest.mark.parametrize("fault", [Unavailable("down"), OutcomeUnknown("lost the line")])
async def test_engine_errors_apply_to_the_whole_group(store: Store, engine: Engine, fault: Any) -> None:
    """If the engine says that nothing was written, or that nobody knows, all callers get that error and
    nothing is tried again.
    """
    engine.failure = fault
    kv = store.kv("a")
    answers = await asyncio.gather(kv.set("a", 1), kv.set("b", 1), return_exceptions=True)
    assert [type(answer) for answer in answers] == [type(fault)] * 2
    assert engine.groups == [2]
    engine.failure = None
    assert (await kv.set("a", 1)).version == 1


async def test_unopened_store_refuses_every_call(engine: Engine) -> None:
    """Before it is opened, a store refuses every call."""
    store = Store(engine, reap=False)
    kv = store.kv("a")
    for verb, call in on_key(kv).items():
        with refusal(Unavailable, says="not open", about=verb):
            await call("k")
    for other in (store.namespaces(), store.stats("kv/a"), store.sweep(), store.upkeep(), store.ready()):
        with refusal(Unavailable, says="not open"):
            await other


async def test_closing_twice_does_nothing(engine: Engine) -> None:
    """Closing a closed store does nothing."""
    store = Store(engine, reap=False)
    await store.start()
    await store.aclose()
    await store.aclose()


def test_the_writer_has_a_legal_name(engine: Engine) -> None:
    """Who writes by default is checked once, when the store is made."""
    with refusal(ValidationError, field="writer"):
        Store(engine, writer="a\nb")


async def test_writer_defaults_to_the_program(engine: Engine) -> None:
    """The writer is the one that the call names, else the store's, else the program."""
    async with Store(engine, reap=False) as store:
        assert (await store.kv("a").set("k", 1)).last_writer == "embedded"
    async with Store(engine, writer="agent:x", reap=False) as store:
        assert (await store.kv("a").set("k", 1)).last_writer == "agent:x"
        assert (await store.kv("a").set("k", 1, writer="agent:y")).last_writer == "agent:y"
        command = store.pipeline.verbs("kv/a", writer="somebody").command(Set, key="k", value=1)
        assert command.origin.writer == "somebody"


async def test_conflicts_are_logged(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """A failed check is a WARNING with the request id, in a single write, a batch and a list alike."""
    kv = store.kv("a")
    await kv.set("k", "secret")
    with pytest.raises(VersionConflict):
        await kv.set("k", "secret", expected_version=9, request_id="single")
    with pytest.raises(VersionConflict):
        await kv.batch(checks=[{"key": "k", "version": 0}], writes=[], request_id="batch")
    await kv.set_many([{"key": "k", "value": "secret", "expected_version": 9}], request_id="many")
    records = [vars(record) for record in caplog.records if record.levelno == logging.WARNING]
    assert [told["request_id"] for told in records] == ["single", "batch", "many"]
    assert [told["namespace"] for told in records] == ["kv/a"] * 3
    assert [(told.get("key"), told.get("keys")) for told in records] == [
        ("k", None),
        (None, ["k"]),
        ("k", None),
    ]
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 3
    for warning, request_id in zip(warnings, ("single", "batch", "many"), strict=True):
        assert request_id in warning
        assert "kv/a" in warning
        assert "secret" not in warning


async def test_semantic_writes_are_logged(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """Every write of the semantic family is an INFO with directive, key, purpose, request id and version."""
    caplog.set_level(logging.INFO, logger="holdfast.writes")
    kv = store.semantic("acme", "web")
    given: dict[str, Any] = {"writer": "agent:directive-7", "request_id": "r"}
    await kv.set("k", "secret", semantics={"purpose": "config"}, **given)
    await kv.delete("k", writer="agent:directive-7", request_id="r2")
    await kv.delete("k", request_id="nothing there")
    await kv.batch(
        writes=[{"key": "b", "value": 1}, {"key": "none", "delete": True}, {"guard": "g"}], request_id="batch"
    )
    await kv.set_many([{"key": "m", "value": 1}, {"key": "", "value": 1}], request_id="many")
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    root = "tenant/acme/project/web/"
    expected = [
        ("directive-7", root + "k", "config", "r", 1),
        ("directive-7", root + "k", "config", "r2", 2),
        ("embedded", root + "b", None, "batch", 3),
        ("embedded", root + "m", None, "many", 5),
    ]
    assert len(lines) == len(expected)
    for line, parts in zip(lines, expected, strict=True):
        directive, key, purpose, request_id, version = parts
        said = "" if purpose is None else f" purpose={purpose}"
        assert f"directive={directive} key={key}{said} request_id=" in line
        assert line.endswith(f"request_id={request_id} version={version}")
        assert "secret" not in line


async def test_plain_writes_are_not_logged(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """A plugin's ordinary work leaves nothing in the log."""
    caplog.set_level(logging.DEBUG, logger="holdfast.writes")
    kv = store.kv("a")
    await kv.set("k", 1)
    await kv.delete("k")
    await kv.batch(writes=[{"key": "k", "value": 1}])
    assert caplog.records == []


async def test_unreadable_stored_value_is_a_database_error(
    store: Store, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """A value that was damaged from outside is a database error that names the key, and is logged."""
    kv = store.kv("a")
    await kv.set("good", 1)
    await kv.set("spoilt", 1)
    address = Address("kv/a", KV, "spoilt")
    engine._rows[address] = msgspec.structs.replace(engine._rows[address], value="{")
    reads: tuple[Callable[[], Awaitable[object]], ...] = (
        lambda: kv.get("spoilt"),
        lambda: kv.list(values=True),
    )
    for read in reads:
        caplog.clear()
        with refusal(DatabaseError, field="key", says="'spoilt'"):
            await read()
        assert any("'spoilt'" in r.getMessage() for r in caplog.records if r.levelno == logging.ERROR)
    good, spoilt = await kv.get_many(["good", "spoilt"])
    assert present(good).value == 1
    assert isinstance(spoilt, DatabaseError)
    assert (await kv.list()).keys == ["good", "spoilt"]
    assert await kv.delete("spoilt") is True


async def test_store_opens_without_the_storage_time(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A store whose storage does not report its time can be opened; it answers once the time is known."""
    engine = SqliteEngine(tmp_path / "state.db")
    remembered = AsyncMock(side_effect=Unavailable("no answer"))
    monkeypatch.setattr(engine, "remembered", remembered)
    async with Store(engine, reap=False) as store:
        assert "no answer" in caplog.text
        with refusal(Unavailable, says="time is not known"):
            await store.kv("a").set("k", 1)
        with refusal(Unavailable, says="time is not known"):
            await store.ready()
        remembered.side_effect, remembered.return_value = None, 0
        await store.pipeline.timekeeper.beat()
        await store.kv("a").set("k", 1)


async def test_a_store_that_fails_to_open_is_closed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was opened is closed again if opening fails later on, so that another attempt finds it free."""
    store = Store(engine, reap=False)
    closed = AsyncMock()
    monkeypatch.setattr(store.pipeline.timekeeper, "open", AsyncMock(side_effect=asyncio.CancelledError))
    monkeypatch.setattr(engine, "aclose", closed)
    with pytest.raises(asyncio.CancelledError):
        await store.start()
    closed.assert_awaited_once()


async def test_listeners_get_every_change_in_order(store: Store) -> None:
    """A listener gets every change after its commit, in order, until it stops listening."""
    told: list[tuple[str, int]] = []

    def listen(records: list[Record]) -> None:
        told.extend((record.op, record.version) for record in records)

    store.pipeline.listen(listen)
    kv = store.kv("a")
    await kv.set("k", 1)
    await kv.batch(writes=[{"key": "k", "incr": 1}, {"key": "k", "delete": True}])
    with pytest.raises(VersionConflict):
        await kv.set("k", 1, expected_version=9)
    store.pipeline.unlisten(listen)
    store.pipeline.unlisten(listen)
    await kv.set("k", 1)
    assert told == [("set", 1), ("set", 2), ("deleted", 3)]


async def test_store_reports_queues_groups_and_sweeps(store: Store, engine: Engine) -> None:
    """The store reports how many commands wait, how large groups are, what sweeps remove and how late they
    are.
    """
    clock = store._clock
    assert isinstance(clock, ManualClock)
    groups: list[int] = []
    sweeps: list[int] = []
    store.measure(grouped=groups.append, swept=lambda removed, seconds: sweeps.append(removed))
    kv = store.kv("a")
    assert await store.overdue() == 0.0
    await asyncio.gather(kv.set("a", 1, ttl=1), kv.set("b", 1, ttl=2))
    clock.advance(1.5)
    assert await store.overdue() == 0.5
    await store.sweep()
    assert (groups, sweeps, store.pipeline.waiting) == ([2, 1], [1], 0)
    await store.ready()


async def test_peek_reads_keys_without_waiting(store: Store) -> None:
    """Keys are read without waiting, by position; a key that is being written to is reported as such."""
    kv = store.kv("a")
    entry = await kv.set("k", 1)
    assert not store.pipeline.writing("kv/a", "k")
    rows = store.pipeline.glance([("kv/a", "k"), ("kv/b", "k"), ("kv/a", "other"), ("kv/a", "k")])
    assert rows is not LATER
    assert [row and row.version for row in rows] == [entry.version, None, None, entry.version]
    results = list[object]()
    store.pipeline.submit(store.pipeline.verbs("kv/a").command(Set, key="k", value=2), results.append)
    assert store.pipeline.writing("kv/a", "k")
    assert present(await kv.get("k")).value == 2
    assert len(results) == 1
    assert not store.pipeline.writing("kv/a", "k")


async def test_waiting_get_is_judged_by_the_time_of_its_answer(store: Store) -> None:
    """A get in its turn is judged by the time at which it is answered."""
    clock = store._clock
    assert isinstance(clock, ManualClock)
    kv = store.kv("a")
    write = asyncio.ensure_future(kv.set("k", 1, ttl=1))
    read = asyncio.ensure_future(kv.get("k"))
    left = asyncio.ensure_future(kv.get_ttl("k"))
    assert present(await write).value == 1
    assert present(await read).value == 1
    assert await left == 1
    clock.advance(1)
    assert await kv.get("k") is None


async def test_background_work_goes_on_after_a_program_has_cancelled_all_its_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As long as a store is open it keeps its time and removes what has expired. Closing ends that."""
    monkeypatch.setattr(store_module, "AGAIN_SECONDS", 0.01)
    clock, others = ManualClock(), asyncio.all_tasks()
    async with asyncio.timeout(60), Store(Engine(), clock=clock) as store:
        kv = store.kv("a")
        entry = await kv.set("k", 1, ttl=5, semantics={"purpose": "config"})
        background = asyncio.all_tasks() - others
        for task in background:
            task.cancel()
        await asyncio.wait(background)
        clock.advance(6)
        async for change in kv.watch(since=entry.version):
            assert (change.op, change.key) == ("expired", "k")
            break
        names = {task.get_name() for task in asyncio.all_tasks() - others}
        assert {"holdfast clock", "holdfast reaper", "holdfast tables"} <= names
    store._keep_running(
        store.pipeline.timekeeper.run, "holdfast late"
    )  # as if cancelled right before it was closed
    assert not [task for task in asyncio.all_tasks() - others if task.get_name().startswith("holdfast")]
