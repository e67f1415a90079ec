"""Whether what clients saw keeps what is promised. A finding has a kind, so that shrinking keeps to one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tests.linear.checker import judge
from tests.simulation.workload import BATCHES, DEADLINES, REGISTERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.workload import Seen, Watch

SLACK: Final = 100_000_000
"""By how many nanoseconds a deadline may be overrun: the clocks of client and service differ a little."""


class Finding(NamedTuple):
    """Something that must not happen.

    Attributes:
        kind: The promise that was broken.
        text: What was seen.
        about: The keys, versions and request ids that matter, for the page that shows it.
    """

    kind: str
    text: str
    about: tuple[str, ...] = ()


def findings(seen: Seen, living: dict[int, int], *, skew: int = 0) -> list[Finding]:
    """All findings in what the clients of a run saw.

    Args:
        seen: What they saw.
        living: The life of each client's process.
        skew: By how many milliseconds the clocks of services may differ.
    """
    found = [Finding("a client's own check", text) for text in seen.faults]
    verdict = judge(seen.history, slack=SLACK)
    for violation in verdict.violations:
        operation = violation.operation
        found.append(Finding("not linearizable", str(violation), (operation.key, operation.request_id or "")))
    found += [Finding("executed late", str(late), (late.operation.key,)) for late in verdict.late]
    if found:
        return found
    return [
        *_journals(seen),
        *_watches(seen, living),
        *_batches(seen),
        *_deadlines(seen, skew),
        *_times(seen),
        *_fences(seen),
    ]


def _journals(seen: Seen) -> Iterator[Finding]:
    for namespace in (*REGISTERS, BATCHES, DEADLINES):
        if namespace not in seen.journals:
            yield Finding("no end", f"the journal of {namespace} was not read")
            continue
        changes = seen.journals[namespace]
        versions = [change.version for change in changes]
        if versions != sorted(set(versions)):
            yield Finding("journal", f"versions of {namespace} are out of order or there twice: {versions}")
        by_version = {change.version: change for change in changes}
        for one in seen.history:
            if one.namespace != namespace or one.outcome != "ok" or one.verb not in {"set", "incr"}:
                continue
            change = by_version.get(one.version or 0)
            if change is None or change.key != one.key:
                yield Finding("journal", f"acknowledged, but not in the journal: {one}", (one.key,))
        live: dict[str, None] = {}
        for change in changes:
            live.pop(change.key, None)
            if change.op in {"set", "restored"}:
                live[change.key] = None
        listed = seen.lists.get(namespace, [])
        if listed != sorted(listed):
            yield Finding("list", f"keys of {namespace} are out of order")
        if namespace != DEADLINES and (odd := set(listed) ^ set(live)):
            keys = sorted(odd)[:3]
            yield Finding("list", f"{namespace}: list and journal differ in {keys}", tuple(keys))


def _watches(seen: Seen, living: dict[int, int]) -> Iterator[Finding]:
    for watch in seen.watches:
        whole = [(one.version, one.op, one.key) for one in seen.journals.get(watch.namespace, [])]
        if watch.life == living[watch.client]:
            if watch.changes != whole:
                yield _difference(watch, whole)
        elif watch.changes != whole[: len(watch.changes)]:
            yield _difference(watch, whole[: len(watch.changes)])


def _difference(watch: Watch, changes: list[tuple[int, str, str]]) -> Finding:
    shown, there = set(watch.changes), set(changes)
    missing = [one for one in changes if one not in shown][:3]
    more = [one for one in watch.changes if one not in there][:3]
    return Finding(
        "watch",
        f"a watch of {watch.namespace} by client {watch.client} showed {len(watch.changes)} of "
        f"{len(changes)} changes: {missing} are missing, {more} are not in the journal",
        tuple(key for _, _, key in (*missing, *more)),
    )


def _batches(seen: Seen) -> Iterator[Finding]:
    kept: dict[str | None, list[str]] = {}
    for change in seen.journals.get(BATCHES, []):
        kept.setdefault(change.request_id, []).append(change.key)
    done = 0
    for batch in seen.batches:
        keys = kept.get(batch.request_id, [])
        done += bool(keys)
        about = (batch.request_id,)
        if keys and sorted(keys) != sorted(batch.keys):
            yield Finding("batch", f"only {keys} of {batch} were written, or some twice", about)
        if batch.outcome == "ok" and not keys:
            yield Finding("batch", f"acknowledged, but not in the journal: {batch}", about)
        if batch.outcome == "refused" and keys:
            yield Finding("batch", f"refused, but in the journal: {batch}", about)
    if seen.total != done:
        yield Finding("batch", f"{done} batches added one each, and the sum is {seen.total}", ("total",))


def _deadlines(seen: Seen, skew: int) -> Iterator[Finding]:
    for look in seen.deadlines:
        if look.shown and look.before >= look.expires_at + skew:
            yield Finding("expiry", f"shown {look.before - look.expires_at} ms late: {look}", (look.key,))
        if not look.shown and look.after < look.expires_at - skew:
            yield Finding("expiry", f"gone {look.expires_at - look.after} ms early: {look}", (look.key,))
        if not look.same:
            yield Finding("expiry", f"another entry: {look}", (look.key,))


def _times(seen: Seen) -> Iterator[Finding]:
    """The store's time never goes back."""
    latest = 0
    by_call = sorted(seen.times, key=lambda one: one.call)
    by_end = sorted(seen.times, key=lambda one: one.end)
    place = 0
    for one in by_call:
        while place < len(by_end) and by_end[place].end < one.call:
            latest = max(latest, by_end[place].at)
            place += 1
        if one.at < latest:
            yield Finding(
                "time", f"the store's time went back by {latest - one.at} ms at {one.call / 1e6} ms"
            )


def _fences(seen: Seen) -> Iterator[Finding]:
    tokens = [one.token for one in seen.tokens if one.token is not None]
    if len(tokens) != len(set(tokens)):
        yield Finding("fence", "a token was given twice")
    for write in seen.fenced:
        newer = [one for one in seen.tokens if one.token is not None and one.token > write.token]
        if write.outcome == "ok" and any(one.end is not None and one.end < write.call for one in newer):
            yield Finding("fence", f"a former holder wrote: {write}", ("guarded",))
        lost = [one for one in seen.tokens if one.token is None and not one.refused]
        if write.outcome == "fenced" and not any(one.call < write.end for one in (*newer, *lost)):
            yield Finding("fence", f"the newest holder was refused: {write}", ("guarded",))
