"""`holdfast diff`: whether two stores hold the same, and where not.

Law: nothing is changed. Both stores may be in use; each is compared as it is at one instant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from holdfast.edges.cli.exit_codes import ERROR, OK
from holdfast.edges.cli.files import counted, progress
from holdfast.edges.cli.output import document, rows, say
from holdfast.edges.cli.raw import reading
from holdfast.moves.differences import compared, differences

if TYPE_CHECKING:
    from holdfast.engine.moving import Mark, RawSnapshot, Shelf
    from holdfast.moves.differences import NamespaceDifference, Unequal

_SHOWN: Final = 10
"""The number of things that are named in each part of a shelf."""


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
            found = [
                await _described(ours, theirs, each) async for each in compared(ours, theirs, advance=advance)
            ]
    if json:
        document({"equal": not found, "namespaces": found})
    elif found:
        rows(("namespace", "shelf", "here", "there", "keys"), _lines(found))
    else:
        say("both stores hold the same")
    return ERROR if found else OK


async def _described(ours: RawSnapshot, theirs: RawSnapshot, found: NamespaceDifference) -> dict[str, Any]:
    shelves = {
        shelf.value: [await _part(ours, theirs, found.name, shelf, part) for part in parts]
        for shelf, parts in found.shelves.items()
    }
    versions = None if found.rows is None else [None if one is None else one.revision for one in found.rows]
    return {"namespace": found.name, "versions": versions, "shelves": shelves}


async def _part(
    ours: RawSnapshot, theirs: RawSnapshot, name: str, shelf: Shelf, part: Unequal
) -> dict[str, Any]:
    keys: list[Any] = []
    async for one in differences(ours, theirs, name, shelf, part):
        keys.append(_shown(one.mark))
        if len(keys) == _SHOWN:
            break
    bounds = {"after": _shown(part.after), "upto": _shown(part.upto)}
    return {**bounds, "from": part.counts[0], "to": part.counts[1], "keys": keys}


def _shown(mark: Mark | None) -> Any:
    if mark is None:
        return None
    parts = [one.decode(errors="backslashreplace") if isinstance(one, bytes) else one for one in mark]
    return parts[0] if len(parts) == 1 else "/".join(map(str, parts))


def _lines(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    lines: list[tuple[Any, ...]] = []
    for one in found:
        if one["versions"] is not None:
            lines.append((one["namespace"], "namespace", *one["versions"], None))
        for shelf, parts in one["shelves"].items():
            for part in parts:
                keys = " ".join(map(str, part["keys"]))
                lines.append((one["namespace"], shelf, part["from"], part["to"], keys))
    return lines
