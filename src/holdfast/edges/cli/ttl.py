"""`holdfast ttl get`, `set` and `remove`: the verbs on deadlines.

Law: a command turns its arguments into one call of a verb and prints what it answered.
"""

from __future__ import annotations

from holdfast.edges.cli.keys import print_stored
from holdfast.edges.cli.output import document, line
from holdfast.edges.cli.target import HERE, UNNAMED, Key, Origin, Target, Whole


async def get_ttl(key: Key, /, *, target: Target = HERE) -> None:
    """Print how many seconds are left: never for an entry without a deadline, 0 for one that is not there."""
    async with target.open() as store:
        left = await target.keys(store).get_ttl(key)
    if target.json:
        document({"key": key, "ttl": left})
    else:
        line("never" if left is None else left)


async def set_ttl(key: Key, seconds: Whole, /, *, origin: Origin = UNNAMED, target: Target = HERE) -> None:
    """Let an entry be gone after some seconds from now, and print its new version.

    Parameters
    ----------
    seconds
        How long the entry lives.
    """
    async with target.open() as store:
        entry = await target.keys(store).set_ttl(key, seconds, **origin.fields)
    print_stored(entry, target)


async def remove_ttl(key: Key, /, *, origin: Origin = UNNAMED, target: Target = HERE) -> None:
    """Let an entry live for ever, and print its new version."""
    async with target.open() as store:
        entry = await target.keys(store).remove_ttl(key, **origin.fields)
    print_stored(entry, target)
