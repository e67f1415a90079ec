"""The cluster page: the servers of the log, its nodes, their roles and lag, the quorum, and what is gone.

A service that is no node of a cluster shows its instances alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError, PermissionDenied

if TYPE_CHECKING:
    from holdfast.edges.console.visits import Visit
    from holdfast.engines.cluster.operators import ClusterStatus, LogStatus


async def cluster(visit: Visit) -> dict[str, Any]:
    """Return the state of the cluster and of all instances."""
    if not visit.allows("admin", "", "stats"):
        raise PermissionDenied("only operators see the cluster")
    view: dict[str, Any] = {"instances": visit.parts.instances.shown(), "cluster": None, "trouble": None}
    if visit.parts.cluster is None:
        return view
    try:
        status = await visit.parts.cluster.status()
    except HoldfastError as error:
        return view | {"trouble": error.message}
    return view | {"cluster": described(status, addresses=visit.parts.cluster.addresses)}


def described(status: ClusterStatus, *, addresses: int) -> dict[str, Any]:
    """Return what the page shows of a cluster, of which so many servers can be looked for by address."""
    log = status.log
    servers = _servers(log, status.gone_servers if addresses == len(log.followers) + 1 else [])
    return {
        "name": status.name,
        "log": {"messages": log.messages, "bytes": log.bytes, "first": log.first, "last": log.last},
        "servers": servers,
        "quorum": {
            "servers": len(servers),
            "there": sum(one["state"] == "ok" for one in servers),
            "needed": len(servers) // 2 + 1,
        },
        "nodes": [
            *(
                {
                    "host": one.report.host,
                    "process": str(one.report.pid),
                    "version": one.report.version,
                    "clock_ms": one.offset_ms,
                    "state": "stopped" if any(shard.stopped for shard in one.report.shards) else "ok",
                    "silent_seconds": None,
                    "shards": [
                        {
                            "shard": shard.shard,
                            "role": "stopped" if shard.stopped else "writes" if shard.leads else "follows",
                            "behind": shard.behind,
                            "bytes": shard.bytes,
                            "trouble": shard.stopped,
                        }
                        for shard in one.report.shards
                    ],
                }
                for one in status.nodes
            ),
            *(
                {
                    "host": gone.host,
                    "process": gone.process,
                    "version": None,
                    "clock_ms": None,
                    "state": "silent" if gone.follows else "gone",
                    "silent_seconds": None if gone.follows else gone.silent_seconds,
                    "shards": [],
                }
                for gone in status.gone_nodes
            ),
        ],
        "troubles": status.troubles,
    }


def _servers(log: LogStatus, unreachable: list[str]) -> list[dict[str, Any]]:
    """Return the servers that keep the log, by name.

    JetStream takes some seconds to say that a server is not there. Until then, those that are behind are
    taken for gone if as many addresses do not answer, and all followers if that many do not: the leader does.
    """
    gone = log.gone
    if unreachable and len(unreachable) >= len(log.followers):
        gone = log.followers
    elif unreachable and len(unreachable) >= len(log.behind):
        gone = log.behind
    address = unreachable[0] if len(gone) == len(unreachable) == 1 else None
    return [
        {
            "name": name,
            "role": "leader" if name == log.leader else "follower",
            "state": "gone" if name in gone else "behind" if name in log.behind else "ok",
            "lag": log.lags.get(name, 0),
            "address": address if name in gone else None,
        }
        for name in sorted({*([log.leader] if log.leader else []), *log.followers})
    ]
