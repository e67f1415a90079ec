"""Bugs in locks, flags and retries.

Law: data; see `tests.mutate.plant`.
"""

from __future__ import annotations

from typing import Final

from tests.mutate.plant import Plant

_FAULTS: Final = ("tests/unit/recipes/test_lock_faults.py", "tests/unit/recipes/test_lock_cancelled.py")
_LOCKS: Final = (*_FAULTS, "tests/conformance/test_memory.py", "-k", "lock or cancel or wait")
_CROWD: Final = ("tests/unit/recipes/test_lock_crowd.py",)
_RETRY: Final = ("tests/unit/recipes/test_retry.py",)
_MIRROR: Final = ("tests/unit/recipes/test_mirror.py", "tests/conformance/test_memory.py", "-k", "mirror")
_FLAG: Final = ("tests/unit/recipes/test_flag.py", "tests/conformance/test_memory.py", "-k", "flag")

PLANTS: Final = (
    Plant(
        "a renewal counts from its answer",
        "handles/recipes/lock.py",
        "lease.renewed(since)",
        "lease.renewed(lease.mark())",
        _FAULTS,
    ),
    Plant(
        "a lock is renewed when it is over",
        "handles/recipes/lease.py",
        "RENEW_AT: Final = 1 / 3",
        "RENEW_AT: Final = 1",
        _LOCKS,
    ),
    Plant(
        "a lease goes by the slower clock",
        "handles/recipes/lease.py",
        "elapsed = max((now.store",
        "elapsed = min((now.store",
        _LOCKS,
    ),
    Plant(
        "a lease is held at its end",
        "handles/recipes/lock.py",
        "self._lost is None and self._lease.left > 0",
        "self._lost is None and self._lease.left >= 0",
        _LOCKS,
    ),
    Plant(
        "a lock that was lost is held",
        "handles/recipes/lock.py",
        "self._lost is None and self._lease.left > 0",
        "self._lease.left > 0",
        _LOCKS,
    ),
    Plant(
        "an old answer is a lock",
        "handles/recipes/lock.py",
        "        if lease.left <= 0:\n            return False\n",
        "",
        _LOCKS,
    ),
    Plant(
        "two who take a lock share a request",
        "handles/recipes/lock.py",
        'request_id=f"lock-{self._holder}"',
        'request_id=f"lock-{self.name}"',
        _LOCKS,
    ),
    Plant(
        "a holder takes another's entry for its own",
        "handles/recipes/lock.py",
        'return entry is not None and entry.value == {"holder": self._holder}',
        "return entry is not None",
        _LOCKS,
    ),
    Plant(
        "a lost lock is said to have been held",
        "handles/recipes/lock.py",
        "                    return unknown\n",
        "                    return True\n",
        _LOCKS,
    ),
    Plant(
        "a claim that was cut off is left behind",
        "handles/recipes/lock.py",
        "            await self._undo()\n            raise",
        "            raise",
        _LOCKS,
    ),
    Plant(
        "a cancelled block hides who cancelled it",
        "handles/recipes/lock.py",
        "task.uncancel() <= self._cancelling",
        "task.uncancel() < self._cancelling",
        _LOCKS,
    ),
    Plant(
        "a newcomer passes those who wait",
        "handles/recipes/lock.py",
        "return held is None and empty and await self._take(None)",
        "return held is None and await self._take(None)",
        _LOCKS,
    ),
    Plant(
        "a waiter that gives up keeps its place",
        "handles/recipes/lock.py",
        "            await line.leave()\n",
        "",
        _LOCKS,
    ),
    Plant(
        "a call is repeated after the lease is over",
        "handles/recipes/lease.py",
        "                if self.left <= 0:\n                    raise error\n",
        "                if self.left < -60:\n                    raise error\n",
        _LOCKS,
    ),
    Plant(
        "a waiter does not hear of a gap",
        "handles/recipes/lock_news.py",
        "                        self._tell(*self._awaited)\n",
        "                        continue\n",
        _LOCKS,
    ),
    Plant(
        "a waiter hears only what comes after it listens",
        "handles/recipes/lock_news.py",
        "kv.watch(prefix, since=since)",
        "kv.watch(prefix)",
        _LOCKS,
    ),
    Plant(
        "a waiter does not hear of a release",
        "handles/recipes/lock_news.py",
        'change.op in ("deleted", "expired")',
        'change.op in ("expired",)',
        _LOCKS,
    ),
    Plant(
        "a waiter's place is not renewed",
        "handles/recipes/lock_queue.py",
        "if self._due <= 0 and not await self._kept():",
        "if self._due <= -1000 and not await self._kept():",
        _LOCKS,
    ),
    Plant(
        "all waiters keep their places at once",
        "handles/recipes/lock_queue.py",
        "self._ticket % SPREAD / SPREAD",
        "1",
        _CROWD,
    ),
    Plant(
        "a crowd joins a line one by one",
        "handles/recipes/lock_arrivals.py",
        "MOST: Final = 32\n",
        "MOST: Final = 1\n",
        _CROWD,
    ),
    Plant(
        "the first who comes joins a line last",
        "handles/recipes/lock_arrivals.py",
        "            self._waiting.appendleft(arrival)\n",
        "            self._waiting.append(arrival)\n",
        _CROWD,
    ),
    Plant(
        "a waiter who went away while it joined gets a place",
        "handles/recipes/lock_arrivals.py",
        "[arrival for arrival in group if not arrival.seated.done()]",
        "list(group)",
        _CROWD,
    ),
    Plant(
        "waiters are not told that the clock has jumped",
        "handles/recipes/lock_news.py",
        "if ahead > least + JUMP:",
        "if ahead > least + 1_000_000:",
        _LOCKS,
    ),
    Plant(
        "every waiter waits for the holder",
        "handles/recipes/lock_queue.py",
        "                before = key\n",
        "                pass\n",
        _LOCKS,
    ),
    Plant(
        "one conflict too many is waited for",
        "handles/recipes/retry.py",
        "CONFLICT_PAUSES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)",
        "CONFLICT_PAUSES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)",
        _RETRY,
    ),
    Plant(
        "a retry comes before it was asked for",
        "handles/recipes/retry.py",
        "return max(self._random() * most, asked or 0.0)",
        "return min(self._random() * most, asked or most)",
        _RETRY,
    ),
    Plant(
        "a used id is retried",
        "handles/recipes/retry.py",
        "return isinstance(error, VersionConflict) and error.reason is None",
        "return isinstance(error, VersionConflict)",
        _RETRY,
    ),
    Plant(
        "an unknown outcome is given up at once",
        "handles/recipes/retry.py",
        "not isinstance(error, (Transient, OutcomeUnknown)):",
        "not isinstance(error, Transient):",
        _RETRY,
    ),
    Plant(
        "what is given up is told one attempt short",
        "handles/recipes/retry.py",
        "raise await self._escalated(attempts.failed, error, command) from error",
        "raise await self._escalated(attempts.failed - 1, error, command) from error",
        _RETRY,
    ),
    Plant(
        "a cached flag holds at its deadline",
        "handles/recipes/mirror.py",
        "milliseconds(entry.expires_at) > now",
        "milliseconds(entry.expires_at) >= now",
        _FLAG,
    ),
    Plant(
        "a mirror begins to follow after its load",
        "handles/recipes/mirror.py",
        "self._follow(page.head)",
        "self._follow(None)",
        _MIRROR,
    ),
    Plant(
        "a mirror does not load again after a gap",
        "handles/recipes/mirror.py",
        "if page.gap:",
        "if page.gap and not self._entries:",
        _MIRROR,
    ),
    Plant(
        "a mirror is fresh though the storage is away",
        "handles/recipes/mirror.py",
        "return time.monotonic() - self._read_at",
        "return 0.0",
        _MIRROR,
    ),
    Plant(
        "two names are one flag",
        "handles/recipes/names.py",
        '_SPELLED: Final = re.compile(r"[A-Z_]")',
        '_SPELLED: Final = re.compile(r"[A-Z]")',
        _FLAG,
    ),
    Plant(
        "a flag of another type is called missing",
        "handles/recipes/flag.py",
        'FlagState(self.default, "wrong_type",',
        'FlagState(self.default, "missing",',
        _FLAG,
    ),
)
