"""Calls of JetStream's API, and what its replies mean."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.bus.protocol import Message
from holdfast.engines.cluster import jetstream
from holdfast.engines.cluster.jetstream import (
    WRONG_SEQUENCE,
    Ack,
    ApiRefusal,
    Fault,
    JetStream,
    delivered_of,
    pending_of,
    sequence_of,
)


class Requests:
    """Answers calls with replies, one after the other."""

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)
        self.asked: list[tuple[str, Any]] = []

    async def ask(self, subject: str, payload: bytes, *, seconds: float, head: bytes = b"") -> Message:
        """Answer a call."""
        self.asked.append((subject, msgspec.json.decode(payload) if payload else None))
        return Message("1", "inbox", "", msgspec.json.encode(self.replies.pop(0)), b"")


def refusal(code: int) -> dict[str, Any]:
    """The reply that refuses a call."""
    return {"error": {"err_code": code, "description": "no"}}


def api(requests: Requests) -> JetStream:
    """JetStream with these replies."""
    nothing: Any = None
    asked: Any = requests
    return JetStream(nothing, asked)


@pytest.mark.parametrize(
    ("description", "last"),
    [("wrong last sequence: 17", 17), ("wrong last sequence: 0", 0), ("wrong last sequence", -1), ("", -1)],
)
def test_a_refused_base_names_the_last_message(description: str, last: int) -> None:
    """Without a number the answer says nothing about how far the log is."""
    assert Ack(error=Fault(WRONG_SEQUENCE, description)).last == last
    assert Ack(seq=17).last == -1


@pytest.mark.parametrize(
    "reply",
    [
        "$JS.ACK.stream.consumer.1.17.3.1700000000.5",
        "$JS.ACK.domain.hash.stream.consumer.1.17.3.1700000000.5",
    ],
)
def test_a_delivery_carries_its_numbers(reply: str) -> None:
    """Also where the servers have a domain, which makes the subject longer."""
    message = Message("1", "log", reply, b"", b"")
    assert (sequence_of(message), delivered_of(message), pending_of(message)) == (17, 3, 5)


async def test_a_call_waits_for_an_election_and_for_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal that passes is asked again for a while; any other is told at once."""
    monkeypatch.setattr(jetstream, "PAUSE_SECONDS", 0.0)
    requests = Requests(refusal(10008), refusal(10158), {"ok": 1})
    assert await api(requests).settled("X", {"a": 1}, seconds=60) == {"ok": 1}
    assert requests.asked == [("$JS.API.X", {"a": 1})] * 3
    requests = Requests(refusal(10059), {"ok": 1})
    with pytest.raises(ApiRefusal) as refused:
        await api(requests).settled("X", seconds=60)
    assert (refused.value.code, len(requests.asked)) == (10059, 1)
    requests = Requests(refusal(10008), {"ok": 1})
    with pytest.raises(ApiRefusal):
        await api(requests).settled("X", seconds=-1)


async def test_all_pages_of_consumers_are_read() -> None:
    """A node that nobody listens for any more is not among those that follow the log."""
    one, two = ({"push_bound": True, "config": {"metadata": {"node": name}}} for name in "ab")
    gone = {"push_bound": False, "config": {"metadata": {"node": "c"}}}
    bare = {"push_bound": True, "config": {}}
    requests = Requests({"consumers": [one, gone], "total": 4}, {"consumers": [bare, two], "total": 4})
    assert await api(requests).consumers("S", seconds=1) == [{"node": "a"}, {}, {"node": "b"}]
    assert [body for _, body in requests.asked] == [{"offset": 0}, {"offset": 2}]
    assert await api(Requests({"consumers": None, "total": 0})).consumers("S", seconds=1) == []
