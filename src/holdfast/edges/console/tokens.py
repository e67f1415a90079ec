"""The tokens that let callers in, and the verbs that a new one may be for.

Law: as in `holdfast.edges.console.pages`. No secret is shown: a new one is in the reply to `token_create`
alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.edges.calls import FAMILIES

if TYPE_CHECKING:
    from holdfast.edges.console.visits import Visit


async def tokens(visit: Visit) -> dict[str, Any]:
    """Return all valid tokens, and the verbs of each family."""
    found = await visit.operators("tokens")
    fitting = [one for one in found["tokens"] if visit.fits(*_words(one))]
    return {"tokens": fitting, "count": found["count"], "filter": visit.filter, "verbs": _verbs()}


def _words(token: dict[str, Any]) -> list[str]:
    """Return what a filter finds a token by."""
    owner = token.get("plugin") or f"{token.get('tenant') or ''}/{token.get('project') or ''}"
    return [token["id"], "operators" if token.get("operator") else owner]


def _verbs() -> dict[str, list[dict[str, Any]]]:
    return {
        family: [
            {"name": verb.name, "help": verb.help, "writes": verb.writes, "destroys": verb.destroys}
            for verb in sorted(verbs.values(), key=lambda one: one.name)
        ]
        for family, verbs in FAMILIES.items()
    }
