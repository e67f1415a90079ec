"""What is looked up in the storage at a scrape: what namespaces hold, which locks are held, what piles up.

Law: a scrape costs a bounded amount: it reads rows that hold sums, one of each kind for a namespace, and
never walks over entries. Nobody waits longer for the storage than the patience allows.
"""

from __future__ import annotations

import asyncio
from operator import add
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.edges.outcomes import LOCK
from holdfast.errors import HoldfastError
from holdfast.recipes.names import waits
from holdfast.rows import KV, Address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client.core import Metric

    from holdfast.edges.tallies import Families, Labels
    from holdfast.rows import Record
    from holdfast.store import Store
    from holdfast.survey import Holding, Survey

PATIENCE: Final = 5.0
"""For how many seconds a scrape waits for the storage."""
MOST: Final = 5_000
"""How many locks are known, and in how many namespaces the audit and dead letters are looked at."""

Sums = dict[tuple[str, ...], float]


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen, by plugin and what else a label tells."""

    store_up: bool = False
    keys: Sums = {}
    sizes: Sums = {}
    quotas: Sums = {}
    locks: Sums = {}
    letters: Sums = {}
    audit_heads: Sums = {}
    audit_records: Sums = {}
    audit_ages: Sums = {}
    overdue: float = 0.0


class Locks:
    """The locks that changes of this process told of, and those who wait for them."""

    def __init__(self) -> None:
        self._known: dict[Address, int] = {}

    def learn(self, record: Record) -> None:
        """Take note of a change of an entry whose purpose is `lock`."""
        address = Address(record.namespace, KV, record.key)
        if record.op in ("deleted", "expired"):
            self._known.pop(address, None)
            return
        self._known[address] = record.version
        if len(self._known) > MOST:
            del self._known[next(iter(self._known))]

    async def look(self, survey: Survey) -> list[Address]:
        """Those that are still there. Others may have changed them, through another process."""
        known = self._known.copy()
        purposes = await survey.purposes(list(known))
        for (address, version), purpose in zip(known.items(), purposes, strict=True):
            if purpose != LOCK and self._known.get(address) == version:
                del self._known[address]
        return list(self._known)


class Gauges:
    """What the storage holds, as it was at the last look.

    Args:
        families: What makes families.
        store: What is looked into.
        labels: The names of plugins.
    """

    def __init__(self, families: Families, store: Store, labels: Labels) -> None:
        self._families = families
        self._store = store
        self._labels = labels
        self._seen = Snapshot()
        self.locks = Locks()

    async def look(self) -> None:
        """Look anew; what can't be seen is not shown."""
        try:
            async with asyncio.timeout(PATIENCE):
                self._seen = await self._look(self._store.survey())
        except (HoldfastError, TimeoutError):
            self._seen = Snapshot()

    def collect(self) -> Iterator[Metric]:
        """Every family."""
        seen, make = self._seen, self._families
        plugin = ("plugin",)
        yield make.gauge("store_up", "Whether the storage answers.", seen.store_up)
        outage = self._store.outage
        yield make.gauge("storage_unavailable_seconds", "How long it has taken no writes.", outage.seconds)
        yield make.counter("storage_alerts", "Outages that went on for long.", outage.alerts)
        yield make.gauges("kv_keys_total", "Live keys.", plugin, seen.keys)
        yield make.gauges("kv_storage_bytes", "Bytes of live keys and values.", plugin, seen.sizes)
        yield make.gauges("quota_ratio", "Share of a quota that is used.", ("plugin", "quota"), seen.quotas)
        yield make.gauges("locks", "Locks and waiters that are there.", ("plugin", "state"), seen.locks)
        yield make.gauges("dead_letters", "Requests that were given up and kept.", plugin, seen.letters)
        yield make.gauges("audit_head", "Number of the newest audit record.", plugin, seen.audit_heads)
        yield make.gauges("audit_records", "Audit records that are kept.", plugin, seen.audit_records)
        yield make.gauges(
            "audit_head_age_seconds", "Age of the newest audit record.", plugin, seen.audit_ages
        )
        yield make.gauge(
            "oldest_expired_seconds", "Age of the oldest entry that is due and not removed.", seen.overdue
        )

    async def _look(self, survey: Survey) -> Snapshot:
        everything = await survey.holdings()
        holdings = [one for one in everything if not one.stats.namespace.startswith("table/")]
        names = [one.stats.namespace for one in everything][:MOST]
        watched = [one.stats.namespace for one in holdings if one.audited][:MOST]
        letters = zip(names, await survey.letters(names), strict=True)
        ends = list(zip(watched, await survey.audit_ends(watched), strict=True))
        return Snapshot(
            store_up=True,
            keys=self._sums((one.stats.namespace, one.stats.keys) for one in holdings),
            sizes=self._sums((one.stats.namespace, one.stats.bytes) for one in holdings),
            quotas=self._quotas(holdings),
            locks=self._counted(await self.locks.look(survey)),
            letters=self._sums((name, count) for name, count in letters if count),
            audit_heads=self._sums((name, end.number) for name, end in ends),
            audit_records=self._sums((name, end.kept) for name, end in ends),
            audit_ages=self._sums(((name, end.age) for name, end in ends if end.age is not None), into=max),
            overdue=await self._store.overdue(),
        )

    def _plugin(self, namespace: str) -> str:
        return self._labels.of(namespace.partition("/")[2])

    def _sums(
        self, amounts: Iterable[tuple[str, float]], *, into: Callable[[float, float], float] = add
    ) -> Sums:
        """Amounts of namespaces as amounts of plugins."""
        sums: Sums = {}
        for namespace, amount in amounts:
            plugin = (self._plugin(namespace),)
            sums[plugin] = into(sums[plugin], amount) if plugin in sums else amount
        return sums

    def _quotas(self, holdings: Iterable[Holding]) -> Sums:
        """How much of each quota is used; of those that share a label the one that is used most."""
        sums: Sums = {}
        for one in holdings:
            plugin, policy, stats = self._plugin(one.stats.namespace), one.policy, one.stats
            for quota, used, most in (
                ("keys", stats.keys, policy.quota_keys),
                ("bytes", stats.bytes, policy.quota_bytes),
            ):
                if most is not None:
                    share = used / most if most else 1.0
                    sums[plugin, quota] = max(share, sums.get((plugin, quota), 0.0))
        return sums

    def _counted(self, addresses: Iterable[Address]) -> Sums:
        sums: Sums = {}
        for namespace, _, key in addresses:
            state = "waiting" if waits(str(key)) else "held"
            labels = self._plugin(namespace), state
            sums[labels] = sums.get(labels, 0) + 1
        return sums
