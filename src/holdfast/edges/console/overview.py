"""The overview: readiness, traffic, namespaces with their quotas, and what needs a person.

A visitor with the token of a plugin or project sees that alone, and nothing about others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from holdfast.decide.policies import audited_by
from holdfast.edges.console.visits import href, permitted
from holdfast.edges.http.app import OK
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.edges.console.visits import Visit

MOST_NAMESPACES: Final = 100
"""Number of namespaces that are shown with their quotas, the largest first."""
MOST_LETTERS: Final = 20
"""Number of namespaces whose dead letters are counted."""
NEARLY_FULL: Final = 0.9
"""Share of a quota from which on a person should look at it."""


async def overview(visit: Visit) -> dict[str, Any]:
    """Return the state of the service, or of the visitor's own plugin or project."""
    if not visit.operator:
        return await _own(visit)
    health = await visit.parts.health.report()
    listed = await visit.operators("namespaces", limit=1_024)
    largest = sorted(listed["namespaces"], key=lambda one: -one["kept_bytes"])
    namespaces = [await _with_quotas(visit, one) for one in largest[:MOST_NAMESPACES]]
    instances = visit.parts.instances.shown()
    return {
        "health": health,
        "instances": instances,
        "hour": visit.parts.recent.shown(),
        "totals": _totals(listed["namespaces"]),
        "errors": _errors(visit),
        "namespaces": namespaces,
        "more_namespaces": listed["truncated"] or len(largest) > MOST_NAMESPACES,
        "attention": [
            *_unready_parts(health),
            *_full_disk(visit),
            *_instance_troubles(instances),
            *_full_quotas(namespaces),
            *await _letters(visit, largest),
        ],
    }


async def _own(visit: Visit) -> dict[str, Any]:
    """Return what the namespaces of a token hold."""
    assert visit.token is not None
    owner = visit.token.owner
    namespaces = [
        measured(stats)
        for family in visit.own_families
        if (stats := await permitted(visit.call(family, owner, "stats"))) is not None
    ]
    return {"health": None, "namespaces": namespaces, "attention": _full_quotas(namespaces)}


async def _with_quotas(visit: Visit, stats: dict[str, Any]) -> dict[str, Any]:
    return measured(await permitted(visit.operators("stats", namespace=stats["namespace"])) or stats)


def measured(stats: dict[str, Any]) -> dict[str, Any]:
    """Return what a page shows of a namespace: what it holds, and the limits that apply to it."""
    policy, defaults = stats.get("policy") or {}, stats.get("defaults") or {}
    quota_bytes = policy.get("quota_bytes") or defaults.get("quota_bytes")
    return {
        "namespace": stats["namespace"],
        "keys": stats["keys"],
        "bytes": stats["bytes"],
        "kept_bytes": stats["kept_bytes"],
        "version": stats["version"],
        "changed_at": stats["changed_at"],
        "quota_bytes": quota_bytes,
        "quota_keys": policy.get("quota_keys"),
        "audit": audited_by(stats["namespace"], policy.get("audit")),
    }


def _totals(namespaces: list[dict[str, Any]]) -> dict[str, int]:
    return {
        "namespaces": len(namespaces),
        "keys": sum(one["keys"] for one in namespaces),
        "kept_bytes": sum(one["kept_bytes"] for one in namespaces),
    }


def _errors(visit: Visit) -> list[dict[str, Any]]:
    """Return the refusals since the start, by code and plugin, the most frequent first."""
    refusals = sorted(visit.parts.metrics.refusals(), key=lambda one: -one[1])
    return [{"plugin": plugin, "code": code, "count": count} for (plugin, code), count in refusals[:50]]


def _unready_parts(health: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the parts of the service that are not ready, as matters for a person."""
    parts = ("service", "store", "nats", "audit", "plugins")
    return [
        {"kind": part, "text": health[part], "href": None}
        for part in parts
        if part in health and health[part] != OK
    ]


def _full_disk(visit: Visit) -> list[dict[str, Any]]:
    """Return a full disk as a matter for a person, if the last write was refused for that."""
    full = visit.parts.metrics.full
    return [] if full is None else [{"kind": "disk", "text": full, "href": None}]


def _instance_troubles(instances: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what is wrong with instances."""
    return [{"kind": "instance", "text": text, "href": None} for one in instances for text in one["troubles"]]


def _full_quotas(namespaces: list[dict[str, Any]]) -> list[dict[str, Any]]:
    matters = []
    for one in namespaces:
        shares = {
            "bytes": (one["kept_bytes"], one["quota_bytes"]),
            "keys": (one["keys"], one["quota_keys"]),
        }
        for what, (used, quota) in shares.items():
            if quota and used >= NEARLY_FULL * quota:
                text = f"{one['namespace']} uses {used / quota:.0%} of its quota of {what}"
                matters.append({"kind": "quota", "text": text, "href": href(one["namespace"])})
    return matters


async def _letters(visit: Visit, namespaces: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the namespaces that have dead letters, with how many."""
    matters = []
    for one in [one for one in namespaces if one["parts"]["letters"]][:MOST_LETTERS]:
        try:
            page = await visit.operators("deadletters", namespace=one["namespace"], limit=1_000)
        except HoldfastError:
            continue
        if page["count"]:
            letters = "1 dead letter" if page["count"] == 1 else f"{page['count']} dead letters"
            text = f"{one['namespace']} has {letters}"
            matters.append({"kind": "letters", "text": text, "href": "/ui/inbox"})
    return matters
