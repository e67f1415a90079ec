"""The checks of `holdfast doctor` for a cluster: its servers, log, nodes, clocks and snapshots.

Law: as in `checks`. The doctor asks over NATS and does not become a node, since that would write a replica.
"""

from __future__ import annotations

from datetime import timedelta
from time import time
from typing import TYPE_CHECKING, Final

from holdfast.edges.cli.checks import Finding
from holdfast.engines.cluster.address import cluster_address
from holdfast.engines.cluster.operators import ClusterOperator
from holdfast.engines.cluster.servers import RISK, require_sync
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.edges.cli.checks import Level
    from holdfast.engines.cluster.address import ClusterAddress
    from holdfast.engines.cluster.operators import ClusterStatus

SCHEME: Final = "cluster://"
LONG: Final = 1_000_000
"""The number of messages from which a log without a snapshot is long."""


async def cluster(url: str) -> list[Finding]:
    """Check a cluster as a whole."""
    try:
        address = cluster_address(url)
    except HoldfastError as error:
        return [Finding("cluster", "fail", error.message, "see the reference of URLs")]
    findings = [await _sync(address)]
    try:
        async with ClusterOperator(address) as operator:
            found = await operator.status()
    except HoldfastError as error:
        return [*findings, Finding("cluster", "fail", error.message, "see the how-to of clusters")]
    return [*findings, *_troubles(found), _nodes(found), _snapshots(found)]


async def _sync(address: ClusterAddress) -> Finding:
    try:
        await require_sync(address)
    except HoldfastError as error:
        return Finding("sync", "fail", error.message, "see the how-to of clusters")
    if address.allow_lazy_sync:
        told = f"the URL accepts servers that do not wait for the disk: {RISK}"
        return Finding("sync", "warn", told, "set sync_interval: always, and take allow_lazy_sync out")
    return Finding("sync", "ok", "the servers wait for the disk, and are new enough")


def _troubles(found: ClusterStatus) -> list[Finding]:
    return [
        Finding("cluster", "fail", trouble, "holdfast cluster status shows more")
        for trouble in found.troubles
    ]


def _nodes(found: ClusterStatus) -> Finding:
    told = f"nodes: {len(found.nodes)}, shards: {found.log.shards}, messages in the log: {found.log.messages}"
    if len(found.log.followers) < 2:
        return Finding("log", "warn", f"{told}; one server alone keeps it", "three survive the loss of one")
    return Finding("log", "ok", f"{told}; kept by {len(found.log.followers) + 1} servers")


def _snapshots(found: ClusterStatus) -> Finding:
    if not found.snapshots:
        level: Level = "warn" if found.log.messages > LONG else "ok"
        return Finding("snapshot", level, "there is no snapshot", "holdfast cluster snapshot makes one")
    newest = max(note.made_at for note in found.snapshots)
    age = timedelta(seconds=max(0, round(time() - newest / 1000)))
    return Finding("snapshot", "ok", f"the newest is {age} old")
