"""The connections over which plugins and projects are served, beside the common one.

A server that `holdfast nats config` has set up tells plugins and projects apart, and sends the requests of
each to a numbered link. The service hears every link over one of several connections. So a flood fills one of
them: if the server cuts it off, the others are not concerned.

Law: the server says how many links there are, and nobody else. The service asks it again now and then, since
its configuration may have been changed. A link that was served once is served to the end.
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
"""How often the server is asked whether there are more links."""
REST: Final = 2.0
"""For how many times as long as a full piece took to be taken nothing more is read from such a connection.
So one that brings more than the service can take in has a third of the loop's time, and others the rest."""

_log = logging.getLogger("holdfast.nats")


class Links:
    """Serves all links that the server tells of, for the length of a block.

    Args:
        links: The connections that there are. The first is the common one; those that are opened are added.
        service: Who answers.
        opened: Makes a connection of that name.
        most: How many connections may be opened; with 0 every link is served over the common one.
        prefix: What the subjects of events begin with.
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
            Unavailable: A connection can't be made.
            PermissionDenied: The server does not let the service in, or not listen.
        """
        with contextlib.suppress(Lost):  # it is looked for, and asked when it is back
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
        """Serve those that come to be, until this is cancelled."""
        while True:
            await asyncio.sleep(ASK_SECONDS)
            try:
                await self.serve()
            except HoldfastError as error:
                _log.warning("serving a plugin's link failed; retrying: %s", error.message)

    async def _link_of(self, number: int) -> Link:
        """The connection that serves a link; opened if it is not there yet."""
        if not self._most:
            return self._links[0]
        place = number % self._most
        if place == len(self._own):
            link = await self._stack.enter_async_context(self._opened(f"holdfast link {place}"))
            self._own.append(link)
            self._links.append(link)
        return self._own[place]

    def _hear(self, message: Message) -> None:
        """Take note of what the server has put in the place of the question, this instance's or another's."""
        told = message.subject.rpartition(".")[2]
        if told.isascii() and told.isdigit() and int(told[:4]) <= MOST_LINKS:
            self._told = max(self._told, int(told[:4]))
