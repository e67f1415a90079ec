"""`holdfast lock`: run a program while a lock is held, and show the holder of a lock.

The program runs only while the lock is held. If the lock is lost, the program is terminated.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import Annotated

from cyclopts import Parameter

import holdfast
from holdfast.edges.cli.commands.recipes import Name
from holdfast.edges.cli.exit_codes import ERROR
from holdfast.edges.cli.options import Seconds, seconds
from holdfast.edges.cli.output import document, rows, say, shown_time
from holdfast.edges.cli.target import HERE, Target
from holdfast.handles.recipes.names import lock_key

GRACE = 5.0
"""Seconds that a program may take to exit after losing its lock before it is killed."""


async def run(
    name: Name,
    /,
    *command: Annotated[str, Parameter(allow_leading_hyphen=True)],
    ttl: Seconds = 30,
    timeout: Annotated[float | None, Parameter(converter=seconds)] = None,  # noqa: ASYNC109 - of the lock
    owner: str | None = None,
    target: Target = HERE,
) -> int:
    """Hold a lock while a program runs, and exit with its code: holdfast lock run NAME -- COMMAND.

    The program finds the number of this holding in $HOLDFAST_LOCK_TOKEN: a write with it as a fence is
    refused once another holder has taken the lock. If the lock is lost the program gets SIGTERM, and is
    killed 5 seconds later if it has not ended.

    Parameters
    ----------
    command
        The program and its arguments, after --.
    ttl
        How long the lock outlives this command if it dies; 30 seconds if not given.
    timeout
        Longest wait for the lock; no limit if not given. If it runs out, the exit code is 5.
    owner
        Name of the holder that others see.
    """
    if not command:
        raise holdfast.MissingField("which program? holdfast lock run NAME -- COMMAND", field="command")
    async with target.open() as store:
        lock = target.keys(store).lock(name, ttl=ttl, owner=owner)
        if not await lock.acquire(timeout=timeout):
            raise holdfast.Busy(f"lock {name!a} was not free within {timeout:g} s")
        try:
            return await _held(lock, command)
        finally:
            await lock.release()


async def _held(lock: holdfast.Lock, command: tuple[str, ...]) -> int:
    """Run the program while the lock is held."""
    variables = os.environ | {"HOLDFAST_LOCK_TOKEN": str(lock.token)}
    try:
        process = await asyncio.create_subprocess_exec(*command, env=variables)
    except OSError as error:
        reason = (error.strerror or "it can't be started").lower()
        raise holdfast.ValidationError(f"{command[0]}: {reason}", field="command") from None
    ending = asyncio.create_task(process.wait())
    try:
        while not ending.done():
            await asyncio.wait([ending], timeout=0.5)
            if not lock.held and not ending.done():
                say(f"lock {lock.name!a} was lost: ending the program")
                process.terminate()
                await asyncio.wait([ending], timeout=GRACE)
                if not ending.done():
                    process.kill()
                await ending
                return ERROR
    finally:
        if not ending.done():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
            await ending
    code = ending.result()
    return code if code >= 0 else 128 - code


async def show(name: Name, /, *, target: Target = HERE) -> None:
    """Print who holds a lock and until when. If the lock is free, the exit code is 3."""
    async with target.look() as store:
        kv = target.keys(store)
        entry = await kv.get(lock_key(kv, name))
    if entry is None:
        raise holdfast.KeyNotFound(f"lock {name!a} is free", field="name")
    if target.json:
        document({"name": name, "holder": entry.last_writer, "until": entry.expires_at})
        return
    until = None if entry.expires_at is None else shown_time(entry.expires_at)
    rows(("lock", "holder", "until"), [(name, entry.last_writer, until)])
