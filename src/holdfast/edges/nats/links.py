"""The additional connections over which plugins and projects are served.

A server configured by `holdfast nats config` distinguishes plugins and projects, and sends the requests of
each to a numbered link. The service subscribes to each link over one of several connections. So a flood fills
only one of them: if the server cuts that one off, the others are unaffected.

Law: only the server determines the number of links. The service asks it periodically, because its
configuration may have changed. Once served, a link stays served.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from holdfast.bus.errors import Lost
from holdfast.errors import HoldfastError
from holdfast.wire.subjects import LINKS_TOLD, MOST_LINKS, links_question

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from holdfast.bus.protocol import Message
    from holdfast.edges.nats.link import Link
    from holdfast.edges.nats.service import NatsService

ASK_SECONDS: Final = 5.0
"""Interval in seconds at which the service asks the server for new links."""
REST: Final = 5.0
"""Pause after reading a full chunk from such a connection, as a multiple of the time its processing took. A
connection that sends more than the service can handle therefore gets a sixth of the loop's time."""

_log = logging.getLogger("holdfast.nats")


class Links:
    """Serves all links that the server announces, within an `async with` block.

    Args:
        links: The open connections. The first is the common one; newly opened connections are appended.
        service: The service that answers requests.
        opened: Creates a connection with the given name.
        most: Maximum number of connections to open; with 0 every link is served over the common one.
        prefix: The prefix of event subjects.
    """

    def __init__(
        self,
        links: list[Link],
        service: NatsService,
        opened: Callable[[str], Link],
        *,
        most: int,
        prefix: str,
    ) -> None:
        self._links = links
        self._common = links[0].client
        self._service = service
        self._opened = opened
        self._most = most
        self._question = links_question(prefix)
        self._own: list[Link] = []
        self._told = 0
        self._served = 0
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._common.listen(f"{LINKS_TOLD}.*", self._hear)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def serve(self) -> None:
        """Serve the links that are not served yet.

        Raises:
            Unavailable: A connection cannot be made.
            PermissionDenied: The server rejects the login or a subscription.
        """
        with contextlib.suppress(Lost):  # it is reconnecting; the next call asks again
            self._common.send(self._question, b"")
            await self._common.flush()
        while self._served < self._told:
            link = await self._link_of(self._served)
            self._service.serve_links(link.client, [self._served])
            self._served += 1
        for link in self._own:
            with contextlib.suppress(Lost):
                await link.client.flush()
            link.require_listening()

    async def keep(self) -> None:
        """Serve new links as they appear, until cancelled."""
        while True:
            await asyncio.sleep(ASK_SECONDS)
            try:
                await self.serve()
            except HoldfastError as error:
                _log.warning("serving a plugin's link failed; retrying: %s", error.message)

    async def _link_of(self, number: int) -> Link:
        """Return the connection that serves a link, opening it if necessary."""
        if not self._most:
            return self._links[0]
        place = number % self._most
        if place == len(self._own):
            link = await self._stack.enter_async_context(self._opened(f"holdfast link {place}"))
            self._own.append(link)
            self._links.append(link)
        return self._own[place]

    def _hear(self, message: Message) -> None:
        """Record the number of links. The server maps the question, from any instance, to this subject."""
        told = message.subject.rpartition(".")[2]
        if told.isascii() and told.isdigit() and int(told[:4]) <= MOST_LINKS:
            self._told = max(self._told, int(told[:4]))
