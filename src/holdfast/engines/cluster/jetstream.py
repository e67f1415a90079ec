"""The connection of a node to the servers, and JetStream over it: streams, consumers, acknowledgements.

Requests and replies of JetStream with its error codes, and nothing of shards or rows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from holdfast.bus.connection import Connection, Requester
from holdfast.bus.errors import violation
from holdfast.bus.protocol import Message, block
from holdfast.errors import PermissionDenied, Unavailable

NODE_INBOX: Final = "_INBOX.HOLDFAST_NODE"
"""The prefix of the subjects at which nodes receive replies, and the messages of the log."""
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

_bus_log = logging.getLogger("holdfast.bus")


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
        number = "" if self.error is None else self.error.description.rpartition(" ")[2]
        return int(number) if number.isdecimal() else -1


class ApiRefusal(Exception):
    """JetStream's API refused a request."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.description)
        self.code = fault.err_code


_ack = msgspec.json.Decoder(Ack)


def _nothing() -> None:
    """Do nothing."""


class NodeConnection(Connection):
    """The connection of a node, or of an operator, to the servers that keep the log.

    Replies and deliveries come to an inbox of its own, so that servers can keep other users away from it.
    What a server denies this user is an error with advice, and never taken for a server that does not answer.

    Args:
        name: The name of the connection in the server's lists.
        on_reconnected: Called when the connection is back.
    """

    def __init__(self, *, name: str, on_reconnected: Callable[[], None] = _nothing) -> None:
        super().__init__(
            name=name, inbox=NODE_INBOX, on_error=self._on_refusal, on_reconnected=on_reconnected
        )
        self._denied: set[str] = set()

    def require_allowed(self, subject: str) -> None:
        """Raise an error if the server has denied this user to send to a subject.

        Raises:
            PermissionDenied: It has.
        """
        if subject.lower() in self._denied:
            raise PermissionDenied(
                f"the NATS server does not let this user send to {subject}: log in as the node. Name a file "
                "with its user and password as login=FILE in the URL; holdfast up --cluster keeps it in "
                "nats/node.login of its data folder"
            )

    def _on_refusal(self, error: Exception) -> None:
        denied = violation(error)
        if denied is not None and denied.kind == "publish":
            self._denied.add(denied.subject.lower())
        _bus_log.warning("the NATS connection reports: %s", error)


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
        answer = msgspec.json.decode(reply.data)
        if "error" in answer:
            raise ApiRefusal(msgspec.convert(answer["error"], Fault))
        return answer

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
        consumer = await self.api(f"CONSUMER.CREATE.{stream}", body, seconds=seconds)
        return int(consumer["num_pending"])

    async def consumers(self, stream: str, *, seconds: float) -> list[dict[str, str]]:
        """Return what the consumers of a stream say about themselves, of those whose inbox is listened to."""
        metadata: list[dict[str, str]] = []
        seen = 0
        while True:
            listed = await self.settled(f"CONSUMER.LIST.{stream}", {"offset": seen}, seconds=seconds)
            page = listed["consumers"] or []
            metadata += [one["config"].get("metadata") or {} for one in page if one.get("push_bound")]
            seen += len(page)
            if not page or seen >= listed["total"]:
                return metadata


def sequence_of(message: Message) -> int:
    """Return the sequence of a delivered message, which is part of its reply subject."""
    words = message.reply.split(".")
    return int(words[5 if len(words) == 9 else 7])


def delivered_of(message: Message) -> int:
    """Return how many messages the consumer had delivered with this one, however often this one comes."""
    words = message.reply.split(".")
    return int(words[6 if len(words) == 9 else 8])


def pending_of(message: Message) -> int:
    """Return how many messages the server still had to deliver after this one."""
    words = message.reply.split(".")
    return int(words[8 if len(words) == 9 else 10])
