"""A client that keeps so many HTTP requests in flight.

    python -m bench.peers.http_load PORT VERB IN_FLIGHT SECONDS

One connection for each request in flight. It prints the number of answers, and fails on any but 200.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Final

import uvloop

KEYS: Final = 2_000
VALUE: Final = b'{"n":1,"text":"' + b"x" * 80 + b'"}'


class Asking(asyncio.Protocol):
    """A connection that sends the next request as soon as it has the answer to the last."""

    def __init__(self, verb: str, number: int) -> None:
        self._verb = verb
        self._number = number
        self._received = b""
        self.answers = 0
        self.wrong = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin."""
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        self._number += 1
        where = (
            f"/v1/kv/plugin{self._number % 10}/key:{self._number % KEYS:08} HTTP/1.1\r\nHost: localhost\r\n"
        )
        if self._verb == "get":
            self._transport.write(f"GET {where}\r\n".encode())
        else:
            head = f"PUT {where}Content-Type: application/json\r\nContent-Length: {len(VALUE)}\r\n\r\n"
            self._transport.write(head.encode() + VALUE)

    def data_received(self, data: bytes) -> None:
        """Count an answer when it is whole."""
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if not end:
            return
        size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(body) < size:
            return
        if not head.startswith(b"HTTP/1.1 200"):
            self.wrong = head.decode()
        self._received = b""
        self.answers += 1
        self._ask()


async def main(port: int, verb: str, in_flight: int, seconds: float) -> None:
    """Ask for a while, and print the answers per second."""
    loop = asyncio.get_running_loop()
    made = [
        (await loop.create_connection(lambda n=n: Asking(verb, n * 7919), "127.0.0.1", port))[1]  # type: ignore[misc]
        for n in range(in_flight)
    ]
    await asyncio.sleep(0.2)
    before, began = sum(one.answers for one in made), time.perf_counter()
    await asyncio.sleep(seconds)
    rate = (sum(one.answers for one in made) - before) / (time.perf_counter() - began)
    wrong = next((one.wrong for one in made if one.wrong), "")
    if wrong or not rate:
        raise SystemExit(f"a wrong answer: {wrong or 'none at all'}")
    print(rate, flush=True)


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
