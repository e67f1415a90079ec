"""The pages of keys: namespaces, the keys of one as a list and as a tree, an entry, and live changes.

Where the policy of a namespace is `open`, pages show values unasked, to visitors who may use the verb
`reveal`. Elsewhere a value leaves this module only from `entry` with `reveal`, through the verb of that name,
which the policy may refuse and the audit records; everything else shows sizes. A page reads a bounded number
of keys and changes, whatever a namespace holds, and says where it stopped.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from holdfast.clock import instant
from holdfast.cursors import cursor_after
from holdfast.edges.console.overview import headed, measured, with_quotas
from holdfast.edges.console.visits import Visit, beginning, family_of, how_revealed, href, owner_of, permitted
from holdfast.edges.http.requests import place_of
from holdfast.errors import HoldfastError, TableNotFound, ValidationError
from holdfast.families import has_tables

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
MOST_TEXT: Final = 100
"""Number of bytes of a value that a list shows."""
HISTORY: Final = 50
"""Number of changes that the page of an entry shows."""
MOST_CHANGES: Final = 500
"""Number of changes of one namespace in an answer of the live page."""
LATEST_CHANGES: Final = 20
"""Number of changes of each namespace that the live page begins with."""
MOST_FOLLOWED: Final = 50
"""Number of namespaces that are read for one answer of the live page; the rest follow in the next."""
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
_KINDS: Final = {
    ord("{"): "object",
    ord("["): "list",
    ord('"'): "text",
    ord("t"): "boolean",
    ord("f"): "boolean",
    ord("n"): "null",
}
"""The kind of a value by the first byte of its JSON; any other is a number."""


class KeyPlace(msgspec.Struct, frozen=True):
    """A namespace of keys. `root` is what all its keys begin with, and `prefix` follows it."""

    family: str
    owner: str
    namespace: str
    root: str
    prefix: str

    @classmethod
    def of(cls, visit: Visit) -> KeyPlace:
        """Return the namespace in the path of a page: a plugin, or a tenant and a project.

        Raises:
            InvalidPluginName: The plugin's name is illegal.
            ValidationError: The tenant's or the project's name is illegal.
        """
        path = visit.path
        family = "semantic" if "tenant" in path else "kv"
        place = place_of(family, path["plugin"] if family == "kv" else f"{path['tenant']}/{path['project']}")
        root = place.root or ""
        return cls(
            family, place.owner, place.namespace, root, visit.query.get("prefix", "").removeprefix(root)
        )

    @property
    def at(self) -> tuple[str, str]:
        """The family and the owner, for calls."""
        return self.family, self.owner

    def shown(self) -> dict[str, str]:
        """Return what a page shows of the place."""
        return {"family": self.family, "owner": self.owner, "namespace": self.namespace, "root": self.root}

    async def limits(self, visit: Visit) -> dict[str, Any]:
        """Return what the namespace holds, and how it reveals values, if the visitor may see that."""
        stats = await permitted(visit.call(*self.at, "stats"))
        if stats is None:
            return {"held": None, "head": None, **how_revealed(self.namespace, None)}
        held = {name: stats[name] for name in ("keys", "bytes", "kept_bytes", "version", "changed_at")}
        return {"held": held, "head": headed(stats), **how_revealed(self.namespace, stats["policy"])}

    def shows(self, visit: Visit, limits: dict[str, Any]) -> bool:
        """Return whether pages show values unasked."""
        return visit.shows(limits, *self.at, "reveal")


async def namespaces(visit: Visit) -> dict[str, Any]:
    """Return the namespaces that the visitor may look at."""
    if not visit.operator:
        assert visit.token is not None
        names = [name for family in visit.own_families if visit.fits(name := f"{family}/{visit.token.owner}")]
        own = [await _own(visit, name) for name in names]
        return {"namespaces": own, "cursor": None, "filter": visit.filter}
    rows: list[dict[str, Any]] = []
    cursor = visit.query.get("cursor") or None
    for _ in range(FILTERED_STEPS):
        listed = await visit.operators("namespaces", limit=PAGE, cursor=cursor)
        cursor = listed["cursor"]
        rows += [
            await with_quotas(visit, one) for one in listed["namespaces"] if visit.fits(one["namespace"])
        ]
        if cursor is None or len(rows) >= PAGE:
            break
    linked = [one | {"href": href(one["namespace"])} for one in rows]
    return {"namespaces": linked, "cursor": cursor, "filter": visit.filter}


async def _own(visit: Visit, namespace: str) -> dict[str, Any]:
    """Return a namespace of the visitor's token, with what it holds if the token allows that."""
    stats = await permitted(visit.within(namespace, "stats"))
    view = {"namespace": namespace} if stats is None else measured(stats)
    return view | {"href": href(namespace)}


