"""A plugin that does its worst over HTTP for some seconds, as a process of its own.

    python -m tests.robustness.flooding_http PORT PLUGIN KIND SECONDS

Bare sockets, nothing of Holdfast. It sends requests without waiting for the answers, and ends by itself.
When the service ends a connection, the next one is made.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from tests.forking import ForkedProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LARGE: Final = 1_000_000
MANY: Final = 100

Asked = tuple[str, str, Any]
"""A method, the end of a path, and a body."""


def _small() -> Iterator[Asked]:
    for number in range(300):
        yield "PUT", f"/key:{number}", {"number": number, "pad": "x" * 60}
        yield "GET", f"/key:{number}", None
        yield "PUT", f"/key:{number}", b"{"


def _large() -> Iterator[Asked]:
    yield "PUT", "/k", "x" * LARGE
    yield "POST", ":set_many", b"x" * LARGE
    yield "PUT", "/k", [1] * 300_000


def _expensive() -> Iterator[Asked]:
    keys = [f"big:{number}" for number in range(100)]
    for key in keys[:8]:
        yield "PUT", f"/{key}", "x" * 60_000
    yield "POST", ":get_many", {"keys": keys}
    yield "POST", ":list", {"values": True, "limit": 1_000}
    yield "POST", ":set_many", {"items": [{"key": f"z{number}", "value": 1} for number in range(1_000)]}
    yield "POST", ":changes", {"since": 0, "limit": 10_000}


def _unread() -> Iterator[Asked]:
    yield "PUT", "/big:0", "x" * 60_000
    for _ in range(200):
        yield "GET", "/big:0", None


def _watching() -> Iterator[Asked]:
    yield "GET", "?watch&since=0", None


KINDS: Final[dict[str, tuple[Callable[[], Iterator[Asked]], int]]] = {
    "small": (_small, 4),
    "large": (_large, 4),
    "bodies": (_large, MANY),
    "expensive": (_expensive, 4),
    "unread": (_unread, 16),
    "connections": (_small, MANY),
    "watching": (_watching, MANY),
}
"""What is sent in each attack, and over how many connections at a time."""
NOT_READING: Final = frozenset({"unread", "watching"})


def _burst(plugin: str, requests: Iterator[Asked]) -> bytes:
    """Requests as they go over the wire."""
    parts = []
    for method, path, body in requests:
        content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        head = f"{method} /v1/kv/{plugin}{path} HTTP/1.1\r\nHost: localhost\r\n"
        parts.append(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    return b"".join(parts)


def _connect(port: int) -> socket.socket:
    wire = socket.create_connection(("127.0.0.1", port), timeout=10)
    wire.setblocking(False)
    return wire


def flood(port: int, plugin: str, kind: str, seconds: float) -> int:
    """Send as fast as the service takes it; how many bytes that were."""
    requests, connections = KINDS[kind]
    burst, until, sent = _burst(plugin, requests()), time.monotonic() + seconds, 0
    wanted = selectors.EVENT_WRITE if kind in NOT_READING else selectors.EVENT_WRITE | selectors.EVENT_READ
    with selectors.DefaultSelector() as ready:
        while time.monotonic() < until:
            with suppress(OSError):
                while len(ready.get_map()) < connections:
                    ready.register(_connect(port), wanted, 0)
            for key, event in ready.select(0.1):
                wire: Any = key.fileobj
                try:
                    if event & selectors.EVENT_READ and not wire.recv(1_048_576):
                        raise ConnectionResetError
                    if event & selectors.EVENT_WRITE:
                        taken = wire.send(memoryview(burst)[key.data : key.data + 65_536])
                        sent += taken
                        ready.modify(wire, wanted, (key.data + taken) % len(burst))
                except BlockingIOError:
                    continue
                except OSError:
                    ready.unregister(wire)
                    wire.close()
        for key in list(ready.get_map().values()):
            wire = key.fileobj
            wire.close()
    return sent


async def flooding(port: int, plugin: str, kind: str, seconds: float) -> int:
    """Run such a process; how many bytes the service has taken from it."""
    process = await ForkedProcess.start(
        "tests.robustness.flooding_http", str(port), plugin, kind, str(seconds)
    )
    said, _ = await process.communicate()
    assert process.returncode == 0
    return int(said)


if __name__ == "__main__":
    print(flood(int(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4])))
