"""A caller of a service over HTTP, and the requests that its calls become.

Law: a call is a request like one over NATS or at `/v1`: it waits in its plugin's queue, and its deadline, its
rate, its log line and its principal are those of the service. A token is asked for every verb.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

from holdfast.edges.calls import FAMILIES
from holdfast.edges.intake.endpoint import Endpoint
from holdfast.edges.intake.inside import answered
from holdfast.edges.intake.lines import Request
from holdfast.edges.mcp.callers import TABLE, plain
from holdfast.edges.nats.callers import TOKEN_SIGN
from holdfast.errors import PermissionDenied
from holdfast.handles.kv import KV
from holdfast.wire.dialects import Dialect
from holdfast.wire.subjects import Route

if TYPE_CHECKING:
    from holdfast.edges.http.api import Service
    from holdfast.edges.http.routes import PathOwner
    from holdfast.edges.intake.inside import Back
    from holdfast.operators.tokens import Token
    from holdfast.store import Store

DIALECT: Final = Dialect(name="mcp")
ENDPOINT: Final = Endpoint(name="mcp", subject="", queue_group="")
"""The counters of calls over HTTP, which NATS does not show."""


class ServedCaller:
    """A caller of a service over HTTP. Its calls wait in its plugin's queue like those at every other door.

    Args:
        service: The service.
        store: The store, whose changes are followed for the caller.
        place: The plugin or project.
        token: What lets the caller in; None for a process of this machine that needs none.
    """

    def __init__(self, service: Service, store: Store, place: PathOwner, token: Token | None) -> None:
        self.kv = KV(store, store.verbs(place.namespace, root=place.root))
        self.owner = place.owner
        self.writer: str | None = None
        self.user = "" if token is None else f"{TOKEN_SIGN}{token.id}"
        self._service = service
        self._place = place
        self._token = token

    def allows(self, verb: str) -> bool:
        """Return whether the token allows a verb."""
        token = self._token
        return token is None or token.allows(self._place.family, self.owner, verb)

    async def call(self, verb: str, fields: dict[str, Any], *, table: bool = False) -> dict[str, Any]:
        """Queue a call, and wait for its answer."""
        if not self.allows(verb):
            raise PermissionDenied(f"this token does not allow {verb}")
        return plain(
            await answered(self._service.accept, lambda back: self._request(verb, fields, back, table=table))
        )

    def _request(self, verb: str, fields: dict[str, Any], back: Back, *, table: bool) -> Request:
        place = self._place
        family = TABLE if table else place.family
        namespace = f"{TABLE}/{self.owner}" if table else place.namespace
        found = FAMILIES[family][verb]
        return Request(
            line=self.owner,
            route=Route(DIALECT, verb, namespace, self.owner, place.root, family=family),
            reply="",
            # Not msgspec: it would turn NaN, which the rules refuse, into null.
            payload=json.dumps(fields).encode(),
            received=self._service.now(),
            began=time.perf_counter(),
            endpoint=ENDPOINT,
            client=self._service.client,
            verb=found,
            writes=found.in_order,
            user=self.user,
            back=back,
        )
