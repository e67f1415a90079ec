"""The overview: readiness, traffic, namespaces with their quotas, and what needs attention.

A visitor with the token of a plugin or project sees that alone, and nothing about others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from holdfast.decide.policies import audited_by
from holdfast.edges.console.visits import Visit, changed_at, how_revealed, href, permitted
from holdfast.edges.http.app import OK
from holdfast.edges.monitoring.metrics import RANGES
from holdfast.errors import HoldfastError, ValidationError
from holdfast.families import has_keys

MOST_NAMESPACES: Final = 100
"""Number of namespaces that are shown with their quotas, the largest first."""
MOST_LETTERS: Final = 20
"""Number of namespaces whose dead letters are counted."""
NEARLY_FULL: Final = 0.8
"""Share of a quota from which on a person should look at it."""
CRITICAL: Final = "critical"
WARNING: Final = "warning"
_SETTINGS: Final = {"store": "db", "nats": "nats", "audit": "audit", "plugins": "connection"}
"""What narrows the settings to those of a part of the service."""


async def overview(visit: Visit) -> dict[str, Any]:
    """Return the state of the service, or of the visitor's own plugin or project."""
    if not visit.operator:
        return await _own(visit)
    name = visit.query.get("range") or "hour"
    if name not in RANGES:
        raise ValidationError(f"range must be one of {', '.join(RANGES)}", field="range")
    health = await visit.parts.health.report()
    listed = await visit.operators("namespaces", limit=1_024)
    largest = sorted(listed["namespaces"], key=lambda one: -one["kept_bytes"])
    namespaces = [await with_quotas(visit, one) for one in largest[:MOST_NAMESPACES]]
    instances = visit.parts.instances.shown()
    matters = [
        *_unready_parts(health),
        *_full_disk(visit),
        *_instance_troubles(visit, instances),
        *await _cluster_troubles(visit),
        *_full_quotas(visit, namespaces),
        *await _letters(visit, largest),
    ]
    return {
        "health": health,
        "instances": instances,
        "recent": visit.parts.recent.shown(name),
        "totals": _totals(listed["namespaces"]),
        "errors": _errors(visit),
        "namespaces": namespaces,
        "more_namespaces": listed["truncated"] or len(largest) > MOST_NAMESPACES,
        "attention": by_severity(matters),
        "addresses": visit.parts.addresses | {"prefix": visit.parts.prefix},
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
    return {
        "health": None,
        "namespaces": namespaces,
        "totals": _totals(namespaces),
        "attention": by_severity(_full_quotas(visit, namespaces)),
    }


async def with_quotas(visit: Visit, stats: dict[str, Any]) -> dict[str, Any]:
    """Return what a page shows of a namespace, of which an operator's list has said what it holds."""
    return measured(await permitted(visit.operators("stats", namespace=stats["namespace"])) or stats)


def headed(stats: dict[str, Any]) -> dict[str, Any]:
    """Return what the head of a namespace's page shows: what it holds, its limits, and its own policy."""
    policy = {name: field for name, field in stats["policy"].items() if field is not None}
    return measured(stats) | {"policy": policy, **how_revealed(stats["namespace"], policy)}


async def head_of(visit: Visit, family: str, owner: str) -> dict[str, Any] | None:
    """Return the head of a namespace's page; None if the visitor may not see it."""
    stats = await permitted(visit.call(family, owner, "stats"))
    return None if stats is None else headed(stats)


def measured(stats: dict[str, Any]) -> dict[str, Any]:
    """Return what a page shows of a namespace: what it holds, and the quota that is nearest to refuse."""
    policy = stats.get("policy") or {}
    return {
        "namespace": stats["namespace"],
        "keys": stats["keys"],
        "bytes": stats["bytes"],
        "kept_bytes": stats["kept_bytes"],
        "version": stats["version"],
        "changed_at": changed_at(stats),
        "quota": nearest_quota(stats),
        "audit": audited_by(stats["namespace"], policy.get("audit")),
    }


def nearest_quota(stats: dict[str, Any]) -> dict[str, Any] | None:
    """Return the quota of a namespace that is used most: of keys or of bytes; None if it has neither.

    The journal does not count if it is shortened before a quota refuses.
    """
    policy, defaults = stats.get("policy") or {}, stats.get("defaults") or {}
    most_bytes = policy.get("quota_bytes")
    if most_bytes is None:
        most_bytes = defaults.get("quota_bytes")
    yields = policy.get("journal_retention") is None
    used_bytes = stats["kept_bytes"] - (stats["parts"]["journal"] if yields else 0)
    quotas = [
        {"of": of, "used": used, "most": most, "share": used / most if most else 1.0}
        for of, used, most in (
            ("keys", stats["keys"], policy.get("quota_keys")),
            ("bytes", used_bytes, most_bytes),
        )
        if most is not None
    ]
    return max(quotas, key=lambda quota: quota["share"], default=None)


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


def by_severity(matters: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return matters for a person, those first that are critical."""
    return sorted(matters, key=lambda one: one["severity"] != CRITICAL)


def _matter(
    kind: str, severity: str, text: str, *actions: dict[str, Any] | None, link: str | None = None
) -> dict[str, Any]:
    """Return a matter for a person: what is wrong, and the actions that may help.

    An action is a link (`href`), or something that the page does (`does`, with `fields`).
    """
    present = [action for action in actions if action is not None]
    return {"kind": kind, "severity": severity, "text": text, "href": link, "actions": present}


def _unready_parts(health: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the parts of the service that are not ready, as matters for a person."""
    return [
        _matter(
            part,
            WARNING if part == "plugins" else CRITICAL,
            f"{part}: {health[part]}",
            {"label": "Check again", "does": "reload"},
            {"label": "Settings", "href": f"/ui/settings?filter={_SETTINGS[part]}"}
            if part in _SETTINGS
            else None,
        )
        for part in ("service", "store", "nats", "audit", "plugins")
        if part in health and health[part] != OK
    ]


def _full_disk(visit: Visit) -> list[dict[str, Any]]:
    """Return a full disk as a matter for a person, if the last write was refused for that."""
    full = visit.parts.metrics.full
    if full is None:
        return []
    return [_matter("disk", CRITICAL, full, _sweep(visit), {"label": "Find what is large", "href": "/ui/kv"})]


def _sweep(visit: Visit) -> dict[str, Any] | None:
    """Return the action that removes expired entries, if the visitor may."""
    if not visit.allows("admin", "", "sweep"):
        return None
    return {"label": "Remove expired entries", "does": "sweep"}


def _instance_troubles(visit: Visit, instances: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what is wrong with instances."""
    return [
        _matter(
            "instance",
            CRITICAL if trouble["stops"] else WARNING,
            trouble["text"],
            _sweep(visit) if trouble["late"] else None,
            {"label": "Show instances", "href": "/ui/cluster"},
        )
        for one in instances
        for trouble in one["troubles"]
    ]


async def _cluster_troubles(visit: Visit) -> list[dict[str, Any]]:
    """Return what is wrong with the cluster that the store is part of, such as a server that is gone."""
    if visit.parts.cluster is None:
        return []
    show = {"label": "Show the cluster", "href": "/ui/cluster"}
    return [_matter("cluster", WARNING, text, show) for text in await visit.parts.cluster.troubles()]


def _full_quotas(visit: Visit, namespaces: list[dict[str, Any]]) -> list[dict[str, Any]]:
    matters = []
    for one in namespaces:
        name, quota = one["namespace"], one["quota"]
        if quota is None or quota["share"] < NEARLY_FULL:
            continue
        text = f"{name} uses {int(quota['share'] * 100)} % of its quota of {quota['of']}"
        sort = "?sort=size" if has_keys(name) else ""
        policy = {"label": "Change the quota", "href": f"/ui/policies/{name}"} if visit.operator else None
        matters.append(
            _matter(
                "quota",
                CRITICAL if quota["share"] >= 1 else WARNING,
                text,
                policy,
                {"label": "Show the largest" if sort else "Show", "href": f"{href(name)}{sort}"},
                link=href(name),
            )
        )
    return sorted(matters, key=lambda matter: matter["text"])


async def _letters(visit: Visit, namespaces: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the namespaces that have dead letters, with how many."""
    matters = []
    for one in [one for one in namespaces if one["parts"]["letters"]][:MOST_LETTERS]:
        name = one["namespace"]
        try:
            page = await visit.operators("deadletters", namespace=name, limit=1_000)
        except HoldfastError:
            continue
        if not page["count"]:
            continue
        letters = "1 dead letter" if page["count"] == 1 else f"{page['count']} dead letters"
        retry = {"label": "Retry" if page["count"] == 1 else "Retry all", "does": "retry"}
        inbox = f"/ui/inbox?namespace={name}&tab=letters"
        matters.append(
            _matter(
                "letters",
                WARNING,
                f"{name} has {letters}",
                retry | {"fields": {"namespace": name}}
                if visit.allows("admin", "", "deadletter_retry")
                else None,
                {"label": "Look", "href": inbox},
                link=inbox,
            )
        )
    return matters
