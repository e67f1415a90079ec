"""`holdfast backup`, `restore FILE`, `copy`, `diff` and `rescue`: whole stores.

Reading creates nothing. A file gets its name only when it is complete, and only its owner can read it. A
restore says what it would overwrite, and does it only after a yes. `copy`, given again, goes on where an
interrupted one stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from shlex import quote
from typing import Any, Final

import msgspec

import holdfast
from holdfast import masking, seams
from holdfast.audit.keyring import Keyring
from holdfast.edges.cli.options import Yes, destroys, require_yes
from holdfast.edges.cli.output import (
    ERROR,
    OK,
    counted,
    document,
    opened_input,
    opened_output,
    progress,
    report,
    require_free,
    rows,
    say,
)
from holdfast.edges.cli.schema import require_store, schema_of, service_beside, tell_of_move
from holdfast.edges.cli.target import STORE, Place, read_contexts
from holdfast.engine import Movable
from holdfast.engine.raw import Position, RawSnapshot, Section
from holdfast.errors import HoldfastError, Unsupported, ValidationError
from holdfast.moves.backups import MAGIC, BackupTotals, back_up, held_by, restore, verified
from holdfast.moves.differences import NamespaceDifference, Unequal, compared, differences
from holdfast.moves.transfers import Ended, StoreTransfer
from holdfast.registry import backend_for


async def backup(file: str, /, *, with_key: bool = False, force: bool = False, target: Place = STORE) -> None:
    """Write everything that a store holds into one file, as it is at one instant, while the store is in use.

    `holdfast restore FILE` loads it into a store of any engine. Everything is included: all namespaces with
    their policies, entries, tables, blobs, journals, trash, dead letters, audits, and the tokens' hashes.

    Parameters
    ----------
    file
        The file to write; it appears when it is complete, and only its owner can read it.
    with_key
        Include the audit's secrets. Without them a restored audit can be verified, and audited namespaces can
        be written to, only where the key is.
    force
        Replace the file if it exists.
    """
    require_free(file, force=force, field="file")
    async with reading(target.address) as engine:
        secrets = _secrets(engine) if with_key else None
        total = await counted(engine)
        with opened_output(file, force=force) as output, progress("backup", total) as advance:
            totals = await back_up(
                engine,
                output,  # type: ignore[arg-type]
                made_at=int(seams.wall() * 1000),
                software=holdfast.__version__,
                key=secrets,
                advance=advance,
            )
        async with engine.snapshot() as snapshot:
            signed = (await snapshot.facts()).audit_key
    await tell_of_move(target.address)
    _report("backed up", file, totals, target)
    if signed is not None and not secrets and not target.json:
        say(
            f"the audit of this store is signed with the key {signed.split()[-1]}, which is not in the file: "
            "without a copy of it, or --with-key, a restored audit can't be verified and audited namespaces "
            "refuse writes",
            colour="yellow",
        )


def is_file(name: str) -> bool:
    """Return whether this is the name of a file."""
    try:
        return Path(name).is_file()
    except (OSError, ValueError):
        return False


def is_backup(name: str) -> bool:
    """Return whether this is the name of a file that begins as a backup does."""
    try:
        with Path(name).open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):
        return False


async def restore_backup(name: str, *, yes: bool, target: Place) -> None:
    """Replace everything that a store holds by a backup."""
    adopted: list[bool] = []
    with opened_input(name, field="file") as file:
        header, held = verified(file)
        file.seek(0)
        async with writing(target.address) as engine:
            namespaces = await held_by(engine)
            if namespaces:
                require_yes(loss(namespaces), yes=yes)
            keys = engine.keys
            adopt = keys.adopt if isinstance(keys, Keyring) else lambda secrets: False
            total = held.entries + held.rows + held.parts + held.records
            with progress("restore", total) as advance:
                totals = await restore(
                    engine, file, adopt=lambda secrets: adopted.append(adopt(secrets)), advance=advance
                )
    _report("restored", name, totals, target)
    signed = header.facts.audit_key
    if signed is not None and not any(adopted) and not target.json:
        say(
            f"the audit was signed with the key {signed.split()[-1]}: put that key where this store looks "
            "for it, or the audit can't be verified and audited namespaces refuse writes",
            colour="yellow",
        )


def _secrets(engine: Movable) -> list[bytes]:
    """Return the audit's secrets.

    Raises:
        Unsupported: There is no key here.
    """
    keys = engine.keys
    secrets = keys.lines() if isinstance(keys, Keyring) else []
    if not secrets:
        raise Unsupported("--with-key needs the audit's key, and there is none here")
    return secrets


def loss(names: list[str]) -> str:
    listed = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f"everything in the {len(names)} namespaces of this store is replaced ({listed})"


def _report(done: str, file: str, totals: BackupTotals, target: Place) -> None:
    counts = msgspec.structs.asdict(totals)
    listed = ", ".join(f"{name}: {count}" for name, count in counts.items())
    report(target.json, {"file": file, **counts}, f"{done} {file}: {listed}")


@asynccontextmanager
async def reading(url: str) -> AsyncIterator[Movable]:
    """Open a store for reading, also one that another process serves or that is not complete.

    Raises:
        Unavailable: There is no store.
        Unsupported: Its raw contents can't be reached there.
    """
    await require_store(url)
    async with _opened_engine(url, reads=True) as engine:
        yield engine


@asynccontextmanager
async def writing(url: str) -> AsyncIterator[Movable]:
    """Open a store for loading, and create it if there is none.

    Raises:
        Unavailable: Another process writes to it.
        Unsupported: Its raw contents can't be reached there.
    """
    async with _opened_engine(url, reads=False) as engine:
        await engine.ready()
        yield engine


@asynccontextmanager
async def _opened_engine(url: str, *, reads: bool) -> AsyncIterator[Movable]:
    engine = backend_for(url, Place(url=url).keys_at_hand())
    if not isinstance(engine, Movable):
        raise Unsupported(
            f"the whole contents of {shown(url)} can't be reached there: give the path of the store's file, "
            "or the URL of its database (postgresql://) or of its cluster (cluster://), and run this where "
            "that is. A service prints its store as db when it starts"
        )
    engine.open_unfinished()
    if reads:
        engine.open_read_only()
    await engine.start()
    try:
        yield engine
    finally:
        await engine.aclose()


def shown(url: str) -> str:
    """Return the place of a store without credentials."""
    return masking.shown(url) if "://" in url else url


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
        pause = "" if result.paused is None else f"; the source refused writes for {result.paused:.1f} s"
        done = "moved" if result.switched else "copied"
        say(f"{done} {shown(from_)} to {shown(to)}: {result.put} rows and records{pause}")
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


_SHOWN: Final = 10
"""The number of things that are named in each part of a section."""


async def diff(from_: str, to: str, /, *, json: bool = False) -> int:
    """Compare two stores by hashes of ranges, and print where they differ; if they do, the exit code is 1.

    Everything is compared: entries with their envelopes, policies, tables, blobs, journals, trash, dead
    letters, audits and tokens. Each store is compared as it is at one instant, so a store that is written to
    meanwhile may differ from its copy.

    Parameters
    ----------
    from_
        A path or a URL.
    to
        Another one.
    json
        Print one document that names the differing ranges, and up to 10 keys in each.
    """
    async with (
        reading(from_) as one,
        reading(to) as other,
        one.snapshot() as ours,
        other.snapshot() as theirs,
    ):
        with progress("diff", await counted(one)) as advance:
            differences = [
                await _described(ours, theirs, each) async for each in compared(ours, theirs, advance=advance)
            ]
    if json:
        document({"equal": not differences, "namespaces": differences})
    elif differences:
        rows(("namespace", "section", "here", "there", "keys"), _lines(differences))
    else:
        say("both stores hold the same")
    return ERROR if differences else OK


async def _described(
    ours: RawSnapshot, theirs: RawSnapshot, difference: NamespaceDifference
) -> dict[str, Any]:
    sections = {
        section.value: [await _part(ours, theirs, difference.name, section, part) for part in parts]
        for section, parts in difference.sections.items()
    }
    stored = difference.rows
    versions = None if stored is None else [None if row is None else row.revision for row in stored]
    return {"namespace": difference.name, "versions": versions, "sections": sections}


async def _part(
    ours: RawSnapshot, theirs: RawSnapshot, name: str, section: Section, part: Unequal
) -> dict[str, Any]:
    keys: list[Any] = []
    async for difference in differences(ours, theirs, name, section, part):
        keys.append(_shown(difference.position))
        if len(keys) == _SHOWN:
            break
    here, there = part.counts
    return {"after": _shown(part.after), "upto": _shown(part.upto), "from": here, "to": there, "keys": keys}


def _shown(position: Position | None) -> Any:
    if position is None:
        return None
    parts = [one.decode(errors="backslashreplace") if isinstance(one, bytes) else one for one in position]
    return parts[0] if len(parts) == 1 else "/".join(map(str, parts))


def _lines(differences: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    lines: list[tuple[Any, ...]] = []
    for one in differences:
        if one["versions"] is not None:
            lines.append((one["namespace"], "namespace", *one["versions"], None))
        for section, parts in one["sections"].items():
            for part in parts:
                keys = " ".join(map(str, part["keys"]))
                lines.append((one["namespace"], section, part["from"], part["to"], keys))
    return lines


async def rescue(new_path: str, /, *, target: Place = STORE) -> int:
    """Copy everything into a new file while the store is in use. Exit with 1 if it is corrupt, or not here.

    Give the URL of a running service when the file of its store was removed, moved or replaced: the service
    still has the old one open, and copies that. Do it before the service ends, since the file ends with it.
    It is also a plain backup of a SQLite store of which nothing is wrong. Of the files beside the store only
    the database is copied, not the key of the audit.

    Parameters
    ----------
    new_path
        The new file. Nothing may be there. A relative path is taken from the current folder. A service writes
        it on its own machine and as its own user; if that is another machine, the exit code is 1.
    """
    _require_store(target.address)
    path = _free(new_path)
    async with target.look() as store:
        rescued = await store.rescue(str(path))
    here = _is_here(rescued)
    if target.json:
        document(rescued)
    else:
        say(
            f"copied to {rescued.path}: bytes: {rescued.bytes}, namespaces: {rescued.namespaces}, "
            f"entries: {rescued.entries}"
        )
        if rescued.trouble is not None:
            say(f"the copy is corrupt, as the store is: {rescued.trouble}. Run holdfast doctor --deep")
    if not here:
        say(
            f"the copy is not on this machine: the service has written {rescued.path} on its own. Fetch it "
            "from there",
            colour="yellow",
        )
    return OK if rescued.trouble is None and here else ERROR


def _free(new_path: str) -> Path:
    path = Path(new_path).absolute()
    if os.path.lexists(path):
        raise holdfast.ValidationError(f"{path} already exists: name a new file", field="path")
    return path


def _is_here(rescued: holdfast.Rescued) -> bool:
    """Return whether the copy is on this machine, and not on that of a service or in its container."""
    try:
        return Path(rescued.path).stat().st_size == rescued.bytes
    except OSError:
        return False


def _require_store(address: str) -> None:
    """Check that the file exists, because opening a path without one would create an empty store."""
    try:
        file = schema_of(address).file
    except holdfast.Unsupported:
        return
    if file is not None and not file.exists():
        raise holdfast.ValidationError(
            f"there is no file at {file.absolute()}. If a service still has it open, give the URL of that "
            "service, such as --url nats://127.0.0.1:4222",
            field="url",
        )
