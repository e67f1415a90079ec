"""Snapshots of shards: files that hold everything up to a place in the log, kept in a stream of their own.

A snapshot is a copy of a shard's SQLite file, compressed and cut into messages. Behind it the log can be
trimmed, and a node that is new or far behind begins with it.

A snapshot counts once its note is stored, which happens last. A file is installed only if its hash is that of
the note. A note is replaced only by the node that read it, so that two nodes can't lose each other's.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import logging
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from holdfast import private, seams
from holdfast.bus.connection import Connection
from holdfast.bus.errors import BusError
from holdfast.bus.protocol import Message
from holdfast.engines.cluster.address import ClusterAddress
from holdfast.engines.cluster.jetstream import (
    FOR_A_WHILE,
    HEARTBEAT_SECONDS,
    NO_STREAM,
    WRONG_SEQUENCE,
    Ack,
    ApiRefusal,
    JetStream,
    NoMajority,
)
from holdfast.engines.cluster.log import trim
from holdfast.engines.cluster.messages import HEADROOM, LogPlace, base_in
from holdfast.engines.cluster.replica import kept_place
from holdfast.engines.cluster.reports import SnapshotNote, node_reports
from holdfast.engines.cluster.shard import Shard
from holdfast.engines.sqlite.files import beside
from holdfast.engines.sqlite.sharing import StoreLock
from holdfast.errors import Busy, DatabaseError, HoldfastError, StorageFull, Unavailable

KEPT: Final = 2
"""The number of snapshots that are kept of a shard. The log is trimmed up to the older one."""
PART_BYTES: Final = 512 * 1024
UNDER_WAY: Final = 8
"""The number of parts that are sent before the first one is acknowledged."""
SECONDS: Final = 10.0
"""How long to ask JetStream for something. An election takes a few seconds."""
SILENCE_SECONDS: Final = 5 * HEARTBEAT_SECONDS
NO_MESSAGE: Final = 10037
FAR: Final = 20_000
"""The number of messages from which a snapshot is faster than the log."""
LOOK_SECONDS: Final = 30.0
"""How often a node looks whether a snapshot is due."""

_log = logging.getLogger("holdfast.cluster")
_notes = msgspec.json.Decoder(list[SnapshotNote])


class Snapshots:
    """The snapshots of a store.

    Args:
        address: The address of the cluster.
        connection: The connection.
        jetstream: JetStream over that connection.
    """

    def __init__(self, address: ClusterAddress, connection: Connection, jetstream: JetStream) -> None:
        self._address = address
        self._connection = connection
        self._jetstream = jetstream
        self._stream = f"{address.stream}_SNAPSHOTS"

    async def notes(self, shard: int) -> list[SnapshotNote]:
        """Return the snapshots of a shard that are kept, the newest first."""
        return (await self._last(shard))[0]

    async def store(self, path: Path, *, shard: int, seq: int, node: str) -> SnapshotNote:
        """Keep a file as the newest snapshot of a shard.

        Raises:
            Busy: Another node has stored one meanwhile.
            StorageFull: The servers have no room.
            Unavailable: JetStream refuses, or does not answer.
        """
        try:
            return await self._store(path, shard=shard, seq=seq, node=node)
        except (ApiRefusal, TimeoutError, BusError) as error:
            why = str(error) or "no answer in time"
            raise Unavailable(f"the snapshot could not be stored: {why}") from None

    async def _store(self, path: Path, *, shard: int, seq: int, node: str) -> SnapshotNote:
        await self._ensure()
        before, at = await self._last(shard)
        name = seams.token(8)
        digest = hashlib.sha256()
        acks: list[asyncio.Task[Ack]] = []
        first = stored = parts = 0
        size = (await seams.aside(path.stat)).st_size
        try:
            for piece in _pieces(path, digest, self._room):
                parts, stored = parts + 1, stored + len(piece)
                acks.append(asyncio.create_task(self._put(f"{shard}.{name}", piece, {"Hf-Part": str(parts)})))
                if len(acks) >= UNDER_WAY:
                    first = first or _stored(await acks[0])
                    _stored(await acks.pop(0))
                await asyncio.sleep(0)  # the parts are sent in order
            for ack in acks:
                first = first or _stored(await ack)
                _stored(await ack)
        finally:
            for ack in acks:
                ack.cancel()
        note = SnapshotNote(
            shard=shard,
            id=name,
            seq=seq,
            first=first,
            parts=parts,
            bytes=size,
            stored=stored,
            sha256=digest.hexdigest(),
            made_at=int(seams.wall() * 1000),
            node=node,
        )
        await self._replace_notes(shard, [note, *before[: KEPT - 1]], at)
        for old in before[KEPT - 1 :]:
            await self._api("STREAM.PURGE", {"filter": self._subject(f"{shard}.{old.id}")})
        return note

    async def fetch(self, note: SnapshotNote, target: Path) -> None:
        """Write a snapshot into a new file.

        Raises:
            DatabaseError: What arrived is not what was stored.
            Unavailable: It did not arrive whole. A part can be lost with the connection.
        """
        digest, restored = hashlib.sha256(), zlib.decompressobj()
        inbox = self._connection.new_inbox()
        messages: asyncio.Queue[Message] = asyncio.Queue()
        subscription = self._connection.listen(inbox, messages.put_nowait)
        subject = self._subject(f"{note.shard}.{note.id}")
        try:
            with os.fdopen(private.create(target), "wb") as file:
                await self._jetstream.consume(
                    self._stream, subject, start=note.first, inbox=inbox, seconds=SECONDS
                )
                for number in range(1, note.parts + 1):
                    part = await self._part(messages)
                    if part.header("Hf-Part") != str(number):
                        raise self._unfetched(f"its part {number} did not arrive")
                    data = restored.decompress(part.data)
                    digest.update(data)
                    await seams.aside(file.write, data)
                file.flush()
                await seams.aside(os.fsync, file.fileno())
        except (TimeoutError, BusError, ApiRefusal) as error:
            why = str(error) or "no answer in time"
            raise self._unfetched(why) from None
        except zlib.error:
            raise _damaged(note) from None
        finally:
            subscription.cancel()
        if digest.hexdigest() != note.sha256:
            raise _damaged(note)

    def _unfetched(self, why: str) -> NoMajority:
        return NoMajority(f"a snapshot of {self._address.name} could not be fetched: {why}")

    async def _part(self, messages: asyncio.Queue[Message]) -> Message:
        """Return the next part; answer the server's flow control meanwhile."""
        while True:
            async with asyncio.timeout(SILENCE_SECONDS):
                message = await messages.get()
            if not message.status:
                return message
            if answer := message.reply or message.header("Nats-Consumer-Stalled"):
                self._connection.send(answer, b"")

    async def _last(self, shard: int) -> tuple[list[SnapshotNote], int]:
        """Return the notes of a shard, and the sequence of the message that holds them."""
        try:
            stored = await self._api("STREAM.MSG.GET", {"last_by_subj": self._subject(str(shard))})
        except ApiRefusal as refused:
            if refused.code in (NO_STREAM, NO_MESSAGE):
                return [], 0
            kind = NoMajority if refused.code in FOR_A_WHILE else Unavailable
            raise kind(f"the snapshots of {self._address.name} can't be listed: {refused}") from None
        except (TimeoutError, BusError) as error:
            why = str(error) or "no answer in time"
            raise NoMajority(f"the snapshots of {self._address.name} can't be listed: {why}") from None
        return _notes.decode(base64.b64decode(stored["message"]["data"])), int(stored["message"]["seq"])

    async def _replace_notes(self, shard: int, notes: list[SnapshotNote], at: int) -> None:
        headers = {"Nats-Expected-Last-Subject-Sequence": str(at)}
        ack = await self._put(str(shard), msgspec.json.encode(notes), headers)
        if ack.error is not None and ack.error.err_code == WRONG_SEQUENCE:
            raise Busy("another node has stored a snapshot at the same time")
        _stored(ack)

    async def _ensure(self) -> None:
        body = {
            "name": self._stream,
            "subjects": [self._subject(">")],
            "storage": "file",
            "num_replicas": self._address.replicas,
            "retention": "limits",
            "discard": "new",
        }
        try:
            await self._api("STREAM.INFO", None)
        except ApiRefusal:
            try:
                await self._api("STREAM.CREATE", body)
            except ApiRefusal as refused:
                raise Unavailable(f"JetStream can't create the stream {self._stream}: {refused}") from None

    @property
    def _room(self) -> int:
        return min(PART_BYTES, self._connection.max_payload - HEADROOM)

    def _subject(self, rest: str) -> str:
        return self._address.subject("snapshot", rest)

    async def _put(self, rest: str, data: bytes, headers: dict[str, str]) -> Ack:
        return await self._jetstream.publish(self._subject(rest), [(headers, data)], seconds=SECONDS)

    async def _api(self, call: str, body: dict[str, Any] | None) -> Any:
        return await self._jetstream.settled(f"{call}.{self._stream}", body, seconds=SECONDS)


