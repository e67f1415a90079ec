"""The subjects that a service subscribes to, and the endpoints that count its requests.

Subject patterns only: `holdfast.wire.subjects` knows what a subject means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast import families
from holdfast.edges.intake.endpoint import Endpoint
from holdfast.wire import subjects

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from holdfast.bus.connection import Connection


class Listener(msgspec.Struct, frozen=True, eq=False):
    """What listens: the connection, the prefix of its subjects, and the endpoint of each family."""

    client: Connection
    prefix: str
    endpoints: dict[str, Endpoint]


class Listening:
    """The subjects of a service.

    Args:
        prefixes: Prefixes of the subjects.
        plugin: The only plugin to serve; None for all. The server sends the requests of a plugin with its own
            connection behind a token of their own, so that no other connection receives them.
        payload_dialect: Whether callers may name the plugin in the payload.
        anybody: Whether the server lets every client publish to every subject.
    """

    def __init__(
        self, prefixes: Sequence[str], *, plugin: str | None, payload_dialect: bool, anybody: bool
    ) -> None:
        self.prefixes = [*prefixes] if plugin is None else [f"{prefix}.{subjects.OWN}" for prefix in prefixes]
        self._families = dict(subjects.FAMILIES)
        self._heard: Sequence[str] = subjects.HEARD if anybody else subjects.GRANTED
        if plugin is not None:
            self._families = {family: f"{family}.{plugin}.>" for family in families.OF_PLUGINS}
            self._heard = [*self._families.values()]
        elif not payload_dialect:
            del self._families["payload"]
        self.endpoints = {prefix: dict(self._endpoints(prefix)) for prefix in self.prefixes}

    def patterns(self, prefix: str) -> list[str]:
        """Return the patterns to subscribe to under a prefix."""
        return [f"{prefix}.{pattern}" for pattern in self._heard]

    def common(self, client: Connection) -> Iterator[tuple[str, Listener]]:
        """Yield the subscriptions of the common connection, which also match malformed subjects."""
        for prefix in self.prefixes:
            listener = Listener(client, prefix, self.endpoints[prefix])
            yield from ((pattern, listener) for pattern in self.patterns(prefix))

    def links(self, client: Connection, numbers: Iterable[int]) -> Iterator[tuple[str, Listener]]:
        """Yield the subscriptions of a connection that serves some of the links.

        Requests on a link are counted at the same endpoints as on the common connection. The server sends no
        requests of operators and of the payload dialect there.
        """
        for prefix in self.prefixes:
            endpoints = {
                family: endpoint
                for family, endpoint in self.endpoints[prefix].items()
                if family in (*families.OF_PLUGINS, families.SEMANTIC)
            }
            for number in numbers:
                listener = Listener(client, f"{prefix}.{subjects.LINK}.{number}", endpoints)
                yield f"{listener.prefix}.>", listener

    def _endpoints(self, prefix: str) -> Iterator[tuple[str, Endpoint]]:
        for name, pattern in self._families.items():
            subject = f"{prefix}.{pattern}"
            yield name, Endpoint(name=name, subject=subject, queue_group=subjects.QUEUE)
