"""Which servers a connection tries, in which order, for how long and how soon.

Law: the servers that the user named come first. What a server tells of others is bounded, and can't keep
anybody from those.
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
"""How many servers that another one tells of are remembered."""
TOLD_IN_A_ROUND: Final = 4
"""How many of those are tried before the user's own are tried again."""
ATTEMPT_SECONDS: Final = 5.0
"""For how long a server that the user named is waited for."""
TOLD_SECONDS: Final = 1.0
"""For how long one that another server told of is waited for."""
PAUSE_SECONDS: Final = 1.0
"""How far apart attempts at the same server are, on average."""
SPREAD_SECONDS: Final = 0.1
"""Over how long the first attempts of all who lost their server at the same time are spread."""

_chance = random.SystemRandom()


class Servers:
    """The servers of a connection.

    Args:
        named: The addresses that the user gave.

    Raises:
        BusError: One of them is no address.
    """

    def __init__(self, named: Sequence[str]) -> None:
        self.named = [server_at(one) for one in named]
        self._told: deque[Server] = deque(maxlen=MOST_TOLD)
        self.latest: Server | None = None

    def hear(self, server: Server, told: Sequence[str], *, encrypted: bool) -> None:
        """Remember the others that a server tells of, instead of those that were told of before."""
        known = {(one.host, one.port) for one in self.named}
        self._told.clear()
        for one in servers_beside(server, told[:MOST_TOLD], encrypted=encrypted):
            if (one.host, one.port) not in known:
                self._told.append(one)

    def round(self, *, but: Server | None = None) -> list[Server]:
        """The servers to try now: all that the user named, that which was there last behind the others, and
        a few of those that were told of, in turns.

        Args:
            but: One that need not be tried.
        """
        named = sorted(self.named, key=lambda one: one == self.latest)
        told = list(self._told)[:TOLD_IN_A_ROUND]
        self._told.rotate(-TOLD_IN_A_ROUND)
        return [one for one in (*named, *told) if but is None or (one.host, one.port) != (but.host, but.port)]


def patience(server: Server) -> float:
    """For how long a server is waited for."""
    return TOLD_SECONDS if server.told else ATTEMPT_SECONDS


def pause(since: float) -> float:
    """How long to wait before the next round, so many seconds after the last attempt.

    Never the same, so that those who lost their server together don't come back together.
    """
    soonest = _chance.uniform(0.0, SPREAD_SECONDS)
    return max(soonest, PAUSE_SECONDS * _chance.uniform(0.5, 1.5) - since)
