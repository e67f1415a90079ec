"""`holdfast counter`, `flag`, `checkpoint` and `lock`: the recipes that programs use, by hand.

Only the recipe knows which entry it keeps. A program that `lock run` starts runs only while the lock is held:
if the lock is lost, the program is terminated.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

import holdfast
from holdfast.edges.cli.commands.keys import print_stored
from holdfast.edges.cli.options import (
    UNNAMED,
    MaybeSeconds,
    Seconds,
    Ttl,
    WriteOptions,
    Yes,
    destroys,
    number,
    read_value,
    require_yes,
    seconds,
)
from holdfast.edges.cli.output import ERROR, answer, document, rows, say, shown_key, shown_time, value
from holdfast.edges.cli.target import HERE, Target
from holdfast.handles.recipes.names import lock_key

Name = Annotated[str, Parameter(help="The name that programs use for it.")]
Given = Annotated[
    str,
    Parameter(allow_leading_hyphen=True, help="JSON; - reads it from stdin, @FILE from a file."),
]
Text = Annotated[bool, Parameter(help="Take the value as a string, without JSON quotes.")]


async def counter_get(name: Name, /, *, target: Target = HERE) -> None:
    """Print the value of a counter; 0 if nothing was added yet."""
    async with target.look() as store:
        total = await target.keys(store).counter(name).value()
    document({"name": name, "value": total} if target.json else total)


async def counter_add(
    name: Name,
    by: Annotated[float, Parameter(converter=number, allow_leading_hyphen=True)] = 1,
    /,
    *,
    ttl: MaybeSeconds = None,
    origin: WriteOptions = UNNAMED,
    target: Target = HERE,
) -> None:
    """Add to a counter, and print its new value.

    Parameters
    ----------
    by
        Amount to add; 1 if not given.
    ttl
        Start again from 0 this long after the first addition: seconds, or 30s, 1h, 2d.
    """
    async with target.open() as store:
        total = await target.keys(store).counter(name, ttl=ttl).add(by, **origin.fields)
    document({"name": name, "value": total} if target.json else total)


async def flag_get(name: Name, /, *, target: Target = HERE) -> None:
    """Print the value of a flag. If it is not set, so that programs use their default, the exit code is 3."""
    async with target.look() as store:
        state = await _flag(store, name, target).state()
    if state.entry is None:
        raise holdfast.KeyNotFound(f"flag {name!a} is not set: programs use their default", field="name")
    if target.json:
        more = {"variant": state.variant, "variants": state.variants, "metadata": state.metadata}
        details = {field: part for field, part in more.items() if part}
        document({"name": name, "value": state.value, **details})
    else:
        value(state.value)


async def flag_list(*, target: Target = HERE) -> None:
    """Print all flags that are set, with their values."""
    async with target.look() as store:
        flags = await target.keys(store).flags().list()
    if target.json:
        document(flags)
    else:
        cells = [(shown_key(name), msgspec.json.encode(one).decode()) for name, one in sorted(flags.items())]
        rows(("name", "value"), cells)


async def flag_use(
    name: Name, variant: str, /, *, origin: WriteOptions = UNNAMED, target: Target = HERE
) -> None:
    """Switch a flag to another of its variants, and print its version.

    Parameters
    ----------
    variant
        The name of the variant.
    """
    async with target.open() as store:
        entry = await _flag(store, name, target).use(variant, **origin.fields)
    print_stored(entry, target)


async def flag_set(
    name: Name,
    content: Given,
    /,
    *,
    text: Text = False,
    variant: str | None = None,
    ttl: Ttl = None,
    origin: WriteOptions = UNNAMED,
    target: Target = HERE,
) -> None:
    """Set a flag, and print its version; programs that watch it follow at once.

    Parameters
    ----------
    variant
        A name for the value.
    """
    new_value = read_value(content, text=text)
    async with target.open() as store:
        flag = _flag(store, name, target)
        entry = await flag.set(new_value, variant=variant, ttl=ttl, **origin.fields)
    print_stored(entry, target)


@destroys
async def flag_clear(
    name: Name, /, *, yes: Yes = False, origin: WriteOptions = UNNAMED, target: Target = HERE
) -> None:
    """Clear a flag, so that programs use their default. A flag that is not set is no error."""
    require_yes(f"flag {name!a} of {target.owner} is cleared, and programs use their default", yes=yes)
    async with target.open() as store:
        cleared = await _flag(store, name, target).clear(**origin.fields)
    answer(target.json, {"cleared": cleared}, "cleared" if cleared else "not set")


async def checkpoint_get(name: Name, /, *, target: Target = HERE) -> None:
    """Print a checkpoint. If it was never set, the exit code is 3."""
    async with target.look() as store:
        entry = await target.keys(store).checkpoint(name).load()
    if entry is None:
        raise holdfast.KeyNotFound(f"checkpoint {name!a} is not set", field="name")
    if target.json:
        document(entry)
    else:
        value(entry.value)


async def checkpoint_set(
    name: Name,
    content: Given,
    /,
    *,
    text: Text = False,
    origin: WriteOptions = UNNAMED,
    target: Target = HERE,
) -> None:
    """Move a checkpoint, and print its version. Fails if another writer has moved it since."""
    position = read_value(content, text=text)
    async with target.open() as store:
        checkpoint = target.keys(store).checkpoint(name)
        await checkpoint.load()
        entry = await checkpoint.advance(position, **origin.fields)
    print_stored(entry, target)


class _Unset:
    """The default of a flag without one here: a type of its own, so that any JSON is a valid value."""


def _flag(store: holdfast.Store, name: str, target: Target) -> Any:
    return target.keys(store).flag(name, _Unset())


GRACE = 5.0
"""Seconds that a program may take to exit after losing its lock before it is killed."""


async def lock_run(
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


async def lock_show(name: Name, /, *, target: Target = HERE) -> None:
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
