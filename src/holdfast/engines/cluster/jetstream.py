"""Calls of JetStream's API: the stream, its consumers, and publishing with an acknowledgement.

Law: requests and replies of JetStream, with its error codes, and nothing of shards or rows.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.bus.protocol import block
from holdfast.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.bus.protocol import Message
    from holdfast.bus.connection import Requester
    from holdfast.engines.cluster.node_connection import NodeConnection

NO_STREAM: Final = 10059
WRONG_SEQUENCE: Final = 10071
STREAM_EXISTS: Final = 10058
NO_PEERS: Final = 10005
"""Too few servers are there to keep a new stream."""
NAME_IN_USE: Final = 10065
"""The subjects belong to another stream."""
FOR_A_WHILE: Final = frozenset({10158, 10164, 10008})
"""Codes after which a message may be sent again: a change of leader, or an earlier message in process."""
HEARTBEAT_SECONDS: Final = 1.0
PAUSE_SECONDS: Final = 0.1
"""The pause between two attempts of a call while servers elect a leader."""
NANOSECONDS: Final = 1_000_000_000


class NoMajority(Unavailable):
    """Too few of the servers that keep a log are there, or they do not agree yet. That may pass by itself."""


class Unreached(NoMajority):
    """No server can be reached."""


class Fault(msgspec.Struct, frozen=True):
    """An error in a reply of JetStream."""

    err_code: int = 0
    description: str = ""


class Ack(msgspec.Struct, frozen=True):
    """The reply to a message: the sequence at which it is stored, or an error."""

    seq: int = 0
    duplicate: bool = False
    error: Fault | None = None

    @property
    def last(self) -> int:
        """The sequence that the error `WRONG_SEQUENCE` names."""
        told = "" if self.error is None else self.error.description.rpartition(" ")[2]
        return int(told) if told.isdecimal() else -1


class ApiRefusal(Exception):
    """JetStream's API refused a request."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.description)
        self.code = fault.err_code


_ack = msgspec.json.Decoder(Ack)


class JetStream:
    """JetStream as one connection sees it. Calls raise what `Requester.ask` raises.

    Args:
        connection: The connection.
        requests: The requests over it.
    """

    def __init__(self, connection: NodeConnection, requests: Requester) -> None:
        self._connection = connection
        self._requests = requests

    async def api(self, call: str, body: Mapping[str, Any] | None = None, *, seconds: float) -> Any:
        """Make a call of the API and return its reply.

        Raises:
            ApiRefusal: The API refused.
            PermissionDenied: The server does not let this user use the API.
        """
        payload = b"" if body is None else msgspec.json.encode(body)
        subject = f"$JS.API.{call}"
        try:
            reply = await self._requests.ask(subject, payload, seconds=seconds)
        except TimeoutError:
            self._connection.require_allowed(subject)
            raise
        told = msgspec.json.decode(reply.data)
        if "error" in told:
            raise ApiRefusal(msgspec.convert(told["error"], Fault))
        return told

    async def settled(self, call: str, body: Mapping[str, Any] | None = None, *, seconds: float) -> Any:
        """Make a call of the API, again and again for so many seconds while servers elect a leader.

        Raises:
            ApiRefusal: The API refused.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while True:
            try:
                return await self.api(call, body, seconds=seconds)
            except ApiRefusal as refused:
                if refused.code not in FOR_A_WHILE or loop.time() > end:
                    raise
            await asyncio.sleep(PAUSE_SECONDS)

    async def publish(
        self, subject: str, parts: Sequence[tuple[Mapping[str, str], bytes]], *, seconds: float
    ) -> Ack:
        """Publish a message, or several as one batch that is stored whole or not at all.

        Args:
            subject: The subject of all of them.
            parts: The headers and the payload of each.
            seconds: The timeout.
        """
        for headers, payload in parts[:-1]:
            if not self._connection.send(subject, payload, head=block(headers)):
                break  # the last message then finds an incomplete batch, which the server refuses
        headers, payload = parts[-1]
        reply = await self._requests.ask(subject, payload, seconds=seconds, head=block(headers))
        return _ack.decode(reply.data)

    async def consume(
        self,
        stream: str,
        subject: str,
        *,
        start: int,
        inbox: str,
        seconds: float,
        about: Mapping[str, str] | None = None,
    ) -> int:
        """Have the messages of a subject from a sequence on sent to an inbox.

        `about` says for whom, to those who list the consumers of the stream.

        Returns:
            The number of messages there are by now.
        """
        config = {
            "deliver_subject": inbox,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": max(1, start),
            "ack_policy": "none",
            "max_deliver": 1,
            "replay_policy": "instant",
            "filter_subject": subject,
            "flow_control": True,
            "idle_heartbeat": int(HEARTBEAT_SECONDS * NANOSECONDS),
            "inactive_threshold": 10 * NANOSECONDS,
            "mem_storage": True,
            "num_replicas": 1,
            "metadata": about or {},
        }
        body = {"stream_name": stream, "config": config}
        told = await self.api(f"CONSUMER.CREATE.{stream}", body, seconds=seconds)
        return int(told["num_pending"])

    async def consumers(self, stream: str, *, seconds: float) -> list[dict[str, str]]:
        """Return what the consumers of a stream say about themselves, of those whose inbox is listened to."""
        found: list[dict[str, str]] = []
        seen = 0
        while True:
            told = await self.settled(f"CONSUMER.LIST.{stream}", {"offset": seen}, seconds=seconds)
            page = told["consumers"] or []
            found += [one["config"].get("metadata") or {} for one in page if one.get("push_bound")]
            seen += len(page)
            if not page or seen >= told["total"]:
                return found


def sequence_of(message: Message) -> int:
    """Return the sequence of a delivered message, which is part of its reply subject."""
    words = message.reply.split(".")
    return int(words[5 if len(words) == 9 else 7])


def pending_of(message: Message) -> int:
    """Return how many messages the server still had to deliver after this one."""
    words = message.reply.split(".")
    return int(words[8 if len(words) == 9 else 10])
