"""A visit: one request for a page, the calls that the page makes for its visitor, and what the visitor sees.

A page reaches data only through `Visit.call`, so each of its steps is a verb of the catalogue that the
visitor must be allowed. A call waits in its plugin's queue like one over NATS or at `/v1`: its deadline,
rate, log line and principal are those of the service. A token of a plugin or project sees its own namespaces
alone.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.decide.policies import audited_by, reveals_by
from holdfast.edges.calls import FAMILIES
from holdfast.edges.calls.operators import CONSOLE
from holdfast.edges.http.requests import place_of
from holdfast.edges.intake.requests import Endpoint
from holdfast.edges.intake.service import TOKEN_SIGN, RequestService
from holdfast.errors import PermissionDenied, ValidationError
from holdfast.operators.tokens import Token
from holdfast.wire.dialects import Dialect
from holdfast.wire.payload import decode
from holdfast.wire.subjects import Route

if TYPE_CHECKING:
    from holdfast.edges.console.instances import ClusterWatch, Instances
    from holdfast.edges.http.app import Health
    from holdfast.edges.monitoring.metrics import Metrics, RecentMetrics

ENDPOINT: Final = Endpoint(name=CONSOLE)
"""The counters of the console's calls, which NATS does not show."""
MOST_NAMESPACES: Final = 1_024
"""Number of namespaces that a page looks at."""
REVEALS: Final = ("open", "audited", "never")
"""The choices of a policy's `reveal`."""
UNKNOWN: Final = "audited"
"""How a page reveals values if the visitor may not see the policy: a reason is right under either policy."""
_ADDRESSES: Final = {"kv": "kv", "semantic": "semantic", "table": "tables", "blob": "blobs"}
"""The part of the address of a namespace's page, by family."""
_OF_KEYS: Final = Dialect(name="console")
_OF_OPERATORS: Final = Dialect(name="admin")


class Instruments(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of the process that pages show.

    Args:
        health: The readiness of the service.
        metrics: The metrics of the service.
        recent: The figures of the last hour, day and week.
        instances: The instances of the service.
        settings: The settings in force, each with its source.
        prefix: What the service's subjects on NATS begin with.
        addresses: Where the data is (`data`) and where NATS is (`nats`), without credentials.
        cluster: Asks the cluster that the store is part of; None if it is part of none.
    """

    health: Health
    metrics: Metrics
    recent: RecentMetrics
    instances: Instances
    settings: tuple[dict[str, Any], ...] = ()
    prefix: str = "db"
    addresses: dict[str, str] = {}
    cluster: ClusterWatch | None = None


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
        service: RequestService,
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
        self.has_called = False
        """Whether the page has called a verb. The service then records a refusal itself."""

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

    def allowed_verbs(self, family: str, owner: str) -> list[str]:
        """Return the verbs of a namespace that the visitor may use."""
        return [verb for verb in FAMILIES[family] if self.allows(family, owner, verb)]

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
        present = {name: field for name, field in fields.items() if field is not None}
        self.has_called = True
        place = place_of(family, owner)
        dialect = _OF_OPERATORS if family == "admin" else _OF_KEYS
        route = Route(dialect, verb, place.namespace, place.owner, place.root, family=family)
        return await self._service.ask(
            route,
            json.dumps(present).encode(),
            verb=FAMILIES[family][verb],
            endpoint=ENDPOINT,
            user="" if self.token is None else f"{TOKEN_SIGN}{self.token.id}",
        )

    async def within(self, namespace: str, verb: str, **fields: Any) -> dict[str, Any]:
        """Call a verb of a namespace for the visitor."""
        return await self.call(family_of(namespace), owner_of(namespace), verb, **fields)

    async def operators(self, verb: str, **fields: Any) -> dict[str, Any]:
        """Call an operators' verb for the visitor."""
        return await self.call("admin", "", verb, **fields)

    @property
    def own_families(self) -> tuple[str, ...]:
        """The families of the namespaces that a token of a plugin or project is for."""
        assert self.token is not None
        return ("kv", "table", "blob") if self.token.plugin else ("semantic",)

    async def held(self, *families: str) -> list[dict[str, Any]]:
        """Return what each namespace of these families holds, by name, as far as the visitor may see them."""
        if self.operator:
            listed = await self.operators("namespaces", limit=MOST_NAMESPACES)
            return [one for one in listed["namespaces"] if family_of(one["namespace"]) in families]
        assert self.token is not None
        owner = self.token.owner
        return [
            {name: field for name, field in stats.items() if name not in ("policy", "defaults")}
            for family in families
            if family in self.own_families
            and (stats := await permitted(self.call(family, owner, "stats"))) is not None
        ]

    async def plugins(self, family: str) -> dict[str, Any]:
        """Return the page of the plugins that keep something in a family."""
        return {
            "plugins": [
                {
                    "plugin": owner_of(one["namespace"]),
                    **{name: one[name] for name in ("keys", "kept_bytes")},
                    "changed_at": changed_at(one),
                }
                for one in await self.held(family)
                if self.fits(owner_of(one["namespace"]))
            ],
            "filter": self.filter,
        }

    async def reveal_of(self, namespace: str) -> dict[str, Any]:
        """Return how a namespace reveals values to people, and what records a look; see `how_revealed`."""
        stats = await permitted(self.within(namespace, "stats"))
        return how_revealed(namespace, None if stats is None else stats.get("policy") or {})

    def shows(self, reveal: Mapping[str, Any], family: str, owner: str, *verbs: str) -> bool:
        """Return whether pages show values unasked: the policy is `open`, and the visitor has these verbs."""
        return reveal["reveal"] == "open" and all(self.allows(family, owner, verb) for verb in verbs)

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


async def permitted(call: Awaitable[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the answer to a call; None if the visitor may not make it."""
    try:
        return await call
    except PermissionDenied:
        return None


def changed_at(stats: Mapping[str, Any]) -> str | None:
    """Return when a namespace has changed last; None if nothing was ever written to it."""
    moment: str | None = stats["changed_at"] if stats["version"] else None
    return moment


def how_revealed(namespace: str, policy: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return how a namespace with this policy reveals values, and what records who looked.

    `reveal` is one of `REVEALS`. `recorded` is `audit` or `log`; where there is no audit, only the log of the
    service has a line. Both are unknown if the visitor may not see the policy, which is then None.
    """
    if policy is None:
        return {"reveal": UNKNOWN, "recorded": None}
    audit = policy.get("audit")
    return {
        "reveal": reveals_by(namespace, reveal=policy.get("reveal"), audit=audit),
        "recorded": "audit" if audited_by(namespace, audit) else "log",
    }


def beginning(text: bytes, most: int) -> str:
    """Return the beginning of JSON text, for a list, with an ellipsis if there is more."""
    if len(text) <= most:
        return text.decode()
    return text[:most].decode(errors="ignore") + "…"


def family_of(namespace: str) -> str:
    """Return the family of a namespace."""
    return namespace.partition("/")[0]


def owner_of(namespace: str) -> str:
    """Return the plugin or the `tenant/project` of a namespace."""
    return namespace.partition("/")[2]


def href(namespace: str) -> str | None:
    """Return the address of the page that shows a namespace; None if there is none."""
    family, _, owner = namespace.partition("/")
    return f"/ui/{_ADDRESSES[family]}/{owner}" if family in _ADDRESSES else None
