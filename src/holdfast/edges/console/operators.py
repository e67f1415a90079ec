"""The pages of operators: inbox, audit, policies, tokens and settings.

No page has a value or a secret. Records of the audit have hashes of values. The request of a dead letter is
shown without the values that it would write, which the verb `deadletter_reveal` returns. The secret of a new
token is in the reply to `token_create` alone, and credentials in settings are masked before they get here.
Nothing is changed here: pages call verbs at `/v1` for that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from holdfast import rules
from holdfast.clock import instant
from holdfast.edges.calls import FAMILIES
from holdfast.edges.console.visits import REVEALS, Visit, family_of, owner_of
from holdfast.errors import PermissionDenied, ValidationError
from holdfast.handles.recipes.names import WAITING, waits
from holdfast.model import Policy

MOST_NAMESPACES: Final = 50
"""Number of namespaces that a part of the inbox looks into if none is chosen."""
MOST_ROWS: Final = 100
"""Number of rows of a part of the inbox."""
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

LOOKS: Final = frozenset({"reveal", "reveal_item", "deadletter_reveal"})
"""The verbs with which people look at values. They write a record of the look, and nothing else."""
COPIES: Final = frozenset({"rescue"})
"""The verbs that hand out the whole store."""
_FAMILIES_OF: Final = {
    "plugin": ("kv", "table", "blob"),
    "project": ("semantic",),
    "operator": tuple(FAMILIES),
}
"""The families that a token is for, by its kind."""
MOST_RECORDS: Final = 100
RECORD_FILTERS: Final = {
    "prefix": "prefix",
    "writer": "last_writer",
    "purpose": "purpose",
    "op": "op",
    "request_id": "request_id",
    "trace_id": "trace_id",
    "since": "since",
    "until": "until",
}
"""The parameters of the audit's page, and the fields of the verb `audit` that they are."""
TRIAL_PAGES: Final = 40
"""Pages of entries that the trial of a policy looks at, of up to 1,000 entries each."""
EXAMPLES: Final = 5
"""Number of keys that a finding names."""
LISTED: Final = ("kv", "semantic", "blob")
"""The families whose entries a trial looks at."""
POLICY_FIELDS: Final = {
    "Size and rate": {
        "quota_keys": ("number", "Keys", "Largest number of keys."),
        "quota_bytes": ("bytes", "Size", "Largest number of bytes kept, of all kinds but the audit."),
        "max_value_bytes": ("bytes", "Value size", "Largest size of a value as compact JSON."),
        "rate_limit": ("number", "Requests a second", "Accepted by each process that serves the namespace."),
    },
    "Time to live": {
        "ttl_default": ("seconds", "Default TTL", "For entries that are put without a TTL."),
        "ttl_min": ("seconds", "Shortest TTL", "Shorter ones are refused."),
        "ttl_max": ("seconds", "Longest TTL", "Longer ones are refused."),
        "ttl_required": ("switch", "TTL required", "Refuse entries without a deadline."),
    },
    "What is kept, and who sees it": {
        "trash": ("switch", "Trash", "Keep removed entries; by default, those with semantics are kept."),
        "trash_retention": ("seconds", "Trash kept for", "How long a removed entry can be restored."),
        "journal_retention": ("seconds", "Journal kept for", "How long the journal keeps a change."),
        "audit": ("switch", "Audit", "Record changes in a signed chain; by default, in the semantic family."),
        "audit_retention": ("seconds", "Audit kept for", "For ever if not given."),
        "reveal": (
            "choice",
            "Reveal",
            "Whether people see values without a reason, with one, or never; by default, with one if "
            "audited.",
        ),
    },
}
"""The groups of the form, and in each the fields of a policy: kind, label and purpose."""
_KINDS: Final = {name: one[0] for fields in POLICY_FIELDS.values() for name, one in fields.items()}
_TEXTS: Final = {
    "quota_keys": "more keys than the quota allows: new ones are refused until this many are removed",
    "quota_bytes": "more bytes than the quota allows: writes that add are refused until this much is removed",
    "max_value_bytes": "values are larger",
    "ttl_required": "entries have no deadline",
    "ttl_min": "entries were written with a shorter TTL",
    "ttl_max": "entries were written with a longer TTL",
}
"""What a trial says of a rule that is broken."""

