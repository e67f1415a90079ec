"""A replica: the file of one shard, and how far it has followed the log.

An outcome and its place in the log are saved in one transaction, so every message is applied once. A message
whose predecessor is not the last one applied here means that the log lost or forked something: the
replica then stops for good and keeps its file.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from holdfast.audit.keyring import Keyring
from holdfast.decide import Outcome
from holdfast.engine.raw import UNFINISHED
from holdfast.engines.cluster.messages import Logged, LogPlace, Unreadable, decode_body, loaded_namespaces
from holdfast.engines.cluster.write_queue import NOTHING
from holdfast.engines.sqlite import SqliteEngine
from holdfast.engines.sqlite import sql as statements
from holdfast.engines.sqlite.errors import translated
from holdfast.engines.sqlite.setup import connect
from holdfast.engines.sqlite.sql import Statement
from holdfast.engines.sqlite.writer import Stale
from holdfast.errors import DatabaseError, Unavailable
from holdfast.model import Policy

_KEPT: Final = "SELECT value FROM holdfast_meta WHERE name = 'log'"
_FACTS: Final = "SELECT name, value FROM holdfast_meta WHERE name IN ('closed', 'store_epoch')"
_KEEP: Final = (
    "INSERT INTO holdfast_meta (name, value) VALUES ('log', ?) ON CONFLICT (name) DO UPDATE "
    "SET value = excluded.value"
)


class Differs(DatabaseError):
    """This node's replica and the log contradict each other."""


class LogGap(Differs):
    """The log lacks messages that this replica needs next. It may have been trimmed."""


class ClosedToWrites(Unavailable):
    """The store is closed. It may be opened again."""


class ReplicaStatus(msgspec.Struct, frozen=True):
    """What a replica knows of the store as a whole.

    `closed` is the reason for which it accepts no writes.
    """

    closed: str | None = None
    epoch: str | None = None

    @property
    def unfinished(self) -> bool:
        """True while the store can't be used, because a load is not complete."""
        return self.closed is not None and self.closed.startswith(UNFINISHED)

    def require_finished(self, store: str) -> None:
        """Refuse to use a store into which a load is under way.

        Raises:
            Unavailable: The load is not complete.
        """
        if self.unfinished:
            raise Unavailable(f"the store {store} can't be used yet: {self.closed}")

    def require_open(self, store: str) -> None:
        """Refuse to write to a store that is closed.

        Raises:
            ClosedToWrites: The store is closed.
        """
        if self.closed is not None:
            raise ClosedToWrites(f"the store {store} accepts no writes: {self.closed}")


def status_of(facts: Iterable[Sequence[str]]) -> ReplicaStatus:
    """Build the status from the names and values of a replica's table of facts."""
    values = {name: value for name, value in facts}  # noqa: C416 - rows are sequences of two
    return ReplicaStatus(values.get("closed"), values.get("store_epoch"))


