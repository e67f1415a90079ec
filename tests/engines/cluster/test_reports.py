"""What nodes and operators conclude from the answers of nodes: clocks, and servers to be forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast.engines.cluster import membership
from holdfast.engines.cluster.address import cluster_address
from holdfast.engines.cluster.membership import NotForgotten, forget
from holdfast.engines.cluster.reports import NodeReport, TimedReport, lead_of, skew_of, wrong_clock

if TYPE_CHECKING:
    from collections.abc import Sequence


def reports(*offsets: float, opened: Sequence[int] = ()) -> list[TimedReport]:
    """Nodes whose clocks are ahead by so many milliseconds, and which of them are being opened."""
    more: dict[str, Any] = {"host": "h", "version": "1", "folder": "/", "time": 0, "shards": []}
    return [
        TimedReport(NodeReport(node=str(number), pid=number, begun=number not in opened, **more), offset)
        for number, offset in enumerate(offsets)
    ]


@pytest.mark.parametrize(
    ("offsets", "leads"),
    [
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0]),
        ([5_000.0, 0.0, 0.0], [5.0, 0.0, 0.0]),
        ([0.0, -5_000.0, 0.0, 0.0], [0.0, -5.0, 0.0, 0.0]),
        ([5_000.0, 0.0], [0.0, 0.0]),
        ([5_000.0], [0.0]),
    ],
)
def test_the_clock_that_differs_from_most_others_is_wrong(offsets: list[float], leads: list[float]) -> None:
    """The node whose clock differs from most others is the wrong one; of two, nobody can tell which."""
    nodes = reports(*offsets)
    assert [lead_of(nodes, str(number)) for number in range(len(offsets))] == leads


@pytest.mark.parametrize(
    ("offsets", "opened", "leads"),
    [
        ([5_000.0, 0.0], [0], [5.0, 0.0]),
        ([5_000.0, 0.0], [1], [0.0, -5.0]),
        ([5_000.0, 0.0], [0, 1], [0.0, 0.0]),
        ([5_000.0], [0], [0.0]),
        ([0.0, 5_000.0, 0.0], [0, 2], [0.0, 5.0, 0.0]),
    ],
)
def test_a_node_that_is_opened_goes_by_the_one_that_serves(
    offsets: list[float], opened: list[int], leads: list[float]
) -> None:
    """Two clocks tell who must not begin, if one of the nodes serves already; of three, most are right."""
    nodes = reports(*offsets, opened=opened)
    assert [lead_of(nodes, str(number)) for number in range(len(offsets))] == leads


def test_the_skew_is_the_distance_of_the_furthest_clocks() -> None:
    """It is told whoever is wrong, and a node that was not heard leads nobody."""
    assert skew_of(reports(-1_000.0, 500.0, 2_000.0)) == 3.0
    assert skew_of([]) == 0.0
    assert lead_of(reports(0.0, 0.0, 0.0), "another") == 0.0
    assert "5.0 s ahead of" in wrong_clock(5.0).message
    assert "2.5 s behind" in wrong_clock(-2.5).message


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("nats://10.0.0.1:4222", None),
        ("nats://127.0.0.1:4222", ("nats", "127.0.0.1:4222")),
        ("nats://user:pass@localhost:4222", ("nats", "localhost:4222")),
        ("tls://10.0.0.1:4222", ("tls", "10.0.0.1:4222")),
        ("nats://127.0.0.1.example.org:4222", None),
        ("nats://[::1]:4222", ("nats", "[::1]:4222")),
    ],
)
def test_the_password_of_the_system_account_is_never_sent_in_plain_text(
    url: str, sent: tuple[str, str] | None
) -> None:
    """It goes to a server of this machine, or through TLS."""
    assert membership._place(url) == sent


async def test_servers_are_not_asked_without_tls_or_a_local_address(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """If no server of the URL is near or has TLS, the servers are not asked at all."""
    folder = tmp_path_factory.mktemp("node")
    address = cluster_address(f"cluster://10.255.255.1:4222/store?data={folder}")
    with pytest.raises(NotForgotten, match="on this machine or has TLS"):
        await forget(address, "gone", user="system", password="secret", seconds=1)