class SnapshotInstaller:
    """Replaces the replicas of a node by the newest snapshots, if the log does not reach back or is long.

    A replica is replaced only by a snapshot that is ahead of it, and only while no process has it open. The
    file that was there before is kept beside it.

    Args:
        address: The address of the cluster.
        jetstream: JetStream.
        snapshots: The snapshots of the store.
    """

    def __init__(self, address: ClusterAddress, jetstream: JetStream, snapshots: Snapshots) -> None:
        self._address = address
        self._jetstream = jetstream
        self._snapshots = snapshots

    async def install(self, shard: int, path: Path) -> bool:
        """Replace the file of a shard by the newest snapshot, if that helps. Return whether it was replaced.

        Raises:
            Unavailable: The snapshot can't be fetched, or another process has the file open.
            DatabaseError: The snapshot is damaged.
        """
        notes = await self._snapshots.notes(shard)
        if not notes:
            return False
        kept = await seams.aside(kept_place, path)
        newest = notes[0]
        if newest.seq <= kept.seq:
            return False
        if newest.seq - kept.seq < FAR and await self._log_has(shard, kept):
            return False
        _log.warning(
            "%s is at the message %s of the log: fetching the snapshot at %d", path, kept, newest.seq
        )
        await self._replace(newest, path)
        return True

    async def _log_has(self, shard: int, kept: LogPlace) -> bool:
        """Return whether the log still has the message after a place."""
        body = {"seq": max(1, kept.seq), "next_by_subj": self._address.subject("log", shard)}
        try:
            stored = await self._jetstream.settled(
                f"STREAM.MSG.GET.{self._address.stream}", body, seconds=SECONDS
            )
        except (ApiRefusal, TimeoutError, BusError) as refused:
            if isinstance(refused, ApiRefusal) and refused.code == NO_MESSAGE:
                return False
            why = str(refused) or "no answer in time"
            raise NoMajority(f"the log of {self._address.name} can't be read: {why}") from None
        message = stored["message"]
        return message["seq"] == kept.seq or base_in(base64.b64decode(message.get("hdrs", ""))) == kept.seq

    async def _replace(self, note: SnapshotNote, path: Path) -> None:
        fetched = path.with_name(f"{path.name}.fetched")
        lock = StoreLock(beside(path, ".lock"))
        if not lock.acquire():
            raise Unavailable(f"{path} is being written to by {lock.holder()}")
        try:
            fetched.unlink(missing_ok=True)
            await self._snapshots.fetch(note, fetched)
            replace_file(path, fetched)
        finally:
            fetched.unlink(missing_ok=True)
            lock.close()


