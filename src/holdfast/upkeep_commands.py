"""The commands that the store gives itself, to remove what has expired or was kept long enough.

No caller can make one.
"""

from __future__ import annotations

from holdfast.commands import LEAST_COST, Command


class BindKey(Command, frozen=True, kw_only=True, gc=False):
    """Sign the audit with the newest key from now on, if another key has signed it so far."""


class PruneAudit(Command, frozen=True, kw_only=True, gc=False):
    """Drop the audit's records from number `first`, which must be the oldest, up to and including `upto`."""

    first: int
    upto: int

    @property
    def rows(self) -> int:
        """Number of rows that this concerns."""
        return self.upto - self.first + 1


class Expire(Command, frozen=True, kw_only=True, gc=False):
    """Expire the rows at these keys of a space if they are past their deadline.

    `before` also expires rows early whose deadline is not later than it. This thins out records of which only
    a limited number is kept. It has no effect on entries.
    """

    space: str
    keys: tuple[str | bytes, ...]
    before: int | None = None

    @property
    def cost(self) -> int:
        """Approximate size in bytes."""
        return 2 * LEAST_COST * len(self.keys)

    @property
    def rows(self) -> int:
        """Number of rows that this concerns."""
        return len(self.keys)

    @property
    def removes(self) -> bool:
        """True if this only removes."""
        return True


class ExpireRun(Command, frozen=True, kw_only=True, gc=False):
    """Expire at most `limit` plain entries that are past their deadline, the longest overdue first.

    It does nothing if expired entries may leave more than a record. It skips entries that have semantics or
    were written past the triggers; `Expire` handles those. It shares a group only with commands of its own
    kind.
    """

    limit: int

    @property
    def removes(self) -> bool:
        """True if this only removes."""
        return True


class Trim(Command, frozen=True, kw_only=True, gc=False):
    """Drop the journal's records up to and including a version."""

    upto: int

    @property
    def removes(self) -> bool:
        """True if this only removes."""
        return True


class Recount(Command, frozen=True, kw_only=True, gc=False):
    """Correct the counters of a namespace's contents, in case SQL has changed those."""
