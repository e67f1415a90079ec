"""`holdfast ttl set` and `remove`, and `touch`: the verbs that change a deadline."""

from __future__ import annotations

from holdfast.edges.cli.commands.keys import print_stored
from holdfast.edges.cli.options import UNNAMED, Key, Seconds, WriteOptions
from holdfast.edges.cli.output import document, line
from holdfast.edges.cli.target import HERE, Target


async def set_ttl(
    key: Key, seconds: Seconds, /, *, origin: WriteOptions = UNNAMED, target: Target = HERE
) -> None:
    """Expire an entry after this long, and print its new version.

    Parameters
    ----------
    seconds
        Time until the entry expires: seconds, or 30s, 1h, 2d.
    """
    async with target.open() as store:
        entry = await target.keys(store).set_ttl(key, seconds, **origin.fields)
    print_stored(entry, target)


async def remove_ttl(key: Key, /, *, origin: WriteOptions = UNNAMED, target: Target = HERE) -> None:
    """Remove an entry's deadline, and print its new version."""
    async with target.open() as store:
        entry = await target.keys(store).remove_ttl(key, **origin.fields)
    print_stored(entry, target)


async def touch(
    key: Key, seconds: Seconds, /, *, origin: WriteOptions = UNNAMED, target: Target = HERE
) -> None:
    """Expire an entry after this long, if there is one, and print its new version.

    A key that does not exist is no error.

    Parameters
    ----------
    seconds
        Time until the entry expires: seconds, or 30s, 1h, 2d.
    """
    async with target.open() as store:
        entry = await target.keys(store).touch(key, seconds, **origin.fields)
    if target.json and entry is None:
        document({"key": key, "touched": False})
    elif entry is None:
        line("not there")
    elif target.json:
        written = {"version": entry.version, "expires_at": entry.expires_at}
        document({"key": entry.key, "touched": True, **written})
    else:
        line(entry.version)
