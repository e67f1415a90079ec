"""That the machine would see a mistake: bugs planted in the heart, each of which it must find.

The machine runs as it does in the suite, on the reference engine unless the bug is beside it, without
knowing what is planted.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from holdfast.pipeline.batcher import _Lane
from tests.machine.bugs import BUGS
from tests.machine.machine import Machine
from tests.machine.targets import Memory, Sqlite

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.machine.targets import Target


SOAK: Final = os.environ.get("HOLDFAST_SOAK") == "1"
SEED: Final = 3
"""With this seed each bug shows within thirty runs; more are made only if the steps change."""
MOST: Final = 100


def drive(examples: int, targets: Sequence[Target] = (Memory(),)) -> None:
    """A bounded run, the same each time except in the campaign, that ends with the first disagreement."""
    driven = type("Driven", (Machine,), {"targets": targets})
    run_state_machine_as_test(
        driven if SOAK else seed(SEED)(driven),
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_there_is_nothing_to_find() -> None:
    """Without a planted bug the runs that find each of them find none."""
    drive(MOST if SOAK else 25)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: str(bug.__name__))
def test_a_planted_bug_is_found(
    bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each mistake in what the verbs mean shows in the answers."""
    bug(monkeypatch)
    with pytest.raises(AssertionError):
        drive(3 * MOST if SOAK else MOST)


def test_two_groups_of_a_namespace_at_a_time_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large call that is decided beside an earlier call of its namespace shows in the answers on SQLite."""
    take_expensive = _Lane.take_expensive
    monkeypatch.setattr(_Lane, "take_expensive", lambda lane, group: take_expensive(lane, ()))
    with pytest.raises(AssertionError):
        drive(MOST, (Sqlite(tmp_path),))
