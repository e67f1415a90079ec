"""The bytes of bodies that are held for all connections together.

A body is held from the arrival of its first byte until its request is answered, or until the application has
taken it in parts.

Law: while too much is held, no connection that holds a part of it is read, except the one that has held its
part longest, until its body is whole. So memory is bounded, bodies that arrive together all arrive in the
end, and a request with a short body waits for none of them.
"""

from __future__ import annotations

from typing import Final, Protocol

BODIES: Final = 16
"""Number of bodies of the maximum size that are held at once."""


class Holder(Protocol):
    """A connection."""

    def read_soon(self) -> None:
        """Read on, if there is room now."""
        ...


class Bodies:
    """The count of what is held, and the connections that wait for room.

    Args:
        largest: Maximum size of a body.
    """

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._most = BODIES * largest
        self._held = 0
        self._holders: dict[Holder, int] = {}  # the one that has held its part longest is first
        self._waiting: dict[Holder, None] = {}

    def hold(self, holder: Holder, size: int) -> None:
        """Count bytes that have arrived."""
        self._held += size
        self._holders[holder] = self._holders.get(holder, 0) + size

    def release(self, holder: Holder, size: int | None = None) -> None:
        """Count bytes as gone, all of the holder's if no size is given, and let others read on."""
        held = self._holders.get(holder, 0)
        gone = held if size is None else min(size, held)
        if not gone:
            return
        self._held -= gone
        if held > gone:
            self._holders[holder] = held - gone
        else:
            del self._holders[holder]
        waiting, self._waiting = self._waiting, {}
        for one in waiting:
            one.read_soon()

    def crowd_out(self, holder: Holder) -> bool:
        """Return whether reading from a connection must pause. It is resumed when there is room."""
        if self._held < self._most:
            return False
        held = self._holders.get(holder, 0)
        if not held or (held < self._largest and next(iter(self._holders)) is holder):
            return False
        self._waiting[holder] = None
        return True
