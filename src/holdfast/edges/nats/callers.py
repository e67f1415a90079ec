"""The callers of a service: the handles with which it acts for each of them.

Law: a handle acts for one caller in one namespace. A principal names the mode that authenticates it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.bounded import Bounded
from holdfast.edges.calls.tables import PluginTables
from holdfast.edges.nats.replies import KNOWN_NAMES, Answers
from holdfast.handles.kv import KV
from holdfast.wire.dialects import PAYLOAD

if TYPE_CHECKING:
    from holdfast.bus.connection import Connection
    from holdfast.edges.intake.lines import Request
    from holdfast.store import Store

TOKEN: Final = "token"
TOKEN_SIGN: Final = "#"
"""The mode of a principal that a token authenticates, and the sign before the token's id. No namespace and no
user of NATS begins with it, so that handles of different callers have different names."""
TRUSTED: Final = "trusted"
"""The principal of callers that name the plugin in the payload and may act for any plugin."""


class Callers:
    """Makes and keeps handles.

    Args:
        store: The store.
        mode: The reply mode, which authenticates callers; `open` does not.
        client: The common connection.
        answers: Sends the events of a namespace over the connection that its requests come from.
    """

    def __init__(self, store: Store, *, mode: str, client: Connection, answers: Answers) -> None:
        self._store = store
        self._mode = mode
        self._client = client
        self._answers = answers
        self.handles: Bounded[str, KV] = Bounded(KNOWN_NAMES)
        """Handles by namespace and user."""
        self.trusted: Bounded[str, KV] = Bounded(KNOWN_NAMES)
        """The same for callers that name the plugin in the payload."""
        self.tables: Bounded[str, PluginTables] = Bounded(KNOWN_NAMES)

    def kv(self, request: Request, handles: Bounded[str, KV]) -> KV:
        """Make a handle on keys and keep it."""
        route, user = request.route, request.user
        self._tell_over(request.client, route.namespace)
        known = TRUSTED if route.dialect is PAYLOAD else route.owner
        verbs = self._store.verbs(
            route.namespace, root=route.root, writer=route.owner, principal=self.principal(known, user)
        )
        return handles.keep(route.namespace + user, KV(self._store, verbs))

    def tables_of(self, request: Request) -> PluginTables:
        """Return the handle on tables for a request."""
        namespace, user = request.route.namespace, request.user
        tables = self.tables.get(namespace + user)
        if tables is None:
            owner = request.route.owner
            known = self.principal(owner, user)
            call = self._store.table_calls(namespace, writer=owner, principal=known)
            tables = self.tables.keep(namespace + user, PluginTables(self._store, namespace, call))
            self._tell_over(request.client, namespace)
        return tables

    def principal(self, owner: str, user: str) -> str:
        """Return the principal: the owner, and the mode that authenticates it (`open` does not)."""
        mode = TOKEN if user.startswith(TOKEN_SIGN) else self._mode
        return f"{mode}:{owner}{user}"

    def _tell_over(self, client: Connection, namespace: str) -> None:
        """Send the events of a namespace over the connection that its requests come from."""
        if client is not self._client:
            self._answers.over.keep(namespace, client)
