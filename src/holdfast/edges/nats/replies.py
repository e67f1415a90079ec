"""The messages that a service sends over NATS, and where it may send them: replies, refusals and events.

Nothing here waits for the connection. A message that the connection cannot accept is dropped and counted: the
caller times out, and a watcher reads the changes itself.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from holdfast.bounded import Bounded
from holdfast.bus.protocol import block
from holdfast.edges.intake.requests import Request
from holdfast.edges.intake.service import KNOWN_NAMES
from holdfast.errors import HoldfastError, ValueTooLarge
from holdfast.families import has_tables, is_semantic
from holdfast.wire import subjects
from holdfast.wire.blobs import FIELDS, fields_text
from holdfast.wire.dialects import PLUGIN, SEMANTIC, Dialect
from holdfast.wire.errors import NUMBERS
from holdfast.wire.replies import record_fields
from holdfast.wire.tables import change_fields as item_change_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.bus.connection import Connection
    from holdfast.edges.intake.service import RequestService
    from holdfast.rows import Record

HEADROOM: Final = 4096
"""Bytes reserved for the headers and the protocol overhead of a reply."""
MODES: Final = ("open", "permissions", "accounts")
"""The ways in which a NATS server tells callers apart."""
KNOWN_INBOXES: Final = 4_096
"""Number of inbox names whose check is cached."""
_TOKENS: Final = r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*"
_RESERVED: Final = (f"{subjects.SERVICE_INBOX}.", f"_INBOX.{subjects.OPERATOR}.")
"""Inboxes that belong to no plugin, trusted or not."""


class NatsRequest(Request, gc=False, kw_only=True):
    """A request over NATS. `client` is the connection that it came over and is answered over.

    A server may permit the reply on that connection alone.
    """

    reply: str
    client: Connection


class Replies:
    """Encodes replies and events and sends them.

    Args:
        requests: Starts and finishes the requests.
        client: The common connection. A reply goes over the connection that its request came from.
        prefix: The prefix of event subjects.
    """

    def __init__(self, requests: RequestService, client: Connection, *, prefix: str) -> None:
        self._requests = requests
        self._now = requests.now
        self._client = client
        self._prefix = prefix
        self._head_time = -1
        self._head = b""
        self.over: Bounded[str, Connection] = Bounded(KNOWN_NAMES)
        """The connections for events of namespaces that do not use the common connection. A plugin that does
        not read its events then delays only its own requests."""
        self.events = 0
        self.unsent = 0

    def refuse(self, client: Connection, reply: str, dialect: Dialect, *, error: HoldfastError) -> None:
        """Answer a message that is not a valid request."""
        self._send(client, reply, dialect.refusal(error), error, dialect)

    def send(self, subject: str, payload: bytes) -> None:
        """Send a message over the common connection; count it as unsent if that fails."""
        if not self._client.send(subject, payload):
            self.unsent += 1

    def publish_changes(self, journal: list[Record]) -> None:
        """Publish the events of these journal records."""
        self.events += len(journal)
        common, prefix, over = self._client, self._prefix, self.over
        send = common.send
        for record in journal:
            if over:
                send = over.get(record.namespace, common).send
            if not send(subjects.event_subject(prefix, record.namespace, record.op), _event(record)):
                self.unsent += 1

    def answer(
        self, request: NatsRequest, fields: dict[str, Any], error: HoldfastError | None
    ) -> HoldfastError | None:
        """Reply with fields or an error. Returns the error that the caller receives.

        This is the `back` of a request, so the request log sees the same result as the caller, even when the
        reply turns out to be too large.
        """
        if "data" in fields and request.route.family == "blob":
            self._reply_bytes(request, fields)
            return None
        client, dialect = request.client, request.route.dialect
        most = client.max_payload - HEADROOM
        payload = dialect.reply(fields) if error is None else dialect.refusal(error)
        if len(payload) > most:
            if request.writes and "results" in fields:
                # The writes have been committed. The caller must learn that, even if the details do not fit.
                payload = dialect.reply({"results": [_bare(result) for result in fields["results"]]})
            if len(payload) > most:
                error = error or ValueTooLarge(
                    f"the reply has {len(payload)} bytes, more than the NATS server accepts"
                )
                payload = dialect.refusal(error, bare=True)
        if error is not None or request.warning:
            self._send(client, request.reply, payload, error, dialect, warning=request.warning)
            return error
        now = self._now()
        if now != self._head_time:  # replies within one millisecond share a header
            self._head_time, self._head = now, b"NATS/1.0\r\nHoldfast-Time: %d\r\n\r\n" % now
        if not client.send(request.reply, payload, head=self._head, patient=self._requests.patient):
            self.unsent += 1
        return None

    def _reply_bytes(self, request: NatsRequest, fields: dict[str, Any]) -> None:
        """Reply with the bytes of a blob as the payload, and the other fields in a header."""
        data = fields["data"]
        head = block(
            _time(self._now())
            | _warning(request.warning)
            | {FIELDS: fields_text({"success": True, **fields})}
        )
        if not request.client.send(request.reply, data, head=head):
            self.unsent += 1

    def _send(
        self,
        client: Connection,
        reply: str,
        payload: bytes,
        error: HoldfastError | None,
        dialect: Dialect,
        *,
        warning: str = "",
    ) -> None:
        head = block(_time(self._now()) | _warning(warning) | _complaint(error, dialect))
        if not client.send(reply, payload, head=head, patient=self._requests.patient):
            self.unsent += 1


def _time(now: int) -> dict[str, str]:
    return {"Holdfast-Time": str(now)}


def _warning(warning: str) -> dict[str, str]:
    return {"Holdfast-Warning": warning} if warning else {}


def _complaint(error: HoldfastError | None, dialect: Dialect) -> dict[str, str]:
    if error is None:
        return {}
    return {
        "Nats-Service-Error-Code": str(NUMBERS[error.code]),
        "Nats-Service-Error": _one_line(dialect.message(error)),
        "Holdfast-Error-Code": error.code,
    }


def _bare(result: dict[str, Any]) -> dict[str, Any]:
    """Return the result of one of several writes, without its items or entries."""
    return {name: field for name, field in result.items() if name not in ("current", "item")}


def _event(record: Record) -> bytes:
    """Encode a change as an event in the dialect of its family, without values."""
    if has_tables(record.namespace):
        return PLUGIN.event(item_change_fields(record, "keys"))
    dialect = SEMANTIC if is_semantic(record.namespace) else PLUGIN
    return dialect.event(record_fields(record))


def _one_line(message: str) -> str:
    """Return a message as valid text for a header."""
    return message.encode("ascii", "backslashreplace").decode().replace("\r", " ").replace("\n", " ")


def reply_guard(mode: str, prefixes: Sequence[str]) -> Callable[[str, str], bool]:
    """Return a check of whether a reply subject belongs to an owner. The NATS server does not check it.

    A reply goes only to a subject on which its caller could have listened. Otherwise a caller could make the
    service publish its answer to another plugin's subject, as if that plugin had asked. The owner is a plugin
    or `tenant/project`; it is empty if unknown.

    Args:
        mode: `accounts`: the server has replaced the caller's reply subject with its own; `permissions`: the
            reply must go to the owner's inbox; `open`: anywhere except our own subjects and the system's.
        prefixes: Prefixes of our own subjects.
    """
    if mode == "accounts":
        mapped = re.compile(rf"_R_\.{_TOKENS}")
        return lambda reply, owner: mapped.fullmatch(reply) is not None
    if mode == "permissions":
        inbox = re.compile(_TOKENS)
        return lambda reply, owner: _in_inbox(reply, _inbox_of(owner), inbox)
    return _anywhere_else(prefixes)


def _anywhere_else(prefixes: Sequence[str]) -> Callable[[str, str], bool]:
    """Return a check that accepts any valid subject that is neither ours nor the system's.

    A caller's replies share one inbox, so the check of the inbox's name is cached.
    """
    never = ("$", *(f"{prefix}." for prefix in prefixes))
    subject = re.compile(r"[^\s.*>]+(?:\.[^\s.*>]+)*")

    @lru_cache(maxsize=KNOWN_INBOXES)
    def inbox(name: str) -> bool:
        return subject.fullmatch(name) is not None and not f"{name}.".startswith(never)

    def allowed(reply: str, owner: str) -> bool:
        name, _, last = reply.rpartition(".")
        if last.isalnum() and inbox(name):
            return reply not in prefixes
        return subject.fullmatch(reply) is not None and not reply.startswith(never) and reply not in prefixes

    return allowed


def _inbox_of(owner: str) -> str:
    """Return the prefix of an owner's inbox.

    Trusted callers name a plugin in the payload and have inboxes of their own: any inbox but ours is allowed.
    """
    return f"_INBOX.{owner.replace('/', '.')}." if owner else "_INBOX."


def _in_inbox(reply: str, inbox: str, rest: re.Pattern[str]) -> bool:
    if inbox == "_INBOX." and reply.startswith(_RESERVED):
        return False
    return reply.startswith(inbox) and rest.fullmatch(reply[len(inbox) :]) is not None
