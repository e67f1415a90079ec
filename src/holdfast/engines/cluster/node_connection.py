"""The connection of a node, or of an operator, to the servers that keep the log.

Law: replies and deliveries come to an inbox of its own, so that servers can keep other users away from it.
What a server denies this user is an error with advice, and never taken for a server that does not answer.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from holdfast.bus.connection import Connection
from holdfast.bus.errors import violation
from holdfast.errors import PermissionDenied

if TYPE_CHECKING:
    from collections.abc import Callable

NODE_INBOX: Final = "_INBOX.HOLDFAST_NODE"
"""The prefix of the subjects at which nodes receive replies, and the messages of the log."""

_log = logging.getLogger("holdfast.bus")


def _nothing() -> None:
    """Do nothing."""


class NodeConnection(Connection):
    """A connection that notes what the server denies its user.

    Args:
        name: The name of the connection in the server's lists.
        on_reconnected: Called when the connection is back.
    """

    def __init__(self, *, name: str, on_reconnected: Callable[[], None] = _nothing) -> None:
        super().__init__(
            name=name, inbox=NODE_INBOX, on_error=self._on_refusal, on_reconnected=on_reconnected
        )
        self._denied: set[str] = set()

    def require_allowed(self, subject: str) -> None:
        """Raise an error if the server has denied this user to send to a subject.

        Raises:
            PermissionDenied: It has.
        """
        if subject.lower() in self._denied:
            raise PermissionDenied(
                f"the NATS server does not let this user send to {subject}: log in as the node. Name a file "
                "with its user and password as login=FILE in the URL; holdfast up --cluster keeps it in "
                "nats/node.login of its data folder"
            )

    def _on_refusal(self, error: Exception) -> None:
        found = violation(error)
        if found is not None and found.kind == "publish":
            self._denied.add(found.subject.lower())
        _log.warning("the NATS connection reports: %s", error)
