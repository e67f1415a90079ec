"""The compare-and-set loop: nothing is lost, nothing is paused for without need, and it is counted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import UNSET

from holdfast import seams
from holdfast.errors import ValidationError, VersionConflict
from holdfast.handles.recipes import retry

if TYPE_CHECKING:
    from holdfast.handles.kv import KV
    from holdfast.store import Store


def losing(kv: KV, times: int) -> Any:
    """Adds one, but has somebody else add one first, so many times."""
    left = iter(range(times))

    async def change(value: int) -> int:
        if next(left, None) is not None:
            await kv.incr("n")
        return value + 1

    return change


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the loop has slept."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(retry, "asyncio", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(seams, "uniform", lambda: 0.5)
    return slept


async def test_the_first_repeats_come_at_once(kv: KV, pauses: list[float]) -> None:
    """Eight lost races are repeated without a pause; who loses more waits for some milliseconds each time."""
    await kv.set("n", 0)
    assert (await kv.update("n", losing(kv, 8))).value == 9
    assert pauses == []
    assert (await kv.update("n", losing(kv, 11))).value == 21
    assert pauses == [0.025] * 3


async def test_update_raises_the_conflict_at_its_timeout(
    kv: KV, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An update that loses every race until its timeout raises the conflict, with the current entry."""
    times = iter([100.0, 129.9, 130.0])
    monkeypatch.setattr(seams, "monotonic", lambda: next(times))
    await kv.set("n", 0)
    with pytest.raises(VersionConflict) as lost:
        await kv.update("n", losing(kv, 99))
    assert lost.value.current is not None
    assert lost.value.current.value == 2
    monkeypatch.undo()
    with pytest.raises(ValidationError, match="timeout"):
        await kv.update("n", losing(kv, 0), timeout=0)


async def test_repeated_attempts_are_counted(kv: KV, store: Store) -> None:
    """The store's metrics count every repeated attempt."""
    told: list[tuple[str, str, str]] = []
    store.measure(retried=lambda *what: told.append(what))
    await kv.set("n", 0)
    await kv.update("n", losing(kv, 2))
    assert told == [("kv/trivia", "retried", "VERSION_CONFLICT")] * 2


async def test_a_conflict_that_does_not_change_ends_it(kv: KV, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that is refused although the expected version is there is given up after that one attempt."""
    entry = await kv.set("n", 0)
    attempts = 0

    async def refuse(*_: Any, **__: Any) -> None:
        nonlocal attempts
        attempts += 1
        raise VersionConflict("refused", current=entry)

    monkeypatch.setattr(kv, "set", refuse)
    with pytest.raises(VersionConflict, match="version 1 was expected, and it is at version 1") as lost:
        await kv.update("n", lambda value: value + 1)
    assert (attempts, lost.value.current) == (1, entry)


async def test_a_version_that_is_never_read_ends_it(kv: KV, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that only ever sees an old version is not repeated for ever."""
    entry = await kv.set("n", 0)
    newer = SimpleNamespace(version=9, value=UNSET)

    async def refuse(*_: Any, **__: Any) -> None:
        raise VersionConflict("refused", current=newer)  # type: ignore[arg-type]

    async def stale(key: str) -> Any:
        return entry

    monkeypatch.setattr(kv, "set", refuse)
    monkeypatch.setattr(kv, "get", stale)
    with pytest.raises(VersionConflict, match="version 1 was expected, and it is at version 9"):
        await kv.update("n", lambda value: value + 1)
