"""The remote engine: a Holdfast service over NATS, as an engine.

Each command is a separate message, and the service groups the messages that it receives. The service owns the
clock and sweeps. The conformance suite that certifies an engine therefore certifies the service too.

Law: this engine translates. It stores nothing and decides nothing. By itself it repeats only reads that a
lost connection left unanswered, and requests that the service did not start because the clocks differed.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import rules
from holdfast.audit.keyring import NO_KEYS
from holdfast.audit.results import AuditPage
from holdfast.clock import Reading, moment
from holdfast.commands import Done, Load, SetPolicy, WriteCommand, Written
from holdfast.decide import Outcome
from holdfast.engine import LATER, AuditPart, Capabilities, JournalPage, Scanned, Selected, Totals
from holdfast.engines.remote.address import RemoteAddress
from holdfast.engines.remote.mailbox import Mailbox
from holdfast.errors import HoldfastError, OutcomeUnknown, PermissionDenied, Timeout, Unavailable, Unsupported
from holdfast.families import is_semantic
from holdfast.model import LetterPage, Page, Parts, Policy, Rescued, SlowPage, TrashPage
from holdfast.rows import KV, OVERHEAD, Namespace
from holdfast.stored import entry_of
from holdfast.verbs.cursors import cursor_after, last_seen
from holdfast.wire.dialects import ADMIN, PLUGIN, SEMANTIC, Dialect
from holdfast.wire.errors import error_of
from holdfast.wire.replies import entry_fields, filter_fields, ms_of, record_of, row_of
from holdfast.wire.subjects import event_pattern, ready_subject
from holdfast.wire.writes import message_of, origin_fields, result_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from holdfast.commands import Command, Origin
    from holdfast.engine import AuditQuery, Due, Filter, JournalQuery, Later, Removal, Scan
    from holdfast.engines.remote.mailbox import Late
    from holdfast.rows import Address, Row


_SOUGHT = 64
"""The number of attempts to get an answer from one particular instance of a service."""
_TOO_LATE = (Timeout.code, Timeout.code.lower())


class RemoteEngine:
    """See `holdfast.engine.Engine`.

    Args:
        address: The address of the service and the login.
    """

    keys = NO_KEYS
    capabilities = Capabilities(multi_process=True, batching=False, owns_clock=True, owns_reaper=True)

    def __init__(self, address: RemoteAddress) -> None:
        self._address = address
        self._mailbox = Mailbox(address)
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
        if any(address.space != KV for address in addresses):
            raise Unsupported("a service shows entries, not the rows of other spaces")
        if len(addresses) == 1:
            [address] = addresses
            reply = await self._ask(address.namespace, "get", {"key": address.key})
            return [_found(reply)]
        if not addresses:
            return []
        keys = [address.key for address in addresses]
        reply = await self._ask(addresses[0].namespace, "get_many", {"keys": keys})
        return [_found(found) for found in reply["results"]]

    async def scan(self, query: Scan, now: int) -> Scanned:
        """See `Engine.scan`. The range must be a prefix, which is all that a client can request."""
        found = await self.select(query, None)
        return Scanned(keys=found.keys, rows=found.rows, more=found.last is not None)

    async def select(self, query: Scan, wanted: Filter | None) -> Selected:
        """See `ServiceEngine.select`."""
        cursor = None if query.after is None else cursor_after(str(query.after))
        fields = {"prefix": query.start, "limit": query.limit, "cursor": cursor, "values": query.values}
        reply = await self._ask(query.namespace, "list", fields | filter_fields(wanted))
        cursor = reply["cursor"]
        return Selected(
            keys=reply["keys"],
            rows=[row_of(entry) for entry in reply.get("entries", ())],
            last=None if cursor is None else last_seen(cursor, str(query.start)),
        )

    async def delete_prefix(self, asked: Removal, origin: Origin, now: Callable[[], int]) -> Page:
        """See `ServiceEngine.delete_prefix`."""
        seconds = self._left(origin, now)
        fields = {
            "prefix": asked.prefix,
            "limit": asked.limit,
            "cursor": asked.cursor,
            "dry_run": asked.dry_run,
        } | origin_fields(origin)
        late = None if asked.dry_run else self._unknown("delete_prefix", seconds)
        reply = await self._ask(asked.namespace, "delete_prefix", fields, late, seconds)
        return Page(keys=reply["keys"], truncated=reply["truncated"], cursor=reply["cursor"])

    async def due(self, space: str, now: int, *, limit: int, namespace: str | None = None) -> list[Due]:
        """Raise `Unsupported`: the service sweeps by itself."""
        raise Unsupported("what is due is the service's business")

    async def falling_due(self, since: int, until: int, *, limit: int) -> list[Due]:
        """Raise `Unsupported`: the service sweeps by itself."""
        raise Unsupported("what is due is the service's business")

    async def owners(self, space: str) -> list[str]:
        """Raise `Unsupported`: the service exposes only entries."""
        raise Unsupported("a service shows entries, not the rows of other spaces")

    async def journal(self, query: JournalQuery) -> JournalPage:
        """See `Engine.journal`."""
        if query.key is not None:
            reply = await self._ask(query.namespace, "history", {"key": query.key, "limit": query.limit})
            records = [record_of(query.namespace, change) for change in reply["changes"]]
            return JournalPage(records=records, complete=True, floor=0, head=0, epoch="")
        reply = await self._ask(
            query.namespace, "changes", {"since": query.since, "prefix": query.start, "limit": query.limit}
        )
        return JournalPage(
            records=[record_of(query.namespace, change) for change in reply["changes"]],
            complete=reply["next"] == reply["head"],
            floor=reply["floor"],
            head=reply["head"],
            epoch=reply["epoch"],
        )

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

    async def sweep(self) -> int:
        """See `ServiceEngine.sweep`: for operators."""
        removed: int = (await self._ask_operator("sweep", {}))["removed"]
        return removed

    async def upkeep(self) -> None:
        """See `ServiceEngine.upkeep`: for operators."""
        await self._ask_operator("upkeep", {})

    async def recount(self, namespace: str) -> int:
        """See `ServiceEngine.recount`: for operators."""
        late = self._unknown("recount")
        return int((await self._ask_operator("recount", {"namespace": namespace}, late))["corrected"])

    async def rescue(self, path: str) -> Rescued:
        """See `Rescuer.rescue`: for operators. The path is on the service's machine."""
        part = await self._ask_operator("rescue", {"path": path}, self._unknown("rescue"))
        while not part["complete"]:
            part = await self._ask_operator("rescue", {"number": part["number"]}, self._unknown("rescue"))
        return msgspec.convert(part["rescued"], Rescued)

    async def audit_log(self, namespace: str, query: AuditQuery) -> AuditPage:
        """See `ServiceEngine.audit_log`: for operators."""
        fields = {
            "namespace": namespace,
            "after": query.after,
            "limit": query.limit,
            "prefix": query.prefix,
            "last_writer": query.writer,
            "op": query.op,
            "purpose": query.purpose,
            "request_id": query.request_id,
            "since": None if query.since is None else moment(query.since),
            "until": None if query.until is None else moment(query.until),
        }
        return msgspec.convert(await self._ask_operator("audit", fields), AuditPage)

    async def audits(self) -> list[str]:
        """See `ServiceEngine.audits`: for operators."""
        found: list[str] = (await self._ask_operator("audits", {}))["namespaces"]
        return found

    async def audit_verify(self, namespace: str, *, after: int, anchor: str) -> AuditPart:
        """See `ServiceEngine.audit_verify`: for operators."""
        fields = {"namespace": namespace, "after": after, "anchor": anchor}
        return msgspec.convert(await self._ask_operator("audit_verify", fields), AuditPart)

    async def trash(self, query: Scan) -> TrashPage:
        """See `ServiceEngine.trash`: for operators."""
        assert isinstance(query.start, bytes)
        fields = {"namespace": query.namespace, "prefix": query.start.decode(), "limit": query.limit}
        if isinstance(query.after, bytes):
            fields["cursor"] = cursor_after(query.after.decode())
        reply = await self._ask_operator("trash", fields | {"values": query.values})
        return msgspec.convert(reply, TrashPage)

    async def slowlog(self, *, before: int | None, limit: int, instance: str | None) -> SlowPage:
        """See `ServiceEngine.slowlog`: for operators.

        The server chooses which instance answers, so the request is repeated until the wanted one does.
        """
        fields = {"before": before, "limit": limit, "instance": instance}
        for _ in range(_SOUGHT):
            page = msgspec.convert(await self._ask_operator("slowlog", fields), SlowPage)
            if instance in (None, page.instance):
                return page
        raise Unavailable(f"no instance {instance!r} of the service has answered: it may have ended")

    async def letters(self, namespace: str, *, after: int, limit: int) -> LetterPage:
        """See `ServiceEngine.letters`: for operators."""
        fields = {"namespace": namespace, "after": after, "limit": limit}
        return msgspec.convert(await self._ask_operator("deadletters", fields), LetterPage)

    async def retry_letter(self, namespace: str, number: int) -> dict[str, Any]:
        """See `ServiceEngine.retry_letter`: for operators."""
        fields = {"namespace": namespace, "number": number}
        late = self._unknown("deadletter_retry")
        reply: dict[str, Any] = (await self._ask_operator("deadletter_retry", fields, late))["reply"]
        return reply

    async def drop_letter(self, namespace: str, number: int) -> bool:
        """See `ServiceEngine.drop_letter`: for operators."""
        fields = {"namespace": namespace, "number": number}
        late = self._unknown("deadletter_drop")
        dropped: bool = (await self._ask_operator("deadletter_drop", fields, late))["dropped"]
        return dropped

    async def create_token(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """See `ServiceEngine.create_token`: for operators."""
        reply = dict(await self._ask_operator("token_create", dict(asked), self._unknown("token_create")))
        del reply["success"]
        return reply

    async def tokens(self) -> list[dict[str, Any]]:
        """See `ServiceEngine.tokens`: for operators."""
        found: list[dict[str, Any]] = (await self._ask_operator("tokens", {}))["tokens"]
        return found

    async def revoke_token(self, name: str) -> bool:
        """See `ServiceEngine.revoke_token`: for operators."""
        late = self._unknown("token_revoke")
        revoked: bool = (await self._ask_operator("token_revoke", {"id": name}, late))["revoked"]
        return revoked

    async def table(self, namespace: str, verb: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """See `ServiceEngine.table`. The imports are local because few programs use tables."""
        # late: tables take 5 ms to import, and few programs have any
        from holdfast.verbs.tables import WRITES
        from holdfast.wire.tables import call_fields, result_in, writes_of

        given = dict(fields)
        seconds = self._seconds(given.pop("timeout", None))
        fields, late = given, self._unknown(verb, seconds) if verb in WRITES else None
        writes = writes_of(fields) if verb == "batch_write_item" else None
        if writes is not None:
            if not writes.legal:
                return {"results": writes.merge(())}
            fields = {**fields, "writes": writes.legal}
        reply = dict(await self._ask(namespace, verb, call_fields(fields), late, seconds))
        del reply["success"]
        return reply if writes is None else {"results": writes.merge(map(result_in, reply["results"]))}

    async def ready(self) -> None:
        """See `Engine.ready`: ask the service whether its store is ready.

        The inbox tells which plugin this client belongs to, and so which subject it may use. The server may
        deny it all other subjects.
        """
        dialect, subject = ready_subject(self._address.prefix, self._address.inbox)
        late = partial(Unavailable, f"no Holdfast service answers at {subject}")
        await self._exchange(dialect, subject, {}, late, repeat=True)

    def hint(self, namespace: str, ring: Callable[[], None]) -> Callable[[], None]:
        """See `Engine.hint`: the service publishes every change."""

        pattern = event_pattern(self._address.prefix, namespace)
        return self._mailbox.listen(pattern, lambda message: ring()).cancel

    async def clock(self, ticks: Callable[[], float]) -> Reading | None:
        """See `Engine.clock`: the estimate from the replies so far."""
        return Reading(self._mailbox.time(), ticks()) if self._mailbox.told else None

    async def remembered(self) -> int:
        """Return 0: the service remembers its time itself."""
        return 0

    async def remember(self, now: int) -> int:
        """Return `now` without keeping it: the service remembers its time itself."""
        return now

    async def aclose(self) -> None:
        """Disconnect."""
        await self._mailbox.close()

    async def _do(self, command: Command, now: Callable[[], int]) -> Any:
        if not isinstance(command, WriteCommand):
            raise Unsupported("upkeep is the service's business")
        try:
            seconds = self._left(command.origin, now)
        except Timeout as passed:
            return passed
        if isinstance(command, Load):
            return await self._load(command, seconds)
        if isinstance(command, SetPolicy):
            return await self._set_policy(command, seconds)
        verb, fields = message_of(command)
        late = self._unknown(verb, seconds)
        try:
            return result_of(command, await self._ask(command.namespace, verb, fields, late, seconds))
        except HoldfastError as error:
            return error

    def _left(self, origin: Origin, now: Callable[[], int]) -> float:
        """Return the seconds until the call's deadline or, if it has none, the timeout of the address.

        Raises:
            Timeout: The deadline has passed.
        """
        if origin.deadline is msgspec.UNSET:
            return self._address.timeout
        seconds = (origin.deadline - now()) / 1000
        if seconds <= 0:
            raise Timeout("the deadline passed before the request was sent: nothing was done")
        return seconds

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

    def _ask(
        self,
        namespace: str,
        verb: str,
        fields: dict[str, Any],
        late: Late | None = None,
        seconds: float | None = None,
    ) -> Awaitable[Mapping[str, Any]]:
        dialect = SEMANTIC if is_semantic(namespace) else PLUGIN
        subject = f"{self._address.prefix}.{namespace.replace('/', '.')}.{verb}"
        return self._exchange(dialect, subject, fields, late, seconds)

    def _ask_operator(
        self, verb: str, fields: dict[str, Any], late: Late | None = None, seconds: float | None = None
    ) -> Awaitable[Mapping[str, Any]]:
        return self._exchange(ADMIN, f"{self._address.prefix}.admin.{verb}", fields, late, seconds)

    def _seconds(self, timeout: object) -> float:
        """Return the timeout of the call or, if it has none, that of the address."""
        return self._address.timeout if timeout is None else rules.timeout(timeout)

    def _unknown(self, verb: str, seconds: float | None = None) -> Late:
        within = self._address.timeout if seconds is None else seconds
        return lambda: OutcomeUnknown(
            f"no reply to {verb} came within {within:g} s: it may or may not have been done"
        )

    async def _exchange(
        self,
        dialect: Dialect,
        subject: str,
        fields: dict[str, Any],
        late: Late | None,
        seconds: float | None = None,
        *,
        repeat: bool = False,
    ) -> Mapping[str, Any]:
        seconds = self._address.timeout if seconds is None else seconds
        if late is None:
            repeat = True
            late = partial(_no_reply, subject, seconds)
        end = time.monotonic() + seconds
        reply = await self._attempt(dialect, subject, fields, seconds, late, repeat=repeat)
        if reply.get("error_code") in _TOO_LATE and (left := end - time.monotonic()) > 0:
            # The deadline has not passed by our clock, so the service's clock has jumped. Nothing was done:
            # retry.
            self._mailbox.relearn_time()
            reply = await self._attempt(dialect, subject, fields, left, late, repeat=repeat)
        if not reply["success"]:
            raise error_of(reply)
        return reply

    async def _attempt(
        self,
        dialect: Dialect,
        subject: str,
        fields: dict[str, Any],
        seconds: float,
        late: Late,
        *,
        repeat: bool,
    ) -> Mapping[str, Any]:
        payload = dialect.request(fields | self._deadline(seconds))
        return dialect.answer(
            await self._mailbox.ask(subject, payload, seconds=seconds, late=late, repeat=repeat)
        )

    def _deadline(self, seconds: float) -> dict[str, int]:
        """Return the time by which the service must start, on its own clock, so that delays in transit count.

        Before the first reply its clock is assumed to be ours. If that is wrong, the reply is a TIMEOUT.
        """
        return {"deadline": int(self._mailbox.time() + seconds * 1000)}


def _no_reply(subject: str, seconds: float) -> Unavailable:
    return Unavailable(f"no reply from {subject} came within {seconds:g} s")


def _found(reply: Mapping[str, Any]) -> Row | None:
    if reply["success"] is False:
        raise error_of(reply)
    return row_of(reply) if reply["exists"] else None


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
    held = parts.entries + parts.items
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
