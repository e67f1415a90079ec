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
    return {"tokens": found["tokens"], "count": found["count"], "verbs": _verbs()}


def _verbs() -> dict[str, list[dict[str, Any]]]:
    return {
        family: [
            {"name": verb.name, "help": verb.help, "writes": verb.writes, "destroys": verb.destroys}
            for verb in sorted(verbs.values(), key=lambda one: one.name)
        ]
        for family, verbs in FAMILIES.items()
    }