Namespaces = list[dict[str, Any]]
Part = tuple[list[dict[str, Any]], bool]
"""The rows of a part of the inbox, and whether there are more."""


async def inbox(visit: Visit) -> dict[str, Any]:
    """Return what waits for a person."""
    chosen = visit.query.get("namespace") or None
    within = visit.number("within", default=WITHIN, most=LONGEST)
    listed = await visit.held(*KEYED, "table", "blob")
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
        reveal = await visit.reveal_of(one["namespace"])
        rows += [_letter(one["namespace"], letter) | reveal for letter in page["letters"]]
        more = more or page["next"] is not None
    return sorted(rows, key=lambda row: instant(row["at"])), more


def _letter(namespace: str, letter: dict[str, Any]) -> dict[str, Any]:
    """Return a letter without the values in its request."""
    view = {name: letter[name] for name in _OF_LETTERS}
    request = {name: field for name, field in letter["request"].items() if name not in _HIDDEN}
    hidden = sorted(letter["request"].keys() & _HIDDEN)
    return {"namespace": namespace, **view, "request": request, "hidden": hidden}


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
        prefix = f"{rules.semantic_root(one['namespace']) or ''}lock/"
        page = await visit.within(one["namespace"], "list", prefix=prefix, purpose="lock", values=True)
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
    history = await visit.within(namespace, "history", key=entry["key"], limit=1_000)
    taken = [one["version"] for one in history["changes"] if one.get("request_id") == f"lock-{holder}"]
    return min(taken) + 1 if taken else None


async def _expiring(visit: Visit, namespaces: Namespaces) -> Part:
    within = visit.number("within", default=WITHIN, most=LONGEST)
    before = datetime.fromtimestamp(visit.now() / 1000 + within, UTC).isoformat()
    rows: list[dict[str, Any]] = []
    more = False
    for one in namespaces:
        cursor, pages = None, SOON_PAGES if len(namespaces) == 1 else 1
        for _ in range(pages):
            page = await visit.within(
                one["namespace"], "list", expires_before=before, values=True, cursor=cursor
            )
            due = (_due(one["namespace"], entry) for entry in page["entries"])
            rows += [row for row in due if row["purpose"] != "lock"]  # locks are renewed until their release
            cursor = page["cursor"]
            if cursor is None:
                break
        more = more or cursor is not None
    return sorted(rows, key=lambda row: instant(row["expires_at"])), more


def _due(namespace: str, entry: dict[str, Any]) -> dict[str, Any]:
    purpose = (entry.get("semantics") or {}).get("purpose")
    view = {name: entry[name] for name in ("key", "version", "expires_at", "last_writer")}
    return {"namespace": namespace, **view, "purpose": purpose}


async def _slow(visit: Visit, namespaces: Namespaces) -> Part:
    page = await visit.operators("slowlog", limit=MOST_ROWS)
    chosen = visit.query.get("namespace")
    owner = owner_of(chosen) if chosen else None
    rows = [one for one in page["requests"] if owner in (None, one["plugin"])]
    return rows, page["next"] is not None


async def audit(visit: Visit) -> dict[str, Any]:
    """Return a page of the records of a namespace, newest first."""
    names = (await visit.operators("audits"))["namespaces"]
    namespace = visit.query.get("namespace") or (names[0] if names else None)
    filters = {name: visit.query[name] for name in RECORD_FILTERS if visit.query.get(name)}
    after = visit.query.get("after", "0")
    if not (after.isascii() and after.isdecimal() and len(after) < 20):
        raise ValidationError("after must be the number of a record", field="after")
    view = {"namespaces": names, "namespace": namespace, "filters": filters, "after": int(after)}
    if namespace is None:
        return view | {"records": [], "next": None}
    fields = {RECORD_FILTERS[name]: text for name, text in filters.items()}
    page = await visit.operators(
        "audit", namespace=namespace, reverse=True, after=int(after), limit=MOST_RECORDS, **fields
    )
    return view | {"records": page["records"], "next": page["next"]}


