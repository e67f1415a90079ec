"""JetStream on a cluster of NATS servers: one log that a majority keeps, a leader, and consumers.

It promises what JetStream promises when its servers wait for their disks: what was acknowledged stays, in one
order, and the leader checks the expected sequence. Everything else may happen: no answer, an answer that is
lost, a message that is stored although nobody was told, a consumer that vanishes.

`test_jetstream.py` runs one script against this and against a real server.
"""

from __future__ import annotations

import base64
import bisect
import json
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.simulation.network import SERVICE_UNAVAILABLE, Message, matches

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.network import NatsServer, Network, Sub, Wire

BEAT: Final = 0.1
"""The seconds between two looks at who leads and which consumers are there."""
ELECTION: Final = (0.3, 6.0)
HEARTBEAT: Final = b"NATS/1.0 100 Idle Heartbeat\r\n\r\n"
HOP: Final = 3000
"""How often in a second a message could get from one server to another."""
API: Final = "$JS.API."
UNLIMITED: Final = -1


def fault(code: int, err_code: int, description: str) -> dict[str, Any]:
    """A reply that says what is wrong."""
    return {"error": {"code": code, "err_code": err_code, "description": description}}


NO_STREAM: Final = fault(404, 10059, "stream not found")
NO_MESSAGE: Final = fault(404, 10037, "no message found")
STREAM_EXISTS: Final = fault(400, 10058, "stream name already in use with a different configuration")
IN_PROCESS: Final = fault(400, 10164, "wrong last sequence: in process")
UNAVAILABLE: Final = fault(503, 10008, "JetStream system temporarily unavailable")
INCOMPLETE: Final = fault(400, 10176, "atomic publish batch is incomplete")


class Stored(NamedTuple):
    """A message of a stream."""

    seq: int
    subject: str
    head: bytes
    data: bytes


class Stream:
    """A stream: its configuration and what it keeps."""

    def __init__(self, config: dict[str, Any]) -> None:
        limits = dict.fromkeys(("max_msgs", "max_bytes", "max_msgs_per_subject"), UNLIMITED)
        self.config: dict[str, Any] = {"max_age": 0, "num_replicas": 1, **limits, **config}
        self.messages: list[Stored] = []
        self.last_seq = 0
        self.ids: dict[str, int] = {}
        self.batches: dict[str, list[Message]] = {}
        self.in_process: set[str] = set()

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.config["name"])

    def takes(self, tokens: list[str]) -> bool:
        """Whether it keeps messages with this subject."""
        return any(matches(pattern.split("."), tokens) for pattern in self.config["subjects"])

    def last_of(self, subject: str) -> int:
        """The sequence of the last message with a subject."""
        return next((one.seq for one in reversed(self.messages) if one.subject == subject), 0)

    def store(self, message: Message) -> int:
        """Keep a message."""
        self.last_seq += 1
        head = message.body[: message.head]
        self.messages.append(Stored(self.last_seq, message.subject, head, message.body[message.head :]))
        return self.last_seq

    def trim(self) -> None:
        """Remove what the limit of messages per subject does not allow."""
        limit = self.config["max_msgs_per_subject"]
        if limit > 0:
            counts: dict[str, int] = {}
            kept = []
            for one in reversed(self.messages):
                counts[one.subject] = counts.get(one.subject, 0) + 1
                if counts[one.subject] <= limit:
                    kept.append(one)
            self.messages = kept[::-1]

    def purge(self, pattern: list[str]) -> int:
        """Remove the messages of a subject."""
        before = len(self.messages)
        self.messages = [one for one in self.messages if not matches(pattern, one.subject.split("."))]
        return before - len(self.messages)

    def state(self) -> dict[str, int]:
        """Its counters."""
        first = self.messages[0].seq if self.messages else self.last_seq and self.last_seq + 1
        return {"messages": len(self.messages), "first_seq": first, "last_seq": self.last_seq}


class Proposal(NamedTuple):
    """A message, or several as one batch, that a leader has sent to the other servers."""

    stream: Stream
    server: NatsServer
    parts: list[Message]
    name: str | None
    expected: str | None
    term: int


