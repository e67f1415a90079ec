"""Commands of many parts are decided in slices: others get turns in between, and the outcome is the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.commands import Results
from holdfast.decide import Decision, Loaded, decide, draft
from holdfast.errors import HoldfastError, VersionConflict
from holdfast.model import Policy
from holdfast.verbs.caller import id_maker
from tests.unit.test_decide import NAME, NOW, loaded
from tests.verbs import Verbs

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.commands import Command, WriteCommand
    from holdfast.decide import Outcome
    from holdfast.rows import Record

VERBS = Verbs(NAME, writer="w", new_id=id_maker(), now=lambda: 0)
MANY = 250


def many(count: int = MANY, **fields: Any) -> WriteCommand:
    """A call that sets keys, one of them only if it has a version that it does not have."""
    items: list[dict[str, Any]] = [{"key": f"k{number}", "value": number} for number in range(count)]
    items[count // 2]["expected_version"] = 7
    return VERBS.set_many(items, **fields)[0]


def batch(*, version: int = 0) -> WriteCommand:
    """A call that checks and sets as many keys."""
    return VERBS.batch(
        checks=[{"key": f"c{number}", "version": 0} for number in range(MANY)]
        + [{"key": "c", "version": version}],
        writes=[{"key": f"k{number}", "value": number} for number in range(MANY)],
    )


def in_slices(commands: list[Command], **given: Any) -> tuple[Outcome, int]:
    """The outcome of commands, and the number of slices that they took."""
    decision, taken, count = Decision(loaded(), NOW, **given), 0, 0
    while taken < len(commands):
        taken += decision.take(commands[taken:])
        count += 1
    return decision.outcome(), count


def at_once(commands: list[Command], monkeypatch: pytest.MonkeyPatch, **given: Any) -> Outcome:
    """The outcome of commands in one piece."""
    with monkeypatch.context() as patched:
        patched.setattr(draft, "PARTS_IN_A_SLICE", 1_000)
        return decide(loaded(), commands, NOW, **given)


def shown(outcome: Outcome) -> tuple[Any, ...]:
    """What an engine saves of an outcome, and what callers get."""
    told = [
        [str(item) for item in result.items] if isinstance(result, Results) else str(result)
        for result in outcome.results
    ]
    return outcome.rows, outcome.namespaces, outcome.journal, told


@pytest.mark.parametrize("repeatable", [None, "again"])
def test_slices_change_no_outcome(monkeypatch: pytest.MonkeyPatch, repeatable: str | None) -> None:
    """Writes before, in and after a call of many parts have the same versions and results as at once."""
    commands: list[Command] = [VERBS.set("a", 1), many(request_id=repeatable), batch(), VERBS.incr("k3")]
    sliced, count = in_slices(commands)
    assert shown(sliced) == shown(at_once(commands, monkeypatch))
    assert count >= 2 * MANY // draft.PARTS_IN_A_SLICE
    results = sliced.results[1]
    assert isinstance(results, Results)
    assert [type(item) for item in results.items if isinstance(item, HoldfastError)] == [VersionConflict]


def test_a_batch_that_is_refused_in_its_last_slice_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """All or nothing: what earlier slices wrote is taken back, and what other commands wrote stays."""
    quota = Policy(quota_bytes=10_000)
    commands: list[Command] = [VERBS.set("a", 1), batch(), batch(version=5), VERBS.set("b", 2)]
    sliced, _ = in_slices(commands, defaults=quota)
    assert [isinstance(result, HoldfastError) for result in sliced.results] == [False, True, True, False]
    assert [address.key for address in sliced.rows] == ["a", "b"]
    assert [record.key for record in sliced.journal] == ["a", "b"]
    [namespace] = sliced.namespaces
    assert (namespace.keys, namespace.revision) == (2, 11)
    assert shown(sliced) == shown(at_once(commands, monkeypatch, defaults=quota))


def test_checks_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch may write what it has checked: a later slice does not check what an earlier one has written."""
    checks = [{"key": "k0", "version": 0}, {"key": "elsewhere", "version": 0}]
    writes = [{"key": f"k{number}", "value": number} for number in range(MANY)]
    commands: list[Command] = [VERBS.batch(checks=checks, writes=writes)]
    sliced, count = in_slices(commands)
    assert count > 1
    assert not isinstance(sliced.results[0], HoldfastError)
    assert shown(sliced) == shown(at_once(commands, monkeypatch))


def test_a_call_is_not_loaded_twice() -> None:
    """What a suspended command has done so far is not done again."""
    decision = Decision(Loaded(namespaces={}, rows={}), NOW)
    command = many()
    assert [decision.take([command]) for _ in range(3)] == [0, 0, 1]
    assert len(decision.outcome().journal) == MANY - 1


async def test_every_change_of_a_large_call_is_stored_and_published(tmp_path: Path) -> None:
    """Hundreds of writes of one call are all there, in order, for readers, journal and listeners."""
    told: list[Record] = []
    async with holdfast.open(tmp_path / "store.db", reap=False) as store:
        store.pipeline.listen(told.extend)
        kv = store.kv("p")
        await kv.set_many([{"key": f"k{number}", "value": number} for number in range(600)])
        await kv.delete_many([f"k{number}" for number in range(600)])
        await kv.set_many([{"key": f"k{number}", "value": -number} for number in range(600)])
        await kv.set("last", 1)
        values = await kv.get_many([f"k{number}" for number in range(600)])
        changes = await kv.changes(since=0, limit=2_000)
    assert [record.version for record in told] == list(range(1, 1_802))
    assert [change.version for change in changes.changes] == list(range(1, 1_802))
    assert [entry.value for entry in values if isinstance(entry, holdfast.Entry)] == [
        -number for number in range(600)
    ]
