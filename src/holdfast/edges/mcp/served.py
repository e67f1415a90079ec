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
from holdfast.edges.mcp.apart import Apart
from holdfast.edges.mcp.callers import TABLE, Spell, plain
from holdfast.edges.nats.callers import TOKEN_SIGN
from holdfast.errors import PermissionDenied
from holdfast.handles.kv import KV
from holdfast.wire.dialects import Dialect
from holdfast.wire.payload import fields_of
from holdfast.wire.subjects import Route

if TYPE_CHECKING:
    from holdfast.edges.http.api import Service
    from holdfast.edges.http.routes import PathOwner
    from holdfast.edges.intake.inside import Back
    from holdfast.operators.tokens import Token
    from holdfast.store import Store

ENDPOINT: Final = Endpoint(name="mcp", subject="", queue_group="")
"""The counters of calls over HTTP, which NATS does not show."""


class ToolDialect(Dialect, frozen=True, kw_only=True):
    """The spelling of one call: `spell` decodes its payload, which are the arguments of a tool."""

    name: str = "mcp"
    spell: Spell = fields_of

    def fields(self, payload: bytes) -> dict[str, Any]:
        """Decode the fields of the call."""
        return self.spell(payload)


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
        self.apart = Apart()
        self.user = "" if token is None else f"{TOKEN_SIGN}{token.id}"
        self._service = service
        self._place = place
        self._token = token

    def allows(self, verb: str) -> bool:
        """Return whether the token allows a verb."""
        token = self._token
        return token is None or token.allows(self._place.family, self.owner, verb)

    async def call(self, verb: str, fields: dict[str, Any], *, table: bool = False) -> dict[str, Any]:
        """Queue a call with few fields, and wait for its answer."""
        # Not msgspec: it would turn NaN, which the rules refuse, into null.
        return plain(await self.ask(verb, json.dumps(fields).encode(), table=table))

    async def ask(
        self, verb: str, payload: bytes, spell: Spell = fields_of, *, table: bool = False
    ) -> dict[str, Any]:
        """Queue a call, and wait for its answer."""
        if not self.allows(verb):
            raise PermissionDenied(f"this token does not allow {verb}")
        dialect = ToolDialect(spell=spell)
        return await answered(
            self._service.accept, lambda back: self._request(verb, payload, dialect, back, table=table)
        )

    def _request(
        self, verb: str, payload: bytes, dialect: ToolDialect, back: Back, *, table: bool
    ) -> Request:
        place = self._place
        family = TABLE if table else place.family
        namespace = f"{TABLE}/{self.owner}" if table else place.namespace
        found = FAMILIES[family][verb]
        return Request(
            line=self.owner,
            route=Route(dialect, verb, namespace, self.owner, place.root, family=family),
            reply="",
            payload=payload,
            received=self._service.now(),
            began=time.perf_counter(),
            endpoint=ENDPOINT,
            client=self._service.client,
            verb=found,
            writes=found.in_order,
            user=self.user,
            back=back,
        )
