"""One entry: its envelope, its history, and its value if the visitor asks for it.

Law: as in `holdfast.edges.console.pages`. The value leaves this module only with `reveal`, by the verb of
that name, which the policy may refuse and the audit records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.edges.console.places import KeyPlace, limits_of, may, place_of_visit
from holdfast.errors import HoldfastError, PermissionDenied

if TYPE_CHECKING:
    from holdfast.edges.console.visits import Visit

HISTORY: Final = 50
"""Number of changes that are shown."""
_KINDS: Final = {
    ord("{"): "object",
    ord("["): "list",
    ord('"'): "text",
    ord("t"): "boolean",
    ord("f"): "boolean",
    ord("n"): "null",
}


async def entry(visit: Visit) -> dict[str, Any]:
    """Return an entry without its value, or with it if the visitor reveals it."""
    place = place_of_visit(visit)
    key = visit.path.get("key") or visit.query["key"]
    revealed = visit.query.get("reveal") == "1"
    fields = {"key": key, "why": visit.query.get("why") or None} if revealed else {"key": key}
    found = await visit.ask(*place.at, "reveal" if revealed else "get", **fields)
    limits = await limits_of(visit, place)
    return {
        "page": "entry",
        **place.shown(),
        "key": key,
        "name": key.removeprefix(place.root),
        "entry": _shown(found, value=revealed),
        "subject": f"{visit.parts.prefix}.{place.namespace.replace('/', '.')}.get",
        "history": await _history(visit, place, key),
        "trashed": await _trashed(visit, place, key, value=revealed and found["exists"]),
        "may": may(visit, place),
        "reveal": limits["reveal"],
        "revealed": revealed and bool(found["exists"]),
    }


def _shown(found: dict[str, Any], *, value: bool) -> dict[str, Any] | None:
    """Return an entry with the kind and the size of its value, and with the value only if asked.

    `text` is the value as stored: a script that decoded it would round long numbers, and write them back.
    """
    if not found["exists"]:
        return None
    text = bytes(found["value"])
    kept = {name: field for name, field in found.items() if name not in ("exists", "value")}
    kept |= {"size": len(text), "kind": _KINDS.get(text[0], "number")}
    return kept | {"value": msgspec.Raw(text), "text": text.decode()} if value else kept


async def _history(visit: Visit, place: KeyPlace, key: str) -> list[dict[str, Any]] | None:
    """Return the changes of a key, newest first; None if the visitor may not see them."""
    try:
        found = await visit.call(*place.at, "history", key=key, limit=HISTORY)
    except PermissionDenied:
        return None
    changes: list[dict[str, Any]] = found["changes"]
    return changes


async def _trashed(visit: Visit, place: KeyPlace, key: str, *, value: bool) -> dict[str, Any] | None:
    """Return what the trash has of a key, and its value if that of the entry is revealed too.

    The trash is for operators.
    """
    if not visit.operator:
        return None
    full = key if key.startswith(place.root) else place.root + key
    try:
        found = await visit.operators(
            "trash", namespace=place.namespace, prefix=full, limit=1, values=value or None
        )
    except HoldfastError:
        return None
    kept = next((one for one in found["entries"] if one["key"] == full), None)
    if kept is None or "value" not in kept:
        return kept
    text = msgspec.json.encode(kept["value"]).decode()
    return {name: field for name, field in kept.items() if name != "value"} | {"text": text}