class Consumer:
    """What delivers the messages of a stream to an inbox, at one of the servers."""

    def __init__(self, name: str, stream: Stream, config: dict[str, Any], server: NatsServer) -> None:
        self.name = name
        self.stream = stream
        self.config = config
        self.server = server
        self.inbox = str(config["deliver_subject"])
        self.pattern = str(config.get("filter_subject", ">")).split(".")
        self.next = int(config.get("opt_start_seq", 1))
        self.delivered = 0
        self.latest = 0.0
        self.unheard_since: float | None = None

    def pending(self) -> list[Stored]:
        """What it has still to deliver."""
        messages = self.stream.messages
        if not messages or messages[-1].seq < self.next:
            return []
        first = bisect.bisect_left(messages, self.next, key=lambda one: one.seq)
        return [one for one in messages[first:] if matches(self.pattern, one.subject.split("."))]


class JetStream:
    """JetStream of all servers of a cluster.

    Attributes:
        losing_acks: The share of acknowledgements that are lost.
        skipping: The share of messages that consumers count as delivered and do not deliver.
        elections: The number of elections.
        unannounced: The messages that were stored although nobody was told.
        stored_for: Called with a message that is stored and the connections by which its sender hears of it.
    """

    def __init__(self, network: Network, servers: list[NatsServer]) -> None:
        self.losing_acks = self.skipping = 0.0
        self.elections = self.unannounced = 0
        self.stored_for: Callable[[Message, list[Wire]], object] = lambda message, wires: None
        self._network = network
        self._world = network.world
        self._chance = Random(f"jetstream {self._world.seed}")
        self._servers = servers
        self._streams: dict[str, Stream] = {}
        self._consumers: dict[str, Consumer] = {}
        self._number = 0
        self._term = 0
        self._leader: NatsServer | None = servers[0]
        self._last: dict[tuple[int, int], float] = {}
        """When the last message gets from one server to another."""
        self._leaderless_since = 0.0
        self._election_at = 0.0
        for server in servers:
            server.hooks.append(self._take)
        self._world.after(self._world.outside, BEAT, self._beat)

    @property
    def stored(self) -> int:
        """How many messages were ever stored."""
        return sum(stream.last_seq for stream in self._streams.values())

    # Who leads

    def _works(self, server: NatsServer) -> bool:
        return server.machine.up and server.machine.paused_until <= self._world.now

    def _reaches(self, server: NatsServer, other: NatsServer) -> bool:
        if server is other:
            return self._works(server)
        cut, one, two = self._network.is_cut, server.machine, other.machine
        return self._works(other) and not cut(one, two) and not cut(two, one)

    def _has_majority(self, server: NatsServer) -> bool:
        reached = sum(self._reaches(server, other) for other in self._servers)
        return self._works(server) and 2 * reached > len(self._servers)

    def step_down(self) -> None:
        """Let the leader give up its place."""
        self._lose_leader(self._chance.uniform(0.05, 1.0))

    def _lose_leader(self, seconds: float) -> None:
        self._leader = None
        self._term += 1
        self._leaderless_since = self._world.now
        self._election_at = self._world.now + seconds

    def _beat(self) -> None:
        """Look who leads, and which consumers are still there."""
        now = self._world.now
        if self._leader is not None and not self._has_majority(self._leader):
            self._lose_leader(self._chance.uniform(*ELECTION))
        elif self._leader is None and now >= self._election_at:
            able = [server for server in self._servers if self._has_majority(server)]
            if able:
                self._leader = self._chance.choice(able)
                self.elections += 1
                self._world.note(self._leader.machine.name, f"leads the log, term {self._term}")
        for consumer in list(self._consumers.values()):
            self._look_after(consumer)
        self._world.after(self._world.outside, BEAT, self._beat)

    def _look_after(self, consumer: Consumer) -> None:
        now = self._world.now
        if not consumer.server.machine.up:
            del self._consumers[consumer.name]
        elif not self._listeners(consumer):
            if consumer.unheard_since is None:
                consumer.unheard_since = now
            elif now - consumer.unheard_since > 10:
                del self._consumers[consumer.name]
        elif self._works(consumer.server):
            consumer.unheard_since = None
            self._deliver(consumer)
            if now - consumer.latest >= 1.0:
                consumer.latest = now
                message = Message(consumer.inbox, "", HEARTBEAT, len(HEARTBEAT))
                self._world.after(consumer.server.machine, 0.0, self._hand_over, consumer, message)

    # Messages and calls

    def _take(self, server: NatsServer, message: Message) -> bool:
        """Take what is for JetStream."""
        subject = message.subject
        if subject.startswith("$JS."):
            if subject.startswith(API):
                self._to_leader(server, message, self._call)
            return True
        tokens = subject.split(".")
        for stream in self._streams.values():
            if stream.takes(tokens):
                self._to_leader(server, message, lambda *sent, stream=stream: self._propose(stream, *sent))
                return True
        return False

    def _to_leader(self, server: NatsServer, message: Message, do: Callable[..., None]) -> None:
        """Bring a message to the leader, after those before it. Without one it is lost, or refused later."""
        leader, world = self._leader, self._world
        if leader is not None and self._reaches(server, leader):
            way = server.port, leader.port
            at = max(world.now + self._chance.expovariate(HOP), self._last.get(way, 0.0) + 1e-7)
            self._last[way] = at
            world.after(leader.machine, at - world.now, do, server, message)
        elif leader is None and world.now - self._leaderless_since > 1.0 and message.reply:
            if message.subject.startswith(API):
                self._reply(server, message, UNAVAILABLE)
            else:
                none = Message(message.reply, "", SERVICE_UNAVAILABLE, len(SERVICE_UNAVAILABLE))
                world.after(server.machine, 0.0, server.publish, none)

    def _reply(self, server: NatsServer, message: Message, reply: dict[str, Any]) -> None:
        if message.reply and (self._leader is None or self._reaches(self._leader, server)):
            answer = Message(message.reply, "", json.dumps(reply).encode())
            self._world.after(server.machine, self._chance.expovariate(HOP), server.publish, answer)

    def _propose(self, stream: Stream, server: NatsServer, message: Message) -> None:
        """The leader checks a message and sends it to the others."""
        headers = headers_of(message)
        parts = [message]
        if (batch := headers.get("Nats-Batch-Id")) is not None:
            parts = stream.batches.setdefault(batch, [])
            parts.append(message)
            if "Nats-Batch-Commit" not in headers:
                return
            del stream.batches[batch]
            if int(headers["Nats-Batch-Sequence"]) != len(parts):
                self._reply(server, message, INCOMPLETE)
                return
            headers = headers_of(parts[0])
        name = headers.get("Nats-Msg-Id")
        if name is not None and name in stream.ids:
            seq = stream.ids[name]
            self._reply(server, message, {"stream": stream.name, "seq": seq, "duplicate": True})
            return
        expected = headers.get("Nats-Expected-Last-Subject-Sequence")
        if expected is not None:
            if message.subject in stream.in_process:
                self._reply(server, message, IN_PROCESS)
                return
            if (last := stream.last_of(message.subject)) != int(expected):
                self._reply(server, message, fault(400, 10071, f"wrong last sequence: {last}"))
                return
            stream.in_process.add(message.subject)
        delay = self._chance.expovariate(1000) + (0.3 if self._chance.random() < 0.005 else 0.0)
        proposal = Proposal(stream, server, parts, name, expected, self._term)
        self._world.after(self._world.outside, delay, self._commit, proposal)

    def _commit(self, proposal: Proposal) -> None:
        """Store a message once a majority has it. Another leader may store it or not, and tells nobody."""
        stream, server, parts, name, expected, _ = proposal
        subject, leader = parts[0].subject, self._leader if proposal.term == self._term else None
        if leader is not None and not self._has_majority(leader):
            self._world.after(self._world.outside, BEAT, self._commit, proposal)
            return
        if expected is not None:
            stream.in_process.discard(subject)
        if leader is None:
            fits = expected is None or int(expected) == stream.last_of(subject)
            if not fits or (name is not None and name in stream.ids) or self._chance.random() < 0.5:
                return
            self.unannounced += 1
        for part in parts:
            seq = stream.store(part)
        if name is not None:
            stream.ids[name] = seq
        self._world.note("", f"stored {subject} {seq} {name or ''}")
        if parts[-1].reply:
            self.stored_for(parts[0], [sub.client.wire for sub in server.subscribers(parts[-1].reply)])
        for consumer in list(self._consumers.values()):
            if consumer.stream is stream and self._works(consumer.server):
                self._deliver(consumer)
        if leader is not None and self._chance.random() >= self.losing_acks:
            ack: dict[str, Any] = {"stream": stream.name, "seq": seq}
            if len(parts) > 1:
                ack["count"] = len(parts)
            self._reply(server, parts[-1], ack)

    # Delivery

    def _listeners(self, consumer: Consumer) -> list[Sub]:
        return list(consumer.server.subscribers(consumer.inbox))

    def _deliver(self, consumer: Consumer) -> None:
        """Send what was not sent, unless nobody listens or the server is cut off from the leader."""
        leader = self._leader
        if leader is not None and not self._reaches(consumer.server, leader):
            return
        messages = consumer.pending()
        if not messages or not self._listeners(consumer):
            return
        for place, one in enumerate(messages):
            consumer.delivered += 1
            left = len(messages) - place - 1
            name = f"{consumer.stream.name}.{consumer.name}"
            reply = f"$JS.ACK.{name}.1.{one.seq}.{consumer.delivered}.{int(self._world.wall() * 1e9)}.{left}"
            if self.skipping and self._chance.random() < self.skipping:
                self._world.faults["skipped message"] += 1
                continue
            message = Message(one.subject, reply, one.head + one.data, len(one.head))
            self._world.after(consumer.server.machine, 1e-6 * place, self._hand_over, consumer, message)
        consumer.next = messages[-1].seq + 1
        consumer.latest = self._world.now

    def _hand_over(self, consumer: Consumer, message: Message) -> None:
        for sub in self._listeners(consumer):
            consumer.server.pass_on(sub, message)

    # The API

    def _call(self, server: NatsServer, message: Message) -> None:
        if self._leader is None:
            return
        call, _, name = message.subject[len(API) :].rpartition(".")
        body = json.loads(message.body[message.head :] or b"{}")
        stream = self._streams.get(name)
        if call == "STREAM.CREATE":
            reply = self._create(body)
        elif stream is None:
            reply = NO_STREAM
        else:
            reply = getattr(self, f"_{call.lower().replace('.', '_')}")(stream, body)
        self._reply(server, message, reply)

    def _create(self, body: dict[str, Any]) -> dict[str, Any]:
        stream = self._streams.get(body["name"])
        if stream is not None:
            same = all(stream.config.get(name) == value for name, value in body.items())
            return self._stream_info(stream, {}) if same else STREAM_EXISTS
        stream = self._streams[body["name"]] = Stream(body)
        return self._stream_info(stream, {})

    def _stream_info(self, stream: Stream, body: dict[str, Any]) -> dict[str, Any]:
        leader = self._leader
        others = [{"name": f"s{one.port}", "current": True} for one in self._servers if one is not leader]
        cluster = {"name": "sim", "leader": f"s{leader.port}" if leader else "", "replicas": others}
        return {"config": stream.config, "state": stream.state(), "cluster": cluster}

    def _stream_update(self, stream: Stream, body: dict[str, Any]) -> dict[str, Any]:
        stream.config.update(body)
        stream.trim()
        return self._stream_info(stream, {})

    def _stream_purge(self, stream: Stream, body: dict[str, Any]) -> dict[str, Any]:
        return {"success": True, "purged": stream.purge(body.get("filter", ">").split("."))}

    def _stream_leader_stepdown(self, stream: Stream, body: dict[str, Any]) -> dict[str, Any]:
        self._world.soon(self._world.outside, self.step_down)
        return {"success": True}

    def _stream_msg_get(self, stream: Stream, body: dict[str, Any]) -> dict[str, Any]:
        if "last_by_subj" in body:
            fitting = [one for one in reversed(stream.messages) if one.subject == body["last_by_subj"]]
        elif "next_by_subj" in body:
            pattern = body["next_by_subj"].split(".")
            after = [one for one in stream.messages if one.seq >= body.get("seq", 1)]
            fitting = [one for one in after if matches(pattern, one.subject.split("."))]
        else:
            fitting = [one for one in stream.messages if one.seq == body["seq"]]
        if not fitting:
            return NO_MESSAGE
        one = fitting[0]
        message = {"subject": one.subject, "seq": one.seq, "data": base64.b64encode(one.data).decode()}
        if one.head:
            message["hdrs"] = base64.b64encode(one.head).decode()
        return {"message": message}

    def _consumer_create(self, stream: Stream, body: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        able = [server for server in self._servers if self._works(server)]
        consumer = Consumer(f"c{self._number}", stream, body["config"], self._chance.choice(able))
        self._consumers[consumer.name] = consumer
        consumer.latest = self._world.now
        self._world.after(consumer.server.machine, 0.002, self._deliver, consumer)
        pending = len(consumer.pending())
        return {"stream_name": stream.name, "name": consumer.name, "num_pending": pending}

    def _consumer_list(self, stream: Stream, body: dict[str, Any]) -> dict[str, Any]:
        consumers = [
            {"name": one.name, "config": one.config, "push_bound": one.unheard_since is None}
            for one in self._consumers.values()
            if one.stream is stream
        ]
        return {"consumers": consumers[body.get("offset", 0) :], "total": len(consumers)}


def headers_of(message: Message) -> dict[str, str]:
    """The headers of a message."""
    lines = message.body[: message.head].decode().split("\r\n")[1:]
    return {name: value.strip() for name, colon, value in (line.partition(":") for line in lines) if colon}
