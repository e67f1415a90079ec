"""Connections between machines, and the NATS servers at their ends.

A connection is reliable and in order, as TCP is, until it breaks. Then what was on its way is lost from some
byte on, also in the middle of a message. A partition holds bytes back in one direction or in both, and they
arrive when it ends.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.simulation.world import Machine, World

HOST: Final = "sim"
AGAIN: Final = 0.2
"""The seconds after which bytes that a partition holds back are sent again."""
SERVICE_UNAVAILABLE: Final = b"NATS/1.0 503\r\n\r\n"
VERSION: Final = "2.15.1"


class End(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, wire: Wire, side: int) -> None:
        super().__init__()
        self._wire = wire
        self._side = side
        self._reading = True
        self._closing = False
        self.lost = False
        self.arrived: deque[bytes] = deque()
        self.protocol: Any = None

    @property
    def machine(self) -> Machine:
        """The machine at this end."""
        return self._wire.machines[self._side]

    def write(self, data: Any) -> None:
        if not self._closing:
            self._wire.send(self._side, bytes(data))

    def is_closing(self) -> bool:
        return self._closing

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        if self.arrived:
            self.machine.world.soon(self.machine, self.read)

    def read(self) -> None:
        """Hand a piece of what has arrived to the protocol."""
        if not self.arrived or not self._reading or self.lost:
            return
        data = self.arrived.popleft()
        if hasattr(self.protocol, "get_buffer"):
            buffer = self.protocol.get_buffer(-1)
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            if count < len(data):
                self.arrived.appendleft(data[count:])
            self.protocol.buffer_updated(count)
        else:
            self.protocol.data_received(data)
        if self.arrived and self._reading:
            self.machine.world.soon(self.machine, self.read)

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self.machine.world.soon(self.machine, self.lose, None)
            self._wire.say_goodbye(self._side)

    abort = close

    def lose(self, error: Exception | None) -> None:
        """Tell the protocol that the connection is gone."""
        if not self.lost:
            self.lost = self._closing = True
            self.machine.wires.pop(self._wire.number, None)
            if self.protocol is not None:  # else it was reset before it was accepted
                self.protocol.connection_lost(error)

    def end_quietly(self) -> None:
        """The process at this end is dead: nobody is told."""
        self.lost = self._closing = True


class Wire:
    """A TCP connection between two machines."""

    def __init__(self, network: Network, number: int, client: Machine, server: Machine) -> None:
        self.number = number
        self.machines = (client, server)
        self.ends = (End(self, 0), End(self, 1))
        self.broken = False
        self.cut_after: int | None = None
        """The bytes after which the connection breaks."""
        self._is_cut = False
        self._network = network
        self._world = network.world
        self._under_way: tuple[deque[bytes], deque[bytes]] = (deque(), deque())
        self._last = [0.0, 0.0]
        self.latency = network.chance.choice((0.000_1, 0.000_1, 0.000_5, 0.003))
        self.behind = [0.0, 0.0]
        """By how many seconds what the client sends is late, and what the server sends."""
        client.wires[number] = server.wires[number] = self

    def send(self, side: int, data: bytes) -> None:
        """Bring bytes to the other end, perhaps in two pieces."""
        if self.broken or self._is_cut or not data:
            return
        if self.cut_after is not None:
            self.cut_after -= len(data)
            if self.cut_after <= 0:
                self._deliver(side, data[: len(data) + self.cut_after])
                self.cut_after, self._is_cut = None, True
                self._world.after(self.machines[1 - side], self.latency, self.reset)
                return
        self._deliver(side, data)

    def _deliver(self, side: int, data: bytes) -> None:
        chance = self._network.chance
        split = chance.randrange(1, len(data)) if len(data) > 20 and chance.random() < 0.1 else len(data)
        for piece in filter(None, (data[:split], data[split:])):
            delay = chance.expovariate(1 / self.latency)
            if chance.random() < 0.002:
                delay += chance.expovariate(10)
            delay += self.behind[side]
            self._last[side] = max(self._world.now + delay, self._last[side] + 1e-7)
            self._under_way[side].append(piece)
            self._world.after(self.machines[1 - side], self._last[side] - self._world.now, self._arrive, side)

    def _arrive(self, side: int) -> None:
        if self.broken or not self._under_way[side]:
            return
        if self._network.is_cut(self.machines[side], self.machines[1 - side]):
            self._world.after(self.machines[1 - side], AGAIN, self._arrive, side)
            return
        end = self.ends[1 - side]
        end.arrived.append(self._under_way[side].popleft())
        if len(end.arrived) == 1:
            end.read()

    def say_goodbye(self, side: int) -> None:
        """One end has closed: the other learns of it after what is on its way."""
        at = max(self._world.now + self.latency, self._last[side] + 1e-7)
        self._world.after(self.machines[1 - side], at - self._world.now, self._hear_goodbye, 1 - side)

    def _hear_goodbye(self, side: int) -> None:
        end = self.ends[side]
        if self._network.is_cut(self.machines[1 - side], self.machines[side]) or self._under_way[1 - side]:
            self._world.after(self.machines[side], AGAIN, self._hear_goodbye, side)
        elif not end.lost and (end.arrived or end.protocol is None):  # it is read, or accepted, first
            self._world.after(self.machines[side], 0.001, self._hear_goodbye, side)
        else:
            end.lose(None)

    def reset(self) -> None:
        """Break the connection. A part of what was on its way may still arrive."""
        if self.broken:
            return
        self.broken = True
        chance = self._network.chance
        for side in (0, 1):
            other = self.machines[1 - side]
            if self._under_way[side] and chance.random() < 0.5:
                data = self._under_way[side][0]
                self.ends[1 - side].arrived.append(data[: chance.randrange(len(data) + 1)])
                self._world.soon(other, self.ends[1 - side].read)
            error = ConnectionResetError("connection reset")
            self._world.after(self.machines[side], chance.expovariate(500), self.ends[side].lose, error)

    def end_died(self, machine: Machine) -> None:
        """The process at one end is dead. The operating system of the other end learns of it."""
        side = self.machines.index(machine)
        self.ends[side].end_quietly()
        if not self.broken:
            delay = self._network.chance.expovariate(1000)
            self._world.after(self.machines[1 - side], delay, self._hear_goodbye, 1 - side)


class Network:
    """What connects the machines.

    Attributes:
        passed: The messages that servers have taken so far.
        losing: The share of messages that servers drop.
        held: By how many seconds messages of a kind are late, or None if they are lost. A kind is the first
            words of a subject.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.chance = Random(f"network {world.seed}")
        self.servers: dict[int, NatsServer] = {}
        self.passed = 0
        self.losing = 0.0
        self.held: dict[str, float | None] = {}
        self._cuts: dict[tuple[int, int], int] = {}
        self._wires = 0
        self._alarms: list[tuple[int, Callable[[], object]]] = []
        world.network = self

    def is_cut(self, sender: Machine, receiver: Machine) -> bool:
        """Whether nothing gets from one machine to another."""
        return bool(self._cuts) and (sender.number, receiver.number) in self._cuts

    def cut(self, sender: Machine, receiver: Machine) -> None:
        """Let nothing get from one machine to another, until `heal` has been called as often."""
        pair = (sender.number, receiver.number)
        self._cuts[pair] = self._cuts.get(pair, 0) + 1
        self._forget_routes()

    def heal(self, sender: Machine, receiver: Machine) -> None:
        """End a cut."""
        pair = (sender.number, receiver.number)
        self._cuts[pair] -= 1
        if not self._cuts[pair]:
            del self._cuts[pair]
        self._forget_routes()

    def _forget_routes(self) -> None:
        for server in self.servers.values():
            server.forget_routes()

    def count(self) -> None:
        """A message has passed."""
        self.passed += 1
        while self._alarms and self._alarms[0][0] <= self.passed:
            self.world.soon(self.world.outside, self._alarms.pop(0)[1])

    def after_messages(self, count: int, call: Callable[[], object]) -> None:
        """Call something when so many more messages have passed."""
        self._alarms.append((self.passed + count, call))
        self._alarms.sort(key=lambda alarm: alarm[0])

    async def connect(
        self, machine: Machine, factory: Callable[[], Any], host: str, port: int
    ) -> tuple[End, Any]:
        """Connect to a server, as `loop.create_connection` does."""
        await asyncio.sleep(self.chance.expovariate(2000))
        server = self.servers.get(port) if host == HOST else None
        while (  # noqa: ASYNC110 - virtual time is cheap
            server is not None and server.machine.up and self._apart(machine, server.machine)
        ):
            await asyncio.sleep(0.25)  # the operating system tries again
        if server is None or not server.machine.up:
            raise ConnectionRefusedError(111, f"nobody listens at {host}:{port}")
        self._wires += 1
        wire = Wire(self, self._wires, machine, server.machine)
        end, protocol = wire.ends[0], factory()
        end.protocol = protocol
        protocol.connection_made(end)
        self.world.after(server.machine, 0.000_1, server.accept, wire)
        return end, protocol

    def _apart(self, one: Machine, other: Machine) -> bool:
        return self.is_cut(one, other) or self.is_cut(other, one)


