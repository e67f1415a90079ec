"""A plugin with credentials that does its worst for some seconds, as a process of its own.

Attackers have machines of their own: the processor time that they need is not taken from the service. Here
they share its processors, so this process has the lowest priority, and the NATS server and the service run
before it. It sends whenever the server takes more, and waits otherwise.

Bare sockets, nothing of Holdfast and of the client library, which would only slow it down. It ends by
itself. When the server cuts a connection off, the next one is made.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from tests.forking import ForkedProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LARGEST: Final = 1_048_576
MANY: Final = 100
"""How many connections an attack with many of them has."""


def _messages(plugin: str, requests: list[tuple[str, Any]], *, reply: str) -> bytes:
    """Requests as they go over the wire, every second one with a wish for an answer."""
    lines = []
    for number, (verb, fields) in enumerate(requests):
        payload = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
        where = f" {reply}" if number % 2 or reply.endswith("unread") else ""
        lines.append(b"PUB db.%b%b %d\r\n%b\r\n" % (verb.encode(), where.encode(), len(payload), payload))
    return b"".join(line.replace(b"PLUGIN", plugin.encode(), 1) for line in lines)


def _large() -> Iterator[tuple[str, Any]]:
    """Messages as large as the server lets pass: a value too large, many values, and no JSON."""
    empty = len(json.dumps({"key": "k", "value": ""}))
    yield "kv.PLUGIN.set", {"key": "k", "value": "x" * (LARGEST - empty)}
    yield "kv.PLUGIN.set", b"x" * LARGEST
    yield "kv.PLUGIN.set", {"key": "k", "value": [1] * 300_000}


def _small() -> Iterator[tuple[str, Any]]:
    for number in range(1_000):
        yield "kv.PLUGIN.set", {"key": f"key:{number}", "value": {"number": number, "pad": "x" * 60}}
        yield "kv.PLUGIN.get", {"key": f"key:{number}"}
        yield "kv.PLUGIN.set", b"{"


def _expensive() -> Iterator[tuple[str, Any]]:
    keys = [f"big:{number}" for number in range(100)]
    for key in keys[:8]:
        yield "kv.PLUGIN.set", {"key": key, "value": "x" * 60_000}
    checks = [{"key": "big:0", "version": 999_999}] * 1_000
    yield "kv.PLUGIN.batch", {"checks": checks, "writes": [{"key": "z", "value": 1}]}
    yield "kv.PLUGIN.get_many", {"keys": keys}
    yield "kv.PLUGIN.list", {"values": True, "limit": 1_000}
    yield "kv.PLUGIN.set_many", {"items": [{"key": f"z{number}", "value": 1} for number in range(1_000)]}
    yield "kv.PLUGIN.changes", {"since": 0, "limit": 10_000}
    yield "kv.PLUGIN.set", {"key": "z", "value": [[[]] * 100] * 200}


def _unread() -> Iterator[tuple[str, Any]]:
    yield "kv.PLUGIN.set", {"key": "big:0", "value": "x" * 60_000}
    for _ in range(200):
        yield "kv.PLUGIN.get", {"key": "big:0"}


KINDS: Final[dict[str, tuple[Callable[[], Iterator[tuple[str, Any]]], int]]] = {
    "large": (_large, 1),
    "small": (_small, 2),
    "expensive": (_expensive, 1),
    "unread": (_unread, 4),
    "connections": (_small, MANY),
}
"""What is sent in each attack, and over how many connections at a time."""


def _connect(url: str, *, unread: str) -> socket.socket:
    """A connection that was let in. One that reads nothing listens to its replies and events all the same."""
    address = urlsplit(url)
    wire = socket.create_connection((address.hostname, address.port), timeout=10)
    wire.recv(65_536)
    hello = {"verbose": False, "pedantic": False, "user": address.username, "pass": address.password}
    wire.sendall(b"CONNECT " + json.dumps(hello).encode() + b"\r\nPING\r\n")
    while b"PONG" not in (said := wire.recv(65_536)):
        if not said:
            wire.close()
            raise ConnectionRefusedError("the server lets this plugin have no more connections")
    if unread:
        wire.sendall(f"SUB {unread} 1\r\nSUB db.event.kv.{address.username}.> 2\r\n".encode())
    wire.setblocking(False)
    return wire


def flood(url: str, kind: str, seconds: float) -> int:
    """Send as fast as the server takes it; how many bytes that were."""
    plugin = urlsplit(url).username or ""
    requests, connections = KINDS[kind]
    unread = f"_INBOX.{plugin}.unread" if kind == "unread" else ""
    burst = _messages(plugin, list(requests()), reply=unread or f"_INBOX.{plugin}.flood")
    until, sent = time.monotonic() + seconds, 0
    with selectors.DefaultSelector() as ready:
        for _ in range(connections):
            with suppress(OSError):
                ready.register(_connect(url, unread=unread), selectors.EVENT_WRITE, 0)
        while time.monotonic() < until:
            for key, _ in ready.select(0.1):
                wire: Any = key.fileobj
                try:
                    position = key.data + wire.send(memoryview(burst)[key.data :])
                    sent += position - key.data
                    ready.modify(wire, selectors.EVENT_WRITE, position % len(burst))
                except BlockingIOError:
                    continue
                except OSError:
                    ready.unregister(wire)
                    wire.close()
                    with suppress(OSError):
                        ready.register(_connect(url, unread=unread), selectors.EVENT_WRITE, 0)
            if not ready.get_map():
                time.sleep(0.01)
                with suppress(OSError):
                    ready.register(_connect(url, unread=unread), selectors.EVENT_WRITE, 0)
        for key in list(ready.get_map().values()):
            wire = key.fileobj
            wire.close()
    return sent


async def flooding(url: str, kind: str, seconds: float) -> int:
    """Run such a process; how many bytes the server has taken from it."""
    process = await ForkedProcess.start("tests.robustness.flooding_neighbour", url, kind, str(seconds))
    said, _ = await process.communicate()
    assert process.returncode == 0
    return int(said)


if __name__ == "__main__":
    os.nice(19)
    print(flood(sys.argv[1], sys.argv[2], float(sys.argv[3])))
