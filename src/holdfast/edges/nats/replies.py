"""What a service says: the answer to a request, the refusal of a message, and events.

Law: who observes is told what the caller is told, also when the answer turns out not to fit. Nothing here
waits for the connection. What it can't take is dropped and counted: the caller has given up, and a watcher
looks for itself.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from holdfast.bounded import Bounded
from holdfast.bus.protocol import block
from holdfast.errors import HoldfastError, InternalError, ValueTooLarge
from holdfast.handles.table_fields import change_fields as item_change_fields
from holdfast.wire import subjects
from holdfast.wire.dialects import PLUGIN, SEMANTIC, Dialect
from holdfast.wire.errors import NUMBERS
from holdfast.wire.replies import record_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.bus.connection import Connection
    from holdfast.edges.nats.lines import Request
    from holdfast.edges.nats.request_log import Observer
    from holdfast.rows import Record

HEADROOM = 4096
"""What headers and the protocol may add to a reply."""
KNOWN_NAMES = 4_096
"""Of how many plugins and projects what serves them is kept; for others it is made again."""


class Answers:
    """Spells answers and events, and has them sent.

    Args:
        now: Tells the store's time, which goes with every answer.
        client: The common connection. A request is answered over the one that it came over.
        observer: Who is told of every operation.
        prefix: What the subjects of events begin with.
    """

    def __init__(
        self, now: Callable[[], int], client: Connection, *, observer: Observer, prefix: str
    ) -> None:
        self._now = now
        self._client = client
        self._observer = observer
        self._prefix = prefix
        self._told = -1
        self._head = b""
        self.over: Bounded[str, Connection] = Bounded(KNOWN_NAMES)
        """The connections over which events of a namespace go, where that is not the common one. Who does not
        read its events then holds up its own requests, and nobody else's."""
        self.events = 0
        self.unsent = 0
        self.patient = False
        """Whether what is answered now may wait a little, to go with what is answered soon."""

    def finish(self, request: Request, answer: dict[str, Any] | Exception) -> None:
        """Answer a request with fields or with an error, and tell who observes."""
        seconds = time.perf_counter() - request.began
        fields, error = (answer, None) if isinstance(answer, dict) else ({}, _told(answer))
        if request.reply:
            error = self._reply(request, fields, error)
        request.endpoint.count(seconds, None if error is None else error.code)
        self._observer.done(request, seconds, hit=fields.get("exists"), error=error)

    def refuse(self, client: Connection, reply: str, dialect: Dialect, *, error: HoldfastError) -> None:
        """Answer a message that is no request."""
        self._send(client, reply, dialect.refusal(error), error, dialect)

    def send(self, subject: str, payload: bytes) -> None:
        """Have a message sent over the common connection, if that can be."""
        if not self._client.send(subject, payload):
            self.unsent += 1

    def publish_changes(self, journal: list[Record]) -> None:
        """Tell whoever listens what has changed."""
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
        """Reply with fields or an error; returns the error that the caller is told."""
        dialect, most = request.route.dialect, request.client.max_payload - HEADROOM
        payload = dialect.reply(fields) if error is None else dialect.refusal(error)
        if len(payload) > most and request.writes and "results" in fields:
            # It has been done: who asked must learn that, rather than all that came with it.
            payload = dialect.reply({"results": [_bare(result) for result in fields["results"]]})
        if len(payload) > most:
            error = error or ValueTooLarge(
                f"the reply has {len(payload)} bytes, more than the server lets pass"
            )
            payload = dialect.refusal(error, bare=True)
        self._send(request.client, request.reply, payload, error, dialect, warning=request.warning)
        return error

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
        if now != self._told:  # the replies of a millisecond tell the same time
            self._told, self._head = now, block(_time(now))
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
    """What became of one of several writes, without the items or entries that it showed."""
    return {name: field for name, field in result.items() if name not in ("current", "item")}


def _event(record: Record) -> bytes:
    """A change as it is told, in the words of its family; never with the values that it changed."""
    if record.namespace.startswith("table/"):
        return PLUGIN.event(item_change_fields(record, "keys"))
    dialect = SEMANTIC if record.namespace.startswith("semantic/") else PLUGIN
    return dialect.event(record_fields(record))


def _told(error: Exception) -> HoldfastError:
    """What a caller is told of an error: of one that nobody foresaw, only that."""
    if isinstance(error, HoldfastError):
        return error
    told = InternalError("the request failed for a reason that Holdfast did not foresee")
    told.__cause__ = error
    return told


def _one_line(message: str) -> str:
    """A message as a header may hold it."""
    return message.encode("ascii", "backslashreplace").decode().replace("\r", " ").replace("\n", " ")
