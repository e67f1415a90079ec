"""A plugin gone wild, as a process of its own: it publishes as fast as the server lets it, and never listens.

Nothing of Holdfast and of the client library, which would only slow it down. It ends by itself.
"""

from __future__ import annotations

import json
import socket
import sys
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tests.forking import ForkedProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

KEYS = 1_000


def messages(kind: str, plugin: str) -> Iterator[bytes]:
    """A thousand messages: sets nobody waits for and sets that ask for a reply, or rubbish of both kinds."""
    for number in range(KEYS):
        payload = json.dumps({"key": f"key:{number}", "value": {"number": number, "pad": "x" * 60}}).encode()
        if kind == "rubbish":
            payload = payload[: number % 60]
        reply = b" _INBOX.flood" if number % 2 else b""
        yield b"PUB db.kv.%b.set%b %d\r\n%b\r\n" % (plugin.encode(), reply, len(payload), payload)


def flood(url: str, number: int, kind: str, plugin: str) -> None:
    """Publish so many messages, in bursts."""
    address = urlsplit(url)
    burst = b"".join(messages(kind, plugin))
    with socket.create_connection((address.hostname, address.port)) as wire:
        wire.sendall(b'CONNECT {"verbose":false,"pedantic":false}\r\n')
        for _ in range(0, number, KEYS):
            wire.sendall(burst)
        wire.sendall(b"PING\r\n")
        while b"PONG" not in wire.recv(65_536):
            pass


async def flooding(url: str, number: int, kind: str, plugin: str) -> int:
    """Run such a process; its exit code, once the server has taken all that it sent."""
    process = await ForkedProcess.start("tests.robustness.flooding_process", url, str(number), kind, plugin)
    return await process.wait()


if __name__ == "__main__":
    flood(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4])
