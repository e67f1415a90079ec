"""The stream that holds the log of a store: created once, checked at every start.

Law: the stream discards nothing by itself. It says which life of the store it is (its epoch) and how many
shards the store has; a replica of another life is refused. No log is made where a replica of one exists.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.engines.cluster.jetstream import (
    FOR_A_WHILE,
    NAME_IN_USE,
    NANOSECONDS,
    NO_PEERS,
    NO_STREAM,
    STREAM_EXISTS,
    ApiRefusal,
)
from holdfast.engines.cluster.trimming import LIMIT, NO_LIMIT, lift
from holdfast.errors import DatabaseError, Unavailable, Unsupported

if TYPE_CHECKING:
    from holdfast.engines.cluster.address import ClusterAddress
    from holdfast.engines.cluster.jetstream import JetStream

LEAST_VERSION: Final = (2, 15)
"""The first nats-server that waits for the disk once per entry of its own log."""
DUPLICATES_SECONDS: Final = 120
EPOCH: Final = "holdfast_epoch"
_SHARDS: Final = "holdfast_shards"


class Differs(DatabaseError):
    """This node's replica and the log contradict each other."""


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """What a node has to know of the stream."""

    epoch: str
    shards: int
    replicas: int


async def ensure(
    address: ClusterAddress, jetstream: JetStream, *, known: str | None, creates: bool, seconds: float
) -> Stream:
    """Return the stream of a store; create it if there is none, unless this node has a replica already.

    Args:
        address: The address of the store.
        jetstream: JetStream.
        known: The epoch of this node's replica, if it has one.
        creates: Whether to create a stream.
        seconds: The timeout of each call.

    Raises:
        Unsupported: The stream is not one that Holdfast made, or may lose messages.
        Unavailable: JetStream refuses for now.
        TimeoutError: Too few servers are there by now.
        Differs: The stream is that of another store than this node's replica, or there is none.
    """
    try:
        told = await jetstream.api(f"STREAM.INFO.{address.stream}", seconds=seconds)
    except ApiRefusal as refused:
        if refused.code in FOR_A_WHILE:
            raise TimeoutError("the servers are electing a leader") from None
        if refused.code != NO_STREAM:
            raise Unavailable(f"JetStream does not show the stream {address.stream}: {refused}") from None
        if known is not None:
            raise _no_second(address, known, "have no log of this name") from None
        if not creates:
            raise Unavailable(f"there is no store {address.name} at {address.shown} yet") from None
        told = await _create(address, jetstream, seconds)
    stream = _checked(address, told["config"])
    if told["config"].get(LIMIT, NO_LIMIT) > 0:  # a node died while it trimmed the log
        await lift(address, jetstream, told["config"])
    if known is not None and stream.epoch != known:
        raise _no_second(address, known, f"keep the log of another store, with the epoch {stream.epoch}")
    return stream


def _no_second(address: ClusterAddress, known: str, found: str) -> Differs:
    return Differs(
        f"{address.data} is a replica of a store {address.name} with the epoch {known}, but the NATS servers "
        f"at {address.shown} {found}. They are not the servers of that store, or they have lost its files. "
        f"Name the right servers; for a node of another store, name another folder with data= in the URL"
    )


async def _create(address: ClusterAddress, jetstream: JetStream, seconds: float) -> Any:
    body = {
        "name": address.stream,
        "subjects": [address.subject("log", "*")],
        "storage": "file",
        "num_replicas": address.replicas,
        "retention": "limits",
        "discard": "new",
        "deny_purge": True,
        "deny_delete": True,
        "allow_atomic": True,
        "duplicate_window": DUPLICATES_SECONDS * NANOSECONDS,
        "metadata": {EPOCH: secrets.token_hex(8), _SHARDS: str(address.shards)},
    }
    try:
        return await jetstream.api(f"STREAM.CREATE.{address.stream}", body, seconds=seconds)
    except ApiRefusal as refused:
        if refused.code == STREAM_EXISTS:  # another node was faster
            return await jetstream.api(f"STREAM.INFO.{address.stream}", seconds=seconds)
        if refused.code == NAME_IN_USE:
            raise Unsupported(
                f"another stream has the subjects of the store {address.name}: choose another name"
            ) from None
        if refused.code == NO_PEERS:
            raise TimeoutError("too few servers are there") from None
        raise Unavailable(
            f"JetStream can't create the stream {address.stream} on {address.replicas} servers: {refused}"
        ) from None


def _checked(address: ClusterAddress, config: Any) -> Stream:
    known = config.get("metadata") or {}
    if EPOCH not in known:
        raise Unsupported(f"the stream {address.stream} was not created by Holdfast: choose another name")
    wrong = [
        name
        for name, right in {
            "storage": "file",
            "deny_purge": True,
            "deny_delete": True,
            "allow_atomic": True,
        }.items()
        if config.get(name) != right
    ]
    wrong += [name for name in ("max_age", "max_msgs", "max_bytes") if config.get(name, -1) > 0]
    if wrong:
        raise Unsupported(
            f"the stream {address.stream} may lose what it keeps: these of its settings were changed: "
            f"{', '.join(wrong)}"
        )
    return Stream(epoch=known[EPOCH], shards=int(known[_SHARDS]), replicas=int(config["num_replicas"]))
