"""Tables on all engines at once under random steps, against the oracle; and bugs that it must find.

As in `test_machine` and `test_planted_bugs`. The suite plants every fifth bug, `./dev soak machine` all.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.machine.table_bugs import BUGS
from tests.machine.table_machine import TableMachine
from tests.machine.targets import Memory, Postgres, Sqlite

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.machine.targets import Target

SOAK = os.environ.get("HOLDFAST_SOAK") == "1"
SEED = 4
"""With this seed each bug shows within ten runs; more are made only if the steps change."""


def run(targets: list[Target], *, examples: int, steps: int) -> None:
    """Drive these stores through so many runs of so many steps."""
    settled = settings(
        max_examples=examples * 400 if SOAK else examples,
        stateful_step_count=steps * 2 if SOAK else steps,
        derandomize=not SOAK,
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(type("Driven", (TableMachine,), {"targets": targets}), settings=settled)


@pytest.mark.timeout(0 if SOAK else 120)
def test_tables_alike_on_memory_and_sqlite(tmp_path: Path) -> None:
    """Items, versions, indexes, deadlines, pages and changes are what the contract says, under any steps."""
    run([Memory(), Sqlite(tmp_path)], examples=6, steps=40)


@pytest.mark.timeout(0 if SOAK else 120)
def test_tables_alike_on_postgres(pg_store_url: str) -> None:
    """PostgreSQL gives the same answers."""
    run([Postgres(pg_store_url)], examples=3, steps=30)


def drive(examples: int) -> None:
    """A bounded run on the reference engine that ends with the first disagreement.

    Except in the campaign it is much the same each time; which modules were loaded before has a part in it.
    """
    driven = type("Driven", (TableMachine,), {})
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


def test_there_is_nothing_to_find_in_tables() -> None:
    """Without a planted bug the runs that find each of them find none."""
    drive(60 if SOAK else 4)


@pytest.mark.parametrize("bug", BUGS if SOAK else BUGS[::5], ids=lambda bug: str(bug.__name__))
def test_a_bug_planted_in_tables_is_found(
    bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each mistake in what the verbs of tables mean shows in the answers."""
    bug(monkeypatch)
    with pytest.raises(AssertionError):
        drive(300)
