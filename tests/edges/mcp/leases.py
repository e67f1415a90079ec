"""Two agents that share a lock, one of which is stopped past its lease at random, and a referee.

An agent takes the lock, writes to the ledger, renews and releases. At a random point it may be stopped for
longer than its lease; it then goes on with the token that it has, as a program does that was suspended.

The referee judges by what the store answered and by the order of the journal, never by what an agent
believes. Nothing about pytest.
"""

from __future__ import annotations

import asyncio
import random
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from holdfast.clock import moment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.clock import ManualClock
    from holdfast.handles.kv import KV
    from tests.edges.mcp.agents import Agent

LOCK = "shared"
LEDGER = "ledger"
TTL = 30
STOPS = 0.4
"""The share of holdings in which an agent is stopped."""


class Referee:
    """Counts double holders and stale writes.

    Args:
        kv: The namespace that the agents work on.
    """

    def __init__(self, kv: KV) -> None:
        self._kv = kv
        self._since = 0
        self._newest_in_ledger = 0
        self._until: dict[int, datetime] = {}
        self._leaving: dict[int, datetime] = {}
        self.newest = 0
        self.rounds = 0
        self.stops = 0
        self.refused = 0
        self.doubles: list[str] = []
        self.stale: list[str] = []

    def acquired(self, token: int, expires_at: str) -> None:
        """Judge a holding: it must begin after every other has ended."""
        until = datetime.fromisoformat(expires_at)
        began = until - timedelta(seconds=TTL)
        for other, its_end in self._until.items():
            if its_end > began:
                self.doubles.append(f"{token} began at {began}, {other} lasts until {its_end}")
        if token <= self.newest:
            self.doubles.append(f"{token} came after {self.newest}")
        self.newest = token
        self._until = {token: until}
        self.rounds += 1

    def renewed(self, token: int, expires_at: str, *, newest: int) -> None:
        """Judge a renewal that was granted; `newest` is the newest token known before it was asked for."""
        if newest > token:
            self.doubles.append(f"{token} was renewed after {newest} had been given")
        if token in self._until:
            self._until[token] = datetime.fromisoformat(expires_at)

    def releasing(self, token: int) -> None:
        """Take note that a release is sent: from now on another agent may have the lock before its answer."""
        if token in self._until:
            self._leaving[token] = self._until.pop(token)

    def released(self, token: int, *, held: bool, now: datetime) -> None:
        """Judge the answer to a release: a lease that is not over was held until then."""
        until = self._leaving.pop(token, None)
        if until is not None and until > now and not held:
            self.doubles.append(f"{token} was lost before {until}, at {now} or earlier")

    def written(self, token: int, *, newest: int) -> None:
        """Judge a write that was accepted; `newest` is the newest token known before it was sent."""
        if newest > token:
            self.stale.append(f"{token} wrote after {newest} had been given")

    async def audit(self) -> None:
        """Judge the ledger by the journal: tokens in it must never go back."""
        page = await self._kv.changes(self._since, prefix=LEDGER)
        assert not page.gap
        self._since = page.next
        for change in page.changes:
            token = int(str(change.last_writer).partition(":")[2])
            if token < self._newest_in_ledger:
                self.stale.append(f"version {change.version} of {token} came after {self._newest_in_ledger}")
            self._newest_in_ledger = max(token, self._newest_in_ledger)


class Worker:
    """An agent's loop.

    Args:
        name: Its name.
        agent: Its client.
        referee: The referee, which is told everything.
        clock: The store's clock.
        chance: The source of randomness.
        careless: Whether it keeps its token from its writes, and is stopped in every holding.
    """

    def __init__(
        self,
        name: str,
        agent: Agent,
        *,
        referee: Referee,
        clock: ManualClock,
        chance: random.Random,
        careless: bool = False,
    ) -> None:
        self.name = name
        self._agent = agent
        self._referee = referee
        self._clock = clock
        self._chance = chance
        self._careless = careless

    async def work(self, rounds: int) -> None:
        """Take part until the agents together have held the lock so often."""
        while self._referee.rounds < rounds:
            held = await self._ask("lock_acquire", name=LOCK, ttl=TTL)
            if held.get("acquired"):
                self._referee.acquired(held["token"], held["expires_at"])
                await self._hold(held["token"])
            else:
                await self._pause()

    async def _hold(self, token: int) -> None:
        stop = self._chance.randrange(4) if self._careless or self._chance.random() < STOPS else None
        for step in range(4):
            if step == stop:
                await self._stopped(token)
            if not await self._step(token, step):
                self._referee.refused += 1
                return

    async def _step(self, token: int, step: int) -> bool:
        """Do one step of a holding. Returns False once the lock is known to be lost."""
        await self._pause()
        newest = self._referee.newest
        if step == 2:
            found = await self._ask("lock_renew", name=LOCK, token=token, ttl=TTL)
            if found.get("renewed"):
                self._referee.renewed(token, found["expires_at"], newest=newest)
            return bool(found.get("renewed"))
        if step == 3:
            self._referee.releasing(token)
            found = await self._ask("lock_release", name=LOCK, token=token)
            self._referee.released(token, held=found["released"], now=moment(self._clock.now()))
            return True
        fence = {} if self._careless else {"fence": {"lock": LOCK, "token": token}}
        wrote = await self._ask(
            "put",
            key=LEDGER,
            value={"token": token, "step": step},
            last_writer=f"{self.name}:{token}",
            **fence,
        )
        if wrote["success"]:
            self._referee.written(token, newest=newest)
        return bool(wrote["success"])

    async def _stopped(self, token: int) -> None:
        """Be stopped past the lease, usually until another agent has taken the lock."""
        self._referee.stops += 1
        self._clock.advance(TTL + self._chance.randrange(3))
        patience = 200 if self._careless else self._chance.choice((0, 200))
        while patience and self._referee.newest == token:
            patience -= 1
            await self._pause()

    async def _ask(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool, again if the service had no time for it."""
        while True:
            result = await self._agent.result(tool, **arguments)
            found: dict[str, Any] = result.structured_content
            if found.get("retryable") and found.get("error_code") != "VERSION_CONFLICT":
                await self._pause()
                continue
            assert not result.is_error, found
            return found

    async def _pause(self) -> None:
        for _ in range(self._chance.randrange(4)):
            await asyncio.sleep(0)


async def contest(workers: Sequence[Worker], referee: Referee, *, rounds: int) -> None:
    """Let the workers share the lock for a number of holdings, and judge the ledger every 50."""
    for goal in range(min(50, rounds), rounds + 50, 50):
        await asyncio.gather(*(worker.work(min(goal, rounds)) for worker in workers))
        await referee.audit()
