"""At which rate requests are let in where the policy of a namespace bounds it.

Law: a rate is counted in the process that serves; it costs nothing where no policy asks for one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.decide.policies import policy_of
from holdfast.errors import RateLimited

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from holdfast.rows import Namespace


MOST_BUCKETS: Final = 16_384
"""How many callers have a bucket of their own."""


class Bucket:
    """A token bucket: so many requests a second, and a second's worth at once."""

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self._tokens = max(rate, 1.0)
        self._at = now

    def take(self, now: float) -> float:
        """Take a token; 0, or for how many seconds there is none."""
        self._tokens = min(max(self.rate, 1.0), self._tokens + (now - self._at) * self.rate)
        self._at = now
        if self._tokens < 1:
            return max(0.001, round((1 - self._tokens) / self.rate, 3))
        self._tokens -= 1
        return 0.0

    def full(self, now: float) -> bool:
        """Whether it holds as much as a new one would."""
        return self._tokens + (now - self._at) * self.rate >= max(self.rate, 1.0)


class Buckets:
    """A bucket for each of many callers, all of the same rate.

    When there are too many, those that are full go: a new one would be the same. If none is, callers who have
    none share one, so that to come under ever new names gains nobody anything.

    Args:
        rate: How many requests a second each may make; None if there is no bound, and then nobody asks.
        most: How many buckets there are at the most.
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
        """Take a token of a caller's; 0, or for how many seconds there is none."""
        bucket = self._buckets.get(caller)
        if bucket is None:
            bucket = self._bucket_for(caller, now)
        return bucket.take(now)

    def _bucket_for(self, caller: str, now: float) -> Bucket:
        if len(self._buckets) >= self._most and now >= self._look_again:
            self._buckets = {name: one for name, one in self._buckets.items() if not one.full(now)}
            if len(self._buckets) >= self._most // 2:  # to look through all of them has its price
                self._look_again = now + 0.1
        if len(self._buckets) >= self._most:
            return self._shared
        return self._buckets.setdefault(caller, Bucket(self._rate, now))


class Rates:
    """The buckets of the namespaces that have a rate, as far as their policies are known.

    Args:
        now: Tells the time in milliseconds.
        default: The rate of namespaces whose policies name none; None if they have none.
    """

    def __init__(self, now: Callable[[], int], *, default: float | None = None) -> None:
        self._now = now
        self._buckets: dict[str, Bucket] = {}
        self._others = None if default is None else Buckets(default)
        self._default = default

    def learn(self, namespaces: Iterable[Namespace]) -> None:
        """Take note of the policies of namespaces."""
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
            RateLimited: It is one too many.
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
