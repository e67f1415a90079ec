"""Bringing a replica up to the newest snapshot, if the log does not reach back to it or is long.

Law: a replica is replaced only by a snapshot that is ahead of it, and only while no process has it open. The
file that was there before is kept beside it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import os
from typing import TYPE_CHECKING, Final

from holdfast.bus.errors import BusError
from holdfast.engines.cluster.jetstream import ApiRefusal, NoMajority
from holdfast.engines.cluster.messages import base_in
from holdfast.engines.cluster.replica import kept_place
from holdfast.engines.cluster.snapshots import NO_MESSAGE
from holdfast.engines.sqlite.files import WriterLock
from holdfast.errors import Unavailable

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.engines.cluster.address import ClusterAddress
    from holdfast.engines.cluster.jetstream import JetStream
    from holdfast.engines.cluster.messages import LogPlace
    from holdfast.engines.cluster.reports import SnapshotNote
    from holdfast.engines.cluster.snapshots import Snapshots

FAR: Final = 20_000
"""The number of messages from which a snapshot is faster than the log."""
SECONDS: Final = 10.0
"""How long to ask for a message. An election takes a few seconds."""

_log = logging.getLogger("holdfast.cluster")


class Bringer:
    """Brings the replicas of a node up to the newest snapshots.

    Args:
        address: The address of the cluster.
        jetstream: JetStream.
        snapshots: The snapshots of the store.
    """

    def __init__(self, address: ClusterAddress, jetstream: JetStream, snapshots: Snapshots) -> None:
        self._address = address
        self._jetstream = jetstream
        self._snapshots = snapshots

    async def bring(self, shard: int, path: Path) -> bool:
        """Replace the file of a shard by the newest snapshot, if that helps. Return whether it was replaced.

        Raises:
            Unavailable: The snapshot can't be fetched, or another process has the file open.
            DatabaseError: The snapshot is damaged.
        """
        notes = await self._snapshots.notes(shard)
        if not notes:
            return False
        kept = await asyncio.to_thread(kept_place, path)
        newest = notes[0]
        if newest.seq <= kept.seq:
            return False
        if newest.seq - kept.seq < FAR and await self._log_has(shard, kept):
            return False
        _log.warning(
            "%s is at the message %s of the log: fetching the snapshot at %d", path, kept, newest.seq
        )
        await self._install(newest, path)
        return True

    async def _log_has(self, shard: int, kept: LogPlace) -> bool:
        """Return whether the log still has the message after a place."""
        body = {"seq": max(1, kept.seq), "next_by_subj": self._address.subject("log", shard)}
        try:
            told = await self._jetstream.settled(
                f"STREAM.MSG.GET.{self._address.stream}", body, seconds=SECONDS
            )
        except (ApiRefusal, TimeoutError, BusError) as refused:
            if isinstance(refused, ApiRefusal) and refused.code == NO_MESSAGE:
                return False
            why = str(refused) or "no answer in time"
            raise NoMajority(f"the log of {self._address.name} can't be read: {why}") from None
        message = told["message"]
        return message["seq"] == kept.seq or base_in(base64.b64decode(message.get("hdrs", ""))) == kept.seq

    async def _install(self, note: SnapshotNote, path: Path) -> None:
        fetched = path.with_name(f"{path.name}.fetched")
        lock = WriterLock(path.with_name(f"{path.name}.lock"))
        if not lock.acquire():
            raise Unavailable(f"{path} is being written to by {lock.holder()}")
        try:
            fetched.unlink(missing_ok=True)
            await self._snapshots.fetch(note, fetched)
            _replace(path, fetched)
        finally:
            fetched.unlink(missing_ok=True)
            lock.release()


def _replace(path: Path, new: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.replace(f"{path}{suffix}", f"{path}.replaced{suffix}")
    os.replace(new, path)
