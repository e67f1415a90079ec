"""Groups that hold the commands of several namespaces, for an engine whose transactions can carry them.

Each namespace keeps a lane of its own. Lanes with pending commands wait here, and a carrier takes from as
many as fit into one group. A lane stays with its carrier until the group is done, so commands of a namespace
keep their order. A few carriers work at a time: while one waits for its commit, the next one gathers.

Law: only plain changes of keys share a group. A lane with anything else, or with a command that has to wait,
is drained alone, and so are all lanes of a group that the engine wants apart: no namespace waits for another
because of what another does.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.engine import CannotShareTransaction
from holdfast.pace import CARRIERS, LANES_WORTH_A_GROUP, SHARED_GROUP, gather

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from holdfast.engine import Sharer


class Lane(Protocol):
    """The pending commands of a namespace; see `batcher`."""

    name: str
    waiting: deque[Any]
    dear: bool

    def take(self, most: int, *, plain: bool = False) -> list[Any]:
        """Remove and return the next group; with `plain`, only changes that may share a group."""
        ...


class LaneOwner(Protocol):
    """What a batcher does for its carriers."""

    most: int

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run work in a task that closing waits for."""
        ...

    def turns_before(self, pending: int) -> int:
        """Return how many turns others get before a group is taken."""
        ...

    async def carry(self, group: list[Any]) -> None:
        """Execute a group. Raises `CannotShareTransaction` if its namespaces can't share it."""
        ...

    def drain_alone(self, lane: Any) -> None:
        """Execute what a lane holds in groups of its own."""
        ...

    def drop(self, lane: Any) -> None:
        """Forget a lane that is empty."""
        ...


class Carriers:
    """The carriers of a batcher, and the lanes that wait for one."""

    def __init__(self, owner: LaneOwner, sharer: Sharer) -> None:
        self._owner = owner
        self._shares = sharer.shares
        self._most_lanes = sharer.shared
        self._ready: deque[Lane] = deque()
        self._carrying = 0
        self._executing = 0

    def add(self, lane: Lane) -> bool:
        """Take on a lane that no carrier has. Return False if it must be drained alone."""
        if not self._shares(lane.name):
            return False
        self._ready.append(lane)
        if self._carrying < CARRIERS:
            self._carrying += 1
            self._owner.spawn(self._carry(), "holdfast carrier")
        return True

    async def _carry(self) -> None:
        try:
            while self._ready:
                pending = len(self._ready) + len(self._ready[0].waiting) - 1
                if before := self._owner.turns_before(pending):
                    await gather(before)
                taken = self._gather()
                if taken:
                    self._executing += 1
                    try:
                        await self._execute(taken)
                    finally:
                        self._executing -= 1
        finally:
            self._carrying -= 1

    def _gather(self) -> list[tuple[Lane, list[Any]]]:
        """Take from waiting lanes what fits into one group."""
        taken: list[tuple[Lane, list[Any]]] = []
        ready, room = self._ready, self._owner.most
        most_lanes = self._most_lanes_now()
        while ready and room > 0 and len(taken) < most_lanes:
            lane = ready.popleft()
            alone = not ready and not taken
            some = lane.take(room if alone else min(room, SHARED_GROUP), plain=not alone)
            if some and not lane.dear:
                taken.append((lane, some))
                room -= len(some)
            else:
                lane.waiting.extendleft(reversed(some))
                self._owner.drain_alone(lane)
        return taken

    def _most_lanes_now(self) -> int:
        """Return from how many lanes a group may take: half of many, so that the next group overlaps it."""
        ready = len(self._ready)
        if self._executing or ready < 2 * LANES_WORTH_A_GROUP:
            return self._most_lanes
        return min(self._most_lanes, (ready + 1) // 2)

    async def _execute(self, taken: list[tuple[Lane, list[Any]]]) -> None:
        try:
            await self._owner.carry([waiting for _, some in taken for waiting in some])
        except CannotShareTransaction:
            for lane, some in taken:
                lane.waiting.extendleft(reversed(some))
                self._owner.drain_alone(lane)
            return
        for lane, _ in taken:
            if not lane.waiting:
                self._owner.drop(lane)
            elif not self.add(lane):
                self._owner.drain_alone(lane)
