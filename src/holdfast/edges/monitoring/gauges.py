"""Gauges that a scrape reads from the storage: the contents of namespaces, locks and backlogs.

The cost of a scrape is bounded. It reads rows with totals, one of each kind per namespace, and never
walks over entries. It waits for the storage no longer than `PATIENCE`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.edges.monitoring.counters import LOCK, Families, PluginLabels
from holdfast.engine import ClusterFigures
from holdfast.errors import HoldfastError
from holdfast.families import has_keys
from holdfast.handles.recipes.names import waits
from holdfast.model import Parts
from holdfast.rows import KV, Address, Record
from holdfast.store import Store

if TYPE_CHECKING:
    from holdfast.operators.store_stats import NamespaceFigures, StoreStats

PATIENCE: Final = 5.0
"""Seconds for which a scrape waits for the storage."""
MOST_LOCKS: Final = 5_000
"""Maximum number of locks that are tracked."""

KINDS: Final = Parts.__struct_fields__
"""The kinds of data that a namespace keeps."""

Sums = dict[tuple[str, ...], float]


class Snapshot(msgspec.Struct, kw_only=True):
    """The values read from the storage, by plugin and any further labels."""

    store_up: bool = False
    keys: Sums = {}
    sizes: Sums = {}
    kept: Sums = {}
    quotas: Sums = {}
    locks: Sums = {}
    letters: Sums = {}
    audit_heads: Sums = {}
    audit_records: Sums = {}
    audit_ages: Sums = {}
    overdue: float = 0.0


class Locks:
    """The locks and waiters seen in changes by this process."""

    def __init__(self) -> None:
        self._known: dict[Address, int] = {}

    def learn(self, record: Record) -> None:
        """Record a change of an entry whose purpose is `lock`."""
        address = Address(record.namespace, KV, record.key)
        if record.op in ("deleted", "expired"):
            self._known.pop(address, None)
            return
        self._known[address] = record.version
        if len(self._known) > MOST_LOCKS:
            del self._known[next(iter(self._known))]

    async def existing(self, stats: StoreStats) -> AsyncIterator[Address]:
        """Yield the locks that still exist. Another process may have changed them."""
        known = self._known.copy()
        async for part in stats.purposes(list(known)):
            for address, purpose in part:
                if purpose == LOCK:
                    yield address
                elif self._known.get(address) == known[address]:
                    del self._known[address]


class Gauges:
    """The contents of the storage when they were read last.

    Args:
        families: Renders metric families.
        store: The store to read.
        labels: The labels of plugins.
    """

    def __init__(self, families: Families, store: Store, labels: PluginLabels) -> None:
        self._families = families
        self._store = store
        self._labels = labels
        self._seen = Snapshot()
        self._cluster: ClusterFigures | None = None
        self.locks = Locks()

    async def read(self) -> None:
        """Read the storage again; values that cannot be read are not shown."""
        try:
            stats = self._store.survey()
            self._cluster = stats.cluster()
            async with asyncio.timeout(PATIENCE):
                self._seen = await self._snapshot(stats)
        except (HoldfastError, TimeoutError):
            self._seen = Snapshot()

    def collect(self) -> Iterator[str]:
        """Yield every family."""
        seen, make = self._seen, self._families
        yield make.gauge("store_up", "1 if the storage answers, else 0.", seen.store_up)
        outage = self._store.outage
        yield make.gauge(
            "storage_unavailable_seconds",
            "Seconds for which the storage has accepted no writes.",
            outage.seconds,
        )
        yield make.counter("storage_alerts", "Outages that lasted 5 minutes.", outage.alerts)
        yield make.gauge("kv_keys", "Live keys.", seen.keys, "plugin")
        yield make.alias("kv_keys_total", "kv_keys", seen.keys, "plugin")
        yield make.gauge("kv_storage_bytes", "Bytes of live keys and values.", seen.sizes, "plugin")
        yield make.gauge("kept_bytes", "Bytes kept, by kind.", seen.kept, "plugin", "kind")
        yield make.gauge("quota_ratio", "Used share of a quota.", seen.quotas, "plugin", "quota")
        yield make.gauge("locks", "Locks held, and callers waiting for one.", seen.locks, "plugin", "state")
        yield make.gauge("dead_letters", "Requests kept as dead letters.", seen.letters, "plugin")
        yield make.gauge("audit_head", "Number of the newest audit record.", seen.audit_heads, "plugin")
        yield make.gauge("audit_records", "Audit records kept.", seen.audit_records, "plugin")
        yield make.gauge(
            "audit_head_age_seconds", "Age of the newest audit record in seconds.", seen.audit_ages, "plugin"
        )
        yield make.gauge(
            "oldest_expired_seconds",
            "Seconds for which the oldest expired entry awaits removal.",
            seen.overdue,
        )

        if self._cluster is not None:
            yield from _of_cluster(make, self._cluster)

    async def _snapshot(self, stats: StoreStats) -> Snapshot:
        seen = Snapshot(store_up=True, overdue=await self._store.overdue())
        async for part in stats.namespaces():
            for one in part:
                self._add(seen, one)
        async for lock in self.locks.existing(stats):
            state = "waiting" if waits(str(lock.key)) else "held"
            _count(seen.locks, (self._labels.of_namespace(lock.namespace), state), 1)
        return seen

    def _add(self, seen: Snapshot, one: NamespaceFigures) -> None:
        """Add the contents of a namespace to its plugin's values; items and blobs do not count as keys."""
        namespace, policy = one.stats.namespace, one.policy
        label = (self._labels.of_namespace(namespace),)
        if one.letters:
            _count(seen.letters, label, one.letters)
        for part in KINDS:
            if kept := getattr(one.stats.parts, part):
                _count(seen.kept, (*label, part), kept)
        _fill(seen.quotas, (*label, "bytes"), one.settled_bytes, one.quota_bytes)
        if not has_keys(namespace):
            return
        _count(seen.keys, label, one.stats.keys)
        _count(seen.sizes, label, one.stats.bytes)
        _fill(seen.quotas, (*label, "keys"), one.stats.keys, policy.quota_keys)
        if one.audit is not None:
            _count(seen.audit_heads, label, one.audit.number)
            _count(seen.audit_records, label, one.audit.kept)
            if one.audit.age is not None:
                seen.audit_ages[label] = max(one.audit.age, seen.audit_ages.get(label, 0.0))


def _of_cluster(make: Families, figures: ClusterFigures) -> Iterator[str]:
    """Yield the families of a node of a cluster."""
    yield make.gauge("cluster_nodes", "Nodes of the cluster that answer, this one included.", figures.nodes)
    yield make.gauge(
        "cluster_clock_skew_seconds", "Seconds by which the clocks of the nodes differ.", figures.skew
    )
    for name, words, values in (
        ("cluster_behind_messages", "Messages of the log that this node has not applied.", figures.behind),
        ("cluster_leads", "1 if this node wrote last.", figures.leads),
        ("cluster_stopped", "1 if this node does not serve the shard.", figures.stopped),
    ):
        yield make.gauge(name, words, {(str(shard),): one for shard, one in values.items()}, "shard")


def _count(sums: Sums, labels: tuple[str, ...], amount: float) -> None:
    sums[labels] = sums.get(labels, 0) + amount


def _fill(shares: Sums, labels: tuple[str, ...], used: int, quota: int | None) -> None:
    """Record the used share of a quota; among namespaces with the same labels the largest."""
    if quota is not None:
        shares[labels] = max(used / quota if quota else 1.0, shares.get(labels, 0.0))