async def keys(visit: Visit) -> dict[str, Any]:
    """Return a page of the keys of a namespace, or how many there are with `count`.

    With `key` in the query, return that entry: a path can't hold every key.
    """
    if "key" in visit.query:
        return await entry(visit)
    place = KeyPlace.of(visit)
    if visit.query.get("count"):
        return await _counted(visit, place)
    sort = visit.query.get("sort") or "key"
    if sort not in SORTS:
        raise ValidationError(f"sort must be one of {', '.join(SORTS)}", field="sort")
    limits = await place.limits(visit)
    values = place.shows(visit, limits)
    if sort != "key":
        rows = await _sorted(visit, place, sort, values=values)
    elif visit.query.get("filter"):
        rows = await _filtered(visit, place, values=values)
    else:
        rows = await _listed(visit, place, values=values)
    about = place.shown() | {"prefix": place.prefix, "sort": sort, "filter": visit.query.get("filter", "")}
    if visit.query.get("cursor"):
        return about | rows
    tree = {"tree": await _tree(visit, place), "may": visit.allowed_verbs(*place.at)}
    return about | rows | tree | limits


def _row(place: KeyPlace, entry: dict[str, Any], *, values: bool) -> dict[str, Any]:
    """Return an entry as a row of a list, and with `values` the beginning of its value."""
    semantics = entry.get("semantics") or {}
    text = bytes(entry["value"])
    row = {
        "key": entry["key"],
        "name": entry["key"].removeprefix(place.root),
        "size": len(text),
        "version": entry["version"],
        "updated_at": entry["updated_at"],
        "expires_at": entry["expires_at"],
        "last_writer": entry["last_writer"],
        "purpose": semantics.get("purpose"),
        "producer": semantics.get("producer"),
    }
    return row | {"text": beginning(text, MOST_TEXT)} if values else row


def _list_fields(visit: Visit, place: KeyPlace) -> dict[str, Any]:
    """Return the fields of `list` that are in the address."""
    filters = {name: visit.query[name] for name in _FILTERS if visit.query.get(name)}
    return {"prefix": place.root + place.prefix, **filters}


async def _listed(visit: Visit, place: KeyPlace, *, values: bool) -> dict[str, Any]:
    """Return rows in the order of their keys."""
    fields, cursor = _list_fields(visit, place), visit.query.get("cursor") or None
    limit = visit.number("limit", default=PAGE, most=STEP)
    rows: list[dict[str, Any]] = []
    for _ in range(FILTERED_STEPS):
        page = await visit.ask(
            *place.at, "list", **fields, values=True, limit=limit - len(rows), cursor=cursor
        )
        rows += [_row(place, entry, values=values) for entry in page["entries"]]
        cursor = page["cursor"]
        if cursor is None or len(rows) >= limit:
            break
    return {"rows": rows, "cursor": cursor, "looked": len(rows)}


async def _filtered(visit: Visit, place: KeyPlace, *, values: bool) -> dict[str, Any]:
    """Return the rows whose keys contain the filter, whatever the case."""
    fields, cursor = _list_fields(visit, place), visit.query.get("cursor") or None
    limit, part = visit.number("limit", default=PAGE, most=STEP), visit.query["filter"].lower()
    matching: list[str] = []
    looked = 0
    for _ in range(FILTERED_STEPS):
        page = await visit.ask(*place.at, "list", **fields, limit=STEP, cursor=cursor)
        cursor = page["cursor"]
        for key in page["keys"]:
            looked += 1
            if part in key[len(place.root) :].lower():
                matching.append(key)
                if len(matching) == limit:
                    cursor = cursor_after(key)
                    break
        if cursor is None or len(matching) == limit:
            break
    rows = await _rows(visit, place, matching, values=values)
    return {"rows": rows, "cursor": cursor, "looked": looked}


async def _rows(visit: Visit, place: KeyPlace, keys: list[str], *, values: bool) -> list[dict[str, Any]]:
    """Return the rows of keys; those that are gone by now are left out."""
    if not keys:
        return []
    entries = (await visit.ask(*place.at, "get_many", keys=keys))["results"]
    pairs = zip(keys, entries, strict=True)
    return [_row(place, {"key": key, **entry}, values=values) for key, entry in pairs if entry.get("exists")]


