"""That the machine would see a mistake: bugs planted in the heart, each of which it must find.

The machine runs as it does in the suite, on the reference engine, without knowing what is planted. The suite
plants every sixth bug; `./dev soak machine` plants all of them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.machine.bugs import BUGS
from tests.machine.machine import Machine
from tests.machine.targets import Memory

if TYPE_CHECKING:
    from collections.abc import Callable


SOAK: Final = os.environ.get("HOLDFAST_SOAK") == "1"
SEED: Final = 3
"""With this seed each bug shows within thirty runs; more are made only if the steps change."""
MOST: Final = 100
PLANTED: Final = BUGS if SOAK else BUGS[1::6]


def drive(examples: int) -> None:
    """A bounded run, the same each time except in the campaign, that ends with the first disagreement."""
    driven = type("Driven", (Machine,), {"targets": (Memory(),)})
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
    drive(MOST if SOAK else 10)


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: str(bug.__name__))
def test_a_planted_bug_is_found(
    bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each mistake in what the verbs mean shows in the answers."""
    bug(monkeypatch)
    with pytest.raises(AssertionError):
        drive(3 * MOST if SOAK else MOST)