async def policies(visit: Visit) -> dict[str, Any]:
    """Return the namespaces with the policy of each; the filter is a part of a name or of a field."""
    rows = []
    for one in await visit.held(*LISTED, "table"):
        policy = (await visit.operators("policy", namespace=one["namespace"]))["policy"]
        fields = {name: field for name, field in policy.items() if field is not None}
        if visit.fits(one["namespace"], *fields):
            rows.append({"namespace": one["namespace"], "keys": one["keys"], "policy": fields})
    return {"namespaces": rows, "filter": visit.filter}


async def policy(visit: Visit) -> dict[str, Any]:
    """Return the policy of a namespace, and with `try=1` what the one in the query would refuse today."""
    namespace = rules.namespace(f"{visit.path['family']}/{visit.path['owner']}")
    stats = await visit.operators("stats", namespace=namespace)
    view = {
        "namespace": namespace,
        "policy": stats["policy"],
        "defaults": stats["defaults"],
        "holds": {name: stats[name] for name in ("keys", "bytes", "kept_bytes", "parts", "changed_at")},
        "fields": [
            {
                **{"name": name, "group": group, "kind": kind, "label": label, "help": help},
                "choices": REVEALS if name == "reveal" else None,
            }
            for group, fields in POLICY_FIELDS.items()
            for name, (kind, label, help) in fields.items()
        ],
    }
    if not visit.query.get("try"):
        return view
    try:
        tried = _policy_of(visit.query)
    except ValidationError as error:
        return view | {"trial": {"problem": error.message, "field": error.field}}
    return view | {"trial": await _trial(visit, namespace, tried, stats)}


def _policy_of(query: Mapping[str, str]) -> Policy:
    """Return the policy that is in a query.

    Raises:
        ValidationError: A field has a value that it may not have.
    """
    return rules.policy({name: _read(kind, query[name]) for name, kind in _KINDS.items() if query.get(name)})


def _read(kind: str, text: str) -> Any:
    if kind == "switch":
        return {"true": True, "false": False}.get(text, text)
    if kind == "choice":
        return text
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else text


async def _trial(visit: Visit, namespace: str, tried: Policy, stats: dict[str, Any]) -> dict[str, Any]:
    """Return what a policy would refuse, if all that is stored were written again."""
    rules_of_entries = _rules(tried, stats["policy"].get("max_value_bytes") or 0)
    broken: dict[str, list[str]] = {}
    looked, cursor = 0, None
    pages = TRIAL_PAGES if rules_of_entries and family_of(namespace) in LISTED else 0
    for _ in range(pages):
        page = await visit.within(namespace, "list", values=True, limit=1_000, cursor=cursor)
        looked += len(page["entries"])
        for entry in page["entries"]:
            for field, breaks in rules_of_entries.items():
                if breaks(entry):
                    broken.setdefault(field, []).append(entry["key"])
        cursor = page["cursor"]
        if cursor is None:
            break
    findings = _of_quotas(tried, stats) + [
        {"field": field, "count": len(keys), "examples": keys[:EXAMPLES], "text": _TEXTS[field]}
        for field, keys in broken.items()
    ]
    fields = {name: field for name, field in msgspec.structs.asdict(tried).items() if field is not None}
    return {"policy": fields, "findings": findings, "looked": looked, "complete": cursor is None}