class Sub(NamedTuple):
    """A subscription of a client of a server."""

    client: Client
    sid: bytes
    pattern: list[str]
    queue: str
    wild: bool
    """Whether the pattern stands for more than one subject."""


class Client(asyncio.Protocol):
    """A client, as its server sees it."""

    def __init__(self, server: NatsServer, wire: Wire) -> None:
        self.server = server
        self.wire = wire
        self.subs: dict[bytes, Sub] = {}
        self._end = wire.ends[1]
        self._end.protocol = self
        self._unread = b""
        self._gone = False

    def data_received(self, data: bytes) -> None:
        self._unread += data
        while not self._gone:
            line, ended, rest = self._unread.partition(b"\r\n")
            if not ended:
                return
            words = line.split(b" ")
            verb = words[0].upper()
            if verb in {b"PUB", b"HPUB"}:
                size = int(words[-1])
                if len(rest) < size + 2:
                    return
                self._unread = rest[size + 2 :]
                numbers = 1 if verb == b"PUB" else 2
                head = 0 if verb == b"PUB" else int(words[-2])
                reply = words[2] if len(words) == 3 + numbers else b""
                message = Message(words[1].decode(), reply.decode(), rest[:size], head)
                self.server.publish(message, self)
                continue
            self._unread = rest
            self._obey(verb, words)

    def _obey(self, verb: bytes, words: list[bytes]) -> None:
        if verb == b"PING":
            self.write(b"PONG\r\n")
        elif verb == b"SUB":
            queue = words[2].decode() if len(words) == 4 else ""
            pattern = words[1].decode().split(".")
            wild = "*" in pattern or pattern[-1] == ">"
            self.subs[words[-1]] = Sub(self, words[-1], pattern, queue, wild)
            self.server.forget_all_routes()
        elif verb == b"UNSUB":
            self.subs.pop(words[1], None)
            self.server.forget_all_routes()

    def write(self, data: bytes) -> None:
        """Send a line to the client."""
        if not self._gone:
            self._end.write(data)

    def deliver(self, sid: bytes, message: Message) -> None:
        """Send a message to the client."""
        words = [message.subject.encode(), sid, *([message.reply.encode()] if message.reply else [])]
        head = [b"%d" % message.head] if message.head else []
        line = b" ".join([b"HMSG" if head else b"MSG", *words, *head, b"%d" % len(message.body)])
        self.write(line + b"\r\n" + message.body + b"\r\n")

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._gone:
            self._gone = True
            self.server.leave(self)


