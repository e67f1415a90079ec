"""Live: the journals of namespaces as they grow.

A page asks again and again, each time from where the last answer ended, so that nothing is missed between two
answers, and a token that is revoked sees no more.

Law: as in `holdfast.edges.console.pages`. The journal has no values. What is asked for is bounded: only
namespaces that have changed are read, and only so many changes of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from holdfast.clock import instant
from holdfast.edges.console.overview import href
from holdfast.errors import ValidationError
from holdfast.families import has_keys

if TYPE_CHECKING:
    from holdfast.edges.console.visits import Visit

MOST: Final = 500
"""Number of changes of one namespace in an answer."""
LATEST: Final = 20
"""Number of changes of each namespace that a page begins with."""
MOST_NAMESPACES: Final = 50
"""Number of namespaces that are read for one answer; the rest follow in the next."""


async def live(visit: Visit) -> dict[str, Any]:
    """Return the changes after `since`, which has a version for each namespace: `kv/a:12,kv/b:7`.

    Without `since` there are the latest changes of each namespace, and with it all of a namespace that was
    not there before. `behind` says that more changes are there already, for which a page asks at once.
    """
    heads = await _heads(visit)
    asked = visit.query.get("since")
    since = _since(asked) if asked else {name: max(0, head - _start(visit)) for name, head in heads.items()}
    changes: list[dict[str, Any]] = []
    gaps: list[str] = []
    grown = [name for name, head in heads.items() if head != since.get(name, 0)]
    for name in grown[:MOST_NAMESPACES]:
        found = await _changes(visit, name, since.get(name, 0))
        if asked and found["gap"]:
            gaps.append(name)
        since[name] = found["next"]
        fitting = [{"namespace": name, **one} for one in found["changes"] if _fits(visit, one)]
        changes += fitting if asked else fitting[-LATEST:]
    changes.sort(key=lambda one: (instant(one["at"]), one["version"]))
    return {
        "changes": changes,
        "gaps": gaps,
        "since": ",".join(f"{name}:{version}" for name, version in since.items() if name in heads) or ",",
        "namespaces": sorted({*heads, *(await _others(visit))}),
        "filters": {name: visit.query.get(name, "") for name in ("namespace", "op", "writer", "prefix")},
        "behind": any(since.get(name, 0) < head for name, head in heads.items()),
    }


def _start(visit: Visit) -> int:
    """Return how many versions a page looks back at first. With a filter, few of them may fit."""
    narrowed = visit.query.get("namespace") and any(visit.query.get(name) for name in ("op", "writer"))
    return MOST if narrowed else LATEST


async def _heads(visit: Visit) -> dict[str, int]:
    """Return the last version of each namespace that the visitor may watch."""
    asked = visit.query.get("namespace", "")
    if asked:
        family, owner = _parts(asked)
        found = await visit.call(family, owner, "changes", since=0, limit=1)
        return {asked: found["head"]}
    if visit.operator:
        return await _all(visit)
    token = visit.token
    assert token is not None
    family = "kv" if token.plugin else "semantic"
    found = await visit.call(family, token.owner, "changes", since=0, limit=1)
    return {f"{family}/{token.owner}": found["head"]}


async def _all(visit: Visit) -> dict[str, int]:
    """Return the last version of each namespace of keys."""
    listed = await visit.operators("namespaces", limit=1_024)
    return {one["namespace"]: one["version"] for one in listed["namespaces"] if has_keys(one["namespace"])}


async def _others(visit: Visit) -> dict[str, int]:
    """Return the namespaces that a page lets one choose beside the chosen one; it asks for them once."""
    asked = visit.query.get("namespace") and not visit.query.get("since")
    return await _all(visit) if asked and visit.operator else {}


async def _changes(visit: Visit, namespace: str, since: int) -> dict[str, Any]:
    family, owner = _parts(namespace)
    prefix = visit.query.get("prefix") or None
    try:
        return await visit.call(family, owner, "changes", since=since, limit=MOST, prefix=prefix)
    except ValidationError:
        if prefix is None:
            raise
        return {"changes": [], "next": since, "gap": False}  # a prefix that this family of keys can't have


def _parts(namespace: str) -> tuple[str, str]:
    family, _, owner = namespace.partition("/")
    if href(namespace) is None or not has_keys(namespace):
        raise ValidationError("namespace must be such as kv/trivia or semantic/acme/web", field="namespace")
    return family, owner


def _fits(visit: Visit, change: dict[str, Any]) -> bool:
    op, writer = visit.query.get("op"), visit.query.get("writer")
    return (not op or change["op"] == op) and (not writer or writer in (change.get("last_writer") or ""))


def _since(text: str) -> dict[str, int]:
    """Return the versions of namespaces.

    Raises:
        ValidationError: They have another form.
    """
    found: dict[str, int] = {}
    for one in filter(None, text.split(",")):
        name, _, version = one.rpartition(":")
        if not name or not (version.isascii() and version.isdecimal() and len(version) < 20):
            raise ValidationError("since must be such as kv/trivia:12,kv/other:7", field="since")
        found[name] = int(version)
    return found
