"""A caller of the tools: the plugin or project that it works on, and how its calls reach the store.

A tool reaches data only through `ToolCaller.ask` and `call`, so each of its steps is a verb of the catalogue,
which the caller must be allowed and which the store judges like any other. A caller over HTTP sends requests
like those over NATS or at `/v1`: they wait in its plugin's queue, and their deadline, rate, log line and
principal are those of the service.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from holdfast import tracing
from holdfast.edges.calls import FAMILIES
from holdfast.edges.intake.requests import Endpoint, uncollected
from holdfast.edges.intake.service import TOKEN_SIGN, RequestService
from holdfast.edges.mcp.bypass import NoBypass, SdkBypass
from holdfast.errors import PermissionDenied
from holdfast.handles.kv import KV
from holdfast.operators.tokens import Token
from holdfast.store import Store
from holdfast.wire.dialects import Dialect
from holdfast.wire.payload import decode, fields_of
from holdfast.wire.subjects import Route

if TYPE_CHECKING:
    from holdfast.edges.http.requests import PathOwner

SEMANTIC: Final = "semantic"
TABLE: Final = "table"
ENDPOINT: Final = Endpoint(name="mcp")
"""The counters of calls over HTTP, which NATS does not show."""
Spell: TypeAlias = Callable[[bytes], dict[str, Any]]
"""A function that decodes a payload to the fields of a verb."""


class ToolCaller(ABC):
    """A caller.

    Args:
        kv: The handle on its namespace, which makes names of recipes and follows changes.
        owner: The plugin, or `tenant/project`.
        writer: The name of the writer where a call gives none; None for that of its client.
        bypass: The arguments and results of its calls.
    """

    def __init__(self, kv: KV, owner: str, *, writer: str | None, bypass: SdkBypass) -> None:
        self.kv = kv
        self.owner = owner
        self.writer = writer
        self.bypass = bypass

    @property
    def family(self) -> str:
        """The family of its namespace: `kv` or `semantic`."""
        return self.kv.namespace.partition("/")[0]

    @abstractmethod
    def allows(self, verb: str) -> bool:
        """Return whether the caller may use a verb."""

    @abstractmethod
    async def ask(
        self, verb: str, payload: bytes, spell: Spell = fields_of, *, table: bool = False
    ) -> dict[str, Any]:
        """Call a verb on keys, or on tables, and return its reply, whose values may still be encoded.

        Raises:
            HoldfastError: The call was refused.
        """

    async def call(self, verb: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Call a verb on keys with few fields, and return its reply as plain JSON.

        Raises:
            HoldfastError: The call was refused.
        """
        # Not msgspec: it would turn NaN, which the rules refuse, into null.
        reply = await self.ask(verb, json.dumps(fields).encode())
        plain: dict[str, Any] = decode(msgspec.json.encode(reply))
        return plain


class StoreCaller(ToolCaller):
    """The process that has opened a store and serves one plugin or project of it over stdio.

    Args:
        store: The store.
        kv: The handle on the plugin's or project's keys.
        read_only: Whether to allow only verbs that write nothing.
        writer: The name of the writer where a call gives none; None for that of the client.
        bypass: The arguments and results of its calls, if they bypass the SDK.
    """

    def __init__(
        self,
        store: Store,
        kv: KV,
        *,
        read_only: bool = False,
        writer: str | None = None,
        bypass: SdkBypass | None = None,
    ) -> None:
        super().__init__(kv, kv.namespace.partition("/")[2], writer=writer, bypass=bypass or NoBypass())
        self._store = store
        self._read_only = read_only

    def allows(self, verb: str) -> bool:
        """Return whether a verb may be used: with `read_only`, one that writes nothing."""
        return not (self._read_only and _writes(verb))

    async def ask(
        self, verb: str, payload: bytes, spell: Spell = fields_of, *, table: bool = False
    ) -> dict[str, Any]:
        """Call a verb."""
        if not self.allows(verb):
            raise PermissionDenied("this server was started with --read-only")
        with uncollected():
            fields = spell(payload)
        declared = FAMILIES[TABLE if table else self.family][verb]
        if table:
            tables = self._store.tables(self.owner)
            answer: dict[str, Any] = await declared.call(tables, fields)
        elif declared.in_order:
            write = declared.call(self.kv, fields)
            answer = write.show(await self._store.caller.call(write.command))
        else:
            answer = await declared.call(self.kv, fields)
        return answer


class ToolDialect(Dialect, frozen=True, kw_only=True):
    """The spelling of one call: `spell` decodes its payload, which are the arguments of a tool."""

    name: str = "mcp"
    spell: Spell = fields_of

    def fields(self, payload: bytes) -> dict[str, Any]:
        """Decode the fields of the call."""
        return self.spell(payload)


class ServedCaller(ToolCaller):
    """A caller of a service over HTTP. Its calls wait in its plugin's queue like those at every other door.

    Args:
        service: The service.
        store: The store, whose changes are followed for the caller.
        place: The plugin or project.
        token: What lets the caller in; None for a process of this machine that needs none.
    """

    def __init__(self, service: RequestService, store: Store, place: PathOwner, token: Token | None) -> None:
        kv = KV(store.caller, store.caller.verbs(place.namespace, root=place.root))
        super().__init__(kv, place.owner, writer=None, bypass=SdkBypass())
        self.user = "" if token is None else f"{TOKEN_SIGN}{token.id}"
        self._service = service
        self._place = place
        self._token = token

    def allows(self, verb: str) -> bool:
        """Return whether the token allows a verb."""
        token = self._token
        return token is None or token.allows(self._place.family, self.owner, verb)

    async def ask(
        self, verb: str, payload: bytes, spell: Spell = fields_of, *, table: bool = False
    ) -> dict[str, Any]:
        """Queue a call, and wait for its answer."""
        if not self.allows(verb):
            raise PermissionDenied(f"this token does not allow {verb}")
        place = self._place
        family = TABLE if table else place.family
        namespace = f"{TABLE}/{self.owner}" if table else place.namespace
        route = Route(ToolDialect(spell=spell), verb, namespace, self.owner, place.root, family=family)
        return await self._service.ask(
            route,
            payload,
            verb=FAMILIES[family][verb],
            endpoint=ENDPOINT,
            user=self.user,
            trace=tracing.current(),
        )


def _writes(verb: str) -> bool:
    return any(verbs[verb].writes for verbs in FAMILIES.values() if verb in verbs)