async def _sorted(visit: Visit, place: KeyPlace, sort: str, *, values: bool) -> dict[str, Any]:
    """Return rows in another order than that of keys: of the first keys alone, if there are many."""
    fields, cursor = _list_fields(visit, place), None
    part = visit.query.get("filter", "").lower()
    rows: list[dict[str, Any]] = []
    looked = 0
    for _ in range(SORTED_STEPS):
        page = await visit.ask(*place.at, "list", **fields, values=True, limit=STEP, cursor=cursor)
        looked += page["count"]
        step = (_row(place, entry, values=values) for entry in page["entries"])
        rows += [row for row in step if part in row["name"].lower()]
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
        page = await visit.ask(*place.at, "list", **_list_fields(visit, place), limit=STEP, cursor=cursor)
        count += page["count"]
        cursor = page["cursor"]
        if cursor is None:
            break
    return place.shown() | {"prefix": place.prefix, "count": count, "cursor": cursor}


async def entry(visit: Visit) -> dict[str, Any]:
    """Return an entry, with its value if the visitor reveals it or the policy is `open`."""
    place = KeyPlace.of(visit)
    key = visit.path.get("key") or visit.query["key"]
    reveals = visit.query.get("reveal") == "1"
    fields = {"key": key, "why": visit.query.get("why") or None} if reveals else {"key": key}
    limits = await place.limits(visit)
    stored = await visit.ask(*place.at, "reveal" if reveals else "get", **fields)
    shows = reveals or place.shows(visit, limits)
    revealed = shows and bool(stored["exists"])
    # A visitor who may not use `history` sees the entry without it.
    history = await permitted(visit.call(*place.at, "history", key=key, limit=HISTORY))
    return {
        "page": "entry",
        **place.shown(),
        "key": key,
        "name": key.removeprefix(place.root),
        "entry": _entry(stored, value=shows),
        "subject": f"{visit.parts.prefix}.{place.namespace.replace('/', '.')}.get",
        "history": None if history is None else history["changes"],
        "trashed": await _trashed(visit, place, key, value=revealed),
        "may": visit.allowed_verbs(*place.at),
        **{name: limits[name] for name in ("reveal", "recorded")},
        "revealed": revealed,
    }


def _entry(stored: dict[str, Any], *, value: bool) -> dict[str, Any] | None:
    """Return an entry with the kind and the size of its value, and with the value only if asked.

    `text` is the value as stored: a script that decoded it would round long numbers, and write them back.
    """
    if not stored["exists"]:
        return None
    text = bytes(stored["value"])
    view = {name: field for name, field in stored.items() if name not in ("exists", "value")}
    view |= {"size": len(text), "kind": _KINDS.get(text[0], "number")}
    return view | {"value": msgspec.Raw(text), "text": text.decode()} if value else view


async def _trashed(visit: Visit, place: KeyPlace, key: str, *, value: bool) -> dict[str, Any] | None:
    """Return what the trash has of a key, and its value if that of the entry is revealed too.

    The trash is for operators.
    """
    if not visit.operator:
        return None
    full = key if key.startswith(place.root) else place.root + key
    try:
        page = await visit.operators(
            "trash", namespace=place.namespace, prefix=full, limit=1, values=value or None
        )
    except HoldfastError:
        return None
    removed = next((one for one in page["entries"] if one["key"] == full), None)
    if removed is None or "value" not in removed:
        return removed
    text = msgspec.json.encode(removed["value"]).decode()
    return {name: field for name, field in removed.items() if name != "value"} | {"text": text}


async def live(visit: Visit) -> dict[str, Any]:
    """Return the changes after `since`, which has a version for each namespace: `kv/a:12,kv/b:7`.

    A page asks again and again, each time from where the last answer ended, so that nothing is missed between
    two answers, and a token that is revoked sees no more. Without `since` there are the latest changes of
    each namespace, and with it all of a namespace that was not there before. `behind` says that more changes
    are there already, for which a page asks at once.
    """
    heads = await _heads(visit)
    resumes = visit.query.get("since")
    if resumes:
        since = _versions(resumes)
    else:
        start = _start(visit)
        since = {name: max(0, head - start) for name, head in heads.items()}
    changes: list[dict[str, Any]] = []
    gaps: list[str] = []
    grown = [name for name, head in heads.items() if head != since.get(name, 0)]
    for name in grown[:MOST_FOLLOWED]:
        page = await _changes(visit, name, since.get(name, 0), heads[name])
        if resumes and page["gap"]:
            gaps.append(name)
        since[name] = page["next"]
        fitting = [{"namespace": name, **one} for one in page["changes"] if _fits(visit, one)]
        changes += fitting if resumes else fitting[-LATEST_CHANGES:]
    changes.sort(key=lambda one: (instant(one["at"]), one["version"]))
    return {
        "changes": changes,
        "gaps": gaps,
        "since": ",".join(f"{name}:{version}" for name, version in since.items() if name in heads) or ",",
        "namespaces": sorted({*heads, *(await _other_namespaces(visit))}),
        "filters": {name: visit.query.get(name, "") for name in ("namespace", "op", "writer", "prefix")},
        "behind": any(since.get(name, 0) < head for name, head in heads.items()),
    }


