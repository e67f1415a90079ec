"""A conversation with JetStream over one connection. A real server and the simulated one must answer alike.

`python -m tests.simulation.jetstream_script` has it with the simulated servers, and prints the answers.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections import deque
from typing import Any, Final

STREAM: Final = {
    **{"name": "TALK", "subjects": ["talk.>"], "storage": "file", "retention": "limits", "num_replicas": 3},
    **{"discard": "new", "deny_delete": True, "allow_atomic": True, "duplicate_window": 120_000_000_000},
}
EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
NO_RESPONDERS: Final = "NATS/1.0 503"
SECONDS: Final = 60.0


class Talk:
    """One side of the conversation."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._number = 0
        self._waiting: deque[tuple[list[str], bytes, bytes]] = deque()

    async def begin(self) -> None:
        """Log in and listen to the replies and to deliveries."""
        await self._reader.readline()
        fields = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "protocol": 1}
        self._write(f"CONNECT {json.dumps(fields)}")
        self._write("SUB _INBOX.replies.* 1")
        self._write("SUB _INBOX.delivered 2")

    def _write(self, line: str, body: bytes | None = None) -> None:
        self._writer.write(line.encode() + b"\r\n" + (b"" if body is None else body + b"\r\n"))

    def send(self, subject: str, data: bytes, headers: dict[str, str] | None = None, reply: str = "") -> None:
        """Send a message."""
        words = f"{subject} {reply}".rstrip()
        if headers:
            lines = ["NATS/1.0", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
            head = "\r\n".join(lines).encode()
            self._write(f"HPUB {words} {len(head)} {len(head) + len(data)}", head + data)
        else:
            self._write(f"PUB {words} {len(data)}", data)

    async def ask(self, subject: str, data: bytes = b"", headers: dict[str, str] | None = None) -> Any:
        """Send a message and return the reply, decoded, or its status."""
        self._number += 1
        reply = f"_INBOX.replies.{self._number}"
        self.send(subject, data, headers, reply)
        while True:
            message = words, head, body = await self._read()
            if words[1] == reply:
                return json.loads(body) if body else head.split(b"\r\n")[0].decode().strip()
            self._waiting.append(message)

    async def receive(self) -> tuple[list[str], bytes, bytes]:
        """Return the next delivery: the words of its line, its headers and its data."""
        return self._waiting.popleft() if self._waiting else await self._read()

    async def _read(self) -> tuple[list[str], bytes, bytes]:
        async with asyncio.timeout(SECONDS):
            while True:
                words = (await self._reader.readuntil(b"\r\n")).decode().split()
                if words[0] == "PING":
                    self._write("PONG")
                elif words[0] in {"MSG", "HMSG"}:
                    body = await self._reader.readexactly(int(words[-1]) + 2)
                    head = int(words[-2]) if words[0] == "HMSG" else 0
                    if words[0] == "HMSG" and len(words) == 6 and body.startswith(b"NATS/1.0 100"):
                        self.send(words[3], b"")  # flow control: the consumer waits for this
                        continue
                    return words, body[:head], body[head:-2]

    async def api(self, call: str, body: dict[str, Any] | None = None) -> Any:
        """Make a call of the API."""
        return await self.ask(f"$JS.API.{call}", b"" if body is None else json.dumps(body).encode())


def shown(reply: Any) -> Any:
    """What of a reply a node relies on."""
    if not isinstance(reply, dict):
        return reply
    if "error" in reply:
        error = reply["error"]
        return [error["err_code"], error["description"] if "sequence" in error["description"] else ""]
    names = ("seq", "duplicate", "count", "num_pending", "purged", "success")
    view = {name: reply[name] for name in names if name in reply}
    if "state" in reply:
        view["state"] = [reply["state"][name] for name in ("messages", "first_seq", "last_seq")]
    if "config" in reply and "subjects" in reply["config"]:
        config = {**dict.fromkeys(("max_msgs", "max_bytes"), -1), **reply["config"]}
        view["config"] = {name: config.get(name) for name in (*STREAM, "max_msgs", "max_bytes", "max_age")}
    if "message" in reply:
        message = reply["message"]
        view["message"] = [message["seq"], message["subject"], base64.b64decode(message["data"]).decode()]
        view["headers"] = "hdrs" in message
    return view


async def converse(host: str, port: int) -> list[Any]:
    """Have the conversation and return the answers."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        return await _conversation(Talk(reader, writer))
    finally:
        writer.close()


async def _conversation(talk: Talk) -> list[Any]:
    await talk.begin()
    answers = [
        await talk.api("STREAM.INFO.TALK"),
        await talk.api("STREAM.CREATE.TALK", STREAM),
        await talk.api("STREAM.CREATE.TALK", STREAM),
        await talk.api("STREAM.CREATE.TALK", {**STREAM, "subjects": ["talk.>", "more.>"]}),
        await _first_answer(talk, "talk.a", b"one", {EXPECTED: "0", "Nats-Msg-Id": "m1"}),
        await talk.ask("talk.a", b"one", {EXPECTED: "0", "Nats-Msg-Id": "m1"}),
        await talk.ask("talk.a", b"two", {EXPECTED: "0", "Nats-Msg-Id": "m2"}),
        await talk.ask("talk.b", b"other", {EXPECTED: "0"}),
        await talk.ask("talk.a", b"two", {EXPECTED: "1", "Nats-Msg-Id": "m2"}),
        await talk.ask("nobody.listens", b"?"),
        await _batch(talk, "b1", ["1", "2", "3"], base="3"),
        await _batch(talk, "b2", ["1", "3"], base="6"),
        await _batch(talk, "b3", ["1", "2"], base="3"),
        await talk.api("STREAM.MSG.GET.TALK", {"last_by_subj": "talk.a"}),
        await talk.api("STREAM.MSG.GET.TALK", {"seq": 1, "next_by_subj": "talk.b"}),
        await talk.api("STREAM.MSG.GET.TALK", {"seq": 3}),
        await talk.api("STREAM.MSG.GET.TALK", {"seq": 99}),
        await talk.api("STREAM.MSG.GET.TALK", {"last_by_subj": "talk.c"}),
        await talk.api("STREAM.INFO.TALK"),
    ]
    config = {
        **{"deliver_subject": "_INBOX.delivered", "deliver_policy": "by_start_sequence", "opt_start_seq": 3},
        **{"ack_policy": "none", "max_deliver": 1, "replay_policy": "instant", "filter_subject": "talk.a"},
        **{"flow_control": True, "idle_heartbeat": 1_000_000_000, "inactive_threshold": 10_000_000_000},
        **{"mem_storage": True, "num_replicas": 1, "metadata": {"who": "me"}},
    }
    answers.append(await talk.api("CONSUMER.CREATE.TALK", {"stream_name": "TALK", "config": config}))
    delivered = [await _delivery(talk) for _ in range(4)]
    talk.send("talk.a", b"later")
    delivered.append(await _delivery(talk))
    heartbeat = await talk.receive()
    answers += [
        await talk.api("STREAM.UPDATE.TALK", {**STREAM, "max_msgs_per_subject": 2}),
        await talk.api("STREAM.UPDATE.TALK", {**STREAM, "max_msgs_per_subject": -1}),
        await talk.api("STREAM.PURGE.TALK", {"filter": "talk.b"}),
        await talk.api("STREAM.INFO.TALK"),
    ]
    listed = await talk.api("CONSUMER.LIST.TALK", {"offset": 0})
    bound = [[one["config"]["metadata"]["who"], one["push_bound"]] for one in listed["consumers"]]
    return [*map(shown, answers), delivered, heartbeat[1].split(b"\r\n")[0].decode(), listed["total"], bound]


async def _first_answer(talk: Talk, subject: str, data: bytes, headers: dict[str, str]) -> Any:
    """Send a message until it has a receiver: other servers learn of a new stream after its creator does."""
    async with asyncio.timeout(SECONDS):
        while (answer := await talk.ask(subject, data, headers)) == NO_RESPONDERS:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
    return answer


async def _batch(talk: Talk, name: str, numbers: list[str], *, base: str) -> Any:
    """Send a batch. All messages but the last are sent without waiting."""
    headers = [{"Nats-Batch-Id": name, "Nats-Batch-Sequence": number} for number in numbers]
    headers[0][EXPECTED] = base
    headers[-1]["Nats-Batch-Commit"] = "1"
    for number, head in zip(numbers[:-1], headers[:-1], strict=True):
        talk.send("talk.a", number.encode(), head)
    return await talk.ask("talk.a", numbers[-1].encode(), headers[-1])


async def _delivery(talk: Talk) -> list[Any]:
    """The subject, data, sequence and number of messages left of the next message that is delivered."""
    while True:
        words, head, data = await talk.receive()
        if words[2] == "2" and not head.startswith(b"NATS/1.0 1"):
            ack = words[3].split(".")
            return [words[1], data.decode(), ack[5], ack[6], ack[8]]


def main() -> None:
    """Have the conversation with three simulated servers and print the answers."""
    # late: it replaces the clocks of this process
    from tests.simulation import seams
    from tests.simulation.disk import Disk
    from tests.simulation.jetstream import JetStream
    from tests.simulation.network import HOST, NatsServer, Network
    from tests.simulation.world import World

    world = World(1, Disk())  # type: ignore[abstract]
    network = Network(world)
    peers: list[NatsServer] = []
    for number in range(3):
        NatsServer(network, world.machine(f"nats{number}"), 4222 + number, peers)
    JetStream(network, peers)
    answers: list[Any] = []

    async def run() -> None:
        answers.extend(await converse(HOST, 4222))

    seams.enter(world)
    world.machine("client").spawn(run(), name="client")
    world.run(lambda: bool(answers or world.errors or world.now > 30))
    print(json.dumps(answers or world.errors), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
