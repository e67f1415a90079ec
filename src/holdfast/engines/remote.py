"""A service as an engine, for a pipeline that asks a client.

Each command is a separate message, and the service groups the messages that it receives. The service owns the
clock and sweeps. The conformance suite that certifies an engine therefore certifies the service too.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import rules
from holdfast.audit.keyring import NO_KEYS
from holdfast.clock import Reading
from holdfast.decide import Outcome
from holdfast.engine import LATER, Capabilities, JournalPage, Scanned, Totals
from holdfast.errors import HoldfastError, PermissionDenied, Unavailable, Unsupported
from holdfast.families import has_blobs
from holdfast.model import Parts, Policy
from holdfast.rows import KV, OVERHEAD, PARTS, Namespace
from holdfast.wire.blobs import part_fields, part_of
from holdfast.wire.replies import ms_of, row_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.client.client import Client
    from holdfast.commands import Command
    from holdfast.engine import Due, JournalQuery, Later, Scan
    from holdfast.rows import Address, Row


class RemoteEngine:
    """See `holdfast.engine.Engine`.

    Args:
        client: The client of the service.
    """

    keys = NO_KEYS
    capabilities: Capabilities = Capabilities(
        multi_process=True, batching=False, owns_clock=True, owns_reaper=True
    )

    def __init__(self, client: Client) -> None:
        self._client = client
        self.defaults: Policy | None = None

    async def start(self) -> None:
        """Connect to the NATS server. Only the first call shows whether a service answers there."""
        await self._client.transport.open()

    async def transact(self, commands: Sequence[Command], now: Callable[[], int]) -> Outcome:
        """Send each command as a separate message. Each takes effect by itself."""
        results: list[Any] = []
        for command in commands:
            try:
                results.append(await self._client.call(command, now))
            except HoldfastError as error:
                results.append(error)
        return Outcome(results=results, namespaces=[], rows={}, journal=[], trims={})

    def glance(self, addresses: Sequence[Address], now: int) -> Later:
        """See `Engine.glance`: every read waits for the service."""
        return LATER

    async def read(self, addresses: Sequence[Address], now: int) -> list[Row | None]:
        """See `Engine.read`."""
        if addresses and addresses[0].space.startswith(PARTS):
            return await asyncio.gather(*map(self._part, addresses))
        if any(address.space != KV for address in addresses):
            raise Unsupported("a service exposes entries only, not the rows of other spaces")
        return [await self._entry(address) for address in addresses]  # in the order of calls: no tasks

    async def _entry(self, address: Address) -> Row | None:
        """Read an entry."""
        verb = "head" if has_blobs(address.namespace) else "get"
        reply = await self._client.ask(address.namespace, verb, {"key": address.key})
        return row_of(reply) if reply["exists"] else None

    async def _part(self, address: Address) -> Row | None:
        """Read a part of a blob."""
        reply = await self._client.ask(address.namespace, "get_part", part_fields(address))
        return part_of(reply) if reply["exists"] else None

    async def scan(self, query: Scan, now: int) -> Scanned:
        """Raise `Unsupported`: the service exposes only entries."""
        raise Unsupported("a service exposes entries only, not the rows of other spaces")

    async def call(self, command: Command, now: Callable[[], int]) -> Any:
        """See `ServiceEngine.call`."""
        return await self._client.call(command, now)

    async def due(self, space: str, now: int, *, limit: int, namespace: str | None = None) -> list[Due]:
        """Raise `Unsupported`: the service sweeps by itself."""
        raise Unsupported("the service itself expires entries: it does not list those that are due")

    async def operator(self, verb: str, fields: dict[str, Any], *, writes: bool = False) -> Mapping[str, Any]:
        """See `ServiceEngine.operator`. The service decides whether its caller may use these verbs."""
        return await self._client.operator(verb, fields, writes=writes)

    async def falling_due(self, since: int, until: int, *, limit: int) -> list[Due]:
        """Raise `Unsupported`: the service sweeps by itself."""
        raise Unsupported("the service itself expires entries: it does not list those that are due")

    async def owners(self, space: str) -> list[str]:
        """Raise `Unsupported`: the service exposes only entries."""
        raise Unsupported("a service exposes entries only, not the rows of other spaces")

    async def journal(self, query: JournalQuery) -> JournalPage:
        """Raise `Unsupported`: the service exposes only changes."""
        raise Unsupported("a service exposes changes only, not its journal")

    async def totals(self, now: int, *, namespace: str | None = None) -> list[Totals]:
        """See `Engine.totals`. Operators may request all namespaces, an owner only its own."""
        if namespace is None:
            found = await self._all_stats()
        else:
            found = [await self._stats(namespace)]
        return [_totals(stats) for stats in found]

    async def _all_stats(self) -> list[Mapping[str, Any]]:
        """Fetch the stats of all namespaces, page by page."""
        found: list[Mapping[str, Any]] = []
        fields: dict[str, Any] = {"limit": rules.MAX_LIMIT}
        while True:
            page = await self._client.ask_operator("namespaces", fields)
            found += page["namespaces"]
            if page["cursor"] is None:
                return found
            fields["cursor"] = page["cursor"]

    async def _stats(self, namespace: str) -> Mapping[str, Any]:
        """Fetch the stats of a namespace. If the owner's verb is refused, try the operators' verb."""
        try:
            return await self._client.ask(namespace, "stats", {})
        except (PermissionDenied, Unavailable) as refused:
            try:
                return await self._client.ask_operator("stats", {"namespace": namespace})
            except HoldfastError:
                raise refused from None

    async def ready(self) -> None:
        """See `Engine.ready`: ask the service whether its store is ready."""
        await self._client.ready()

    def hint(self, namespace: str, ring: Callable[[], None]) -> Callable[[], None]:
        """See `SharedStorage.hint`: the service publishes every change."""
        return self._client.hint(namespace, ring)

    def figures(self) -> None:
        """Return None: the service knows its cluster."""

    async def clock(self, ticks: Callable[[], float]) -> Reading | None:
        """See `SharedStorage.clock`: the estimate from the replies so far."""
        return Reading(self._client.transport.time(), ticks()) if self._client.transport.knows_time else None

    async def aclose(self) -> None:
        """Disconnect."""
        await self._client.transport.close()


def _totals(stats: Mapping[str, Any]) -> Totals:
    namespace = Namespace(
        name=stats["namespace"],
        revision=stats["version"],
        keys=stats["keys"],
        bytes=stats["bytes"],
        changed_at=ms_of(stats["changed_at"]),
        policy=msgspec.json.encode(stats["policy"]).decode() if "policy" in stats else None,
        **_counters(stats),
    )
    defaults = msgspec.convert(stats.get("defaults", {}), Policy)
    return Totals(namespace=namespace, due_keys=0, due_bytes=0, defaults=defaults)


def _counters(stats: Mapping[str, Any]) -> dict[str, int]:
    """Derive counters of a namespace from its parts. A service of an earlier version sends no parts."""
    parts = msgspec.convert(stats.get("parts", {}), Parts)
    held = parts.entries + parts.items + parts.blobs
    return {
        "envelope_bytes": held - stats["bytes"] - OVERHEAD * stats["keys"] if held else 0,
        "trash_bytes": parts.trash,
        "journal_bytes": parts.journal,
        "letter_bytes": parts.letters,
        "request_bytes": parts.requests,
        "index_bytes": parts.indexes,
        "other_bytes": parts.other,
        "audit_bytes": parts.audit,
    }
