"""What a key held before: where the store still has it.

Law: nothing is guessed. The journal has no values, so that only two are known: the one that is there, and the
one that the trash keeps.
"""

from __future__ import annotations

from typing import Any

import msgspec

import holdfast
from holdfast.edges.cli.keys import print_stored
from holdfast.edges.cli.options import UNNAMED, Key, Origin, Whole
from holdfast.edges.cli.target import HERE, Target


async def known_values(store: holdfast.Store, kv: holdfast.KV, key: str) -> dict[int, Any]:
    """The values of a key that are still there, by version."""
    known: dict[int, Any] = {}
    full = kv.verbs.key(key)
    try:
        page = await store.trash(kv.namespace, full, limit=1, values=True)
    except (holdfast.PermissionDenied, holdfast.Unavailable):
        page = None  # only operators look into the trash
    for entry in () if page is None else page.entries:
        if entry.key == full and entry.value is not msgspec.UNSET:
            known[entry.version] = entry.value
    current = await kv.get(key)
    if current is not None:
        known[current.version] = current.value
    return known


async def revert(key: Key, version: Whole, /, *, origin: Origin = UNNAMED, target: Target = HERE) -> None:
    """Restore the value that a key had at a version, and print the new version.

    The store keeps the value that is there and, where the namespace has a trash, the one that was last
    deleted or expired; `history --values` shows which versions those are. Nothing is written if somebody else
    writes meanwhile.

    Parameters
    ----------
    version
        The version, as history shows it.
    """
    async with target.open() as store:
        kv = target.keys(store)
        known = await known_values(store, kv, key)
        if version not in known:
            versions = ", ".join(map(str, sorted(known))) or "none"
            raise holdfast.KeyNotFound(
                f"the value of version {version} of {key!a} is not kept any more; known are: {versions}",
                field="version",
            )
        current = await kv.get(key)
        if current is not None and current.version == version:
            stored = current
        else:
            expected = 0 if current is None else current.version
            stored = await kv.set(key, known[version], expected_version=expected, **origin.fields)
    print_stored(stored, target)
