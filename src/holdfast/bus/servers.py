"""The servers that a connection tries, with their order, timeouts and delays.

Law: the servers that the user named come first. The servers that another server announces are bounded, and
can't keep a client from the named ones.
"""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING, Final

from holdfast.bus.login import server_at, servers_beside

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.bus.login import Server

MOST_TOLD: Final = 32
"""The maximum number of announced servers that are remembered."""
TOLD_IN_A_ROUND: Final = 4
"""The number of announced servers to try before the named ones are tried again."""
ATTEMPT_SECONDS: Final = 5.0
"""Timeout for a server that the user named."""
TOLD_SECONDS: Final = 1.0
"""Timeout for an announced server."""
PAUSE_SECONDS: Final = 1.0
"""The average interval between attempts at the same server."""
SPREAD_SECONDS: Final = 0.1
"""The time over which clients that lost their server together spread their first attempts."""

_chance = random.SystemRandom()


class Servers:
    """The servers of a connection.

    Args:
        named: The addresses that the user gave.

    Raises:
        BusError: One of them is not an address.
    """

    def __init__(self, named: Sequence[str]) -> None:
        self.named: list[Server] = [server_at(one) for one in named]
        self._told: deque[Server] = deque(maxlen=MOST_TOLD)
        self.latest: Server | None = None

    def hear(self, server: Server, told: Sequence[str], *, encrypted: bool) -> None:
        """Replace the announced servers by those that a server announces now."""
        known = {(one.host, one.port) for one in self.named}
        self._told.clear()
        for one in servers_beside(server, told[:MOST_TOLD], encrypted=encrypted):
            if (one.host, one.port) not in known:
                self._told.append(one)

    def round(self, *, but: Server | None = None) -> list[Server]:
        """Return the servers to try now: all named ones, then a few of the announced ones, in rotation.

        Of the named ones, the server that was used last comes last.

        Args:
            but: A server to leave out.
        """
        named = sorted(self.named, key=lambda one: one == self.latest)
        told = list(self._told)[:TOLD_IN_A_ROUND]
        self._told.rotate(-TOLD_IN_A_ROUND)
        return [one for one in (*named, *told) if but is None or (one.host, one.port) != (but.host, but.port)]


def patience(server: Server) -> float:
    """Return the timeout for a server."""
    return TOLD_SECONDS if server.told else ATTEMPT_SECONDS


def pause(since: float) -> float:
    """Return the delay before the next round, given the seconds since the last attempt.

    The delay is random, so that clients that lost their server together don't reconnect together.
    """
    soonest = _chance.uniform(0.0, SPREAD_SECONDS)
    return max(soonest, PAUSE_SECONDS * _chance.uniform(0.5, 1.5) - since)