class SnapshotMaker:
    """Makes snapshots of a node's shards, by hand and as the log grows, and trims the log behind them.

    The node that wrote last makes those that the log's growth asks for. The log is not trimmed past the
    slowest node that answers.

    Args:
        address: The address of the cluster.
        connection: The connection.
        jetstream: JetStream over that connection.
        snapshots: The snapshots of the store.
        node: The name of this life of this node.
    """

    def __init__(
        self,
        address: ClusterAddress,
        connection: Connection,
        jetstream: JetStream,
        *,
        snapshots: Snapshots,
        node: str,
    ) -> None:
        self._address = address
        self._connection = connection
        self._jetstream = jetstream
        self._snapshots = snapshots
        self._node = node
        self._busy = asyncio.Lock()

    async def make(self, shards: Sequence[Shard]) -> tuple[list[SnapshotNote], int]:
        """Make a snapshot of each shard and trim the log. Return the snapshots, and what was trimmed.

        Raises:
            HoldfastError: A file can't be copied, or JetStream refuses.
        """
        return await self._make(shards, of=len(shards))

    async def keep(self, shards: Sequence[Shard]) -> None:
        """Make snapshots as the log grows, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                if due := [shard for shard in shards if shard.lease.leads and await self._due(shard)]:
                    await self._make(due, of=len(shards))
            except (HoldfastError, TimeoutError, OSError) as error:
                _log.warning("no snapshot of %s was made: %s", self._address.name, error)

    async def _due(self, shard: Shard) -> bool:
        if not self._address.snapshot_every:
            return False
        notes = await self._snapshots.notes(shard.number)
        return shard.replica.at.seq - (notes[0].seq if notes else 0) >= self._address.snapshot_every

    async def _make(self, shards: Sequence[Shard], *, of: int) -> tuple[list[SnapshotNote], int]:
        """Make a snapshot of some shards of all, then trim the log."""
        async with self._busy:
            notes = [await self._made(shard) for shard in shards]
            return notes, await self._trimmed(of)

    async def _made(self, shard: Shard) -> SnapshotNote:
        copy = shard.replica.path.absolute().with_name(f"{shard.replica.path.name}.copy")
        for file in (copy, *copy.parent.glob(f".{copy.name}.*")):  # what a killed process has left
            await seams.aside(file.unlink, missing_ok=True)
        try:
            rescued = await shard.replica.file.rescue(str(copy))
            if rescued.trouble is not None:
                raise DatabaseError(f"{shard.replica.path} is damaged: {rescued.trouble}")
            seq = (await seams.aside(kept_place, copy)).seq
            return await self._snapshots.store(copy, shard=shard.number, seq=seq, node=self._node)
        finally:
            for suffix in ("", "-wal", "-shm"):
                copy.with_name(copy.name + suffix).unlink(missing_ok=True)

    async def _trimmed(self, shards: int) -> int:
        """Trim the log up to the oldest snapshots that are kept, and to the slowest node."""
        needed = []
        for number in range(shards):
            notes = await self._snapshots.notes(number)
            if not notes:
                return 0
            needed.append(notes[-1].seq)
        for one in await node_reports(self._connection, self._address):
            needed += [shard.seq for shard in one.report.shards]
        return await trim(self._address, self._jetstream, needed=min(needed))


def replace_file(path: Path, new: Path) -> None:
    """Put a new file in the place of a replica, and keep the old one beside it."""
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.replace(f"{path}{suffix}", f"{path}.replaced{suffix}")
    os.replace(new, path)


def _pieces(path: Path, digest: Any, room: int) -> Iterator[bytes]:
    """Yield a file's bytes, compressed, in pieces of at most so many bytes; hash the bytes as they are."""
    packed, rest = zlib.compressobj(1), b""
    with path.open("rb") as file:
        while data := file.read(PART_BYTES):
            digest.update(data)
            rest += packed.compress(data)
            while len(rest) > room:
                yield rest[:room]
                rest = rest[room:]
    rest += packed.flush()
    for start in range(0, len(rest), room):
        yield rest[start : start + room]


def _stored(ack: Ack) -> int:
    if ack.error is not None:
        raise StorageFull(f"the NATS servers refuse the snapshot: {ack.error.description}")
    return ack.seq


def _damaged(note: SnapshotNote) -> DatabaseError:
    return DatabaseError(f"the snapshot {note.id} of shard {note.shard} is damaged: make a new one")
