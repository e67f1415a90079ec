"""The checks of `holdfast doctor` for this machine: libraries, disk, clock, and the way to NATS.

Law: a check changes nothing and raises nothing. Its result is a finding, with advice.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import re
import shutil
import sqlite3
import ssl
import statistics
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, requires, version
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit

import msgspec

from holdfast import masking
from holdfast.engines.sqlite.setup import OLDEST_SQLITE
from holdfast.extras import DISTRIBUTION

if TYPE_CHECKING:
    from pathlib import Path

LITTLE_ROOM: Final = 1024**3
NO_ROOM: Final = 64 * 1024**2
"""Numbers of free bytes below which to warn, and to fail."""
SLOW_SYNC: Final = 0.020
"""Seconds from which a sync is slow. Each group of writes waits for one."""
SYNCS: Final = 15
DRIFT: Final = 0.010
"""Seconds by which the two clocks may diverge during the check."""
LOOK: Final = 0.2
BUILT: Final = 1_735_689_600
"""The start of 2025: a wall clock that shows an earlier time is not set."""
PATIENCE: Final = 3.0
TLS_FIRST: Final = "tls_first=true"
"""The option of a URL for a server that begins with TLS."""

Level = Literal["ok", "warn", "fail"]

_NAME: Final = re.compile(r"[\w.-]+")
_LEAST: Final = re.compile(r">=([\d.]+)")


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of a check, and advice if it is not ok."""

    check: str
    level: Level
    message: str
    advice: str | None = None


def python() -> Finding:
    """Report the interpreter."""
    return Finding("python", "ok", f"{platform.python_version()} on {platform.system()}, {sys.executable}")


def libraries() -> Finding:
    """Check that every required or optional library is present and new enough."""
    found: dict[str, str] = {}
    trouble: list[str] = []
    for requirement in requires(DISTRIBUTION) or ():
        name = _first(_NAME, requirement)
        if name == DISTRIBUTION:  # an extra that contains another
            continue
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            if "extra ==" not in requirement:
                trouble.append(f"{name} is missing")
            continue
        least = _first(_LEAST, requirement)
        if _numbers(found[name]) < _numbers(least):
            trouble.append(f"{name} {found[name]} is older than {least}")
    if trouble:
        return Finding("libraries", "fail", ", ".join(trouble), f"run pip install --upgrade {DISTRIBUTION}")
    return Finding("libraries", "ok", ", ".join(" ".join(library) for library in found.items()))


def sqlite() -> Finding:
    """Check the SQLite that Python was built with."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        least = ".".join(map(str, OLDEST_SQLITE[:2]))
        return Finding(
            "sqlite", "fail", f"{sqlite3.sqlite_version} is too old", f"use a Python with {least} or newer"
        )
    return Finding("sqlite", "ok", sqlite3.sqlite_version)


def disk(folder: Path) -> Finding:
    """Check the free space for the data."""
    free = shutil.disk_usage(folder).free
    message = f"{free / 1024**3:.1f} GiB free in {folder}"
    if free < LITTLE_ROOM:
        return Finding("disk", "fail" if free < NO_ROOM else "warn", message, "make room or move the store")
    return Finding("disk", "ok", message)


def sync(folder: Path) -> Finding:
    """Measure the cost of syncing a write to disk, which callers wait for."""
    try:
        times = _syncs(folder)
    except OSError as error:
        return Finding(
            "fsync", "fail", f"{folder} can't be written to: {error.strerror}", "look at its permissions"
        )
    median, worst = statistics.median(times), max(times)
    message = f"{median * 1000:.2f} ms median, {worst * 1000:.2f} ms at worst"
    if median > SLOW_SYNC:
        return Finding("fsync", "warn", message, "writes will be slow here: use a faster disk")
    return Finding("fsync", "ok", message)


async def clock() -> Finding:
    """Check that the wall clock is set and runs at the rate of the monotonic one."""
    wall, ticks = time.time(), time.monotonic()
    await asyncio.sleep(LOOK)
    drift = (time.time() - wall) - (time.monotonic() - ticks)
    if wall < BUILT:
        return Finding("clock", "fail", "the wall clock is not set", "set it; deadlines go by it")
    if abs(drift) > DRIFT:
        return Finding(
            "clock",
            "warn",
            f"the wall clock moved by {drift * 1000:+.0f} ms against the monotonic one",
            "look after the time service of this machine",
        )
    return Finding("clock", "ok", f"wall and monotonic clock agree within {abs(drift) * 1000:.2f} ms")


async def nats(url: str, *, tls_first: bool = False) -> Finding:
    """Check that a NATS server answers at one of the addresses."""
    tls_first = tls_first or TLS_FIRST in url
    for address in url.split(","):
        place = address.strip() if "://" in address else f"nats://{address.strip()}"
        if await greeting(place, tls_first=tls_first) is not None:
            return Finding("nats", "ok", f"a server answers at {masking.hosts(address)}")
    advice = "start one, or name another with --nats"
    return Finding("nats", "fail", f"no server answers at {masking.hosts(url)}", advice)


async def greeting(address: str, *, tls_first: bool = False) -> dict[str, Any] | None:
    """Return the greeting of the NATS server at an address; None if there is no server.

    A server that begins with TLS and wants a certificate does not greet. The greeting is then empty.
    """
    secure = _unverified() if tls_first else None
    try:
        place = urlsplit(address)
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection(place.hostname, place.port or 4222, ssl=secure)
            try:
                kind, _, text = (await reader.readline()).partition(b" ")
                if kind == b"INFO":
                    return msgspec.json.decode(text, type=dict[str, Any])
                return {} if tls_first and not kind else None
            except ssl.SSLError:
                return {}
            finally:
                writer.transport.abort()  # a polite end of TLS would wait for the server
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except (OSError, ValueError, msgspec.DecodeError):
        return None


def _unverified() -> ssl.SSLContext:
    """Return a context that trusts every server: nothing is sent over it, and only a greeting is read."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _syncs(folder: Path) -> list[float]:
    times = []
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".holdfast-doctor-") as file:
        for _ in range(SYNCS):
            file.write(bytes(4096))
            file.flush()
            begun = time.perf_counter()
            os.fsync(file.fileno())
            times.append(time.perf_counter() - begun)
    return times


def _first(pattern: re.Pattern[str], text: str) -> str:
    """Return the first match of a pattern; an empty string if there is none."""
    found = pattern.search(text)
    return found[found.lastindex or 0] if found else ""


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", release)[:3]))
