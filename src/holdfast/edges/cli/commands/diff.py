"""`holdfast diff`: whether two stores hold the same, and where not.

Nothing is changed. Both stores may be in use; each is compared as it is at one instant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from holdfast.edges.cli.exit_codes import ERROR, OK
from holdfast.edges.cli.files import counted, progress
from holdfast.edges.cli.output import document, rows, say
from holdfast.edges.cli.raw import reading
from holdfast.moves.differences import compared, differences

if TYPE_CHECKING:
    from holdfast.engine.raw import Position, RawSnapshot, Section
    from holdfast.moves.differences import NamespaceDifference, Unequal

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
        rows(("namespace", "shelf", "here", "there", "keys"), _lines(differences))
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
    versions = (
        None
        if difference.rows is None
        else [None if one is None else one.revision for one in difference.rows]
    )
    return {"namespace": difference.name, "versions": versions, "shelves": sections}


async def _part(
    ours: RawSnapshot, theirs: RawSnapshot, name: str, section: Section, part: Unequal
) -> dict[str, Any]:
    keys: list[Any] = []
    async for one in differences(ours, theirs, name, section, part):
        keys.append(_shown(one.position))
        if len(keys) == _SHOWN:
            break
    bounds = {"after": _shown(part.after), "upto": _shown(part.upto)}
    return {**bounds, "from": part.counts[0], "to": part.counts[1], "keys": keys}


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
        for section, parts in one["shelves"].items():
            for part in parts:
                keys = " ".join(map(str, part["keys"]))
                lines.append((one["namespace"], section, part["from"], part["to"], keys))
    return lines
