"""A holder of a lock that was stopped, and goes on as if it held the lock still, writes nothing."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import holdfast
from holdfast.clock import ManualClock
from tests.edges.nats.ground import serving
from tests.machine import bugs
from tests.robustness.lock_process import holder_process

if TYPE_CHECKING:
    import pytest

    from holdfast.edges.nats.server import NatsServer

ROUNDS = int(os.environ.get("HOLDFAST_LOCK_ROUNDS", "5"))
TTL = 30


async def late_writes(url: str, storage: str, rounds: int) -> list[str]:
    """How the writes of a holder ended that was stopped while somebody else had the lock and gave it back.

    The holder and its stop are real; only the service's time is moved, past the deadline of the lock.
    """
    clock = ManualClock()
    ends = []
    async with (
        serving(url, storage=storage, clock=clock),
        holder_process(url, ttl=TTL) as holder,
        holdfast.open(url, clock=clock) as store,
    ):
        kv = store.kv("work")
        for number in range(rounds):
            old = int(await holder.ask("take"))
            assert await holder.ask("write") == "done"
            holder.process.send_signal(signal.SIGSTOP)
            clock.advance(TTL)
            async with kv.lock("job", ttl=TTL, timeout=60) as lock:
                assert lock.token > old
                await kv.set("result", number, fence=lock.fence)
            await holder.tell("write")
            holder.process.send_signal(signal.SIGCONT)
            ends.append(await holder.answer())
            found = await kv.get("result")
            assert found is not None
            assert (found.value == number) is (ends[-1] == "FENCED")
    return ends


async def test_the_token_of_a_stopped_holder_is_refused(nats_server: NatsServer, storage: str) -> None:
    """Once another holder has had the lock, the old token is refused, though the lock is free again."""
    assert await late_writes(nats_server.url, storage, ROUNDS) == ["FENCED"] * ROUNDS


async def test_without_fences_the_stopped_holder_writes(
    nats_server: NatsServer, storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above proves something: with the check of fences removed, the old holder's write is done."""
    bugs.fences_ignored(monkeypatch)
    assert await late_writes(nats_server.url, storage, 1) == ["done"]
