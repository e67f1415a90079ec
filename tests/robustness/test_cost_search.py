"""A search for the most expensive request of 64 KB, verb by verb: `./dev soak cost`.

Hypothesis draws requests of each verb and climbs towards those that hold the event loop longest and take most
memory. The worst of each verb is printed, and the worst of all at the end.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings, target
from hypothesis import strategies as st

from holdfast.edges.calls import FAMILIES
from tests.robustness.cost_ground import MOST_BYTES, Scales, Weight, scales
from tests.robustness.cost_requests import REQUESTS, requests
from tests.robustness.test_cost import MOST_MEMORY, MOST_MS

ROUNDS: Final = int(os.environ.get("HOLDFAST_COST_ROUNDS", "0"))
"""How many requests of each verb are tried."""
NEVER: Final = ("INTERNAL_ERROR", "DATABASE_ERROR", "TIMEOUT")
"""The codes that no request may lead to, however expensive it is."""
campaign = pytest.mark.skipif(not ROUNDS, reason="the search is a campaign of its own: ./dev soak cost")


class Finds:
    """The worst that was found so far, of each verb and by what it was the worst."""

    def __init__(self) -> None:
        self.tried = 0
        self._worst: dict[tuple[str, str], tuple[Weight, str]] = {}

    def note(self, verb: str, weight: Weight, fields: dict[str, Any]) -> None:
        """Keep what is worse than all before it."""
        self.tried += 1
        for kind in ("piece", "memory"):
            found = self._worst.get((kind, verb))
            if found is None or getattr(weight, kind) > getattr(found[0], kind):
                self._worst[kind, verb] = weight, json.dumps(fields)[:160]

    def of(self, verb: str) -> str:
        """The worst of one verb, in two lines."""
        lines = [f"{kind} of {verb}: {' '.join(map(str, self._worst[kind, verb]))}" for kind in _KINDS]
        return "\n".join(lines)

    def summary(self) -> str:
        """The worst of all."""
        lines = [f"{self.tried} requests of {len(self._worst) // 2} verbs were tried"]
        for kind in _KINDS if self._worst else ():
            verb = max((one for one in self._worst if one[0] == kind), key=lambda one: self._cost(*one))
            lines.append(f"worst {kind}: {verb[1]}: {self._worst[verb][0]}")
        return "\n".join(lines)

    def _cost(self, kind: str, verb: str) -> float:
        return float(getattr(self._worst[kind, verb][0], kind))


_KINDS: Final = ("piece", "memory")


@pytest.fixture(scope="module")
def loop_runner() -> Any:
    """One loop for the service that all requests go to."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def attacked(loop_runner: asyncio.Runner) -> Any:
    """The scales that all requests are put on."""
    opened = scales()
    yield loop_runner.run(opened.__aenter__())
    loop_runner.run(opened.__aexit__(None, None, None))


@pytest.fixture(scope="module")
def finds() -> Any:
    """What the search has found, which is summed up at its end."""
    found, began = Finds(), time.monotonic()
    yield found
    print(f"\n{found.summary()}, in {time.monotonic() - began:.0f} s")


def test_the_search_knows_every_verb() -> None:
    """The most expensive request is looked for among all verbs of keys and tables, also those added later."""
    known = {(family, verb) for family in ("kv", "table") for verb in FAMILIES[family]}
    assert set(REQUESTS) == known


@given(data=st.data())
@settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))
def test_drawn_requests_have_at_most_64_kb(data: st.DataObject) -> None:
    """Whatever is drawn has at most 64 KB, so that what is found is a request that a plugin can send."""
    fields = data.draw(requests(*data.draw(st.sampled_from(sorted(REQUESTS)))))
    assert len(json.dumps(fields, separators=(",", ":"))) <= MOST_BYTES


@campaign
@pytest.mark.parametrize(
    "asked", [(door, *verb) for verb in sorted(REQUESTS) for door in ("nats", "http")], ids=" ".join
)
def test_no_drawn_request_exceeds_the_bounds_of_time_and_memory(
    loop_runner: asyncio.Runner, attacked: Scales, finds: Finds, asked: tuple[str, str, str]
) -> None:
    """A search among requests of a verb finds none past the bounds of loop time and memory."""
    door, family, verb = asked
    attacked.door = door

    @settings(
        max_examples=ROUNDS,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.target],
        suppress_health_check=list(HealthCheck),
    )
    @given(requests(family, verb))
    def search(fields: dict[str, Any]) -> None:
        weight = loop_runner.run(attacked.weigh(family, verb, fields))
        if weight.piece >= MOST_MS:  # others use the machine, too: what is expensive is so once more
            weight = min(weight, loop_runner.run(attacked.weigh(family, verb, fields)), key=_piece)
        finds.note(f"{door} {family}.{verb}", weight, fields)
        target(weight.piece, label="milliseconds in one piece")
        target(float(weight.memory), label="bytes")
        assert weight.answer.get("error_code") not in NEVER, json.dumps(fields)[:2_000]
        assert weight.memory < MOST_MEMORY, f"{weight} {json.dumps(fields)[:2_000]}"
        assert weight.piece < MOST_MS, f"{weight} {json.dumps(fields)[:2_000]}"

    try:
        search()
    finally:
        print(f"\n{finds.of(f'{door} {family}.{verb}')}")


def _piece(weight: Weight) -> float:
    return weight.piece
