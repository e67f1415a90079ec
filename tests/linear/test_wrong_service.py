"""What a wrong service does is seen in the histories of its clients: the recording hides nothing."""

from __future__ import annotations

import contextlib
import random
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from holdfast.clock import SystemClock
from holdfast.commands import Set
from holdfast.decide import decision, keys
from holdfast.engines.memory import MemoryEngine
from holdfast.engines.sqlite.cache import RowCache
from holdfast.errors import Timeout
from holdfast.pipeline.batcher import _Lane
from holdfast.pipeline.pipeline import Pipeline
from tests.edges.nats.ground import serving
from tests.linear.checker import judge
from tests.linear.history import load
from tests.linear.load import Plan, run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from holdfast.edges.nats.server import NatsServer
    from holdfast.rows import Address, Row
    from tests.linear.history import Operation

OPERATIONS = 600
SELDOM = 0.05


def stale_gets(patch: pytest.MonkeyPatch, chance: random.Random) -> None:
    """Now and then a get is answered with what the first get of its key saw."""
    right, first = MemoryEngine.glance, dict[Any, Any]()

    def wrong(engine: MemoryEngine, addresses: Sequence[Address], now: int) -> list[Row | None]:
        rows = right(engine, addresses, now)
        for address, row in zip(addresses, rows, strict=True):
            first.setdefault(address, row)
        return [
            first[address] if chance.random() < SELDOM else row
            for address, row in zip(addresses, rows, strict=True)
        ]

    patch.setattr(MemoryEngine, "glance", wrong)


def checks_skipped(patch: pytest.MonkeyPatch, chance: random.Random) -> None:
    """Now and then a set takes effect whatever version it expected."""
    right = decision._APPLY[Set]

    def wrong(draft: Any, command: Set) -> Any:
        skip = chance.random() < SELDOM
        return right(draft, msgspec.structs.replace(command, expected=None) if skip else command)

    for table in (keys.APPLY, decision._APPLY):
        patch.setitem(table, Set, wrong)


def timeout_after_the_effect(patch: pytest.MonkeyPatch, chance: random.Random) -> None:
    """Now and then a write that was done is answered with TIMEOUT."""
    right = Pipeline.submit

    def wrong(pipeline: Pipeline, command: Any, tell: Callable[[Any], None], *rest: Any, **more: Any) -> None:
        def tell_wrongly(result: Any) -> None:
            tell(Timeout("too late") if chance.random() < SELDOM else result)

        right(pipeline, command, tell_wrongly, *rest, **more)

    patch.setattr(Pipeline, "submit", wrong)


def cached_rows_believed(cache: RowCache) -> bytes | None:
    """Return a header for rows in memory, whatever other processes have written."""
    cache._at = cache._at or b"some header"
    return cache._at


async def history_of(
    server: NatsServer, folder: Path, storage: str = "memory://", *, services: int = 1
) -> list[Operation]:
    """What the clients of services that run here see, without faults from outside."""
    path = folder / "history.jsonl"
    plan = Plan(
        url=server.url,
        path=str(path),
        number=1,
        seed=1,
        operations=OPERATIONS,
        start=time.monotonic_ns(),
        timeout=5,
    )
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(services):
            await stack.enter_async_context(serving(server.url, storage=storage, clock=SystemClock()))
        await run(plan)
    return load(path)


async def test_a_right_service_is_not_blamed(nats_server: NatsServer, tmp_path: Path) -> None:
    """Nothing is found in the history of a service that is right."""
    assert judge(await history_of(nats_server, tmp_path)) == ([], [])


@pytest.mark.parametrize(
    "bug", [stale_gets, checks_skipped, timeout_after_the_effect], ids=lambda bug: bug.__name__
)
async def test_a_wrong_service_is_caught(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bug: Any
) -> None:
    """A service that is wrong in one of twenty answers is caught within 600 operations."""
    bug(monkeypatch, random.Random(1))
    assert judge(await history_of(nats_server, tmp_path)).violations


@pytest.mark.parametrize("planted", [False, True], ids=["right", "wrong"])
async def test_two_groups_of_a_namespace_at_a_time_are_caught(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: bool
) -> None:
    """If large calls are decided beside earlier ones of their namespace, clients see it in the codes."""
    if planted:
        take_expensive = _Lane.take_expensive
        monkeypatch.setattr(_Lane, "take_expensive", lambda lane, group: take_expensive(lane, ()))
    history = await history_of(nats_server, tmp_path, str(tmp_path / "store.db"))
    assert any(operation.beside for operation in history)
    assert ("DATABASE_ERROR" in {operation.code for operation in history}) is planted
    assert judge(history).violations == []


@pytest.mark.parametrize("planted", [False, True], ids=["right", "wrong"])
async def test_rows_that_were_cached_too_long_are_caught(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: bool
) -> None:
    """If services on one file answer from memory without a look at the file, clients see old values."""
    if planted:
        monkeypatch.setattr(RowCache, "fresh", cached_rows_believed)
        monkeypatch.setattr(RowCache, "forget", lambda cache: None)
    history = await history_of(nats_server, tmp_path, str(tmp_path / "store.db"), services=2)
    assert bool(judge(history).violations) is planted