class Replica:
    """The file of a shard on this node.

    Args:
        path: The file.
        keys: The keys that sign the audit.
        epoch: The epoch of the store, which the stream names.
        changed: Called with the names of the namespaces that another node has changed.
        inspect: Begins to read the contents right after a message, for the node that asked for that.
        install: Replaces the file, while it is closed, by the newest snapshot if that helps. Returns whether
            it did.
        defaults: The default limits of namespaces.
    """

    def __init__(
        self,
        path: Path,
        keys: Keyring,
        *,
        epoch: str,
        changed: Callable[[Iterable[str]], None],
        inspect: Callable[[LogPlace, str], Awaitable[None]],
        install: Callable[[], Awaitable[bool]],
        defaults: Policy | None = None,
    ) -> None:
        self.path = path
        self._keys = keys
        self._epoch = epoch
        self._defaults = defaults
        self._inspect = inspect
        self._install = install
        self.file = self._new_file()
        self.opened = False
        """False while the file is closed: before it is opened, and if it could not be opened again."""
        self.at = LogPlace()
        self.latest = 0
        """The sequence of the last message that the file may show. It is ahead of `at` while one is saved."""
        self.status = ReplicaStatus()
        self.moved = asyncio.Event()
        """Replaced and set whenever a message was applied."""
        self._changed = changed
        self._saving = asyncio.Lock()
        self._unsure = False
        """True if a save was cancelled, and the file may be further than `at`."""
        self._delivered = LogPlace()
        self._skipped = 0
        """The sequence up to which the last snapshot has brought what the log has."""
        self._own: tuple[str, Outcome, Sequence[Statement], str] | None = None

    async def open(self) -> None:
        """Open the file, or make it. If a snapshot is far ahead of it, open that instead.

        Raises:
            Unavailable: Another process has the file open, or the snapshot can't be fetched.
            Differs: The file belongs to another store.
        """
        await self._install()
        await self._open()

    async def _open(self) -> None:
        self.opened = True
        try:
            await self._read()
        except BaseException:
            await self.close()
            raise

    async def _read(self) -> None:
        """Open the file and learn from it how far it is."""
        await self.file.start()
        await self.file.ready()
        if self.file.epoch != self._epoch:
            raise Differs(
                f"{self.file.path} is a replica of another store (epoch {self.file.epoch}); the log of this "
                f"one has the epoch {self._epoch}. Name another folder with data= in the URL"
            )
        await self._read_place()
        self._unsure = False

    async def _read_place(self) -> None:
        for (text,) in await self.file.fetch(_KEPT):
            self.at = _place(text)
        self.latest = self.at.seq
        await self._read_status()

    async def renew(self) -> bool:
        """Close the file, install a newer snapshot, and open it again. Return whether there was one.

        After an error the file may be closed. `reopen` opens it.
        """
        async with self._saving:
            await self.close()
            try:
                return await self._install()
            finally:
                await self._open_again()

    async def reopen(self) -> bool:
        """Open the file if it is closed because `renew` could not open it. Return whether that was so."""
        async with self._saving:
            if self.opened:
                return False
            await self._open_again()
            return True

    async def _open_again(self) -> None:
        self.file, before = self._new_file(), self.at
        try:
            await self._open()
        except OSError as error:
            why = (error.strerror or "the disk failed").lower()
            raise Unavailable(f"{self.path} can't be opened: {why}") from error
        if self.at != before:
            self._skipped = self.at.seq
        moved, self.moved = self.moved, asyncio.Event()
        moved.set()

    def expect(self, name: str, outcome: Outcome, also: Sequence[Statement], check: str = "") -> None:
        """Remember the outcome of a message that this node is publishing, so that it need not be decoded."""
        self._own = (name, outcome, also, check)
        self._delivered = LogPlace()

    def stored(self, name: str) -> LogPlace | None:
        """Return the place of a message that this node publishes, if the consumer has brought it."""
        return self._delivered if self._delivered.id == name else None

    def skipped_from(self, seq: int) -> bool:
        """Return whether a snapshot has brought what the log has after a place, and not the consumer."""
        return self._skipped > seq

    def lost(self) -> LogGap:
        """Return the error for a log that lacks what this replica has applied, or what comes next."""
        return LogGap(self._contradicts("the log lacks that message or the one after it").message)

    async def take(self, entry: Logged) -> bool:
        """Apply a message of the log. Return False if one before it is missing.

        Raises:
            Differs: The message does not continue what this replica has applied.
        """
        if entry.place.seq < self.at.seq:  # a new consumer begins with what was applied
            return True
        if entry.place.seq == self.at.seq:
            if entry.place != self.at:
                raise self._contradicts(f"the log has the message {entry.place} at its place")
            return True
        if entry.base.seq > self.at.seq:
            return False
        if entry.base != self.at:
            raise self._contradicts(f"the log continues {entry.base} with {entry.place}")
        own = self._own
        if own is not None and own[0] == entry.place.id:
            await self.apply(entry.place, own[1], own[2], check=own[3])
            self._delivered = entry.place  # by now this node may be publishing the next one
            return True
        try:
            body = decode_body(entry.data)
            also = body.statements()
        except (Unreadable, KeyError) as error:
            raise Unavailable(
                f"this version of Holdfast can't read the message {entry.place} of the log ({error}): "
                "upgrade this node"
            ) from None
        outcome = body.outcome()
        await self.apply(entry.place, outcome, also, check=entry.check)
        self._changed([*(namespace.name for namespace in outcome.namespaces), *loaded_namespaces(body.load)])
        return True

    async def apply(
        self, place: LogPlace, outcome: Outcome, also: Sequence[Statement] = (), *, check: str = ""
    ) -> None:
        """Save an outcome and its place in the log, unless that was done.

        Raises:
            Differs: Another program has written to the file.
            Unavailable: The file is closed.
        """
        async with self._saving:
            await self._settle()
            if place.seq <= self.at.seq:
                return
            if not self.opened:
                raise Unavailable(f"{self.path} is not open")
            self.latest = place.seq  # from here on the file may show it, also if the save seems to fail
            try:
                kept = (_KEEP, [f"{place.seq} {place.id}"])
                await self.file.save(outcome, _before, self.file.version, also=[*also, kept])
                if also:
                    self.file.forget()
                    await self._read_status()
            except Stale:
                raise self._contradicts("another program has written to the file") from None
            except asyncio.CancelledError:
                self._unsure = True  # the thread goes on with it
                raise
            self.at = place
            if check:
                await self._inspect(place, check)
            moved, self.moved = self.moved, asyncio.Event()
            moved.set()

    async def settle(self) -> None:
        """Learn how far the file is, if the program has cancelled all its tasks during a save."""
        if self._unsure:
            async with self._saving:
                await self._settle()

    async def _settle(self) -> None:
        if self._unsure and self.opened:
            await self.file.save(NOTHING, _before, self.file.version)  # after what was cancelled
            self.file.forget()
            await self._read_place()
            self._unsure = False

    async def reach(self, seq: int) -> None:
        """Wait until the log is applied up to a sequence."""
        while self.at.seq < seq:
            await self.moved.wait()

    async def close(self) -> None:
        """Close the file, if it is open."""
        if self.opened:
            await self.file.aclose()
            self.opened = False  # if that was cancelled, the next call waits until it is done

    async def _read_status(self) -> None:
        """Learn what the file says about the store as a whole."""
        self.status = status_of(await self.file.fetch(_FACTS))
        self.file.epoch = self.status.epoch or self._epoch

    def _new_file(self) -> SqliteEngine:
        file = SqliteEngine(self.path, self._keys, sync="NORMAL", epoch=self._epoch, exclusive=True)
        file.open_unfinished()  # a replica takes part in the loading
        file.defaults = self._defaults
        return file

    def _contradicts(self, what: str) -> Differs:
        return Differs(
            f"{self.file.path} has applied the log up to {self.at}, but {what}: this replica has stopped and "
            "keeps its file. Compare it with the other nodes; to replace it, move it away and start again"
        )


def kept_epoch(path: Path) -> str | None:
    """Return the epoch of the replica in a file; None if there is no file, or nothing in it yet."""
    return _fact(path, statements.EPOCH)


def kept_place(path: Path) -> LogPlace:
    """Return the place in the log of the replica in a file."""
    return _place(_fact(path, _KEPT) or f"0 {LogPlace().id}")


def _place(text: str) -> LogPlace:
    seq, _, name = text.partition(" ")
    return LogPlace(int(seq), name)


def _fact(path: Path, query: str) -> str | None:
    """Return the single value that a query finds; None if there is none, or no file."""
    if not path.exists():
        return None
    try:
        connection = connect(path, patience=5)
    except sqlite3.Error as error:
        raise translated(error, str(path)) from error
    with contextlib.closing(connection), contextlib.suppress(sqlite3.Error):
        row = connection.execute(query).fetchone()
        return None if row is None else str(row[0])
    return None


def _before() -> int:
    """Return a time before every deadline: what is in the log is saved, however late."""
    return 0