def _of_quotas(tried: Policy, stats: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what a policy's quotas would refuse."""
    return [
        {"field": field, "count": used - most, "examples": [], "text": _TEXTS[field]}
        for field, used, most in (
            ("quota_keys", stats["keys"], tried.quota_keys),
            ("quota_bytes", stats["kept_bytes"], tried.quota_bytes),
        )
        if most is not None and used > most
    ]


def _rules(tried: Policy, largest: int) -> dict[str, Callable[[dict[str, Any]], bool]]:
    """Return, by field, the function that says whether an entry breaks a policy.

    Values of up to `largest` bytes are allowed today. A policy that does not say how large they may be allows
    fewer.
    """
    breaks: dict[str, Callable[[dict[str, Any]], bool]] = {}
    most = tried.max_value_bytes or rules.MAX_VALUE_BYTES
    if tried.max_value_bytes is not None or largest > most:
        breaks["max_value_bytes"] = lambda entry: len(msgspec.json.encode(entry["value"])) > most
    if tried.ttl_required and tried.ttl_default is None:
        breaks["ttl_required"] = lambda entry: entry["expires_at"] is None
    if tried.ttl_min is not None:
        least = tried.ttl_min
        breaks["ttl_min"] = lambda entry: entry["expires_at"] is not None and _ttl(entry) < least
    if tried.ttl_max is not None:
        longest = tried.ttl_max
        breaks["ttl_max"] = lambda entry: entry["expires_at"] is not None and _ttl(entry) > longest
    return breaks


def _ttl(entry: dict[str, Any]) -> float:
    """Return the seconds that an entry was written for."""
    end, start = (datetime.fromisoformat(entry[name]) for name in ("expires_at", "updated_at"))
    return round((end - start).total_seconds())


async def tokens(visit: Visit) -> dict[str, Any]:
    """Return all valid tokens, each with whether it only reads, and the verbs that only read."""
    listed = await visit.operators("tokens")
    fitting = [one | {"reads": _only_reads(one)} for one in listed["tokens"] if visit.fits(*_words(one))]
    readers = {kind: _readers(kind) for kind in _FAMILIES_OF}
    return {"tokens": fitting, "count": listed["count"], "filter": visit.filter, "readers": readers}


def _words(token: dict[str, Any]) -> list[str]:
    """Return what a filter finds a token by."""
    owner = token.get("plugin") or f"{token.get('tenant') or ''}/{token.get('project') or ''}"
    return [token["id"], token.get("name") or "", "operators" if token.get("operator") else owner]


def _only_reads(token: dict[str, Any]) -> bool:
    """Return whether a token can change nothing that is stored. Records of looks do not count."""
    families = _FAMILIES_OF[_kind(token)]
    return token["verbs"] is not None and not any(
        verb.writes and verb.name not in LOOKS
        for family in families
        for verb in FAMILIES[family].values()
        if verb.name in token["verbs"]
    )


def _kind(token: dict[str, Any]) -> str:
    if token.get("operator"):
        return "operator"
    return "plugin" if token.get("plugin") else "project"


def _readers(kind: str) -> list[str]:
    """Return the verbs of a token that reads everything of its kind, and changes nothing.

    A name that means a write in one family of a token's is left out of all.
    """
    verbs = [verb for family in _FAMILIES_OF[kind] for verb in FAMILIES[family].values()]
    writes = {verb.name for verb in verbs if verb.writes and verb.name not in LOOKS}
    return sorted({verb.name for verb in verbs} - writes - COPIES)


async def settings(visit: Visit) -> dict[str, Any]:
    """Return every setting with its value, its source and what it is for.

    The filter is a part of a name or of its help; `given=1` leaves out what has its default.
    """
    if not visit.allows("admin", "", "stats"):
        raise PermissionDenied("only operators see the settings of the service")
    only_given = visit.query.get("given") == "1"
    fitting = [
        one
        for one in visit.parts.settings
        if visit.fits(one["setting"], one["help"]) and not (only_given and one["source"] == "default")
    ]
    return {"settings": fitting, "filter": visit.filter, "given": only_given}
