"""What every engine implements, and the properties by which a store treats one differently from another.

`holdfast.engine` explains how.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from holdfast import rules
from holdfast.commands import Command
from holdfast.decide import Outcome
from holdfast.engine.queries import Due, JournalPage, JournalQuery, Scan, Scanned, Totals
from holdfast.model import Policy
from holdfast.rows import Address, Row

if TYPE_CHECKING:
    from holdfast.audit.chain import SigningKeys


class Later(Enum):
    """The type of `LATER`: the answer is not available without waiting."""

    LATER = "later"


LATER: Final = Later.LATER


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of an engine that a store must know."""

    durable: bool = True
    """Acknowledged writes survive the process."""
    multi_process: bool = False
    """Other processes may write to the same storage at the same time."""
    lane_per_namespace: bool = False
    """Groups of different namespaces may be in flight together, and each group holds a single namespace."""
    owns_reaper: bool = False
    """Another process expires the entries."""
    glances: bool = False
    """Entries can be read without waiting, except at rare moments."""


class Engine(Protocol):
    """Storage for rows, without rules. Times are milliseconds since 1970."""

    @property
    def keys(self) -> SigningKeys:
        """The keys that sign the audit."""
        ...

    defaults: Policy | None
    """The quotas for namespaces whose policy sets none, for `decide`. The store sets it before `start`."""

    @property
    def capabilities(self) -> Capabilities:
        """The properties of this engine."""
        ...

    async def start(self) -> None:
        """Connect to the storage, and create or migrate it where needed."""
        ...

    async def transact(self, commands: Sequence[Command], now: Callable[[], int]) -> Outcome:
        """Apply a group in one transaction.

        The outcome has a result per command, or the error that refused it. `now` returns the time and may be
        called from any thread. Call it once everything is loaded, and again for each further attempt, so that
        deadlines are judged by the current time.
        """
        ...

    def glance(self, addresses: Sequence[Address], now: int) -> list[Row | None] | Later:
        """Return what `read` would for entries if that needs no waiting, else `LATER`."""
        ...

    async def read(self, addresses: Sequence[Address], now: int) -> list[Row | None]:
        """Return the rows at these addresses that are alive, by position."""
        ...

    async def scan(self, query: Scan, now: int) -> Scanned:
        """Return the live rows of a range of keys."""
        ...

    async def due(self, space: str, now: int, *, limit: int, namespace: str | None = None) -> list[Due]:
        """Return rows of a space whose deadline is not later than `now`, the longest overdue first."""
        ...

    async def falling_due(self, since: int, until: int, *, limit: int) -> list[Due]:
        """Return entries with semantics, and those of the semantic family, by deadline, the earliest first.

        The deadline is later than `since` and not later than `until`. The cost may grow with the number of
        entries of all kinds that have such a deadline, but not with that of entries overdue for longer.
        """
        ...

    async def journal(self, query: JournalQuery) -> JournalPage:
        """Return records of a namespace's journal."""
        ...

    async def totals(self, now: int, *, namespace: str | None = None) -> list[Totals]:
        """Return the row of a namespace (none if it has never been written to) or of all, by name."""
        ...

    async def owners(self, space: str) -> list[str]:
        """Return the namespaces with rows in a space other than `kv`, by name, also those without a row."""
        ...

    async def ready(self) -> None:
        """Check that a write would be accepted now, and raise the error that would refuse it."""
        ...

    async def aclose(self) -> None:
        """Finish all accepted work and release the storage."""
        ...


def loadable(commands: Sequence[Command]) -> int | None:
    """Return how many bytes of values may be loaded for these commands; None if there is no limit.

    A group has room for several requests. A group that needs more is refused, then executed command by
    command.
    """
    if len(commands) > 1:
        return 4 * rules.MAX_LOADED_BYTES
    return rules.MAX_LOADED_BYTES if commands[0].weighed else None


def no_hint() -> None:
    """Do nothing. An engine without hints returns this as the function that stops them."""
