"""Increments by one: the sum is exact, and every reply is a number that no other reply has.

A counter that was incremented n times went through 1 to n. A number that no reply shows belongs to an
increment whose reply was lost; there can't be more of these than lost replies.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.cluster_proof.steps import Step


def check_sums(steps: Sequence[Step], final: Mapping[str, int]) -> list[str]:
    """Return what is wrong with increments.

    Args:
        steps: The steps of kind `incr`.
        final: The value of every counter at the end.
    """
    counters: dict[str, list[Step]] = defaultdict(list)
    for step in steps:
        counters[step.key].append(step)
    return [fault for key in sorted(counters) for fault in _faults(key, counters[key], final.get(key, 0))]


def check_replays(steps: Sequence[Step]) -> list[str]:
    """Return what is wrong with requests that were sent several times: all replies tell of one effect."""
    faults = []
    effects: dict[str, set[tuple[int, int]]] = defaultdict(set)
    for step in steps:
        if step.request_id is not None:
            effects[step.request_id].update(step.replies)
    for name, replies in effects.items():
        if len(replies) > 1:
            faults.append(f"the request {name} had several effects: {sorted(replies)}")
    return faults


def _faults(key: str, steps: list[Step], final: int) -> Iterator[str]:
    done = [step for step in steps if step.outcome == "ok"]
    lost = sum(step.outcome == "unknown" for step in steps)
    shown: dict[int, Step] = {}
    for step in done:
        assert step.value is not None
        other = shown.setdefault(step.value, step)
        if other is not step:
            yield f"{key}: two increments were told the same number:\n  {other}\n  {step}"
    if shown and max(shown) > final:
        yield f"{key}: an increment was told {max(shown)}, but at the end the counter is {final}"
    missing = final - len(shown)
    if missing > lost:
        yield (
            f"{key}: the counter is {final}, {missing} more than the {len(shown)} increments that were "
            f"acknowledged, but only {lost} had an unknown outcome"
        )
    if missing < 0:
        yield f"{key}: {len(shown)} increments were acknowledged, but the counter is {final}"
    yield from _backwards(key, done)


def _backwards(key: str, done: list[Step]) -> Iterator[str]:
    """An increment that began after another had returned has the greater number."""
    events = [(step.call, 0, step) for step in done] + [(step.end or 0, 1, step) for step in done]
    greatest: Step | None = None
    for _, ended, step in sorted(events, key=lambda event: event[:2]):
        if ended and (greatest is None or (step.value or 0) > (greatest.value or 0)):
            greatest = step
        elif not ended and greatest is not None and (step.value or 0) <= (greatest.value or 0):
            yield f"{key}: a later increment was told a smaller number:\n  {greatest}\n  {step}"
