"""Browsing: all namespaces, and the keys of one as a list and as a tree.

Law: as in `holdfast.edges.console.pages`. No value leaves this module, only sizes. A page reads a bounded
number of keys, whatever a namespace holds, and says where it stopped.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from holdfast.clock import instant
from holdfast.edges.console.overview import href, measured
from holdfast.edges.console.places import KeyPlace, limits_of, may, place_of_visit
from holdfast.errors import ValidationError
from holdfast.verbs.cursors import cursor_after

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.edges.console.visits import Visit

PAGE: Final = 200
"""Number of rows on a page."""
STEP: Final = 1_000
"""Number of keys that a call of `list` returns."""
FILTERED_STEPS: Final = 20
COUNTED_STEPS: Final = 20
SORTED_STEPS: Final = 5
TREE_STEPS: Final = 40
"""Number of calls of `list` for one page, by what it needs them for."""
SKIPPED: Final = 2_000
"""Number of keys of a branch that are counted before the rest of it is skipped."""
MOST_BRANCHES: Final = 500
_SEPARATOR: Final = re.compile(r"[:/.]")
_BEHIND: Final = "\U0010ffff"
"""Sorts behind every other character, so that a cursor with it skips a branch."""
_FILTERS: Final = ("purpose", "producer", "last_writer", "spec_ref", "expires_before")
_NEVER: Final = datetime.max.replace(tzinfo=UTC)
SORTS: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {
    "key": lambda row: row["key"],
    "size": lambda row: -row["size"],
    "age": lambda row: instant(row["updated_at"]),
    "deadline": lambda row: _NEVER if row["expires_at"] is None else instant(row["expires_at"]),
}
"""The orders of a list: by key, largest first, oldest first, and the one that expires first."""


async def namespaces(visit: Visit) -> dict[str, Any]:
    """Return the namespaces that the visitor may look at."""
    if not visit.operator:
        token = visit.token
        assert token is not None
        families = ("kv", "table", "blob") if token.plugin else ("semantic",)
        names = [name for family in families if visit.fits(name := f"{family}/{token.owner}")]
        own = [{"namespace": name, "href": href(name)} for name in names]
        return {"namespaces": own, "cursor": None, "filter": visit.filter}
    found: list[dict[str, Any]] = []
    cursor = visit.query.get("cursor") or None
    for _ in range(FILTERED_STEPS):
        listed = await visit.operators("namespaces", limit=1_024, cursor=cursor)
        cursor = listed["cursor"]
        found += [one for one in listed["namespaces"] if visit.fits(one["namespace"])]
        if cursor is None or len(found) >= PAGE:
            break
    shown = [measured(one) | {"href": href(one["namespace"])} for one in found]
    return {"namespaces": shown, "cursor": cursor, "filter": visit.filter}


async def browse(visit: Visit) -> dict[str, Any]:
    """Return a page of the keys of a namespace, or how many there are with `count`."""
    place = place_of_visit(visit)
    if visit.query.get("count"):
        return await _counted(visit, place)
    sort = visit.query.get("sort") or "key"
    if sort not in SORTS:
        raise ValidationError(f"sort must be one of {', '.join(SORTS)}", field="sort")
    if sort != "key":
        shown = await _sorted(visit, place, sort)
    elif visit.query.get("filter"):
        shown = await _filtered(visit, place)
    else:
        shown = await _listed(visit, place)
    about = place.shown() | {"prefix": place.prefix, "sort": sort, "filter": visit.query.get("filter", "")}
    if visit.query.get("cursor"):
        return about | shown
    return (
        about
        | shown
        | {"tree": await _tree(visit, place), "may": may(visit, place)}
        | await limits_of(visit, place)
    )


def row_of(place: KeyPlace, entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry as a row of a list, without its value."""
    meaning = entry.get("semantics") or {}
    return {
        "key": entry["key"],
        "name": entry["key"].removeprefix(place.root),
        "size": len(bytes(entry["value"])),
        "version": entry["version"],
        "updated_at": entry["updated_at"],
        "expires_at": entry["expires_at"],
        "last_writer": entry["last_writer"],
        "purpose": meaning.get("purpose"),
        "producer": meaning.get("producer"),
    }


def _asked(visit: Visit, place: KeyPlace) -> dict[str, Any]:
    """Return the fields of a listing that the address asks for."""
    filters = {name: visit.query[name] for name in _FILTERS if visit.query.get(name)}
    return {"prefix": place.root + place.prefix, **filters}


