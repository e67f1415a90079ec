"""The stream that holds the log: a node refuses one that could lose messages, or that is not its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from holdfast.engines.cluster.log import Stream, _checked, ensure
from holdfast.engines.cluster.replica import Differs
from holdfast.errors import Unavailable, Unsupported
from tests.cluster import engine_of

if TYPE_CHECKING:
    from tests.cluster import Nodes


async def test_the_stream_of_a_store_is_accepted(nodes: Nodes) -> None:
    """A node made it, says how many shards there are, and which life of the store it is."""
    engine = engine_of(await nodes.open(1, shards=2))
    address, jetstream = engine._address, engine._jetstream
    found = await ensure(address, jetstream, known=engine._epoch, creates=False, seconds=5)
    assert (found.epoch, found.shards, found.replicas) == (engine._epoch, 2, 1)
    with pytest.raises(Differs, match="keep the log of another store"):
        await ensure(address, jetstream, known="another", creates=True, seconds=5)


async def test_a_log_is_made_only_where_there_was_none(nodes: Nodes) -> None:
    """A node that only looks makes no log, and one that has a replica does not begin a second one."""
    engine = engine_of(await nodes.open(1))
    address = cluster_address_of(engine, "absent")
    with pytest.raises(Unavailable, match="there is no store"):
        await ensure(address, engine._jetstream, known=None, creates=False, seconds=5)
    with pytest.raises(Differs, match="have no log of this name"):
        await ensure(address, engine._jetstream, known="a life", creates=True, seconds=5)
    made = await ensure(address, engine._jetstream, known=None, creates=True, seconds=5)
    assert await ensure(address, engine._jetstream, known=made.epoch, creates=False, seconds=5) == made


def cluster_address_of(engine: Any, name: str) -> Any:
    """The address of another store at the same servers."""
    return msgspec.structs.replace(engine._address, name=name)


RIGHT: dict[str, Any] = {
    "storage": "file",
    "deny_purge": True,
    "deny_delete": True,
    "allow_atomic": True,
    "num_replicas": 3,
    "max_age": 0,
    "max_msgs": -1,
    "max_bytes": -1,
    "metadata": {"holdfast_epoch": "life", "holdfast_shards": "4"},
}


@pytest.mark.parametrize(
    "wrong",
    [
        {"storage": "memory"},
        {"deny_purge": False},
        {"deny_delete": False},
        {"allow_atomic": False},
        {"max_age": 1},
        {"max_msgs": 1_000},
        {"max_bytes": 1_000_000},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
async def test_a_stream_that_may_lose_messages_is_refused(nodes: Nodes, wrong: dict[str, Any]) -> None:
    """Each setting that lets the servers discard or lose a message is named."""
    address = engine_of(await nodes.open(1))._address
    assert _checked(address, RIGHT) == Stream(epoch="life", shards=4, replicas=3)
    with pytest.raises(Unsupported, match=f"were changed: {next(iter(wrong))}$"):
        _checked(address, {**RIGHT, **wrong})
    with pytest.raises(Unsupported, match="was not created by Holdfast"):
        _checked(address, {**RIGHT, "metadata": None})
