"""The list of scenarios, each with the rounds and the seconds that it is given.

Law: nothing is measured here. A scenario compares what it runs in turn, or holds its figures against bars.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.embedded import group_commit, sweep
from bench.over_nats import fairness, load

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from bench.measure import Result

SCENARIOS: Final[dict[str, Callable[[int, float], Coroutine[None, None, Result]]]] = {
    scenario.__name__: scenario for scenario in (group_commit, sweep, load, fairness)
}
