"""Search over namespaces and keys, for the box that Ctrl-K opens. Pages are found by the browser.

A search makes a bounded number of calls, whatever the store holds, and says if it has not seen all keys. Keys
that begin with the text come first, and they are found in every namespace that is looked at.
"""

from __future__ import annotations

from typing import Any, Final

from holdfast import rules
from holdfast.edges.console.visits import Visit, family_of, href, owner_of
from holdfast.errors import HoldfastError
from holdfast.families import has_keys

MOST_NAMESPACES: Final = 8
"""Number of namespaces in an answer."""
MOST_KEYS: Final = 20
"""Number of keys in an answer."""
MOST_LOOKED: Final = 100
"""Number of namespaces whose keys are looked at."""
MOST_READ: Final = 20_000
"""Number of keys that are looked through for the text within keys."""
STEP: Final = 1_000
LONGEST: Final = 300
"""Number of characters of a text."""


async def search(visit: Visit) -> dict[str, Any]:
    """Return the namespaces and the keys that contain a text, whatever the case.

    `kv/trivia/player` and `kv/trivia player` look for keys with `player` in that namespace alone.
    """
    text = visit.query.get("q", "").strip()[:LONGEST]
    if not text:
        return {"text": text, "namespaces": [], "keys": [], "whole": True}
    held = await visit.held("kv", "semantic", "table", "blob")
    names = [one["namespace"] for one in held if text.lower() in one["namespace"].lower()]
    namespaces = [{"namespace": name, "href": href(name)} for name in names[:MOST_NAMESPACES]]
    keyed = sorted((one for one in held if has_keys(one["namespace"])), key=lambda one: one["keys"])
    for one in keyed:
        if text.startswith((f"{one['namespace']}/", f"{one['namespace']} ")):
            keyed, text = [one], text[len(one["namespace"]) + 1 :].strip()
            break
    looked = [one["namespace"] for one in keyed[:MOST_LOOKED]]
    keys, whole = await _keys(visit, looked, text)
    whole = whole and len(looked) == len(keyed)
    return {"text": text, "namespaces": namespaces, "keys": keys, "whole": whole}


async def _keys(visit: Visit, namespaces: list[str], text: str) -> tuple[list[dict[str, str]], bool]:
    """Return keys that begin with a text, then keys that contain it, and whether all keys were looked at."""
    hits: dict[tuple[str, str], None] = {}
    for name in namespaces:
        page = await _page(visit, name, prefix=_root(name) + text, limit=MOST_KEYS)
        hits |= dict.fromkeys((name, key) for key in ([] if page is None else page["keys"]))
    left, whole = MOST_READ, True
    for name in namespaces:
        cursor = None
        while len(hits) < MOST_KEYS:
            page = None
            if left > 0:
                page = await _page(visit, name, prefix=_root(name), limit=STEP, cursor=cursor)
            if page is None:
                whole = False
                break
            left -= len(page["keys"])
            inside = (key for key in page["keys"] if text.lower() in key[len(_root(name)) :].lower())
            hits |= dict.fromkeys((name, key) for key in inside)
            cursor = page["cursor"]
            if cursor is None:
                break
    whole = whole and len(hits) < MOST_KEYS
    return [_row(*one) for one in list(hits)[:MOST_KEYS]], whole


async def _page(visit: Visit, namespace: str, **fields: Any) -> dict[str, Any] | None:
    """Return a page of keys; None if there is none for this visitor, or no key can begin so."""
    try:
        return await visit.within(namespace, "list", **fields)
    except HoldfastError:
        return None


def _root(namespace: str) -> str:
    return rules.semantic_root(namespace) or ""


def _row(namespace: str, key: str) -> dict[str, str]:
    return {
        "namespace": namespace,
        "family": family_of(namespace),
        "owner": owner_of(namespace),
        "name": key.removeprefix(_root(namespace)),
    }
