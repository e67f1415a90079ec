"""That the machine would see a mistake: bugs planted in the heart, each of which it must find.

Law: the machine runs as it does in the suite, on the reference engine, without knowing what is planted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.machine.bugs import BUGS
from tests.machine.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Callable


def drive() -> None:
    """A bounded run, the same each time, that ends with the first disagreement."""
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=100,
            stateful_step_count=40,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_there_is_nothing_to_find() -> None:
    """Without a planted bug the same run finds none."""
    drive()


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: str(bug.__name__))
def test_a_planted_bug_is_found(
    bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each mistake in what the verbs mean shows in the answers."""
    bug(monkeypatch)
    with pytest.raises(AssertionError):
        drive()
