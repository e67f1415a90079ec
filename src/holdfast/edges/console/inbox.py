"""The inbox: dead letters, the trash, locks, entries that expire soon, and slow requests.

Law: as in `holdfast.edges.console.pages`. No part contains a value: a letter's request is shown without the
values that it would write, and the verb `deadletter_reveal` returns them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from holdfast import rules
from holdfast.clock import instant
from holdfast.edges.console.owners import family_of, held, owner_of, reveal_of
from holdfast.errors import PermissionDenied
from holdfast.handles.recipes.names import WAITING, waits

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast.edges.console.visits import Visit

MOST_NAMESPACES: Final = 50
"""Number of namespaces that a part looks into if none is chosen."""
MOST_ROWS: Final = 100
"""Number of rows of a part."""
WITHIN: Final = 3_600
"""Seconds in which an entry expires soon, if the visitor does not say otherwise."""
LONGEST: Final = 31_536_000
SOON_PAGES: Final = 10
"""Pages of entries that are looked through if a namespace is chosen. Each looks at up to 5,000 entries."""
KEYED: Final = ("kv", "semantic")
_HIDDEN: Final = frozenset({"value", "item", "items", "entries", "writes", "set", "add", "data"})
"""The fields of a request that hold what it writes."""
_OF_LETTERS: Final = (
    *("number", "at", "key", "verb", "error_code", "message", "attempts", "writer", "request_id"),
)
_OF_TRASH: Final = ("key", "op", "at", "by", "version", "purpose", "expires_at", "purged_at")

Namespaces = list[dict[str, Any]]
Part = tuple[list[dict[str, Any]], bool]
"""The rows of a part, and whether there are more."""


async def inbox(visit: Visit) -> dict[str, Any]:
    """Return what waits for a person."""
    chosen = visit.query.get("namespace") or None
    within = visit.number("within", default=WITHIN, most=LONGEST)
    listed = await held(visit, *KEYED, "table", "blob")
    looked = [one for one in listed if chosen in (None, one["namespace"])]
    return {
        "namespace": chosen,
        "namespaces": [one["namespace"] for one in listed],
        "within": within,
        "letters": await _part(_letters, visit, [one for one in looked if one["parts"]["letters"]]),
        "trash": await _part(_trash, visit, [one for one in looked if one["parts"]["trash"]]),
        "locks": await _part(_locks, visit, _keyed(looked)),
        "expiring": await _part(_expiring, visit, _keyed(looked)),
        "slow": await _part(_slow, visit, looked),
    }


def _keyed(namespaces: Namespaces) -> Namespaces:
    return [one for one in namespaces if family_of(one["namespace"]) in KEYED and one["keys"]]


async def _part(
    look: Callable[[Visit, Namespaces], Awaitable[Part]], visit: Visit, namespaces: Namespaces
) -> dict[str, Any]:
    """Return a part of the page. One that the token does not allow says so, and the others are shown."""
    try:
        rows, more = await look(visit, namespaces[:MOST_NAMESPACES])
    except PermissionDenied as error:
        return {"rows": [], "more": False, "refused": error.message}
    return {"rows": rows[:MOST_ROWS], "more": more or len(rows) > MOST_ROWS, "refused": None}


async def _letters(visit: Visit, namespaces: Namespaces) -> Part:
    rows, more = [], len(namespaces) == MOST_NAMESPACES
    for one in namespaces:
        page = await visit.operators("deadletters", namespace=one["namespace"], limit=MOST_ROWS)
        policy = await reveal_of(visit, family_of(one["namespace"]), owner_of(one["namespace"]))
        rows += [_letter(one["namespace"], letter) | {"reveal": policy} for letter in page["letters"]]
        more = more or page["next"] is not None
    return sorted(rows, key=lambda row: instant(row["at"])), more


def _letter(namespace: str, letter: dict[str, Any]) -> dict[str, Any]:
    """Return a letter without the values in its request."""
    shown = {name: letter[name] for name in _OF_LETTERS}
    request = {name: said for name, said in letter["request"].items() if name not in _HIDDEN}
    hidden = sorted(letter["request"].keys() & _HIDDEN)
    return {"namespace": namespace, **shown, "request": request, "hidden": hidden}


async def _trash(visit: Visit, namespaces: Namespaces) -> Part:
    rows, more = [], len(namespaces) == MOST_NAMESPACES
    for one in namespaces:
        page = await visit.operators("trash", namespace=one["namespace"], limit=MOST_ROWS)
        rows += [
            {"namespace": one["namespace"], **{name: entry[name] for name in _OF_TRASH}}
            for entry in page["entries"]
        ]
        more = more or page["truncated"]
    return sorted(rows, key=lambda row: instant(row["at"]), reverse=True), more


async def _locks(visit: Visit, namespaces: Namespaces) -> Part:
    rows: list[dict[str, Any]] = []
    more = False
    for one in namespaces:
        family, owner = family_of(one["namespace"]), owner_of(one["namespace"])
        prefix = f"{rules.semantic_root(one['namespace']) or ''}lock/"
        page = await visit.call(family, owner, "list", prefix=prefix, purpose="lock", values=True)
        waiting = [entry["key"] for entry in page["entries"] if waits(entry["key"])]
        for entry in page["entries"]:
            if not waits(entry["key"]) and len(rows) < MOST_ROWS:
                rows.append(await _lock(visit, one["namespace"], entry, prefix, waiting))
        more = more or page["truncated"]
    return rows, more


async def _lock(
    visit: Visit, namespace: str, entry: dict[str, Any], prefix: str, waiting: list[str]
) -> dict[str, Any]:
    key = entry["key"]
    return {
        "namespace": namespace,
        "name": key.removeprefix(prefix),
        "key": key,
        "holder": entry["last_writer"],
        "token": await _token(visit, namespace, entry),
        "waiters": sum(place.startswith(f"{key}/{WAITING}/") for place in waiting),
        "since": entry["created_at"],
        "expires_at": entry["expires_at"],
    }


async def _token(visit: Visit, namespace: str, entry: dict[str, Any]) -> int | None:
    """Return the fencing token of a lock; None if the journal no longer has the change that took it.

    The token is the version after that of the lock's entry: one batch writes both.
    """
    holder = entry["value"].get("holder") if isinstance(entry["value"], dict) else None
    family, owner = family_of(namespace), owner_of(namespace)
    found = await visit.call(family, owner, "history", key=entry["key"], limit=1_000)
    taken = [one["version"] for one in found["changes"] if one.get("request_id") == f"lock-{holder}"]
    return min(taken) + 1 if taken else None


async def _expiring(visit: Visit, namespaces: Namespaces) -> Part:
    within = visit.number("within", default=WITHIN, most=LONGEST)
    before = datetime.fromtimestamp(visit.now() / 1000 + within, UTC).isoformat()
    rows: list[dict[str, Any]] = []
    more = False
    for one in namespaces:
        cursor, pages = None, SOON_PAGES if len(namespaces) == 1 else 1
        for _ in range(pages):
            found = await visit.call(
                family_of(one["namespace"]),
                owner_of(one["namespace"]),
                "list",
                expires_before=before,
                values=True,
                cursor=cursor,
            )
            rows += [_due(one["namespace"], entry) for entry in found["entries"] if not _locking(entry)]
            cursor = found["cursor"]
            if cursor is None:
                break
        more = more or cursor is not None
    return sorted(rows, key=lambda row: instant(row["expires_at"])), more


def _due(namespace: str, entry: dict[str, Any]) -> dict[str, Any]:
    purpose = (entry.get("semantics") or {}).get("purpose")
    shown = {name: entry[name] for name in ("key", "version", "expires_at", "last_writer")}
    return {"namespace": namespace, **shown, "purpose": purpose}


def _locking(entry: dict[str, Any]) -> bool:
    """Return whether an entry is that of a lock or of a waiter, which are renewed until they are released."""
    return (entry.get("semantics") or {}).get("purpose") == "lock"


async def _slow(visit: Visit, namespaces: Namespaces) -> Part:
    page = await visit.operators("slowlog", limit=MOST_ROWS)
    chosen = visit.query.get("namespace")
    owner = owner_of(chosen) if chosen else None
    rows = [one for one in page["requests"] if owner in (None, one["plugin"])]
    return rows, page["next"] is not None
