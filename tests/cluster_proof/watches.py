"""Watches, journals and audits: every change once, in order, and no change that was not made.

The journal at the end is the measure for watches, and the writes that were acknowledged are the measure
for the journal and the audit.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.cluster_proof.steps import Step


class Written(NamedTuple):
    """A change as the journal or the audit shows it."""

    version: int
    key: str
    request_id: str | None = None


def check_watches(steps: Sequence[Step], journal: Sequence[Written]) -> list[str]:
    """Return what is wrong with what watches yielded.

    Args:
        steps: The steps of kind `watch`: `token` is the version after which the watch began.
        journal: All changes of the namespace, the oldest first.
    """
    watches: dict[str, list[Step]] = defaultdict(list)
    for step in steps:
        watches[step.client].append(step)
    return [fault for name in sorted(watches) for fault in _watched(name, watches[name], journal)]


def check_journal(done: Sequence[Written], journal: Sequence[Written]) -> list[str]:
    """Return what is wrong with a journal: acknowledged changes that it lacks, or order that it breaks."""
    faults = [
        f"the journal goes back from {one.version} to {other.version}"
        for one, other in itertools.pairwise(journal)
        if other.version <= one.version
    ]
    known = {record.version: record.key for record in journal}
    return faults + [
        f"the journal has {known.get(one.version)!r} where {one} was acknowledged"
        for one in done
        if known.get(one.version) != one.key
    ]


def check_audit(steps: Sequence[Step], records: Sequence[Written], *, whole: bool) -> list[str]:
    """Return what is wrong with an audit.

    Args:
        steps: The steps of kind `audited`, each with a request id of its own.
        records: All records, the oldest first.
        whole: Whether the audit's signatures are right.
    """
    faults = [] if whole else ["the signatures of the audit are broken"]
    times = Counter(record.request_id for record in records)
    faults += [
        f"the audit has the request {name} {count} times" for name, count in times.items() if count > 1
    ]
    return faults + list(_unlike(steps, {record.request_id: record for record in records}))


def _unlike(steps: Sequence[Step], records: Mapping[str | None, Written]) -> Iterator[str]:
    """A write is in the audit if it was acknowledged, and not if it was refused."""
    for step in steps:
        record = records.get(step.request_id)
        if step.outcome == "ok" and (
            record is None or (record.version, record.key) != (step.version, step.key)
        ):
            yield f"the audit has {record} for a write that was acknowledged:\n  {step}"
        elif step.outcome in ("refused", "conflict") and record is not None:
            yield f"the audit has {record} for a write that was refused:\n  {step}"


def _watched(name: str, steps: list[Step], journal: Sequence[Written]) -> Iterator[str]:
    since = steps[0].token or 0
    seen = [(step.version or 0, step.key) for step in steps]
    last = seen[-1][0]
    wanted = [(record.version, record.key) for record in journal if since < record.version <= last]
    if seen == wanted:
        return
    missing = [one for one in wanted if one not in set(seen)]
    more = [one for one, count in Counter(seen).items() if count > 1 or one not in set(wanted)]
    order = "" if missing or more else " in another order"
    yield (
        f"the watch {name} from {since} yielded {len(seen)} changes{order}, the journal has {len(wanted)}: "
        f"it missed {missing[:5]}, and yielded {more[:5]} twice or without a reason"
    )
