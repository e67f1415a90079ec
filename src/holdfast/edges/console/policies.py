"""The policies of namespaces, as a form that says what a policy would refuse today.

Law: as in `holdfast.edges.console.pages`. Nothing is changed here: `set_policy` does that. A trial looks at
what is stored now and counts what could not be written again under the policy.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast import rules
from holdfast.edges.console.owners import family_of, held, owner_of
from holdfast.edges.console.places import REVEALS
from holdfast.errors import ValidationError
from holdfast.model import Policy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.edges.console.visits import Visit

PAGES: Final = 40
"""Pages of entries that a trial looks at, of up to 1,000 entries each."""
EXAMPLES: Final = 5
"""Number of keys that a finding names."""
LISTED: Final = ("kv", "semantic", "blob")
FAMILIES: Final = (*LISTED, "table")
FIELDS: Final = {
    "quota_keys": ("number", "Keys", "Largest number of keys."),
    "quota_bytes": ("bytes", "Size", "Largest number of bytes kept, of all kinds but the audit."),
    "max_value_bytes": ("bytes", "Value size", "Largest size of a value as compact JSON."),
    "rate_limit": ("number", "Requests a second", "Accepted by each process that serves the namespace."),
    "ttl_default": ("seconds", "Default TTL", "For entries that are put without a TTL."),
    "ttl_min": ("seconds", "Shortest TTL", "Shorter ones are refused."),
    "ttl_max": ("seconds", "Longest TTL", "Longer ones are refused."),
    "ttl_required": ("switch", "TTL required", "Refuse entries without a deadline."),
    "trash": ("switch", "Trash", "Keep removed entries; by default, those with semantics are kept."),
    "trash_retention": ("seconds", "Trash kept for", "How long a removed entry can be restored."),
    "journal_retention": ("seconds", "Journal kept for", "How long the journal keeps a change."),
    "audit": ("switch", "Audit", "Record changes in a signed chain; by default, in the semantic family."),
    "audit_retention": ("seconds", "Audit kept for", "For ever if not given."),
    "reveal": (
        "choice",
        "Reveal",
        "Whether people see values without a reason, with one, or never; by default, with one if audited.",
    ),
}
"""The fields of a policy: their kind, their label and what they are for."""
CHOICES: Final = {"reveal": REVEALS}
GROUPS: Final = {
    "Size and rate": ("quota_keys", "quota_bytes", "max_value_bytes", "rate_limit"),
    "Time to live": ("ttl_default", "ttl_min", "ttl_max", "ttl_required"),
    "What is kept, and who sees it": (
        *("trash", "trash_retention", "journal_retention", "audit", "audit_retention", "reveal"),
    ),
}
"""The groups of the form, and the fields of each."""
_GROUP_OF: Final = {name: group for group, names in GROUPS.items() for name in names}
Broken = dict[str, list[str]]
"""The keys that break a rule, by the field of the policy."""


async def policies(visit: Visit) -> dict[str, Any]:
    """Return the namespaces with the policy of each; the filter is a part of a name or of a field."""
    found = await held(visit, *FAMILIES)
    rows = []
    for one in found:
        policy = (await visit.operators("policy", namespace=one["namespace"]))["policy"]
        asked = {name: said for name, said in policy.items() if said is not None}
        if visit.fits(one["namespace"], *asked):
            rows.append({"namespace": one["namespace"], "keys": one["keys"], "policy": asked})
    return {"namespaces": rows, "filter": visit.filter}


async def policy(visit: Visit) -> dict[str, Any]:
    """Return the policy of a namespace, and with `try=1` what the one in the query would refuse today."""
    namespace = rules.namespace(f"{visit.path['family']}/{visit.path['owner']}")
    stats = await visit.operators("stats", namespace=namespace)
    shown = {
        "namespace": namespace,
        "policy": stats["policy"],
        "defaults": stats["defaults"],
        "holds": {name: stats[name] for name in ("keys", "bytes", "kept_bytes", "parts", "changed_at")},
        "fields": [
            {
                **{"name": name, "group": _GROUP_OF[name], "kind": kind, "label": label, "help": help},
                "choices": CHOICES.get(name),
            }
            for name, (kind, label, help) in FIELDS.items()
        ],
    }
    if not visit.query.get("try"):
        return shown
    try:
        tried = asked_policy(visit.query)
    except ValidationError as error:
        return shown | {"trial": {"problem": error.message, "field": error.field}}
    return shown | {"trial": await _trial(visit, namespace, tried, stats)}


def asked_policy(query: Mapping[str, str]) -> Policy:
    """Return the policy that a query asks for.

    Raises:
        ValidationError: A field has a value that it may not have.
    """
    asked = {name: _read(FIELDS[name][0], query[name]) for name in FIELDS if query.get(name)}
    return rules.policy(asked)


def _read(kind: str, text: str) -> Any:
    if kind == "switch":
        return {"true": True, "false": False}.get(text, text)
    if kind == "choice":
        return text
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else text


async def _trial(visit: Visit, namespace: str, tried: Policy, stats: dict[str, Any]) -> dict[str, Any]:
    """Return what a policy would refuse, if all that is stored were written again."""
    findings = _of_quotas(tried, stats)
    looked, complete = 0, True
    broken: Broken = {}
    rule = _rules(tried, stats["policy"].get("max_value_bytes") or 0)
    if rule and family_of(namespace) in LISTED:
        looked, complete = await _look(visit, namespace, rule, broken)
    findings += [
        {"field": field, "count": len(keys), "examples": keys[:EXAMPLES], "text": _TEXTS[field]}
        for field, keys in broken.items()
    ]
    asked = {name: said for name, said in msgspec.structs.asdict(tried).items() if said is not None}
    return {"policy": asked, "findings": findings, "looked": looked, "complete": complete}


def _of_quotas(tried: Policy, stats: dict[str, Any]) -> list[dict[str, Any]]:
    counted = stats["kept_bytes"]
    found = []
    for field, used, most in (
        ("quota_keys", stats["keys"], tried.quota_keys),
        ("quota_bytes", counted, tried.quota_bytes),
    ):
        if most is not None and used > most:
            found.append({"field": field, "count": used - most, "examples": [], "text": _TEXTS[field]})
    return found


_TEXTS: Final = {
    "quota_keys": "more keys than the quota allows: new ones are refused until this many are removed",
    "quota_bytes": "more bytes than the quota allows: writes that add are refused until this much is removed",
    "max_value_bytes": "values are larger",
    "ttl_required": "entries have no deadline",
    "ttl_min": "entries were written with a shorter TTL",
    "ttl_max": "entries were written with a longer TTL",
}


def _rules(tried: Policy, largest: int) -> dict[str, Callable[[dict[str, Any]], bool]]:
    """Return, by field, the function that says whether an entry breaks a policy.

    Values of up to `largest` bytes are allowed today. A policy that does not say how large they may be allows
    fewer.
    """
    found: dict[str, Callable[[dict[str, Any]], bool]] = {}
    most = tried.max_value_bytes or rules.MAX_VALUE_BYTES
    if tried.max_value_bytes is not None or largest > most:
        found["max_value_bytes"] = lambda entry: len(msgspec.json.encode(entry["value"])) > most
    if tried.ttl_required and tried.ttl_default is None:
        found["ttl_required"] = lambda entry: entry["expires_at"] is None
    if tried.ttl_min is not None:
        least = tried.ttl_min
        found["ttl_min"] = lambda entry: entry["expires_at"] is not None and _ttl(entry) < least
    if tried.ttl_max is not None:
        longest = tried.ttl_max
        found["ttl_max"] = lambda entry: entry["expires_at"] is not None and _ttl(entry) > longest
    return found


def _ttl(entry: dict[str, Any]) -> float:
    """Return the seconds that an entry was written for."""
    end, start = (datetime.fromisoformat(entry[name]) for name in ("expires_at", "updated_at"))
    return round((end - start).total_seconds())


async def _look(
    visit: Visit,
    namespace: str,
    rule: dict[str, Callable[[dict[str, Any]], bool]],
    broken: Broken,
) -> tuple[int, bool]:
    """Collect the keys that break a rule. Returns the number of entries looked at, and whether it was all."""
    looked, cursor = 0, None
    for _ in range(PAGES):
        page = await visit.call(
            family_of(namespace), owner_of(namespace), "list", values=True, limit=1_000, cursor=cursor
        )
        looked += len(page["entries"])
        for entry in page["entries"]:
            for field, breaks in rule.items():
                if breaks(entry):
                    broken.setdefault(field, []).append(entry["key"])
        cursor = page["cursor"]
        if cursor is None:
            return looked, True
    return looked, False
