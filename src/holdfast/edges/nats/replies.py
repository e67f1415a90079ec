"""The messages that a service sends: replies, refusals and events.

The request log sees the same result as the caller, even when the reply turns out to be too large. Nothing
here waits for the connection. A message that the connection cannot accept is dropped and counted: the caller
times out, and a watcher reads the changes itself.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from holdfast.bounded import Bounded
from holdfast.bus.protocol import block
from holdfast.errors import HoldfastError, InternalError, ValueTooLarge
from holdfast.families import has_tables, is_semantic
from holdfast.handles.table_fields import change_fields as item_change_fields
from holdfast.wire import subjects
from holdfast.wire.blobs import FIELDS, fields_text
from holdfast.wire.dialects import PLUGIN, SEMANTIC, Dialect
from holdfast.wire.errors import NUMBERS
from holdfast.wire.replies import record_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.bus.connection import Connection
    from holdfast.edges.intake.lines import Request
    from holdfast.edges.intake.request_log import RequestLog
    from holdfast.rows import Record

HEADROOM = 4096
"""Bytes reserved for the headers and the protocol overhead of a reply."""
KNOWN_NAMES = 4_096
"""Number of plugins and projects whose handles are cached; handles of others are created again."""


class Answers:
    """Encodes replies and events and sends them.

    Args:
        now: Returns the store's time, which every reply carries.
        client: The common connection. A reply goes over the connection that its request came from.
        request_log: Logs and counts every operation.
        prefix: The prefix of event subjects.
    """

    def __init__(
        self, now: Callable[[], int], client: Connection, *, request_log: RequestLog, prefix: str
    ) -> None:
        self._now = now
        self._client = client
        self._request_log = request_log
        self._prefix = prefix
        self._told = -1
        self._head = b""
        self.over: Bounded[str, Connection] = Bounded(KNOWN_NAMES)
        """The connections for events of namespaces that do not use the common connection. A plugin that does
        not read its events then delays only its own requests."""
        self.events = 0
        self.unsent = 0
        self.patient = False
        """True while replies may be delayed briefly, to be sent together with the next ones."""

    def finish(self, request: Request, answer: dict[str, Any] | Exception) -> None:
        """Answer a request with fields or with an error, and log the request."""
        seconds = time.perf_counter() - request.began
        fields, error = (answer, None) if isinstance(answer, dict) else ({}, _told(answer))
        if request.reply:
            error = self._reply(request, fields, error)
        elif request.back is not None:
            # An error leads to the request by way of its traceback: nothing may lead from there to the error,
            # since requests are not garbage-collected.
            back, request.back = request.back, None
            back(fields, error)
        request.endpoint.count(seconds, None if error is None else error.code)
        self._request_log.done(request, seconds, hit=fields.get("exists"), error=error)

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

    def _reply(
        self, request: Request, fields: dict[str, Any], error: HoldfastError | None
    ) -> HoldfastError | None:
        """Reply with fields or an error. Returns the error that the caller receives."""
        if "data" in fields and request.route.family == "blob":
            self._reply_bytes(request, fields)
            return None
        dialect, most = request.route.dialect, request.client.max_payload - HEADROOM
        payload = dialect.reply(fields) if error is None else dialect.refusal(error)
        if len(payload) > most and request.writes and "results" in fields:
            # The writes have been committed. The caller must learn that, even if the details do not fit.
            payload = dialect.reply({"results": [_bare(result) for result in fields["results"]]})
        if len(payload) > most:
            error = error or ValueTooLarge(
                f"the reply has {len(payload)} bytes, more than the NATS server accepts"
            )
            payload = dialect.refusal(error, bare=True)
        self._send(request.client, request.reply, payload, error, dialect, warning=request.warning)
        return error

    def _reply_bytes(self, request: Request, fields: dict[str, Any]) -> None:
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
        now = self._now()
        if now != self._told:  # replies within one millisecond share a header
            self._told, self._head = now, b"NATS/1.0\r\nHoldfast-Time: %d\r\n\r\n" % now
        head = self._head
        if error is not None or warning:
            head = block(_time(now) | _warning(warning) | _complaint(error, dialect))
        if not client.send(reply, payload, head=head, patient=self.patient):
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


def _told(error: Exception) -> HoldfastError:
    """Return the error that the caller receives. Details of unexpected errors are hidden."""
    if isinstance(error, HoldfastError):
        return error
    told = InternalError("internal error; see the service log")
    told.__cause__ = error
    return told


def _one_line(message: str) -> str:
    """Return a message as valid text for a header."""
    return message.encode("ascii", "backslashreplace").decode().replace("\r", " ").replace("\n", " ")