class Message(NamedTuple):
    """A message. The first `head` bytes of the body are headers."""

    subject: str
    reply: str
    body: bytes
    head: int = 0


def kind_of(subject: str) -> str:
    """What a message is about: the first words of its subject."""
    return ".".join(subject.split(".")[:3])


def matches(pattern: list[str], tokens: list[str]) -> bool:
    """Whether a subject matches a pattern."""
    for place, word in enumerate(pattern):
        if word == ">":
            return len(tokens) > place
        if place >= len(tokens) or word not in ("*", tokens[place]):
            return False
    return len(pattern) == len(tokens)


class NatsServer:
    """A NATS server. The servers of a cluster know each other's subscriptions.

    Attributes:
        machine: Where it runs.
        peers: All servers of its cluster, itself among them.
        hooks: Each is asked first whether it takes a message.
    """

    def __init__(
        self, network: Network, machine: Machine, port: int, peers: list[NatsServer] | None = None
    ) -> None:
        self.network = network
        self.machine = machine
        self.port = port
        self.peers = [] if peers is None else peers
        self.peers.append(self)
        self.hooks: list[Callable[[NatsServer, Message], bool]] = []
        self._clients: dict[int, Client] = {}
        self._subs: list[Sub] | None = None
        self._routes: dict[str, list[Sub]] = {}
        self._last: dict[int, float] = {}
        network.servers[port] = self
        machine.after_crash = self._forget_clients

    def _forget_clients(self) -> None:
        self._clients = {}
        self.forget_all_routes()

    @property
    def wires(self) -> list[Wire]:
        """The connections of its clients."""
        return [client.wire for client in self._clients.values()]

    def accept(self, wire: Wire) -> None:
        """Greet a client."""
        if wire.broken:
            return
        client = self._clients[wire.number] = Client(self, wire)
        info = {
            **{"server_id": f"S{self.port}", "server_name": f"s{self.port}", "version": VERSION, "proto": 1},
            **{"headers": True, "max_payload": 1_048_576, "jetstream": True, "client_id": wire.number},
        }
        client.write(b"INFO " + json.dumps(info).encode() + b"\r\n")
        wire.ends[1].read()

    def leave(self, client: Client) -> None:
        """A client is gone."""
        self._clients.pop(client.wire.number, None)
        self.forget_all_routes()

    def forget_routes(self) -> None:
        """Look for subscribers anew."""
        self._subs = None
        self._routes.clear()

    def forget_all_routes(self) -> None:
        """Let all servers of the cluster look for subscribers anew."""
        for server in self.peers:
            server.forget_routes()

    def subscribers(self, subject: str) -> Iterator[Sub]:
        """All subscriptions that a message published here must reach, one for each queue group."""
        tokens = subject.split(".")
        near = ".".join(tokens[:2])  # the subjects of replies differ in what follows
        if self._subs is None:
            self._subs = [
                sub
                for server in self.peers
                if server.machine.up and not self.network.is_cut(self.machine, server.machine)
                for client in server._clients.values()
                for sub in client.subs.values()
            ]
        if near not in self._routes:
            start = tokens[:2]
            self._routes[near] = [sub for sub in self._subs if _may_match(sub.pattern, start)]
        groups: dict[str, list[Sub]] = {}
        for sub in self._routes[near]:
            if sub.pattern == tokens or (sub.wild and matches(sub.pattern, tokens)):
                if sub.queue:
                    groups.setdefault(sub.queue, []).append(sub)
                else:
                    yield sub
        for members in groups.values():
            own = [sub for sub in members if sub.client.server is self] or members
            yield own[int(self.network.chance.random() * len(own))]

    def publish(self, message: Message, sender: Client | None = None) -> None:
        """Take a message of a client, or of the server itself."""
        network, world = self.network, self.network.world
        network.count()
        if world.tracing:
            text = message.body[message.head :][:120].decode(errors="replace")
            world.detail(self.machine.name, f"{message.subject} {text}")
        if any(hook(self, message) for hook in self.hooks):
            return
        if network.held and (kind := kind_of(message.subject)) in network.held:
            if (late := network.held[kind]) is not None:
                world.after(self.machine, late, self._route, message, sender)
            return
        self._route(message, sender)

    def _route(self, message: Message, sender: Client | None) -> None:
        """Send a message to all who have subscribed to it."""
        network, world = self.network, self.network.world
        to = list(self.subscribers(message.subject))
        if not to and message.reply and sender is not None:
            self.publish(Message(message.reply, "", SERVICE_UNAVAILABLE, len(SERVICE_UNAVAILABLE)))
            return
        for sub in to:
            if network.losing and network.chance.random() < network.losing:
                world.faults["lost message"] += 1
            else:
                self.pass_on(sub, message)

    def pass_on(self, sub: Sub, message: Message) -> None:
        """Send a message to a subscriber, who may be a client of another server."""
        server, world = sub.client.server, self.network.world
        if server is self:
            sub.client.deliver(sub.sid, message)
            return
        at = max(world.now + self.network.chance.expovariate(3000), self._last.get(server.port, 0.0) + 1e-7)
        self._last[server.port] = at
        world.after(server.machine, at - world.now, sub.client.deliver, sub.sid, message)


def _may_match(pattern: list[str], start: list[str]) -> bool:
    for word, token in zip(pattern, start, strict=False):
        if word == ">":
            return True
        if word not in ("*", token):
            return False
    return True
