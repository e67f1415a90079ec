"""The namespace that a page is about.

A place is read from a path and a query, and says what the visitor may do there. It reads no data but the
totals and the policy of its namespace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.decide.policies import reveals_by
from holdfast.edges.calls import FAMILIES
from holdfast.edges.http.routes import place_of
from holdfast.errors import PermissionDenied

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.edges.console.visits import Visit

REVEALS: Final = ("open", "audited", "never")
"""The choices of a policy's `reveal`."""
UNKNOWN: Final = "audited"
"""How a page reveals values if the visitor may not see the policy: a reason is right under either policy."""


class KeyPlace(msgspec.Struct, frozen=True):
    """A namespace of keys. `root` is what all its keys begin with, and `prefix` follows it."""

    family: str
    owner: str
    namespace: str
    root: str
    prefix: str

    @property
    def at(self) -> tuple[str, str]:
        """The family and the owner, for calls."""
        return self.family, self.owner

    def shown(self) -> dict[str, str]:
        """Return what a page shows of the place."""
        return {"family": self.family, "owner": self.owner, "namespace": self.namespace, "root": self.root}


def place_of_visit(visit: Visit) -> KeyPlace:
    """Return the namespace in the path of a page: a plugin, or a tenant and a project.

    Raises:
        InvalidPluginName: The plugin's name is illegal.
        ValidationError: The tenant's or the project's name is illegal.
    """
    path = visit.path
    family = "semantic" if "tenant" in path else "kv"
    found = place_of(family, path["plugin"] if family == "kv" else f"{path['tenant']}/{path['project']}")
    root = found.root or ""
    prefix = visit.query.get("prefix", "").removeprefix(root)
    return KeyPlace(family, found.owner, found.namespace, root, prefix)


def may(visit: Visit, place: KeyPlace) -> list[str]:
    """Return the verbs that the visitor may use in a namespace."""
    return [verb for verb in FAMILIES[place.family] if visit.allows(*place.at, verb)]


async def limits_of(visit: Visit, place: KeyPlace) -> dict[str, Any]:
    """Return what a namespace holds, and the parts of its policy that a page needs, if the visitor may."""
    try:
        found = await visit.call(*place.at, "stats")
    except PermissionDenied:
        return {"held": None, "reveal": UNKNOWN}
    held = {name: found[name] for name in ("keys", "bytes", "kept_bytes", "version", "changed_at")}
    return {"held": held, "reveal": how_revealed(place.namespace, found["policy"])}


def how_revealed(namespace: str, policy: Mapping[str, Any]) -> str:
    """Return how a namespace with this policy reveals values: one of `REVEALS`."""
    return reveals_by(namespace, reveal=policy.get("reveal"), audit=policy.get("audit"))
