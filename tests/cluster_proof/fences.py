"""Locks and fences: a write under a lock is refused once a newer holder has taken the lock.

A token is the version of the change that took the lock, so tokens and versions of a namespace have one
order. What is judged is that order, and the times at which clients called and were answered.
"""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING

from tests.cluster_proof.steps import of_kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.cluster_proof.steps import Step

FENCED = "FENCED"


def check_fences(steps: Sequence[Step]) -> list[str]:
    """Return what is wrong with locks that were taken, and with writes under them."""
    grants = [step for step in of_kind(steps, "grant") if step.outcome == "ok"]
    unknown = any(step.outcome == "unknown" for step in of_kind(steps, "grant"))
    writes = of_kind(steps, "fenced")
    return [*_tokens(grants), *_late(grants, writes), *_refused(grants, writes, unknown=unknown)]


def _tokens(grants: list[Step]) -> Iterator[str]:
    """No token is given twice, and later ones are greater."""
    newest: Step | None = None
    seen: dict[int | None, Step] = {}
    for grant in sorted(grants, key=lambda step: step.end or 0):
        if (other := seen.setdefault(grant.token, grant)) is not grant:
            yield f"two holders were given one token:\n  {other}\n  {grant}"
        elif newest is not None and (newest.end or 0) < grant.call and _token(grant) < _token(newest):
            yield f"a later holder was given a smaller token:\n  {newest}\n  {grant}"
        newest = grant if newest is None or _token(grant) > _token(newest) else newest


def _late(grants: list[Step], writes: list[Step]) -> Iterator[str]:
    """No write is accepted whose token is older than one that was given before the write."""
    tokens = sorted(_token(grant) for grant in grants)
    by_end = sorted(grants, key=lambda step: step.end or 0)
    ends = [step.end or 0 for step in by_end]
    greatest: list[int] = []
    for grant in by_end:
        greatest.append(max(_token(grant), greatest[-1] if greatest else 0))
    for write in writes:
        if write.outcome != "ok":
            continue
        assert write.token is not None
        assert write.version is not None
        place = bisect.bisect_right(tokens, write.token)
        if place < len(tokens) and tokens[place] < write.version:
            yield f"a write was accepted after the token {tokens[place]} had been given:\n  {write}"
        elif write.version <= write.token:
            yield f"a write has a smaller version than the token of its lock:\n  {write}"
        before = bisect.bisect_left(ends, write.call)
        if before and greatest[before - 1] > write.token:
            yield f"a write began after its lock was lost to {greatest[before - 1]}:\n  {write}"


def _refused(grants: list[Step], writes: list[Step], *, unknown: bool) -> Iterator[str]:
    """A write is refused as late only if there is a newer holder."""
    newest = max((_token(grant) for grant in grants), default=0)
    for write in writes:
        if write.code == FENCED and not unknown and (write.token or 0) >= newest:
            yield f"a write of the newest holder was refused as late:\n  {write}"


def _token(step: Step) -> int:
    assert step.token is not None
    return step.token