def _start(visit: Visit) -> int:
    """Return how many versions a page looks back at first. With a filter, few of them may fit."""
    narrowed = visit.query.get("namespace") and any(visit.query.get(name) for name in ("op", "writer"))
    return MOST_CHANGES if narrowed else LATEST_CHANGES


async def _heads(visit: Visit) -> dict[str, int]:
    """Return the last version of each namespace that the visitor may watch."""
    namespace = visit.query.get("namespace", "")
    if not namespace and visit.operator:
        return await _all_heads(visit)
    if not namespace:
        token = visit.token
        assert token is not None
        namespace = f"{'kv' if token.plugin else 'semantic'}/{token.owner}"
    if has_tables(namespace):
        return {namespace: (await visit.call(*_place(namespace), "stats"))["version"]}
    page = await visit.call(*_place(namespace), "changes", since=0, limit=1)
    return {namespace: page["head"]}


async def _all_heads(visit: Visit) -> dict[str, int]:
    """Return the last version of each namespace that has a page."""
    listed = await visit.operators("namespaces", limit=1_024)
    return {one["namespace"]: one["version"] for one in listed["namespaces"] if href(one["namespace"])}


async def _other_namespaces(visit: Visit) -> dict[str, int]:
    """Return the namespaces that a page lets one choose beside the chosen one; it asks for them once."""
    first = visit.query.get("namespace") and not visit.query.get("since")
    return await _all_heads(visit) if first and visit.operator else {}


async def _changes(visit: Visit, namespace: str, since: int, head: int) -> dict[str, Any]:
    prefix = visit.query.get("prefix") or None
    if has_tables(namespace):
        return await _item_changes(visit, owner_of(namespace), since, head, prefix or "")
    try:
        return await visit.call(*_place(namespace), "changes", since=since, limit=MOST_CHANGES, prefix=prefix)
    except ValidationError:
        if prefix is None:
            raise
        return {"changes": [], "next": since, "gap": False}  # a prefix that this family of keys can't have


async def _item_changes(visit: Visit, plugin: str, since: int, head: int, prefix: str) -> dict[str, Any]:
    """Return the changes of items in all tables of a plugin, as far as those of each table are known."""
    pages = []
    for table in (await visit.call("table", plugin, "list_tables"))["tables"]:
        with contextlib.suppress(TableNotFound):  # it was dropped meanwhile
            pages.append(
                await visit.call("table", plugin, "changes", table=table, since=since, limit=MOST_CHANGES)
            )
    until = min((page["next"] for page in pages), default=head)
    named = [{"key": _item_name(one), **one} for page in pages for one in page["changes"]]
    fitting = [one for one in named if one["version"] <= until and one["key"].startswith(prefix)]
    changes = sorted(fitting, key=lambda one: one["version"])
    return {"changes": changes, "next": until, "gap": any(page["gap"] for page in pages)}


def _item_name(change: dict[str, Any]) -> str:
    """Return an item's table and key, as people read them."""
    parts = (change["table"], change["partition_key"], change.get("sort_key"))
    return " · ".join(str(part) for part in parts if part is not None)


def _place(namespace: str) -> tuple[str, str]:
    """Return the family and the owner of a namespace that has changes."""
    if href(namespace) is None:
        raise ValidationError("namespace must be such as kv/trivia or semantic/acme/web", field="namespace")
    return family_of(namespace), owner_of(namespace)


def _fits(visit: Visit, change: dict[str, Any]) -> bool:
    op, writer = visit.query.get("op"), visit.query.get("writer")
    return (not op or change["op"] == op) and (not writer or writer in (change.get("last_writer") or ""))


def _versions(text: str) -> dict[str, int]:
    """Return the versions of namespaces.

    Raises:
        ValidationError: They have another form.
    """
    versions: dict[str, int] = {}
    for one in filter(None, text.split(",")):
        name, _, version = one.rpartition(":")
        if not name or not (version.isascii() and version.isdecimal() and len(version) < 20):
            raise ValidationError("since must be such as kv/trivia:12,kv/other:7", field="since")
        versions[name] = int(version)
    return versions
