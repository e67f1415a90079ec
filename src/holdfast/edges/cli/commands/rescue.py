"""`holdfast rescue`: copy a whole store that is in use into a new file.

Nothing is overwritten, and looking for a store never creates one.
"""

from __future__ import annotations

import os
from pathlib import Path

import holdfast
from holdfast.edges.cli.exit_codes import ERROR, OK
from holdfast.edges.cli.output import document, say
from holdfast.edges.cli.schema import schema_of
from holdfast.edges.cli.target import STORE, Place


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
