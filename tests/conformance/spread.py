"""Several nodes of a cluster as one engine, each call to the next of them.

It adds nothing to what the nodes answer. So a rule that holds here holds whichever nodes are called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.registry import engine_for

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from holdfast.audit.keyring import Keyring
    from holdfast.engine import Capabilities, ClusterFigures
    from holdfast.engines.cluster import ClusterEngine
    from holdfast.model import Policy

CALLS = ("transact", "glance", "read", "scan", "due", "falling_due", "journal", "totals", "owners")


class Spread:
    """See `holdfast.engine.Engine`.

    Args:
        urls: The addresses of the nodes.
        keys: The keys that sign the audit.
    """

    def __init__(self, urls: Sequence[str | Path], keys: Keyring) -> None:
        self.keys = keys
        self.defaults: Policy | None = None
        self.nodes: list[Any] = [engine_for(url, keys) for url in urls]
        self._number = 0

    def __getattr__(self, name: str) -> Any:
        if name not in CALLS:
            raise AttributeError(name)
        return getattr(self._next(), name)

    def _next(self) -> ClusterEngine:
        self._number += 1
        node: ClusterEngine = self.nodes[self._number % len(self.nodes)]
        return node

    @property
    def capabilities(self) -> Capabilities:
        """Those of one node; they are the same on all."""
        node: ClusterEngine = self.nodes[0]
        return node.capabilities

    async def start(self) -> None:
        """Start all nodes."""
        for node in self.nodes:
            node.defaults = self.defaults
            await node.start()

    async def ready(self) -> None:
        """Ask all nodes."""
        for node in self.nodes:
            await node.ready()

    def hint(self, namespace: str, ring: Callable[[], None]) -> Callable[[], None]:
        """Have all nodes ring."""
        forget = [node.hint(namespace, ring) for node in self.nodes]

        def stop() -> None:
            for one in forget:
                one()

        return stop

    def figures(self) -> ClusterFigures:
        """Ask the next node."""
        return self._next().figures()

    async def clock(self, ticks: Callable[[], float]) -> None:
        """Return None, as every node does."""

    async def remembered(self) -> int:
        """Return the latest time that a node knows."""
        found: list[int] = [await node.remembered() for node in self.nodes]
        return max(found)

    async def remember(self, now: int) -> int:
        """Have the next node remember a time."""
        return await self._next().remember(now)

    async def kept_keys(self) -> list[str]:
        """Ask the next node."""
        return await self._next().kept_keys()

    async def keep_keys(self, names: Sequence[str], *, before: Sequence[str]) -> list[str]:
        """Have the next node keep them."""
        return await self._next().keep_keys(names, before=before)

    async def aclose(self) -> None:
        """Close all nodes."""
        for node in self.nodes:
            await node.aclose()
