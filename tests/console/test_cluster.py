"""The cluster page: what it concludes from what servers and nodes say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast.edges.console.cluster import described
from holdfast.engines.cluster.operators import ClusterStatus, GoneNode, LogStatus, NodeStatus
from holdfast.engines.cluster.reports import NodeReport, ShardReport
from tests.console.visiting import log_in, page, refused

if TYPE_CHECKING:
    from tests.edges.http.ground import Served


def status(*, unreachable: list[str] | None = None, **log: Any) -> ClusterStatus:
    """The status of a store that three servers keep."""
    fields: dict[str, Any] = {"leader": "a", "followers": ["b", "c"], "behind": [], **log}
    kept = LogStatus(epoch="e", shards=2, messages=9, bytes=100, first=1, last=9, **fields)
    shards = [
        ShardReport(shard=0, seq=9, id="x", leads=True, bytes=5),
        ShardReport(shard=1, seq=9, id="y", behind=3, stopped="its clock is wrong", bytes=5),
    ]
    report = NodeReport(node="n", host="h", pid=1, version="1", folder="/", time=0, shards=shards)
    return ClusterStatus(
        name="store",
        log=kept,
        nodes=[NodeStatus(report=report, offset_ms=2)],
        gone_nodes=[
            GoneNode(node="o", host="i", process="2", silent_seconds=50),
            GoneNode(node="p", host="j", process="3", follows=True),
        ],
        gone_servers=unreachable or [],
        snapshots=[],
        troubles=[],
    )


@pytest.mark.parametrize(
    ("status", "states", "there"),
    [
        (status(), {"a": "ok", "b": "ok", "c": "ok"}, 3),
        (status(behind=["c"], lags={"c": 7}), {"a": "ok", "b": "ok", "c": "behind"}, 2),
        (status(behind=["c"], gone=["c"]), {"a": "ok", "b": "ok", "c": "gone"}, 2),
        (status(behind=["c"], unreachable=["h:1"]), {"a": "ok", "b": "ok", "c": "gone"}, 2),
        (status(unreachable=["h:1", "i:1"]), {"a": "ok", "b": "gone", "c": "gone"}, 1),
    ],
)
def test_servers_and_the_quorum(status: ClusterStatus, states: dict[str, str], there: int) -> None:
    """The page says which servers lag or are gone before the log has noticed, and how many are left."""
    shown = described(status, addresses=3)
    assert {one["name"]: one["state"] for one in shown["servers"]} == states
    assert shown["quorum"] == {"servers": 3, "there": there, "needed": 2}
    assert [one["role"] for one in shown["servers"]] == ["leader", "follower", "follower"]


def test_addresses_of_other_servers_say_nothing_about_the_log() -> None:
    """The silence of servers that the address names but that do not keep the log counts for nothing."""
    assert described(status(unreachable=["h:1", "i:1"]), addresses=5)["quorum"]["there"] == 3


def test_nodes_and_their_roles() -> None:
    """Each node has its role by shard and its lag; nodes that are gone or silent are listed too."""
    here, gone, silent = described(status(), addresses=3)["nodes"]
    assert [shard["role"] for shard in here["shards"]] == ["writes", "stopped"]
    assert (here["state"], here["clock_ms"], here["shards"][1]["behind"]) == ("stopped", 2, 3)
    assert (gone["state"], gone["silent_seconds"], gone["shards"]) == ("gone", 50, [])
    assert (silent["state"], silent["silent_seconds"]) == ("silent", None)


async def test_a_service_without_a_cluster_shows_its_instances(here: Served, closed: Served) -> None:
    """The page lists the instances; the token of a plugin may not see them."""
    found = await page(here, "/ui/cluster")
    assert (found["cluster"], found["trouble"]) == (None, None)
    assert any(one["here"] for one in found["instances"])
    made = await closed.store.tokens().create(plugin="trivia")
    await log_in(closed, token=made.token)
    assert (await refused(closed, "/ui/cluster"))[0] == 403
