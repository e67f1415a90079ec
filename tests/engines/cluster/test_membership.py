"""The servers that keep a log: who is counted, and how many keep it when others join."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.engines.cluster import membership, servers
from holdfast.engines.cluster.address import cluster_address
from holdfast.engines.cluster.jetstream import NO_STREAM, ApiRefusal, Fault
from holdfast.engines.cluster.membership import Membership
from holdfast.errors import Unavailable, ValidationError


class Streams:
    """JetStream with the stream of one log, which servers keep."""

    def __init__(self, *kept: str, gone: tuple[str, ...] = ()) -> None:
        self.kept = list(kept)
        self.gone = gone
        self.changes: list[tuple[str, Any]] = []
        self.reserve = ["d", "e", "f"]

    async def api(self, call: str, body: Any = None, *, seconds: float) -> Any:
        """Answer a call."""
        if call.endswith("_SNAPSHOTS"):
            raise ApiRefusal(Fault(NO_STREAM))
        if "UPDATE" in call:
            self.changes.append(("grow", body["num_replicas"]))
            self.kept += self.reserve[: body["num_replicas"] - len(self.kept)]
        elif "PEER.REMOVE" in call:
            self.changes.append(("remove", body["peer"]))
            self.kept[self.kept.index(body["peer"])] = self.reserve[0]
        leader, *others = self.kept
        replicas = [{"name": one, "current": True, "offline": one in self.gone} for one in others]
        return {
            "config": {"num_replicas": len(self.kept)},
            "cluster": {"leader": leader, "replicas": replicas},
        }


def member(streams: Streams, monkeypatch: pytest.MonkeyPatch, *there: str) -> Membership:
    """The servers of a log, of which these are there."""

    async def names(address: Any) -> set[str]:
        return set(there)

    monkeypatch.setattr(servers, "names", names)
    monkeypatch.setattr(membership, "LOOK_SECONDS", 0.0)
    jetstream: Any = streams
    return Membership(cluster_address("cluster://h1/s?timeout=1"), jetstream)


@pytest.mark.parametrize(
    ("kept", "there", "grown", "spare"),
    [
        ("abc", "abcd", None, ["d"]),
        ("abc", "abcde", 5, []),
        ("abc", "abcdef", 5, ["f"]),
        ("a", "ad", None, ["d"]),
        ("a", "ade", 3, []),
        ("abcde", "abcdef", None, ["f"]),
    ],
)
async def test_an_odd_number_of_servers_keeps_the_log(
    monkeypatch: pytest.MonkeyPatch, kept: str, there: str, grown: int | None, spare: list[str]
) -> None:
    """Of four no more may be lost than of three, so a single one that joins three is kept in reserve."""
    streams = Streams(*kept)
    done = await member(streams, monkeypatch, *there).add(seconds=60)
    assert streams.changes == ([] if grown is None else [("grow", grown)])
    assert (done.changed, done.spare, len(done.servers)) == (grown is not None, spare, grown or len(kept))


async def test_nothing_grows_while_a_server_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that joined may be meant to take its place, so both are told instead."""
    streams = Streams("a", "b", "c", gone=("c",))
    done = await member(streams, monkeypatch, "a", "b", "d", "e").add(seconds=60)
    assert (streams.changes, done.gone, done.spare) == ([], ["c"], ["d", "e"])


async def test_a_log_never_has_fewer_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """A smaller number is refused, and so is the removal of the last server or without another one."""
    streams = Streams("a", "b", "c")
    log = member(streams, monkeypatch, "a", "b", "c")
    for number in (0, 2, 6):
        with pytest.raises(ValidationError):
            await log.grow(number, seconds=1)
    with pytest.raises(ValidationError, match="no server 'x' keeps the log"):
        await log.remove("x", seconds=1)
    with pytest.raises(Unavailable, match="no other server is there"):
        await log.remove("b", seconds=1)
    with pytest.raises(ValidationError, match="a alone keeps the log"):
        await member(Streams("a"), monkeypatch, "a", "d").remove("a", seconds=1)
    assert streams.changes == []


async def test_a_server_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one keeps the log then, and as many as before."""
    streams = Streams("a", "b", "c")
    done = await member(streams, monkeypatch, "a", "b", "c", "d").remove("b", seconds=60)
    assert (done.servers, done.changed, streams.changes) == (["a", "c", "d"], True, [("remove", "b")])
