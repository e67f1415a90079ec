"""Following a log: when a node has caught up, and what it does about messages that do not come."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.bus.protocol import Message, block
from holdfast.engines.cluster import log as log_module
from holdfast.engines.cluster.log import Follower

if TYPE_CHECKING:
    from holdfast.engines.cluster.messages import Logged


class Gone(Exception):
    """The log lacks what comes next."""


class Log:
    """A server that has a log, and delivers what a test says."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.left_out: set[int] = set()
        self.times = 1
        self.starts: list[int] = []
        self.answers: list[str] = []
        self.take: Any = None

    def new_inbox(self) -> str:
        """Name an inbox."""
        return "inbox"

    def listen(self, subject: str, take: Any) -> Any:
        """Subscribe."""
        self.take = take
        return self

    def cancel(self) -> None:
        """End a subscription."""

    def send(self, subject: str, data: bytes) -> bool:
        """Take an answer to flow control."""
        self.answers.append(subject)
        return True

    async def consume(self, *given: Any, start: int, **named: Any) -> int:
        """Deliver the log from a sequence on, and say how much there is."""
        self.starts.append(start)
        for seq in range(max(1, start), self.count + 1):
            if seq not in self.left_out:
                for _ in range(self.times):
                    self.take(delivery(seq, self.count))
        self.left_out.clear()
        self.take(Message("1", "inbox", "", b"", b"NATS/1.0 100 Idle Heartbeat\r\n\r\n"))
        return max(0, self.count - max(1, start) + 1)


def delivery(seq: int, count: int) -> Message:
    """A message of the log, on top of the one before it."""
    head = {
        "Nats-Msg-Id": f"m{seq}",
        "Nats-Expected-Last-Subject-Sequence": str(seq - 1),
        "Hf-Prev": f"m{seq - 1}",
    }
    return Message("1", "log", f"$JS.ACK.s.c.1.{seq}.{seq}.0.{count - seq}", b"", block(head))


class Node:
    """A replica that applies what comes in order."""

    def __init__(self, log: Log, at: int = 0) -> None:
        self.at = at
        self.early: list[int] = []
        server: Any = log
        self.follower = Follower(
            server,
            server,
            stream="s",
            subject="log",
            start=lambda: self.at,
            take=self.take,
            lost=Gone,
            about={},
        )

    async def take(self, entry: Logged) -> bool:
        """Apply an entry."""
        if self.follower.caught_up.is_set():
            self.early.append(entry.place.seq)
        if entry.base.seq > self.at:
            return False
        self.at = max(self.at, entry.place.seq)
        return True


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not pause before the log is asked again."""
    monkeypatch.setattr(log_module, "FOLLOW_PAUSE_SECONDS", 0.0)


async def until_caught_up(node: Node) -> None:
    """Follow the log until the node has what it held at the beginning."""
    following = asyncio.create_task(node.follower.run())
    try:
        async with asyncio.timeout(60):
            await node.follower.caught_up.wait()
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


@pytest.mark.parametrize(("at", "count"), [(0, 0), (0, 3), (2, 3), (3, 3)])
async def test_a_node_has_caught_up_when_it_has_what_there_was(at: int, count: int) -> None:
    """Neither earlier nor later, also for an empty log; delivery begins with the last message applied."""
    log = Log(count)
    node = Node(log, at)
    await until_caught_up(node)
    assert (node.at, log.starts) == (count, [at])
    assert node.follower.behind == 0


async def test_messages_that_come_twice_count_once() -> None:
    """A node whose NATS server shuts down gently hears two of them for a while, and is not ready early."""
    log = Log(4)
    log.times = 2
    node = Node(log)
    await until_caught_up(node)
    assert (node.at, node.early) == (4, [4])


@pytest.mark.parametrize("lost", [{2}, {4}, {1}, {2, 3, 4}])
async def test_deliveries_that_are_lost_are_fetched_again(lost: set[int]) -> None:
    """A gap shows in the next message, and a lost end by the server's heartbeat."""
    log = Log(4)
    log.left_out = lost
    node = Node(log)
    await until_caught_up(node)
    assert node.at == 4
    assert len(log.starts) == 2


async def test_a_log_that_lacks_what_was_applied_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that has just started may not know all of its files; one that never does has lost them."""
    monkeypatch.setattr(log_module, "LACKING_SECONDS", 0.05)
    log = Log(2)
    node = Node(log, at=5)
    async with asyncio.timeout(60):
        with pytest.raises(Gone):
            await node.follower.run()
    assert len(log.starts) > 1
    assert not node.follower.caught_up.is_set()


async def test_flow_control_is_answered() -> None:
    """A server that waits for an answer would deliver nothing more; a heartbeat says where it waits."""
    log = Log(1)
    node = Node(log)
    for reply, head in (("flow", {}), ("", {"Nats-Consumer-Stalled": "stalled"})):
        message = Message("1", "inbox", reply, b"", block(head) if head else b"")
        assert not node.follower._answer(message)
    assert node.follower._answer(Message("1", "inbox", "", b"", b""))
    assert log.answers == ["flow", "stalled"]
