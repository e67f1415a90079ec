"""`holdfast revert`: earlier values of a key, where the store still has them.

Law: nothing is guessed. The journal and the audit have no values, so at most two are known: that of the
current entry, and the one that the trash keeps of the last deletion or expiry. A value that was overwritten
is gone.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

import holdfast
from holdfast.edges.cli.commands.keys import print_stored
from holdfast.edges.cli.options import UNNAMED, Key, Whole, WriteOptions
from holdfast.edges.cli.target import HERE, Target

ENTRY: Final = "entry"
TRASH: Final = "trash"
LEAVES: Final = frozenset({"set", "restored"})
"""The kinds of change that leave a value."""
CLOSED: Final = "the trash may have more, but only operators are shown it"


class KnownValue(NamedTuple):
    """A value that still exists, and its place: the entry or the trash."""

    value: Any
    place: str


class Past(NamedTuple):
    """The known past of a key: values by version, the entry, and whether the trash was accessible."""

    values: dict[int, KnownValue]
    entry: holdfast.Entry | None
    trash_seen: bool


async def past_of(store: holdfast.Store, kv: holdfast.KV, key: str) -> Past:
    """Return everything that the store still has of a key."""
    full = kv.verbs.key(key)
    values: dict[int, KnownValue] = {}
    try:
        page = await store.trash(kv.namespace, full, limit=1, values=True)
    except (holdfast.PermissionDenied, holdfast.Unavailable):
        page = None
    for thrown in () if page is None else page.entries:
        if thrown.key == full and thrown.value is not msgspec.UNSET:
            values[thrown.version] = KnownValue(thrown.value, TRASH)
    entry = await kv.get(key)
    if entry is not None:
        values[entry.version] = KnownValue(entry.value, ENTRY)
    return Past(values, entry, page is not None)


async def revert(
    key: Key, version: Whole, /, *, origin: WriteOptions = UNNAMED, target: Target = HERE
) -> None:
    """Restore the value that a key had at a version, and print the new version.

    The store keeps the current value and, in the trash, the value that was last deleted or expired;
    `history --values` shows which versions those are. An existing entry keeps its deadline and its semantics.
    A missing entry is restored from the trash as it was, without a deadline. If another writer changes the
    key meanwhile, nothing is written.

    Parameters
    ----------
    version
        The version, as history shows it.
    """
    async with target.open() as store:
        kv = target.keys(store)
        past = await past_of(store, kv, key)
        if version not in past.values:
            raise holdfast.KeyNotFound(await _why_not(kv, key, version, past), field="version")
        stored = await _reverted(kv, key, version, past, origin)
    print_stored(stored, target)


async def _reverted(
    kv: holdfast.KV, key: str, version: int, past: Past, origin: WriteOptions
) -> holdfast.Entry:
    there = past.entry
    if there is None:
        return await kv.restore(key, **origin.fields)
    if there.version == version:
        return there
    return await kv.set(
        key,
        past.values[version].value,
        ttl=holdfast.KEEP,
        expected_version=there.version,
        semantics=there.semantics,
        **origin.fields,
    )


async def _why_not(kv: holdfast.KV, key: str, version: int, past: Past) -> str:
    """Explain why the value of a version is not available, and which values are."""
    changes = await kv.history(key)
    ops = {change.version: change.op for change in changes}
    later = [change.version for change in changes if change.version > version]
    if version not in ops:
        reason = f"the journal has no version {version} of {key!a}"
    elif ops[version] not in LEAVES:
        reason = f"version {version} of {key!a} is where it was {ops[version]}, which left no value"
    elif later:
        reason = f"the value of version {version} of {key!a} is gone since version {min(later)}"
    else:
        reason = f"the value of version {version} of {key!a} is gone"
    places = {ENTRY: "which is there now", TRASH: "in the trash"}
    kept = [f"{number} ({places[known.place]})" for number, known in sorted(past.values.items())]
    known = f"values are kept of: {', '.join(kept)}" if kept else "no value of it is kept"
    return "; ".join([reason, known, *([] if past.trash_seen else [CLOSED])])
