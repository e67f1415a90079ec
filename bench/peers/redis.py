"""Redis with an append-only file that is synced before every answer.

The redis-server of the PATH, or else the one that `./dev bench` fetched; where there is none it is left
out and that is said.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.peers.process import accepting, free_port, program

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

DURABILITY: Final = "append-only file with appendfsync always, no snapshots"
_FETCHED: Final = Path(__file__).resolve().parents[2] / ".dev" / "tools" / "redis"


def find() -> tuple[str, dict[str, str]] | None:
    """The program and what must be in its environment, if there is one."""
    if found := shutil.which("redis-server"):
        return found, {}
    fetched = _FETCHED / "bin" / "redis-server"
    libraries = os.pathsep.join(map(str, _FETCHED.glob("lib/*-linux-gnu")))
    return (str(fetched), {"LD_LIBRARY_PATH": libraries}) if fetched.exists() else None


def version() -> str:
    """What the program says it is."""
    found = find()
    assert found is not None
    said = subprocess.run(
        [found[0], "--version"], env={**os.environ, **found[1]}, capture_output=True, text=True, check=True
    ).stdout
    return next(word.removeprefix("v=") for word in said.split() if word.startswith("v="))


@contextlib.asynccontextmanager
async def redis_server(folder: Path) -> AsyncIterator[str]:
    """A redis-server, and its address."""
    found = find()
    assert found is not None
    data, port = folder / "redis", free_port()
    data.mkdir()
    settings = {
        "bind": "127.0.0.1",
        "port": str(port),
        "dir": str(data),
        "save": "",
        "appendonly": "yes",
        "appendfsync": "always",
        "logfile": str(data / "log"),
    }
    options = [word for name, value in settings.items() for word in (f"--{name}", value)]
    async with program(found[0], *options, env=found[1]):
        await accepting(port)
        yield f"redis://127.0.0.1:{port}"
