"""Two agents as processes that share a lock, a hand that stops them past their lease, and a judge.

The judge reads the journal alone, which has the order of all writes, and compares it with what the
agents were told. Only the time of a lease may be a fake clock's; agents, servers and signals are real.
Nothing about pytest.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
from typing import TYPE_CHECKING, Any, Final

from tests.edges.mcp.agent_process import LEDGER, LOCK, STOP
from tests.forking import ForkedProcess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from pathlib import Path

    from holdfast.handles.kv import KV
    from holdfast.model import Change

PATIENCE: Final = 60.0
NAMES: Final = ("one", "two")


class Judge:
    """Reads the journal of the namespace that the agents share.

    Args:
        kv: The namespace.
    """

    def __init__(self, kv: KV) -> None:
        self._kv = kv
        self._since = 0
        self._holder: str | None = None
        self.order: list[str] = []
        """The holdings, in the order in which they began."""
        self.expired = 0
        self.doubles: list[str] = []
        self.stale: list[str] = []

    @property
    def summary(self) -> str:
        """Return what was found, in a line."""
        return (
            f"{len(self.order)} holdings, {self.expired} leases ran out, "
            f"{len(self.doubles)} double holders, {len(self.stale)} stale writes"
        )

    async def look(self) -> None:
        """Judge what has happened since the last look."""
        more = True
        while more:
            page = await self._kv.changes(self._since)
            assert not page.gap
            more, self._since = page.next > self._since, page.next
            for change in page.changes:
                if change.key == f"lock/{LOCK}":
                    self._locked(change)
                elif change.key == LEDGER:
                    self._written(change)

    def _written(self, change: Change) -> None:
        """Judge a write: only the newest holder may make one, though its lease may be over."""
        newest = self.order[-1]
        if change.last_writer != newest:
            self.stale.append(f"{change.last_writer} wrote {change.version} after {newest} had begun")

    def _locked(self, change: Change) -> None:
        """Judge a change of the lock: it is taken when it is free, and changed by its holder alone."""
        writer = str(change.last_writer)
        if change.op == "set" and self._holder is None:
            self._holder = writer
            self.order.append(writer)
        elif change.op == "expired":
            self._holder = None
            self.expired += 1
        else:
            if writer != self._holder:
                self.doubles.append(f"{change.version}: {change.op} by {writer}, held by {self._holder}")
            self._holder = writer if change.op == "set" else None

    def compare(self, told: Sequence[dict[str, Any]]) -> None:
        """Judge what agents were told: each holding is in the journal, and later ones have greater tokens."""
        tokens = {holding: token for one in told for holding, token in one["holdings"]}
        if missing := tokens.keys() - set(self.order):
            self.doubles.append(f"{missing} never began")
        held = [tokens[holding] for holding in self.order if holding in tokens]
        if held != sorted(set(held)):
            self.doubles.append(f"tokens went back: {held}")


@contextlib.asynccontextmanager
async def two_agents(
    servers: Sequence[Sequence[str]], seed: int, home: Path, **settings: Any
) -> AsyncIterator[list[ForkedProcess]]:
    """Run two agents within an `async with` block, each with the server that its arguments name.

    They run in a folder, which has what each complained about.
    """
    agents = []
    for name, server in zip(NAMES, servers, strict=True):
        words = ("tests.edges.mcp.agent_process", name, str(seed), *server)
        with (home / f"{name}.stderr").open("wb") as file:
            agents.append(
                await ForkedProcess.start(*words, cwd=home, stderr=file.fileno(), near=True, **settings)
            )
    try:
        yield agents
    finally:
        for agent in agents:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(agent.pid, signal.SIGKILL)
            await agent.wait()


class Hand:
    """Stops one agent after the other, for longer than a lease.

    Args:
        agents: The agents.
        judge: The judge, who knows whether a holding has begun meanwhile.
        pass_lease: Waits until a lease that is not renewed has run out.
        chance: The source of randomness.
    """

    def __init__(
        self,
        agents: Sequence[ForkedProcess],
        judge: Judge,
        *,
        pass_lease: Callable[[], Awaitable[None]],
        chance: random.Random,
    ) -> None:
        self._agents = agents
        self._judge = judge
        self._pass_lease = pass_lease
        self._chance = chance
        self.stops = 0

    async def stop_one(self) -> None:
        """Stop an agent at a random moment, past its lease and usually until the other has held the lock."""
        await asyncio.sleep(self._chance.random() * 0.03)
        agent = self._chance.choice(self._agents)
        # Alone, its server goes on with the call that it has got; with its server, the call waits as well.
        send = self._chance.choice((os.kill, os.killpg))
        send(agent.pid, signal.SIGSTOP)
        try:
            await self._judge.look()
            before = len(self._judge.order)
            await self._pass_lease()
            for _ in range(self._chance.choice((0, 100, 100))):
                await asyncio.sleep(0.005)
                await self._judge.look()
                if len(self._judge.order) > before:
                    break
        finally:
            send(agent.pid, signal.SIGCONT)
        self.stops += 1


async def reports(agents: Sequence[ForkedProcess], kv: KV, home: Path) -> list[dict[str, Any]]:
    """Have the agents of a folder end; what each was told."""
    await kv.set(f"flag/{STOP}", True)
    told = []
    for name, agent in zip(NAMES, agents, strict=True):
        async with asyncio.timeout(PATIENCE):
            out, _ = await agent.communicate()
        assert agent.returncode == 0, (home / f"{name}.stderr").read_text()
        told.append(json.loads(out))
    return told
