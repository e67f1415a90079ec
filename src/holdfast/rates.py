"""At which rate requests are let in where the policy of a namespace bounds it.

Law: a rate is counted in the process that serves; it costs nothing where no policy asks for one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.decide.policies import policy_of
from holdfast.errors import RateLimited

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from holdfast.rows import Namespace


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


class Rates:
    """The buckets of the namespaces that have a rate, as far as their policies are known.

    Args:
        now: Tells the time in milliseconds.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._buckets: dict[str, Bucket] = {}

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
        if bucket is None:
            return
        wait = bucket.take(self._now() / 1000)
        if wait:
            raise RateLimited(
                f"{namespace} is over its rate of {bucket.rate} requests per second", retry_after=wait
            )
