"""The same load as `bench.peers.http_load`, through the httpx library, as Python programs ask.

    python -m bench.peers.httpx_load PORT VERB IN_FLIGHT SECONDS

One task for each request in flight. It prints the answers per second, and fails on any but 200. The
library takes longer for a request than most services: this tells more about a caller than about a service.
"""

from __future__ import annotations

import asyncio
import sys
import time

import httpx
import uvloop

from bench.peers.http_load import KEYS, VALUE


async def main(port: int, verb: str, in_flight: int, seconds: float) -> None:
    """Ask for a while, and print the answers per second."""
    answers, until = 0, 0.0
    limits = httpx.Limits(max_connections=in_flight, max_keepalive_connections=in_flight)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", limits=limits, timeout=60) as client:

        async def ask(number: int) -> None:
            nonlocal answers
            while not until or time.perf_counter() < until:
                number += 1
                where = f"/v1/kv/plugin{number % 10}/key:{number % KEYS:08}"
                response = await (client.get(where) if verb == "get" else client.put(where, content=VALUE))
                response.raise_for_status()
                answers += 1
                if not until:
                    return  # the connection has been made

        await asyncio.gather(*(ask(number * 7919) for number in range(in_flight)))
        answers, until = 0, time.perf_counter() + seconds
        await asyncio.gather(*(ask(number * 7919) for number in range(in_flight)))
    print(answers / seconds, flush=True)


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
