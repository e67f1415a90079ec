"""Rate limits: of a namespace by its policy or by default, and of a plugin that calls a service.

Each serving process counts its own rate. A namespace without a rate limit costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from holdfast.decide.policies import policy_of
from holdfast.errors import RateLimited
from holdfast.rows import Namespace

MOST_BUCKETS: Final = 16_384
"""Largest number of names with a common rate that have a bucket of their own."""


class Bucket:
    """A token bucket: a rate in requests per second, and at most one second's worth at once."""

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self._tokens = max(rate, 1.0)
        self._at = now

    def take(self, now: float) -> float:
        """Take a token. Returns 0, or the seconds until one is available."""
        self._tokens = min(max(self.rate, 1.0), self._tokens + (now - self._at) * self.rate)
        self._at = now
        if self._tokens < 1:
            return max(0.001, round((1 - self._tokens) / self.rate, 3))
        self._tokens -= 1
        return 0.0

    def full(self, now: float) -> bool:
        """Return True if the bucket holds as much as a new one would."""
        return self._tokens + (now - self._at) * self.rate >= max(self.rate, 1.0)


class Rates:
    """One bucket per name: with the rate that a policy sets for the name, else with the common rate.

    Buckets of the common rate are bounded in number. When there are too many, full ones are dropped, because
    a new one would be the same. If none is full, names without a bucket share one, so that changing names
    gains a caller nothing.

    Args:
        now: Returns the time in milliseconds, for `admit` and `learn`.
        rate: The common rate, in requests per second; None for no limit.
        called: Name of the common rate in the message of a refusal.
        most: Largest number of buckets of the common rate.
    """

    def __init__(
        self,
        now: Callable[[], int],
        rate: float | None = None,
        *,
        called: str = "the default rate",
        most: int = MOST_BUCKETS,
    ) -> None:
        self._now = now
        self._rate = rate
        self._called = called
        self._most = most
        self._own: dict[str, Bucket] = {}
        self._common: dict[str, Bucket] = {}
        self._shared = Bucket(rate or 0.0, 0.0)
        self._look_again = 0.0

    def __len__(self) -> int:
        return len(self._common)

    def learn(self, namespaces: Iterable[Namespace]) -> None:
        """Update the rates from the policies of these namespaces. One that can't be read changes nothing."""
        for namespace in namespaces:
            try:
                rate = None if namespace.policy is None else policy_of(namespace.policy).rate_limit
            except msgspec.MsgspecError:
                continue
            bucket = self._own.get(namespace.name)
            if rate is None:
                if bucket is not None:
                    del self._own[namespace.name]
            elif bucket is None or bucket.rate != rate:
                self._own[namespace.name] = Bucket(rate, self._now() / 1000)

    def unlimited(self, name: str) -> bool:
        """Return True if requests under a name need not be counted."""
        return self._rate is None and name not in self._own

    def admit(self, name: str) -> None:
        """Count a request.

        Raises:
            RateLimited: The name is over its rate.
        """
        if self._rate is None and name not in self._own:
            return
        wait = self.take(name, self._now() / 1000)
        if wait:
            raise self.refusal(name, wait)

    def take(self, name: str, now: float) -> float:
        """Count a request at a time in seconds. Returns 0, or the seconds until it would be admitted."""
        bucket = self._own.get(name) or self._common.get(name) or self._bucket_for(name, now)
        return bucket.take(now)

    def refusal(self, name: str, wait: float) -> RateLimited:
        """Return the error of a request that would be admitted in so many seconds."""
        own = self._own.get(name)
        rate = f"{self._called} of {self._rate}" if own is None else f"its rate of {own.rate}"
        return RateLimited(f"{name} is over {rate} requests per second", retry_after=wait)

    def _bucket_for(self, name: str, now: float) -> Bucket:
        if len(self._common) >= self._most and now >= self._look_again:
            self._common = {known: one for known, one in self._common.items() if not one.full(now)}
            if len(self._common) >= self._most // 2:  # searching all of them is expensive
                self._look_again = now + 0.1
        if len(self._common) >= self._most:
            return self._shared
        return self._common.setdefault(name, Bucket(self._shared.rate, now))
