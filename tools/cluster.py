"""Three nodes of a cluster on this machine, for trying it out: `./dev cluster [FOLDER]`.

It starts `holdfast up --cluster` three times, as three machines would, and ends what it started.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import sys
from pathlib import Path
from typing import Any, Final

NODES: Final = 3
NAME: Final = "demo"
UP: Final = b"Holdfast is up."
START_SECONDS: Final = 90.0


def main(arguments: list[str]) -> int:
    """Run the nodes until Ctrl-C. Return the exit code."""
    folder = Path(arguments[0] if arguments else ".dev/cluster").absolute()
    return asyncio.run(_run(folder))


async def _run(folder: Path) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    ports = _ports(folder)
    nodes = [await _start(folder, position, ports) for position in range(NODES)]
    try:
        async with asyncio.timeout(START_SECONDS):
            ready = asyncio.gather(*map(_is_up, nodes))
            either: list[asyncio.Future[Any]] = [ready, asyncio.create_task(stop.wait())]
            await asyncio.wait(either, return_when="FIRST_COMPLETED")
        if not stop.is_set():
            ready.result()
            _tell(folder, ports)
            await stop.wait()
    except (TimeoutError, RuntimeError) as error:
        print(f"cluster: a node did not start: {error}; see {folder}/*.log", file=sys.stderr)
        return 1
    finally:
        for node in nodes:
            if node.returncode is None:
                node.send_signal(signal.SIGINT)
        await asyncio.gather(*(node.wait() for node in nodes))
    return 0


def _ports(folder: Path) -> list[list[int]]:
    """Return the ports of each node for clients, routes and HTTP: free ones, the same at every start."""
    file = folder / "ports"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "secret").write_text(secrets.token_hex(16))
        file.write_text("\n".join(" ".join(map(str, _free(3))) for _ in range(NODES)))
    return [[int(port) for port in line.split()] for line in file.read_text().splitlines()]


def _free(count: int) -> list[int]:
    """Return free ports below those that the system hands out, with free ports for monitoring."""
    found: list[int] = []
    while len(found) < count:
        port = 10_000 + secrets.randbelow(15_000)
        with socket.socket() as one, socket.socket() as other:
            try:
                one.bind(("127.0.0.1", port))
                other.bind(("127.0.0.1", port + 4_000))
            except OSError:
                continue
        found.append(port)
    return found


async def _start(folder: Path, position: int, ports: list[list[int]]) -> asyncio.subprocess.Process:
    client, routes, http = ports[position]
    peers = ",".join(f"127.0.0.1:{ports[other][1]}" for other in range(NODES) if other != position)
    flags = {
        "cluster": NAME,
        "peers": peers,
        "cluster-host": "127.0.0.1",
        "cluster-port": routes,
        "nats-port": client,
        "http-port": http,
        "data-dir": folder / str(position),
    }
    given = [str(word) for name, value in flags.items() for word in (f"--{name}", value)]
    with (folder / f"{position}.log").open("wb") as log:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "holdfast", "up", *given),
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env={**os.environ, "HOLDFAST_CLUSTER_SECRET": (folder / "secret").read_text()},
            start_new_session=True,
        )


async def _is_up(node: asyncio.subprocess.Process) -> None:
    assert node.stdout is not None
    while UP not in (line := await node.stdout.readline()):
        if not line:
            raise RuntimeError("its process has ended")


def _tell(folder: Path, ports: list[list[int]]) -> None:
    print(f"Three nodes of {NAME} are up; their files are in {folder}.")
    login = folder / "0" / "nats" / "node.login"
    print(f"Look  holdfast cluster status --url 'cluster://127.0.0.1:{ports[0][0]}/{NAME}?login={login}'")
    print(f"Try   holdfast set greeting '\"hello\"' --plugin demo --url nats://127.0.0.1:{ports[0][0]}")
    print(f"      holdfast get greeting --plugin demo --url nats://127.0.0.1:{ports[1][0]}")
    for position, (_, _, http) in enumerate(ports):
        print(f"HTTP  node {position}: http://127.0.0.1:{http}/readyz and /metrics")
    print("Ctrl-C stops them.", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
