"""A caller of the tools: the plugin or project that it works on, and how its calls reach the store.

Law: a tool reaches data only through `ToolCaller.call`, so that each of its steps is a verb of the catalogue,
which the caller must be allowed and which the store judges like any other.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import msgspec

from holdfast.edges.calls import FAMILIES
from holdfast.edges.calls.tables import PluginTables
from holdfast.edges.intake.large import uncollected
from holdfast.edges.mcp.apart import Apart, Within
from holdfast.errors import PermissionDenied
from holdfast.wire.payload import decode, fields_of

if TYPE_CHECKING:
    from holdfast.handles.kv import KV
    from holdfast.store import Store

SEMANTIC: Final = "semantic"
TABLE: Final = "table"
Spell: TypeAlias = Callable[[bytes], dict[str, Any]]
"""A function that decodes a payload to the fields of a verb."""


class ToolCaller(Protocol):
    """A caller.

    Args:
        kv: The handle on its namespace, which makes names of recipes and follows changes.
        owner: The plugin, or `tenant/project`.
        writer: The name of the writer where a call gives none; None for that of its client.
        apart: The arguments and results of its calls.
    """

    kv: KV
    owner: str
    writer: str | None
    apart: Apart

    def allows(self, verb: str) -> bool:
        """Return whether the caller may use a verb."""
        ...

    async def ask(
        self, verb: str, payload: bytes, spell: Spell = fields_of, *, table: bool = False
    ) -> dict[str, Any]:
        """Call a verb on keys, or on tables, and return its reply, whose values may still be encoded.

        Raises:
            HoldfastError: The call was refused.
        """
        ...

    async def call(self, verb: str, fields: dict[str, Any], *, table: bool = False) -> dict[str, Any]:
        """Call a verb with few fields, and return its reply as plain JSON.

        Raises:
            HoldfastError: The call was refused.
        """
        ...


def family_of(kv: KV) -> str:
    """Return the family of a handle's namespace: `kv` or `semantic`."""
    return kv.namespace.partition("/")[0]


class StoreCaller:
    """The process that has opened a store and serves one plugin or project of it over stdio.

    Args:
        store: The store.
        kv: The handle on the plugin's or project's keys.
        read_only: Whether to allow only verbs that write nothing.
        writer: The name of the writer where a call gives none; None for that of the client.
        apart: The arguments and results of its calls, if its messages are taken apart.
    """

    def __init__(
        self,
        store: Store,
        kv: KV,
        *,
        read_only: bool = False,
        writer: str | None = None,
        apart: Apart | None = None,
    ) -> None:
        self.kv = kv
        self.apart = apart or Within()
        self.owner = kv.namespace.partition("/")[2]
        self.writer = writer
        self._store = store
        self._read_only = read_only

    def allows(self, verb: str) -> bool:
        """Return whether a verb may be used: with `read_only`, one that writes nothing."""
        return not (self._read_only and _writes(verb))

    async def call(self, verb: str, fields: dict[str, Any], *, table: bool = False) -> dict[str, Any]:
        """Call a verb."""
        return plain(await self.ask(verb, json.dumps(fields).encode(), table=table))

    async def ask(
        self, verb: str, payload: bytes, spell: Spell = fields_of, *, table: bool = False
    ) -> dict[str, Any]:
        """Call a verb."""
        if not self.allows(verb):
            raise PermissionDenied("this server was started with --read-only")
        with uncollected():
            fields = spell(payload)
        found = FAMILIES[TABLE if table else family_of(self.kv)][verb]
        if table:
            namespace = f"{TABLE}/{self.owner}"
            tables = PluginTables(self._store, namespace, self._store.table_calls(namespace))
            answer: dict[str, Any] = await found.answer(tables, fields)
        elif found.in_order:
            write = found.answer(self.kv.verbs, fields)
            answer = write.show(await self._store.execute(write.command))
        else:
            answer = await found.answer(self.kv, fields)
        return answer


def plain(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an answer as JSON has them: values decoded, times as text."""
    fields: dict[str, Any] = decode(msgspec.json.encode(answer))
    return fields


def _writes(verb: str) -> bool:
    return any(verbs[verb].writes for verbs in FAMILIES.values() if verb in verbs)
