"""What a client makes of the times in a service's replies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import seams
from holdfast.bus.address import nats_address
from holdfast.client import nats

if TYPE_CHECKING:
    import pytest


class Time:
    """A machine's steady clock."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def ticks(self) -> float:
        """Seconds since some instant."""
        return self.now


async def test_the_offset_comes_from_the_quickest_recent_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    """The offset is that of the quickest reply of late: half of a slow one's way is anybody's guess."""
    time = Time()
    monkeypatch.setattr(seams, "ticks", time.ticks)
    box = nats.NatsTransport(nats_address("nats://127.0.0.1:4222"))

    def reply(took: float, offset: int) -> float:
        sent = time.ticks()
        time.now += took
        box._learn_time(str(int(time.now * 1000) + offset), sent)
        return box.time() - time.now * 1000

    quick = reply(0.002, 5_000)
    assert abs(quick - 5_001) < 1
    assert reply(4.0, 5_000) == quick
    for _ in range(500):  # an old look is worth less and less
        last = reply(0.1, 9_000)
    assert abs(last - 9_050) < 1
