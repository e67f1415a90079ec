"""Abilities that only some engines have, each a protocol of its own.

A store asks with `isinstance` whether an engine has the methods. An engine without them lacks the ability and
imitates nothing. `holdfast.engine.raw` has one more: `Movable`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from holdfast.audit.keyring import Keyring
from holdfast.clock import KeptLine, Reading, SystemClock
from holdfast.engine.contract import Engine, Later
from holdfast.model import Rescued
from holdfast.rows import Address, Row


@runtime_checkable
class LocalFile(Protocol):
    """An optional interface for engines whose storage is a file of this machine."""

    cache_bytes: int
    """How much memory rows may take, so that they need not be read again. A store sets it before `start`."""

    def peek(self, address: Address, now: int) -> Row | Later | None:
        """Return an entry that is alive as `read` would, or `LATER` if the loop has to be asked.

        It may be called from any thread, and sees every write whose result was returned before the call.
        """
        ...

    def announce(self, url: str) -> None:
        """Tell other processes of this machine where the store is served. The URL must hold no secrets."""
        ...

    def follow(self, changed: Callable[[Sequence[tuple[str, int]]], None]) -> Callable[[], None]:
        """Call `changed` with the newest version of every namespace, soon, and when other processes write.

        Returns a function that stops that.
        """
        ...

    def publishes(self, bus: str) -> bool:
        """Return whether this process, of all that have the file open, publishes its changes on a bus.

        Asking tries to take this over from a process that has ended.
        """
        ...

    def leads_upkeep(self) -> bool:
        """Return whether this process, of all that have the file open, removes what has expired.

        Asking tries to take this over from a process that has ended or is stopped. So only a process that
        does the work may ask, and it must go on asking at least every second.
        """
        ...

    async def rescue(self, path: str) -> Rescued:
        """Copy everything from the open storage into a new file, whatever is at its own path now.

        Raises:
            ValidationError: The path can't be used: a file exists there, or its folder does not exist.
            Busy: Another long read of the storage is under way.
        """
        ...


def does_upkeep(engine: Engine) -> bool:
    """Return whether this process removes what has expired now; see `LocalFile.leads_upkeep`."""
    if engine.capabilities.owns_reaper:
        return False
    return not isinstance(engine, LocalFile) or engine.leads_upkeep()


class ClusterFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What a node knows of its cluster. Numbers by shard are those of this node."""

    nodes: int
    """The nodes that answered at the last look, this one included."""
    skew: float
    """The seconds by which the clocks of the nodes differ at most."""
    behind: dict[int, int]
    """The messages of the log that are not applied yet."""
    leads: dict[int, bool]
    """Whether this node was the last to write."""
    stopped: dict[int, bool]
    """Whether this node does not serve the shard."""


@runtime_checkable
class SharedStorage(Protocol):
    """An optional interface for engines whose storage other machines use too."""

    def hint(self, namespace: str, ring: Callable[[], None]) -> Callable[[], None] | None:
        """Call `ring` when others may have changed a namespace.

        Returns a function that stops that. May do nothing and return None: changes are also found by polling,
        and waiters for a lock then poll more often.
        """
        ...

    async def clock(self, ticks: Callable[[], float]) -> Reading | None:
        """Read the storage's own clock at a tick; None if it has no clock or its time is unknown."""
        ...

    def figures(self) -> ClusterFigures | None:
        """Return what this node knows of its cluster, without asking anyone; None if there is no cluster."""
        ...


class CannotShareTransaction(Exception):
    """The groups of several namespaces can't share a transaction now. Nothing was written."""


@runtime_checkable
class Sharer(Protocol):
    """An optional interface for engines with a lane per namespace whose transactions can hold several.

    `transact` then also gets commands of several namespaces, plain changes of keys and nothing else. All of
    them are kept or none. It may raise `CannotShareTransaction` instead, and then gets the commands of each
    namespace alone.
    """

    shared: int
    """The maximum number of namespaces in one transaction."""

    def shares(self, namespace: str) -> bool:
        """Return whether commands of a namespace may share a transaction with those of others now."""
        ...


@runtime_checkable
class LineKeeper(Protocol):
    """An optional interface for engines whose store has the time of the machine that it is open on.

    The time that a store remembers is up to a second old. A line is exact: a process that is started after
    another one was killed goes on from the very time that the other one had reached.
    """

    async def kept_line(self) -> KeptLine | None:
        """Return the line of the clock that the store was or is open with, or None if none is kept."""
        ...

    async def agree_on_line(self, clock: SystemClock) -> KeptLine | None:
        """Keep the line of a clock before it is used, unless other processes have the store open.

        Returns the line that this process must go by. Its `opened` is None, or the line is None, if this
        process may not write: it has to ask again from time to time.

        Raises:
            Unsupported: The clocks of the other processes can't be compared with this one.
        """
        ...

    async def close_line(self, clock: SystemClock) -> None:
        """Keep that the store is closed: nobody was answered with a later time than this clock has now."""
        ...


@runtime_checkable
class DurableStorage(Engine, Protocol):
    """An optional interface for engines whose storage outlives the process. A durable engine has it.

    The storage remembers the latest time that callers were answered with, so that time does not go back when
    it is opened again. It may then be opened with other keys, so it also keeps the names of the keys that
    have signed its audit, with the current one last. Names are not secret.
    """

    @property
    def keys(self) -> Keyring:
        """The keys that sign the audit."""
        ...

    async def remembered(self) -> int:
        """Return the latest time that the storage knows, either remembered or that of a change."""
        ...

    async def remember(self, now: int) -> int:
        """Remember a time if it is the latest and this process may write. Returns the latest time kept."""
        ...

    async def kept_keys(self) -> list[str]:
        """Return the names that are kept; none if the store has never signed."""
        ...

    async def keep_keys(self, names: Sequence[str], *, before: Sequence[str]) -> list[str]:
        """Replace the kept names if they equal `before`. Returns the names kept afterwards."""
        ...
