"""Rate limits for namespaces whose policies set one.

Law: each serving process counts its own rate. A namespace without a rate limit costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.decide.policies import policy_of
from holdfast.errors import RateLimited

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from holdfast.rows import Namespace


MOST_BUCKETS: Final = 16_384
"""Largest number of callers that have a bucket of their own."""


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


class Buckets:
    """One bucket per caller, all with the same rate.

    When there are too many, full buckets are dropped, because a new one would be the same. If none is full,
    callers without a bucket share one, so that changing names gains a caller nothing.

    Args:
        rate: Requests per second for each caller; None for no limit, in which case `take` is not called.
        most: Largest number of buckets.
    """

    def __init__(self, rate: float | None, *, most: int = MOST_BUCKETS) -> None:
        self._rate = rate or 0.0
        self._most = most
        self._buckets: dict[str, Bucket] = {}
        self._shared = Bucket(self._rate, 0.0)
        self._look_again = 0.0

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, caller: str, now: float) -> float:
        """Take a token for a caller. Returns 0, or the seconds until one is available."""
        bucket = self._buckets.get(caller)
        if bucket is None:
            bucket = self._bucket_for(caller, now)
        return bucket.take(now)

    def _bucket_for(self, caller: str, now: float) -> Bucket:
        if len(self._buckets) >= self._most and now >= self._look_again:
            self._buckets = {name: one for name, one in self._buckets.items() if not one.full(now)}
            if len(self._buckets) >= self._most // 2:  # searching all of them is expensive
                self._look_again = now + 0.1
        if len(self._buckets) >= self._most:
            return self._shared
        return self._buckets.setdefault(caller, Bucket(self._rate, now))


class Rates:
    """The buckets of namespaces that have a rate limit, as far as their policies are known.

    Args:
        now: Returns the time in milliseconds.
        default: The rate of namespaces whose policies set none; None for no limit.
    """

    def __init__(self, now: Callable[[], int], *, default: float | None = None) -> None:
        self._now = now
        self._buckets: dict[str, Bucket] = {}
        self._others = None if default is None else Buckets(default)
        self._default = default

    def learn(self, namespaces: Iterable[Namespace]) -> None:
        """Update the rates from the policies of these namespaces."""
        for namespace in namespaces:
            rate = None if namespace.policy is None else policy_of(namespace.policy).rate_limit
            bucket = self._buckets.get(namespace.name)
            if rate is None:
                if bucket is not None:
                    del self._buckets[namespace.name]
            elif bucket is None or bucket.rate != rate:
                self._buckets[namespace.name] = Bucket(rate, self._now() / 1000)

    def admit(self, namespace: str) -> None:
        """Count a request.

        Raises:
            RateLimited: The namespace is over its rate.
        """
        bucket = self._buckets.get(namespace)
        if bucket is not None:
            wait, rate = bucket.take(self._now() / 1000), f"its rate of {bucket.rate}"
        elif self._others is not None:
            wait = self._others.take(namespace, self._now() / 1000)
            rate = f"the default rate of {self._default}"
        else:
            return
        if wait:
            raise RateLimited(f"{namespace} is over {rate} requests per second", retry_after=wait)