async def _listed(visit: Visit, place: KeyPlace) -> dict[str, Any]:
    """Return rows in the order of their keys."""
    asked, cursor = _asked(visit, place), visit.query.get("cursor") or None
    wanted = visit.number("limit", default=PAGE, most=STEP)
    rows: list[dict[str, Any]] = []
    for _ in range(FILTERED_STEPS):
        page = await visit.ask(
            *place.at, "list", **asked, values=True, limit=wanted - len(rows), cursor=cursor
        )
        rows += [row_of(place, entry) for entry in page["entries"]]
        cursor = page["cursor"]
        if cursor is None or len(rows) >= wanted:
            break
    return {"rows": rows, "cursor": cursor, "looked": len(rows)}


async def _filtered(visit: Visit, place: KeyPlace) -> dict[str, Any]:
    """Return the rows whose keys contain the filter, whatever the case."""
    asked, cursor = _asked(visit, place), visit.query.get("cursor") or None
    wanted, part = visit.number("limit", default=PAGE, most=STEP), visit.query["filter"].lower()
    keys: list[str] = []
    looked = 0
    for _ in range(FILTERED_STEPS):
        page = await visit.ask(*place.at, "list", **asked, limit=STEP, cursor=cursor)
        cursor = page["cursor"]
        for key in page["keys"]:
            looked += 1
            if part in key[len(place.root) :].lower():
                keys.append(key)
                if len(keys) == wanted:
                    cursor = cursor_after(key)
                    break
        if cursor is None or len(keys) == wanted:
            break
    return {"rows": await _entries(visit, place, keys), "cursor": cursor, "looked": looked}


async def _entries(visit: Visit, place: KeyPlace, keys: list[str]) -> list[dict[str, Any]]:
    """Return the rows of keys; those that are gone by now are left out."""
    if not keys:
        return []
    found = await visit.ask(*place.at, "get_many", keys=keys)
    pairs = zip(keys, found["results"], strict=True)
    return [row_of(place, {"key": key, **one}) for key, one in pairs if one.get("exists")]


async def _sorted(visit: Visit, place: KeyPlace, sort: str) -> dict[str, Any]:
    """Return rows in another order than that of keys: of the first keys alone, if there are many."""
    asked, cursor = _asked(visit, place), None
    part = visit.query.get("filter", "").lower()
    rows: list[dict[str, Any]] = []
    looked = 0
    for _ in range(SORTED_STEPS):
        page = await visit.ask(*place.at, "list", **asked, values=True, limit=STEP, cursor=cursor)
        looked += page["count"]
        found = (row_of(place, entry) for entry in page["entries"])
        rows += [row for row in found if part in row["name"].lower()]
        cursor = page["cursor"]
        if cursor is None:
            break
    rows.sort(key=SORTS[sort])
    return {"rows": rows[:STEP], "cursor": None, "looked": looked, "partial": cursor is not None}


async def _tree(visit: Visit, place: KeyPlace) -> dict[str, Any]:
    """Return the branches below the prefix. A large one is counted in part, and has `more`."""
    full = place.root + place.prefix
    counts: dict[str, int] = {}
    more: set[str] = set()
    leaves, cursor, whole = 0, None, False
    for _ in range(TREE_STEPS):
        page = await visit.ask(*place.at, "list", prefix=full, limit=STEP, cursor=cursor)
        last = None
        for key in page["keys"]:
            cut = _SEPARATOR.search(key, len(full))
            last = None if cut is None else key[len(full) : cut.end()]
            if last is None:
                leaves += 1
            else:
                counts[last] = counts.get(last, 0) + 1
        cursor = page["cursor"]
        whole = cursor is None
        if whole or len(counts) > MOST_BRANCHES:
            break
        if last is not None and counts[last] >= SKIPPED:
            more.add(last)
            cursor = cursor_after(full + last + _BEHIND)
    branches = [
        {"name": name, "prefix": place.prefix + name, "count": count, "more": name in more}
        for name, count in sorted(counts.items())
    ]
    return {"branches": branches[:MOST_BRANCHES], "leaves": leaves, "whole": whole}


async def _counted(visit: Visit, place: KeyPlace) -> dict[str, Any]:
    """Return how many keys a prefix has, as far as one request counts; `cursor` counts on."""
    count, cursor = 0, visit.query.get("cursor") or None
    for _ in range(COUNTED_STEPS):
        page = await visit.ask(*place.at, "list", **_asked(visit, place), limit=STEP, cursor=cursor)
        count += page["count"]
        cursor = page["cursor"]
        if cursor is None:
            break
    return place.shown() | {"prefix": place.prefix, "count": count, "cursor": cursor}
