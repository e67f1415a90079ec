"""Where a service listens, and under which names it counts what it answers there.

Law: patterns of subjects only. What a subject means is known to `holdfast.wire.subjects`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.edges.nats.discovery import Endpoint
from holdfast.wire import subjects

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from holdfast.bus.connection import Connection


class Way(msgspec.Struct, frozen=True, eq=False):
    """One way in: the connection, what its subjects begin with, and where requests are counted, by family."""

    client: Connection
    prefix: str
    endpoints: dict[str, Endpoint]


class Listening:
    """The subjects of a service.

    Args:
        prefixes: What they begin with.
        plugin: The only plugin that is served; None for all of them. What the server takes for a plugin with
            a connection of its own it sends behind a word of its own, so that no other connection hears it.
        payload_dialect: Whether callers may name the plugin in the payload.
        anybody: Whether the server lets anybody send to any subject.
    """

    def __init__(
        self, prefixes: Sequence[str], *, plugin: str | None, payload_dialect: bool, anybody: bool
    ) -> None:
        self.prefixes = [*prefixes] if plugin is None else [f"{prefix}.{subjects.OWN}" for prefix in prefixes]
        self._families = dict(subjects.FAMILIES)
        self._heard: Sequence[str] = subjects.HEARD if anybody else subjects.GRANTED
        if plugin is not None:
            self._families = {family: f"{family}.{plugin}.>" for family in ("kv", "table")}
            self._heard = [*self._families.values()]
        elif not payload_dialect:
            del self._families["payload"]
        self.endpoints = {prefix: dict(self._endpoints(prefix)) for prefix in self.prefixes}

    def patterns(self, prefix: str) -> list[str]:
        """At what to subscribe under one of the prefixes."""
        return [f"{prefix}.{pattern}" for pattern in self._heard]

    def common(self, client: Connection) -> Iterator[tuple[str, Way]]:
        """At what to subscribe on the common connection; beside every family wrong shapes are heard."""
        for prefix in self.prefixes:
            way = Way(client, prefix, self.endpoints[prefix])
            yield from ((pattern, way) for pattern in self.patterns(prefix))

    def links(self, client: Connection, numbers: Iterable[int]) -> Iterator[tuple[str, Way]]:
        """At what to subscribe on a connection that serves some of the links.

        What comes there is counted where it would be if it came over the common connection. Of operators and
        of those who name a plugin in the payload a server sends nothing there.
        """
        for prefix in self.prefixes:
            endpoints = {
                family: endpoint
                for family, endpoint in self.endpoints[prefix].items()
                if family in ("kv", "table", "semantic")
            }
            for number in numbers:
                way = Way(client, f"{prefix}.{subjects.LINK}.{number}", endpoints)
                yield f"{way.prefix}.>", way

    def _endpoints(self, prefix: str) -> Iterator[tuple[str, Endpoint]]:
        for name, pattern in self._families.items():
            subject = f"{prefix}.{pattern}"
            yield name, Endpoint(name=name, subject=subject, queue_group=subjects.QUEUE)
