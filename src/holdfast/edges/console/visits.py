"""A visit: one request for a page, and the calls that the page makes for its visitor.

Law: a page reaches data only through `Visit.call`, so that each of its steps is a verb of the catalogue,
which the visitor must be allowed. A call waits in its plugin's queue like one over NATS or at `/v1`: its
deadline, rate, log line and principal are those of the service.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.edges.calls import FAMILIES
from holdfast.edges.calls.operators import CONSOLE
from holdfast.edges.http.routes import place_of
from holdfast.edges.intake.endpoint import Endpoint
from holdfast.edges.intake.inside import answered
from holdfast.edges.intake.lines import Request
from holdfast.edges.nats.callers import TOKEN_SIGN
from holdfast.errors import PermissionDenied, ValidationError
from holdfast.wire.dialects import Dialect
from holdfast.wire.payload import decode
from holdfast.wire.subjects import Route

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.edges.console.instances import Instances
    from holdfast.edges.console.recent_metrics import RecentMetrics
    from holdfast.edges.http.api import Service
    from holdfast.edges.http.app import Health
    from holdfast.edges.intake.inside import Back
    from holdfast.edges.monitoring.metrics import Metrics
    from holdfast.operators.tokens import Token

ENDPOINT: Final = Endpoint(name=CONSOLE, subject="", queue_group="")
"""The counters of the console's calls, which NATS does not show."""
_OF_KEYS: Final = Dialect(name="console")
_OF_OPERATORS: Final = Dialect(name="admin")


class Instruments(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of the process that pages show.

    Args:
        health: The readiness of the service.
        metrics: The metrics of the service.
        hour: The figures of the last hour.
        instances: The instances of the service.
        settings: The settings in force, each with its source.
        prefix: What the service's subjects on NATS begin with.
    """

    health: Health
    metrics: Metrics
    hour: RecentMetrics
    instances: Instances
    settings: tuple[dict[str, Any], ...] = ()
    prefix: str = "db"


class Visit:
    """One request for a page.

    Args:
        service: The service, which answers calls.
        parts: The parts of the process that pages show.
        token: What lets the visitor in; None for a process of this machine that needs none.
        path: The parameters in the path.
        query: The parameters in the query.
    """

    def __init__(
        self,
        service: Service,
        parts: Instruments,
        *,
        token: Token | None,
        path: Mapping[str, str],
        query: Mapping[str, str],
    ) -> None:
        self._service = service
        self.parts = parts
        self.token = token
        self.path = path
        self.query = query
        self.asked = False
        """Whether the service was asked for anything."""

    @property
    def operator(self) -> bool:
        """Whether the visitor may ask for operators' verbs."""
        return self.token is None or self.token.operator

    def now(self) -> int:
        """Return the store's time in milliseconds."""
        return self._service.now()

    def allows(self, family: str, owner: str, verb: str) -> bool:
        """Return whether the visitor may use a verb. The owner of operators' verbs is empty."""
        return self.token is None or self.token.allows(family, owner, verb)

    async def call(self, family: str, owner: str, verb: str, **fields: Any) -> dict[str, Any]:
        """Call a verb for the visitor, and return its reply as plain JSON; see `ask`."""
        plain: dict[str, Any] = decode(msgspec.json.encode(await self.ask(family, owner, verb, **fields)))
        return plain

    async def ask(self, family: str, owner: str, verb: str, **fields: Any) -> dict[str, Any]:
        """Call a verb for the visitor, and return its reply with values as they are stored.

        Args:
            family: `kv`, `semantic`, `table`, `blob` or `admin`.
            owner: The plugin or `tenant/project`; empty for `admin`.
            verb: The verb.
            **fields: Its fields. Those that are None are left out.

        Raises:
            HoldfastError: The call was refused.
        """
        if not self.allows(family, owner, verb):
            assert self.token is not None
            raise PermissionDenied(f"this token is for {self.token.owner} and does not allow {verb}")
        given = {name: field for name, field in fields.items() if field is not None}
        self.asked = True
        return await answered(
            self._service.accept, lambda back: self._request(family, owner, verb, given, back)
        )

    async def operators(self, verb: str, **fields: Any) -> dict[str, Any]:
        """Call an operators' verb for the visitor."""
        return await self.call("admin", "", verb, **fields)

    def _request(self, family: str, owner: str, verb: str, fields: dict[str, Any], back: Back) -> Request:
        place = place_of(family, owner)
        found = FAMILIES[family][verb]
        dialect = _OF_OPERATORS if family == "admin" else _OF_KEYS
        return Request(
            line=place.owner,
            route=Route(dialect, verb, place.namespace, place.owner, place.root, family=family),
            reply="",
            payload=json.dumps(fields).encode(),
            received=self._service.now(),
            began=time.perf_counter(),
            endpoint=ENDPOINT,
            client=self._service.client,
            verb=found,
            writes=found.in_order,
            user="" if self.token is None else f"{TOKEN_SIGN}{self.token.id}",
            back=back,
        )

    @property
    def filter(self) -> str:
        """The part of a name that a list is narrowed to; empty for all of it."""
        return self.query.get("filter", "")

    def fits(self, *texts: str) -> bool:
        """Return whether one of these texts contains the filter, whatever the case."""
        part = self.filter.lower()
        return any(part in text.lower() for text in texts)

    def number(self, name: str, *, default: int, most: int) -> int:
        """Return a parameter of the query that is a number.

        Raises:
            ValidationError: It is no number between 1 and the maximum.
        """
        text = self.query.get(name, "")
        if not text:
            return default
        if not (text.isascii() and text.isdecimal() and len(text) < 20 and 0 < int(text) <= most):
            raise ValidationError(f"{name} must be a number from 1 to {most}", field=name)
        return int(text)
