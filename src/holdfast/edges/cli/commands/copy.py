"""`holdfast copy`: a whole store into another, once or kept in step until the switch.

The same command, given again, goes on where an interrupted one stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import holdfast
from holdfast.edges.cli.commands.backup import loss
from holdfast.edges.cli.confirmation import Yes, destroys, require_yes
from holdfast.edges.cli.contexts import read_contexts
from holdfast.edges.cli.files import counted, progress
from holdfast.edges.cli.output import document, say
from holdfast.edges.cli.raw import reading, shown, writing
from holdfast.edges.cli.schema import service_beside
from holdfast.errors import HoldfastError, Unsupported, ValidationError
from holdfast.moves.transfers import Ended, StoreTransfer

if TYPE_CHECKING:
    from collections.abc import Iterator


@destroys
async def copy(
    from_: str,
    to: str,
    /,
    *,
    follow: bool = False,
    switch: bool = False,
    cancel: bool = False,
    yes: Yes = False,
    json: bool = False,
) -> None:
    """Copy everything that a store holds into another, of any engine, while the first is in use.

    The target can't be opened until the copy is complete. After an interruption the same command goes on.

    Parameters
    ----------
    from_
        The path or the URL of the store to copy.
    to
        That of the target, which is created if it does not exist.
    follow
        Keep the target in step with what is written to the source, until Ctrl-C or until another command
        switches.
    switch
        Make the target take the source's place: refuse writes at the source from now on, copy the rest, prove
        that both hold the same, and open the target. Clients are refused for a few seconds, and then go on
        at the target. A service that has a SQLite source open is asked first whether it can open the target.
    cancel
        Let the source accept writes again after a switch that was interrupted.
    json
        Print one document with what was done.
    """
    if switch:
        await _require_able(from_, _place(to))
    async with reading(from_) as source:
        total = await counted(source)
        if total is not None and switch:
            total *= 2  # everything is copied, and then compared
        with progress("copy", total) as advance:
            async with StoreTransfer(
                source, lambda: writing(to), lambda: reading(to), where=_place(to), advance=advance
            ) as transfer:
                if cancel:
                    await transfer.cancel()
                    return
                try:
                    await transfer.begin(lambda names: require_yes(loss(names), yes=yes))
                    await _moved(transfer, follow=follow, switch=switch)
                except Ended as ended:
                    transfer.result.complete = ended.complete
    result = transfer.result
    if json:
        document(result)
    else:
        told = "" if result.paused is None else f"; the source refused writes for {result.paused:.1f} s"
        done = "moved" if result.switched else "copied"
        say(f"{done} {shown(from_)} to {shown(to)}: {result.put} rows and records{told}")
        if result.switched:
            _tell_of_names(from_, to)
        if not result.complete:
            say(f"{shown(to)} can't be used yet: run this again with --switch, or without --follow")


def _tell_of_names(from_: str, to: str) -> None:
    """Say which place to use from now on, and what still names the old one."""
    say(f"use {shown(to)} from now on: with --url, and as db in the settings before a service starts again")
    for name, context in read_contexts().items():
        if _place(context.url) == _place(from_):
            say(
                f"the context {name} still names the old place: run holdfast context add {name} --url "
                f"{quote(_place(to))}",
                colour="yellow",
            )


async def _require_able(from_: str, place: str) -> None:
    """Ask the service that has the source open whether it can open the target, before anything is switched.

    Raises:
        Unsupported: It lacks a driver. It would serve nothing after the switch.
    """
    served = service_beside(from_)
    if served is None:
        return
    try:
        async with holdfast.open(served) as store:
            await store.require_able(place)
    except (Unsupported, ValidationError) as error:
        raise Unsupported(
            f"nothing was switched: the service at {shown(served)} can't open {place}: {error.message}. "
            "Install that where the service runs and start it again",
            field="to",
        ) from None
    except HoldfastError as error:
        say(
            f"the service at {shown(served)} could not be asked whether it can open {place}: {error.message}",
            colour="yellow",
        )


def _place(url: str) -> str:
    """Return the place of the target, as programs in other folders can use it too."""
    return shown(url) if "://" in url else str(Path(url).absolute())


async def _moved(transfer: StoreTransfer, *, follow: bool, switch: bool) -> None:
    await transfer.step()
    if switch:
        await transfer.switch()
    elif follow:
        with _stopping() as stop:
            await transfer.follow(stop)
    else:
        await transfer.finish()


@contextlib.contextmanager
def _stopping() -> Iterator[asyncio.Event]:
    """Yield an event that a signal sets, so that a pass is not interrupted."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for one in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(one, stop.set)
    try:
        yield stop
    finally:
        for one in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(one)
