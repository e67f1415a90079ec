"""The remote engine: a Holdfast service over NATS, as an engine.

Each command is a separate message, and the service groups the messages that it receives. The service owns the
clock and sweeps. The conformance suite that certifies an engine therefore certifies the service too.

Law: this engine translates. It stores nothing and decides nothing. `operators` has the verbs of operators,
and `exchange` sends a request and waits for its reply.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import rules
from holdfast.audit.keyring import NO_KEYS
from holdfast.clock import Reading
from holdfast.commands import Done, Load, SetPolicy, WriteCommand, Written
from holdfast.decide import Outcome
from holdfast.engine import LATER, Capabilities, JournalPage, Scanned, Totals
from holdfast.engines.remote.address import RemoteAddress
from holdfast.engines.remote.exchange import Exchange
from holdfast.errors import HoldfastError, PermissionDenied, Timeout, Unavailable, Unsupported
from holdfast.families import has_blobs
from holdfast.model import Parts, Policy
from holdfast.origin import origin_fields
from holdfast.rows import KV, OVERHEAD, PARTS, Namespace
from holdfast.stored import entry_of
from holdfast.wire.blobs import blob_message, blob_result, part_fields, part_of
from holdfast.wire.reads import READS
from holdfast.wire.replies import entry_fields, ms_of, row_of
from holdfast.wire.subjects import event_pattern, ready_subject
from holdfast.wire.writes import message_of, result_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.commands import Command, Result
    from holdfast.engine import Due, JournalQuery, Later, Scan
    from holdfast.engines.remote.post import Post
    from holdfast.rows import Address, Row


class RemoteEngine(Exchange):
    """See `holdfast.engine.Engine`.

    Args:
        address: The address of the service and the login.
        post: Carries requests and replies; a connection to NATS if not given.
    """

    keys = NO_KEYS
    capabilities: Capabilities = Capabilities(
        multi_process=True, batching=False, owns_clock=True, owns_reaper=True
    )

    def __init__(self, address: RemoteAddress, post: Post | None = None) -> None:
        super().__init__(address, post)
        self.defaults: Policy | None = None

    async def start(self) -> None:
        """Connect to the NATS server. Only the first call shows whether a service answers there."""
        await self._mailbox.open()

    async def transact(self, commands: Sequence[Command], now: Callable[[], int]) -> Outcome:
        """Send each command as a separate message. Each takes effect by itself."""
        results = [await self._do(command, now) for command in commands]
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
        return await asyncio.gather(*map(self._entry, addresses))

    async def _entry(self, address: Address) -> Row | None:
        """Read an entry."""
        verb = "head" if has_blobs(address.namespace) else "get"
        reply = await self._ask(address.namespace, verb, {"key": address.key})
        return row_of(reply) if reply["exists"] else None

    async def _part(self, address: Address) -> Row | None:
        """Read a part of a blob."""
        reply = await self._ask(address.namespace, "get_part", part_fields(address))
        return part_of(reply) if reply["exists"] else None

    async def scan(self, query: Scan, now: int) -> Scanned:
        """Raise `Unsupported`: the service exposes only entries."""
        raise Unsupported("a service exposes entries only, not the rows of other spaces")

    async def call(self, command: Command, now: Callable[[], int]) -> Result:
        """See `ServiceEngine.call`."""
        declaration = command.declared
        fields, late, seconds = declaration.fields_of(command), None, None
        if isinstance(command, WriteCommand):
            seconds = self._left(command.origin, now)
            fields |= origin_fields(command.origin)
            late = None if fields.get("dry_run") else self._unknown(declaration.name, seconds)
        reply = await self._ask(command.namespace, declaration.name, fields, late, seconds)
        result: Result = READS[declaration.reply].read(command, reply)
        return result

    async def due(self, space: str, now: int, *, limit: int, namespace: str | None = None) -> list[Due]:
        """Raise `Unsupported`: the service sweeps by itself."""
        raise Unsupported("the service itself expires entries: it does not list those that are due")

    async def operator(self, verb: str, fields: dict[str, Any], *, writes: bool = False) -> Mapping[str, Any]:
        """See `ServiceEngine.operator`. The service decides whether its caller may use these verbs."""
        return await self._ask_operator(verb, fields, self._unknown(verb) if writes else None)

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
            page = await self._ask_operator("namespaces", fields)
            found += page["namespaces"]
            if page["cursor"] is None:
                return found
            fields["cursor"] = page["cursor"]

    async def _stats(self, namespace: str) -> Mapping[str, Any]:
        """Fetch the stats of a namespace. If the owner's verb is refused, try the operators' verb."""
        try:
            return await self._ask(namespace, "stats", {})
        except (PermissionDenied, Unavailable) as refused:
            try:
                return await self._ask_operator("stats", {"namespace": namespace})
            except HoldfastError:
                raise refused from None

    async def table(self, command: Command, now: Callable[[], int]) -> Any:
        """See `ServiceEngine.table`."""
        # late: tables take 5 ms to import, and few programs have any
        from holdfast.wire import tables

        verb, fields = command.declared.name, tables.message_of(command)
        if not isinstance(command, WriteCommand):
            return tables.result_of(command, await self._ask(command.namespace, verb, fields))
        seconds = self._left(command.origin, now)
        late = self._unknown(verb, seconds)
        return tables.result_of(command, await self._ask(command.namespace, verb, fields, late, seconds))

    async def ready(self) -> None:
        """See `Engine.ready`: ask the service whether its store is ready.

        The inbox tells which plugin this client belongs to, and so which subject it may use. The server may
        deny it all other subjects.
        """
        dialect, subject = ready_subject(self._address.prefix, self._address.inbox)
        late = partial(Unavailable, f"no Holdfast service answers at {subject}")
        await self._exchange(dialect, subject, {}, late, repeat=True)

    def hint(self, namespace: str, ring: Callable[[], None]) -> Callable[[], None]:
        """See `SharedStorage.hint`: the service publishes every change."""

        pattern = event_pattern(self._address.prefix, namespace)
        return self._mailbox.listen(pattern, lambda message: ring()).cancel

    def figures(self) -> None:
        """Return None: the service knows its cluster."""

    async def clock(self, ticks: Callable[[], float]) -> Reading | None:
        """See `SharedStorage.clock`: the estimate from the replies so far."""
        return Reading(self._mailbox.time(), ticks()) if self._mailbox.told else None

    async def aclose(self) -> None:
        """Disconnect."""
        await self._mailbox.close()

    async def _do(self, command: Command, now: Callable[[], int]) -> Any:
        if not isinstance(command, WriteCommand):
            raise Unsupported("the service itself does the upkeep")
        try:
            seconds = self._left(command.origin, now)
        except Timeout as passed:
            return passed
        if isinstance(command, Load):
            return await self._load(command, seconds)
        if isinstance(command, SetPolicy):
            return await self._set_policy(command, seconds)
        of_blobs = has_blobs(command.namespace)
        verb, fields = blob_message(command) if of_blobs else message_of(command)
        late = self._unknown(verb, seconds)
        try:
            return (blob_result if of_blobs else result_of)(
                command, await self._ask(command.namespace, verb, fields, late, seconds)
            )
        except HoldfastError as error:
            return error

    async def _load(self, command: Load, seconds: float) -> Written | HoldfastError:
        entries = [entry_fields(entry_of(key, row)) for key, row in command.entries]
        fields = {
            "namespace": command.namespace,
            "entries": entries,
            "keep_versions": command.keep_versions,
        } | origin_fields(command.origin)
        try:
            late = self._unknown("load", seconds)
            return Written((await self._ask_operator("load", fields, late, seconds))["written"])
        except HoldfastError as error:
            return error

    async def _set_policy(self, command: SetPolicy, seconds: float) -> Done | HoldfastError:
        fields = {"namespace": command.namespace, "policy": msgspec.Raw(command.policy.encode())}
        fields |= origin_fields(command.origin)
        try:
            late = self._unknown("set_policy", seconds)
            await self._ask_operator("set_policy", fields, late, seconds)
        except HoldfastError as error:
            return error
        return Done()


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
