"""The interpreter of a service: what collecting garbage and other threads may take of the loop's time."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from tests.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import asyncio, gc, os, signal, sys
from holdfast.edges.serve import serve
from holdfast.edges.settings.read import read_config

def say(line):
    if line == "Ctrl-C stops.":
        asyncio.get_running_loop().call_soon(count)

def count():
    print(len(gc.get_objects()), gc.get_freeze_count(), sys.getswitchinterval())
    os.kill(os.getpid(), signal.SIGTERM)

ports = {"nats_port": int(sys.argv[2]), "http_port": int(sys.argv[3])}
asyncio.run(serve(read_config(data_dir=sys.argv[1], **ports), say=say))
"""


async def test_a_collection_does_not_look_at_the_parts_of_a_service(tmp_path: Path) -> None:
    """A full collection looks at the objects of requests under way, not at those of all modules.

    Otherwise a plugin that sends values of many lists stops the service for 40 ms ten times a second. And no
    thread that reads for one plugin keeps the interpreter for longer than half a millisecond.
    """
    ports = (str(free_port()), str(free_port()))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, str(tmp_path), *ports),
        stdout=asyncio.subprocess.PIPE,
        cwd=tmp_path,
    )
    said, _ = await asyncio.wait_for(process.communicate(), 60)
    watched, exempt, share = map(float, said.split())
    assert exempt > 20_000
    assert watched < 5_000
    assert share <= 0.0005
