"""`holdfast get` and `ttl get`: the verbs that read one key.

Scripts call these most, so this module imports nothing that they do not need.
"""

from __future__ import annotations

from typing import Any

import msgspec

import holdfast
from holdfast.edges.cli.output import (
    answer,
    document,
    raw_value,
    rows,
    shown_key,
    value,
)
from holdfast.edges.cli.target import HERE, Target


async def get(key: str, /, *, long: bool = False, raw: bool = False, target: Target = HERE) -> None:
    """Print the value of a key as JSON. If the key does not exist, the exit code is 3.

    On a terminal the value is set out over several lines, unless --json is given.

    Parameters
    ----------
    key
        The key.
    long
        Print the whole entry: also version, times, writer and semantics.
    raw
        Print a string without JSON quotes.
    """
    require_one_form(target, long=long, raw=raw)
    async with target.look() as store:
        entry = await target.keys(store).get(key)
    print_entry(key, entry, target, long=long, raw=raw)


def require_one_form(target: Target, *, long: bool, raw: bool) -> None:
    """Refuse options that ask for the entry in two forms."""
    if raw and (long or target.json):
        raise holdfast.ValidationError("--raw excludes --long and --json", field="raw")


def print_entry(key: str, entry: holdfast.Entry | None, target: Target, *, long: bool, raw: bool) -> None:
    """Print an entry in the form that the options ask for."""
    if entry is None:
        raise holdfast.KeyNotFound(f"there is no key {key!a}", field="key")
    if raw:
        raw_value(entry.value)
    elif not long and not target.json:
        value(entry.value)
    elif not long:
        document(entry.value)
    elif target.json:
        document(entry)
    else:
        rows(("field", "content"), _described(entry))


async def get_ttl(key: str, /, *, target: Target = HERE) -> None:
    """Print the seconds left: never for an entry without a deadline, 0 if it does not exist.

    Parameters
    ----------
    key
        The key.
    """
    async with target.look() as store:
        left = await target.keys(store).get_ttl(key)
    answer(target.json, {"key": key, "ttl": left}, "never" if left is None else left)


def _described(entry: holdfast.Entry) -> list[tuple[str, Any]]:
    """Return the fields of an entry that are set, by name."""
    fields = msgspec.structs.asdict(entry)
    fields |= {"key": shown_key(entry.key), "value": msgspec.json.encode(entry.value).decode()}
    if entry.semantics is not None:
        fields["semantics"] = msgspec.json.encode(entry.semantics).decode()
    return [(name, content) for name, content in fields.items() if content is not None]
