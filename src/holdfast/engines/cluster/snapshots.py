"""Snapshots of shards: files that hold everything up to a place in the log, kept in a stream of their own.

A snapshot is a copy of a shard's SQLite file, compressed and cut into messages. Behind it the log can be
trimmed, and a node that is new or far behind begins with it.

Law: a snapshot counts once its note is stored, which happens last. A file is installed only if its hash is
that of the note. A note is replaced only by the node that read it, so that two nodes can't lose each other's.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import secrets
import time
import zlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast import private
from holdfast.bus.errors import BusError
from holdfast.engines.cluster.jetstream import (
    FOR_A_WHILE,
    HEARTBEAT_SECONDS,
    NO_STREAM,
    WRONG_SEQUENCE,
    ApiRefusal,
    NoMajority,
)
from holdfast.engines.cluster.messages import HEADROOM
from holdfast.engines.cluster.reports import SnapshotNote
from holdfast.errors import Busy, DatabaseError, StorageFull, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.bus.connection import Connection
    from holdfast.bus.protocol import Message
    from holdfast.engines.cluster.address import ClusterAddress
    from holdfast.engines.cluster.jetstream import Ack, JetStream

KEPT: Final = 2
"""The number of snapshots that are kept of a shard. The log is trimmed up to the older one."""
PART_BYTES: Final = 512 * 1024
UNDER_WAY: Final = 8
"""The number of parts that are sent before the first one is acknowledged."""
SECONDS: Final = 10.0
SILENCE_SECONDS: Final = 5 * HEARTBEAT_SECONDS
NO_MESSAGE: Final = 10037

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
        name = secrets.token_hex(8)
        digest = hashlib.sha256()
        acks: list[asyncio.Task[Ack]] = []
        first = stored = parts = 0
        size = (await asyncio.to_thread(path.stat)).st_size
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
            made_at=int(time.time() * 1000),
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
            Unavailable: It did not arrive.
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
                        raise _damaged(note)
                    data = restored.decompress(part.data)
                    digest.update(data)
                    await asyncio.to_thread(file.write, data)
                file.flush()
                await asyncio.to_thread(os.fsync, file.fileno())
        except (TimeoutError, BusError, ApiRefusal) as error:
            why = str(error) or "no answer in time"
            raise NoMajority(f"a snapshot of {self._address.name} could not be fetched: {why}") from None
        except zlib.error:
            raise _damaged(note) from None
        finally:
            subscription.cancel()
        if digest.hexdigest() != note.sha256:
            raise _damaged(note)

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
            told = await self._api("STREAM.MSG.GET", {"last_by_subj": self._subject(str(shard))})
        except ApiRefusal as refused:
            if refused.code in (NO_STREAM, NO_MESSAGE):
                return [], 0
            kind = NoMajority if refused.code in FOR_A_WHILE else Unavailable
            raise kind(f"the snapshots of {self._address.name} can't be listed: {refused}") from None
        except (TimeoutError, BusError) as error:
            why = str(error) or "no answer in time"
            raise NoMajority(f"the snapshots of {self._address.name} can't be listed: {why}") from None
        return _notes.decode(base64.b64decode(told["message"]["data"])), int(told["message"]["seq"])

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
