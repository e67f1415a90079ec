"""All engines at once under random steps, against the oracle.

A bounded run in the suite, the same each time; with HOLDFAST_SOAK=1 a long one, different each time.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.machine.machine import Machine
from tests.machine.targets import Memory, Postgres, Sqlite

if TYPE_CHECKING:
    from pathlib import Path

    from tests.machine.targets import Target

SOAK = os.environ.get("HOLDFAST_SOAK") == "1"


def run(targets: list[Target], *, examples: int, steps: int) -> None:
    """Drive these stores through so many runs of so many steps."""
    settled = settings(
        max_examples=examples * 1000 if SOAK else examples,
        stateful_step_count=steps * 2 if SOAK else steps,
        derandomize=not SOAK,
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(type("Driven", (Machine,), {"targets": targets}), settings=settled)


def test_the_reference_engine() -> None:
    """What the contract says of keys, versions, expiry, requests and trash holds under any steps."""
    run([Memory()], examples=10, steps=50)


@pytest.mark.timeout(0 if SOAK else 120)
def test_all_engines_alike(tmp_path: Path, pg_store_url: str) -> None:
    """Every engine gives the same answers, versions, errors, orders and cursors as every other."""
    run([Memory(), Sqlite(tmp_path), Postgres(pg_store_url)], examples=10, steps=40)
