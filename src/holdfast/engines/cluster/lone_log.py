"""The log of a server that ran alone, on its way to servers that form a cluster.

JetStream takes no stream of such a server into a cluster, but it makes a backup of a stream and restores it
elsewhere: with the same messages, sequences and settings. So replicas of the log stay as they are.

Law: the source is only read. A stream is restored whole or not at all, and the log comes last. What was
brought in part, by a process that died, is brought again.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from holdfast.bus.connection import Requester
from holdfast.bus.errors import BusError
from holdfast.engines.cluster.jetstream import (
    NO_STREAM,
    ApiRefusal,
    Fault,
    JetStream,
    NodeConnection,
    NoMajority,
)
from holdfast.engines.cluster.log import EPOCH
from holdfast.engines.cluster.membership import Membership
from holdfast.engines.cluster.replica import Differs
from holdfast.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator
    from types import TracebackType

    from holdfast.bus.protocol import Message
    from holdfast.engines.cluster.address import ClusterAddress

CHUNK_BYTES: Final = 128 * 1024
SECONDS: Final = 20.0
"""How long a call of JetStream, or a part of a backup, may take."""
RESTORE_SECONDS: Final = 600.0
"""How long a cluster may take to unpack a backup, and to copy it to all its servers."""
_DONE: Final = ("", "204")
"""The status of parts of a backup that arrived, and of its end."""


class Bearer:
    """A connection to the servers that keep, or will keep, the streams of a store.

    Args:
        address: The address of the store there.
    """

    def __init__(self, address: ClusterAddress) -> None:
        self.address = address
        self.connection = NodeConnection(name=f"holdfast brings {address.name}")
        self.requests = Requester(self.connection)
        self.jetstream = JetStream(self.connection, self.requests)

    async def __aenter__(self) -> Self:
        await self.connection.reach(self.address.servers, self.address.remote.login())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.connection.close()

    async def info(self, stream: str) -> Any:
        """Return what JetStream says about a stream; None if there is none."""
        try:
            return await self.jetstream.settled(f"STREAM.INFO.{stream}", seconds=SECONDS)
        except ApiRefusal as refused:
            if refused.code == NO_STREAM:
                return None
            raise

    async def backup(self, stream: str) -> AsyncGenerator[bytes, None]:
        """Yield the parts of a stream's backup. The server sends more as the former ones are taken."""
        inbox = self.connection.new_inbox()
        parts: asyncio.Queue[Message] = asyncio.Queue()
        subscription = self.connection.listen(inbox, parts.put_nowait)
        body = {"deliver_subject": inbox, "no_consumers": True, "chunk_size": CHUNK_BYTES}
        try:
            await self.jetstream.settled(f"STREAM.SNAPSHOT.{stream}", body, seconds=SECONDS)
            while True:
                async with asyncio.timeout(SECONDS):
                    part = await parts.get()
                if part.status not in _DONE:
                    raise Unavailable(f"the backup of {stream} ended with the status {part.status}")
                if not part.data:
                    return
                yield part.data
                if part.reply:
                    self.connection.send(part.reply, b"")
        finally:
            subscription.cancel()

    async def restore(self, told: Any, parts: AsyncIterator[bytes], replicas: int) -> None:
        """Make a stream from a backup, kept by so many servers."""
        stream = told["config"]["name"]
        body = {"config": {**told["config"], "num_replicas": replicas}, "state": told["state"]}
        reply = await self.jetstream.settled(f"STREAM.RESTORE.{stream}", body, seconds=SECONDS)
        where = reply["deliver_subject"]
        async for part in parts:
            await self._send(where, part, SECONDS)
        await self._send(where, b"", RESTORE_SECONDS)

    async def _send(self, where: str, part: bytes, seconds: float) -> None:
        reply = await self.requests.ask(where, part, seconds=seconds)
        if reply.data and "error" in (told := msgspec.json.decode(reply.data)):
            raise ApiRefusal(msgspec.convert(told["error"], Fault))


async def bring(source: ClusterAddress, target: ClusterAddress) -> bool:
    """Bring the streams of a store from a server that ran alone to servers that form a cluster.

    Returns:
        Whether there was a log to bring.

    Raises:
        Differs: The cluster keeps another store of this name.
        Unavailable: The streams could not be brought; the same can be tried again.
    """
    try:
        async with Bearer(source) as lone, Bearer(target) as cluster:
            ours = await lone.info(source.stream)
            if ours is None:
                return False
            _require_same(ours, await cluster.info(target.stream), target)
            for stream in (f"{source.stream}_SNAPSHOTS", source.stream):
                await _bring(stream, lone, cluster)
            await Membership(target, cluster.jetstream).grow(target.replicas, seconds=RESTORE_SECONDS)
    except (ApiRefusal, TimeoutError, BusError, OSError) as error:
        why = str(error) or "no answer in time"
        raise NoMajority(f"the log of {target.name} could not be brought to the cluster: {why}") from error
    return True


async def _bring(stream: str, lone: Bearer, cluster: Bearer) -> None:
    """Bring a stream, unless the cluster has it."""
    ours, theirs = await lone.info(stream), await cluster.info(stream)
    if ours is None:
        return
    if theirs is not None:
        if theirs["state"]["last_seq"] >= ours["state"]["last_seq"]:
            return
        await cluster.jetstream.settled(f"STREAM.DELETE.{stream}", seconds=SECONDS)
    async with contextlib.aclosing(lone.backup(stream)) as parts:
        await cluster.restore(ours, parts, cluster.address.replicas)
    kept = await cluster.info(stream)
    if kept is None or kept["state"]["last_seq"] != ours["state"]["last_seq"]:
        raise Unavailable(f"the cluster has not got all of the stream {stream}")


def _require_same(ours: Any, theirs: Any, target: ClusterAddress) -> None:
    epochs = [((told or {}).get("config", {}).get("metadata") or {}).get(EPOCH) for told in (ours, theirs)]
    if theirs is not None and epochs[0] != epochs[1]:
        raise Differs(
            f"this machine brings a store {target.name} with the epoch {epochs[0]}, but the others keep "
            f"another store of that name, with the epoch {epochs[1]}. Start those machines with empty data "
            "folders, or this one without its data folder"
        )
