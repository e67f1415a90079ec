"""A replica: how far its file is, and which messages it refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from holdfast.engines.cluster import snapshots
from holdfast.engines.cluster.messages import Logged, LogPlace
from holdfast.engines.cluster.replica import Differs, LogGap, kept_epoch
from holdfast.errors import HoldfastError
from tests.cluster import at_one_place, engine_of, tables
from tests.engines.cluster.test_shard import shard_of, stop_following

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster import Nodes


async def test_a_replica_that_was_replaced_knows_what_its_file_shows(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader waits until the holder of the lease is as far as the file, which a snapshot has moved on."""
    one, other = await nodes.open(1), await nodes.open(2)
    await one.kv("trivia").set("key", 1)
    await at_one_place([one, other])
    shard = shard_of(other)
    await stop_following(shard)
    for number in range(3):
        await one.kv("trivia").set("key", number)
    await engine_of(one).answers._maker.make([shard_of(one)])
    monkeypatch.setattr(snapshots, "FAR", 0)
    assert await shard._renewed(LogGap("the log was trimmed"))
    assert shard.replica.at == shard_of(one).replica.at
    assert shard.replica.latest == shard.replica.at.seq


def test_a_file_that_can_not_be_read_is_no_error_of_the_driver(tmp_path: Path) -> None:
    """A node whose file is no database, or is locked, names it when it starts."""
    file = tmp_path / "shard-0.db"
    file.write_bytes(b"something else" * 1000)
    with pytest.raises(HoldfastError, match=r"shard-0\.db"):
        kept_epoch(file)


async def test_a_log_that_was_rewritten_stops_the_replica(nodes: Nodes) -> None:
    """Another message in the place of one that was applied is an error, however short the log is.

    So a server whose old disk was put back is noticed before the log has grown past the replica.
    """
    store = await nodes.open(1)
    await store.kv("trivia").set("key", 1)
    replica, path = shard_of(store).replica, nodes.folder / "1" / "shard-0.db"
    at, before = replica.at, tables(path)
    again = Logged(place=at, base=LogPlace(), node="another", lease=0, data=b"")
    assert await replica.take(again)
    forged = msgspec.structs.replace(again, place=LogPlace(at.seq, "another"))
    with pytest.raises(Differs, match="has the message"):
        await replica.take(forged)
    assert await replica.take(msgspec.structs.replace(forged, place=LogPlace(at.seq - 1, "older")))
    assert (replica.at, tables(path)) == (at, before)
