"""The namespaces that a visitor may see, for pages that let one choose.

A token of a plugin or project sees its own namespaces alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from holdfast.edges.console.places import UNKNOWN, how_revealed
from holdfast.errors import PermissionDenied

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from holdfast.edges.console.visits import Visit

MOST: Final = 1_024
"""Number of namespaces that are looked at."""
_OF_PLUGINS: Final = ("kv", "table", "blob")


async def held(visit: Visit, *families: str) -> list[dict[str, Any]]:
    """Return what each namespace of these families holds, by name."""
    if visit.operator:
        listed = await visit.operators("namespaces", limit=MOST)
        return [one for one in listed["namespaces"] if family_of(one["namespace"]) in families]
    token = visit.token
    assert token is not None
    own = _OF_PLUGINS if token.plugin else ("semantic",)
    return [
        {name: said for name, said in stats.items() if name not in ("policy", "defaults")}
        for family in families
        if family in own and (stats := await permitted(visit.call(family, token.owner, "stats"))) is not None
    ]


async def permitted(call: Awaitable[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the answer to a call; None if the visitor may not make it."""
    try:
        return await call
    except PermissionDenied:
        return None


async def reveal_of(visit: Visit, family: str, owner: str) -> str:
    """Return how a namespace reveals values to people."""
    stats = await permitted(visit.call(family, owner, "stats"))
    return UNKNOWN if stats is None else how_revealed(f"{family}/{owner}", stats.get("policy") or {})


def family_of(namespace: str) -> str:
    """Return the family of a namespace."""
    return namespace.partition("/")[0]


def owner_of(namespace: str) -> str:
    """Return the plugin or the `tenant/project` of a namespace."""
    return namespace.partition("/")[2]
