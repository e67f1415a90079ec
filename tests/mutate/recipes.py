"""Bugs in locks, retries, mirrors and flags."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from holdfast.errors import VersionConflict
from holdfast.handles.kv import KV
from holdfast.handles.recipes import lease, names, retry
from holdfast.handles.recipes.lease import Lease
from holdfast.handles.recipes.lock import Lock, QueuePlace, SharedWatch
from holdfast.handles.recipes.mirror import Mirror
from holdfast.handles.recipes.retry import Attempts
from tests.mutate.planting import bug

if TYPE_CHECKING:
    from tests.mutate.planting import Patches


def _always(result: Any) -> Any:
    """A coroutine function that returns the same whatever it is given."""

    async def same(*given: Any, **fields: Any) -> Any:
        return result

    return same


class _NeverRaised(Exception):
    """An error that nothing raises."""


# Locks


@bug("tests/unit/recipes/test_lock_faults.py")
def a_renewed_lease_counts_from_the_answer(patch: Patches) -> None:
    """A lease counts from before the request that renewed it, as the storage may have."""
    patch.wrap(Lease, "renewed", lambda renewed, lease, since: renewed(lease, lease.mark()))


@bug("tests/unit/recipes/test_lock_faults.py")
def a_lease_is_renewed_when_it_is_over(patch: Patches) -> None:
    """A lease is renewed early enough for two more attempts."""
    patch.set(lease, "RENEW_AT", 1.0)


@bug("tests/unit/recipes/test_lock_faults.py")
def a_lease_goes_by_the_slower_clock(patch: Patches) -> None:
    """A lease ends when the clock says so that has advanced further."""

    def left(lease: Lease) -> float:
        now, since = lease.mark(), lease._since
        return lease.seconds - min((now.store - since.store) / 1000, now.machine - since.machine)

    patch.set(Lease, "left", property(left))


@bug("tests/unit/recipes/test_lock_faults.py")
def a_lock_that_was_lost_is_held(patch: Patches) -> None:
    """A lock that another holder has taken is not held."""
    patch.set(Lock, "held", property(lambda lock: lock._lease is not None and lock._lease.left > 0))


@bug("tests/conformance/test_memory.py")
def a_holder_takes_the_entry_of_another_for_its_own(patch: Patches) -> None:
    """A holder knows its own entry."""
    patch.set(Lock, "_mine", lambda lock, entry: entry is not None)


@bug("tests/unit/recipes/test_lock_faults.py")
def two_who_take_a_lock_share_a_request(patch: Patches) -> None:
    """The request that takes a lock is that of one holder."""
    batch = KV.batch
    patch.within(
        (Lock, "_claim"), (KV, "batch"), lambda kv, **fields: batch(kv, **fields | {"request_id": "lock"})
    )


@bug("tests/unit/recipes/test_lock_cancelled.py")
def a_claim_that_was_cut_off_is_left_behind(patch: Patches) -> None:
    """A caller that is cancelled while it takes a lock does not hold it."""
    patch.set(Lock, "_undo", _always(None))


@bug("tests/conformance/test_memory.py")
def a_newcomer_passes_those_who_wait(patch: Patches) -> None:
    """Waiters of a lock are served in the order of their arrival."""
    patch.set(QueuePlace, "empty", _always(True))


@bug("tests/unit/recipes/test_lock_faults.py")
def a_waiter_that_gives_up_keeps_its_place(patch: Patches) -> None:
    """A waiter that gives up does not hold up those behind it."""
    patch.set(QueuePlace, "leave", _always(None))


@bug("tests/conformance/test_memory.py")
def the_place_of_a_waiter_expires(patch: Patches) -> None:
    """A waiter keeps its place for as long as it waits."""
    patch.set(QueuePlace, "_kept", _always(True))


@bug("tests/unit/recipes/test_lock_faults.py")
def a_waiter_does_not_hear_of_a_release(patch: Patches) -> None:
    """A lock that is released is taken by the next waiter at once."""
    patch.set(SharedWatch, "_tell", lambda news, *keys: None)


# Retries


@bug("tests/unit/recipes/test_retry.py")
def a_retry_comes_before_it_was_asked_for(patch: Patches) -> None:
    """A retry waits for as long as the service asks."""

    def wrong(pause: Any, attempts: Attempts, error: Any) -> float | None:
        seconds: float | None = pause(attempts, error)
        return seconds if seconds is None or getattr(error, "retry_after", None) is None else seconds / 2

    patch.wrap(Attempts, "pause", wrong)


@bug("tests/unit/recipes/test_retry.py")
def a_request_id_that_was_used_is_retried(patch: Patches) -> None:
    """A conflict that never passes is not repeated."""
    patch.set(retry, "_is_race", lambda error: isinstance(error, VersionConflict))


@bug("tests/unit/recipes/test_retry.py")
def an_unknown_outcome_is_given_up_at_once(patch: Patches) -> None:
    """A write whose outcome is unknown is repeated, since it takes effect once."""
    patch.set(retry, "OutcomeUnknown", _NeverRaised)


# Mirrors


@bug("tests/unit/recipes/test_mirror.py")
def a_mirror_misses_what_happens_while_it_is_loaded(patch: Patches) -> None:
    """A mirror follows the journal from before its load."""
    patch.wrap(Mirror, "_follow", lambda follow, mirror, since: follow(mirror, None))


@bug("tests/unit/recipes/test_mirror.py")
def a_mirror_does_not_load_again_after_a_gap(patch: Patches) -> None:
    """Where the journal does not reach back, a mirror loads everything again."""
    patch.set(Mirror, "_reload", _always(None))


@bug("tests/unit/recipes/test_mirror.py")
def a_mirror_is_fresh_though_the_storage_is_away(patch: Patches) -> None:
    """A mirror says since when it does not know whether it holds everything."""
    patch.set(Mirror, "stale_for", property(lambda mirror: 0.0))


# Flags


@bug("tests/conformance/test_memory.py")
def two_names_are_one_flag(patch: Patches) -> None:
    """No two names of flags share a key."""
    patch.set(names, "_SPELLED", re.compile(r"[A-Z]"))
