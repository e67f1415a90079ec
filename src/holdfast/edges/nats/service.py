"""The service: receives messages, applies them to a store, and sends replies and events.

A message is routed by its subject and waits in its plugin's queue. In its turn it is decoded: a write is
handed to the store's batcher, a get is answered at once where possible, and anything else becomes a task. The
order of a connection is kept: one subscription serves a prefix and family, and a read of a key with a pending
write runs after that write.

Law: the service decides nothing about data. It decides who is asking, whether the deadline has passed, and
where the reply may go.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.bus.errors import Lost
from holdfast.edges.calls import FAMILIES
from holdfast.edges.calls.unknown import unknown_field, unknown_fields, warning
from holdfast.edges.intake.deadlines import deadline_of
from holdfast.edges.intake.large import LONG, starting
from holdfast.edges.intake.lines import Intake, Limits, Request
from holdfast.edges.intake.request_log import RequestLog
from holdfast.edges.intake.slow import KEPT
from holdfast.edges.nats.callers import Callers
from holdfast.edges.nats.discovery import Micro
from holdfast.edges.nats.draining import answered, drain, flush
from holdfast.edges.nats.gets import GET, Gets
from holdfast.edges.nats.replies import Answers
from holdfast.edges.nats.reply_guard import reply_guard
from holdfast.edges.nats.subscriptions import Listening
from holdfast.edges.nats.users import user_of
from holdfast.errors import Busy, HoldfastError, InvalidSubject
from holdfast.pace import IN_A_GROUP, TO_GATHER, Turn
from holdfast.pipeline.rates import Rates
from holdfast.wire import subjects
from holdfast.wire.blobs import with_data
from holdfast.wire.dialects import PAYLOAD, PLUGIN, Dialect
from holdfast.wire.writes import written

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.bus.connection import Connection, Subscription
    from holdfast.bus.protocol import Message
    from holdfast.commands import Result
    from holdfast.declare import Declaration
    from holdfast.edges.calls import Verb
    from holdfast.edges.nats.subscriptions import Listener
    from holdfast.store import Store
    from holdfast.wire.writes import Write

_log = logging.getLogger("holdfast.service")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a service. With `plugin` it serves that plugin alone and publishes no events."""

    plugin: str | None = None
    prefixes: tuple[str, ...] = ("db", "rosey.db")
    reply_mode: str = "open"
    payload_dialect: bool = True
    request_users: bool = False
    events: bool = True
    deadline_ms: int = 1_000
    slow_seconds: float = 0.1
    slow_walk_seconds: float = 0.5
    slow_kept: int = KEPT
    rate: float | None = None
    strict_fields: bool = False
    limits: Limits = Limits()


class NatsService:
    """Serves a store over a connection.

    Args:
        store: An open store.
        client: A connected client; its owner closes it.
        settings: The settings.
        request_log: Logs and counts every operation.
        beside: Another service of this process. It starts and answers the requests of both, so that they
            share queues, turns and rates. It must be stopped after this one.
    """

    def __init__(
        self,
        store: Store,
        client: Connection,
        settings: Settings,
        request_log: RequestLog | None = None,
        *,
        beside: NatsService | None = None,
    ) -> None:
        self._store = store
        store.in_groups_of(IN_A_GROUP, turns=TO_GATHER)
        self._client = client
        self._settings = settings
        self._request_log = request_log or RequestLog(
            slow=settings.slow_seconds, slow_walk=settings.slow_walk_seconds, kept=settings.slow_kept
        )
        self._users = settings.request_users
        self._guard = reply_guard(settings.reply_mode, settings.prefixes)
        self._now = Turn(store.now).now
        self._answers = Answers(self._now, client, request_log=self._request_log, prefix=settings.prefixes[0])
        self._finish = self._answers.finish
        self._beside = beside
        gets = Gets(store, self._answers, self._get_later)
        self._get_at_once = gets.take
        own = Intake(self._begin, gets.answer, settings.limits)
        self._intake: Intake = own if beside is None else beside._intake
        self._listening = Listening(
            settings.prefixes,
            plugin=settings.plugin,
            payload_dialect=settings.payload_dialect,
            anybody=settings.reply_mode == "open",
        )
        self._micro = Micro([one for found in self._listening.endpoints.values() for one in found.values()])
        self._callers = Callers(store, mode=settings.reply_mode, client=client, answers=self._answers)
        self._handles, self._trusted = self._callers.handles, self._callers.trusted
        self._rated = settings.rate is not None
        rates = Rates(store.now, settings.rate, called="its rate")
        self._rates: Rates = rates if beside is None else beside._rates
        self._subscriptions: defaultdict[Connection, list[Subscription]] = defaultdict(list)
        self._clients = [client]
        self._tasks: set[asyncio.Task[None]] = set()
        self.under_way = 0

    async def start(self) -> None:
        """Start answering requests; if the connection is lost meanwhile, as soon as it is back."""
        _log.info("the service is starting")
        self._listen(self._listening.common(self._client))
        for subject in self._micro.subjects():
            self._subscriptions[self._client].append(self._client.listen(subject, self._introduce))
        if self._settings.events and self._settings.plugin is None:
            self._store.listen(self._answers.publish_changes)
        try:
            await self._client.flush()
        except Lost:
            _log.warning("NATS dropped the connection while the service was starting; reconnecting")
        _log.info("subjects registered: %s", ", ".join(one.subject for one in self._micro.endpoints))

    def serve_links(self, client: Connection, numbers: Iterable[int]) -> None:
        """Serve the links with these numbers over an additional connection."""
        if client not in self._clients:
            self._clients.append(client)
        self._listen(self._listening.links(client, numbers))

    def _listen(self, heard: Iterable[tuple[str, Listener]]) -> None:
        for pattern, listener in heard:
            take = partial(self._take, listener)
            heard_at = listener.client.listen(pattern, take, queue=subjects.QUEUE)
            self._subscriptions[listener.client].append(heard_at)

    async def stop(self) -> None:
        """Accept no more requests, answer those already accepted, and stop.

        In a flood, those that still wait after some seconds are refused; see `draining`.
        """
        flooded = await drain(self._subscriptions)
        self._subscriptions.clear()
        if self._beside is None:
            await answered(self._intake, self._finish)
        while self._tasks:
            await asyncio.wait(self._tasks)
        await flush(self._clients)  # the event of a last write may come after its answer
        self._store.unlisten(self._answers.publish_changes)
        await flush(client for client in self._clients if client not in flooded)
        _log.info("the service has stopped")

    @property
    def client(self) -> Connection:
        """The common connection."""
        return self._client

    def now(self) -> int:
        """Return the store's time, read once in a turn of the loop."""
        return self._now()

    @property
    def waiting(self) -> int:
        """The number of pending requests."""
        return self._intake.waiting if self._beside is None else 0

    @property
    def unsent(self) -> int:
        """The number of replies and events that could not be sent."""
        return self._answers.unsent

    @property
    def events(self) -> int:
        """The number of published changes."""
        return self._answers.events

    def _take(self, listener: Listener, message: Message) -> None:
        """Queue a message. This does no other work, so that reading from the connection continues."""
        try:
            route = subjects.route(message.subject, listener.prefix)
        except HoldfastError as error:
            self._refuse_unrouted(
                listener, message, subjects.dialect_of(message.subject, listener.prefix), error=error
            )
            return
        if message.reply and not self._guard(message.reply, route.owner):
            self._request_log.dropped("reply_subject", message.subject)
            return
        endpoint = listener.endpoints.get(route.family)
        if endpoint is None:
            refusal = InvalidSubject(f"requests of the kind {route.family!r} are not accepted here")
            self._refuse_unrouted(listener, message, route.dialect, error=refusal)
            return
        user = user_of(message) if self._users else ""
        if route.dialect is PAYLOAD:
            route = subjects.presumed(route, message.data)
        verb = FAMILIES[route.family].get(route.verb)
        request = Request(
            line=route.owner,
            route=route,
            reply=message.reply,
            payload=message.data,
            received=self._now(),
            began=time.perf_counter(),
            endpoint=endpoint,
            client=listener.client,
            verb=verb,
            writes=verb is not None and verb.in_order,
            user=user,
            head=message.head if route.family == "blob" else b"",
        )
        self.accept(request)

    def accept(self, request: Request) -> None:
        """Queue a request, or refuse it: for this door and others of the process."""
        if (self._rated and not self._admitted(request)) or not self._intake.take(request):
            self._refuse_at_the_door(request)

    def refused(self, where: str, error: HoldfastError) -> None:
        """Record a request that another door refused before it was known who is asking."""
        self._request_log.unrouted(where, error)

    def _admitted(self, request: Request) -> bool:
        if request.route.family == "admin":
            return True
        request.wait = self._rates.take(request.line, request.began)
        return request.wait == 0

    def _refuse_at_the_door(self, request: Request) -> None:
        if request.wait:
            error: HoldfastError = self._rates.refusal(request.line, request.wait)
        else:
            error = Busy(f"too many requests of {request.line} are waiting", retry_after=0.1)
        self._finish(request, error)

    def _refuse_unrouted(
        self, listener: Listener, message: Message, dialect: Dialect, *, error: HoldfastError
    ) -> None:
        self._request_log.unrouted(message.subject, error)
        if message.reply and self._guard(message.reply, ""):
            self._answers.refuse(listener.client, message.reply, dialect, error=error)

    def _begin(self, request: Request) -> bool:
        """Start a request. Returns True if it is under way, False if it has been answered."""
        try:
            if len(request.payload) <= LONG:
                under_way = self._dispatch(request)
            else:
                with starting(request):
                    under_way = self._dispatch(request)
        except Exception as error:
            self._finish(request, error)
        else:
            self.under_way += under_way
            return under_way
        return False

    def _done(self, request: Request) -> None:
        self.under_way -= 1
        self._intake.done(request)

    def _dispatch(self, request: Request) -> bool:
        verb, route = request.verb, request.route
        if (
            verb is not None
            and (declaration := verb.declaration) is not None
            and route.dialect is PLUGIN
            and not request.head
        ):
            try:
                message = declaration.decode(request.payload)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                pass  # its fields show what is wrong, or they are those of a newer program
            else:
                return self._declared(request, verb, declaration, message)
        fields = (
            with_data(request.head, request.payload)
            if request.head
            else route.dialect.fields(request.payload)
        )
        if route.dialect is PAYLOAD:
            route = request.route = subjects.identified(route, fields)
            del fields["plugin_name"]
        asked = fields.get("deadline"), fields.get("deadline_ms")
        deadline = deadline_of(request, *asked, self._now(), self._settings.deadline_ms)
        if verb is None:
            raise self._no_verb(request)
        if not fields.keys() <= verb.plain:
            self._look_closer(request, verb, fields)
        if route.family == "admin":
            fields["deadline"] = deadline
            return self._operate(request, verb, fields)
        if route.family == "table":
            fields["deadline"] = deadline
            fields.pop("timeout", None)  # an argument of the Python API; unknown on the wire
            return self._table(request, verb, fields)
        handles = self._trusted if route.dialect is PAYLOAD else self._handles
        kv = handles.get(route.namespace + request.user) or self._callers.kv(request, handles)
        if verb is GET and self._get_at_once(request, kv, fields.get("key")):
            return False  # answered before the turn is over
        fields["deadline"] = deadline
        if verb.in_order:
            return self._write(request, verb.answer(kv.verbs, fields))
        self._spawn(request, verb.answer(kv, fields))
        return True

    def _declared(self, request: Request, verb: Verb, declaration: Declaration, message: Any) -> bool:
        """Start a request whose fields are those that its verb declares, but for names within them."""
        route, asked = request.route, (message.deadline, message.deadline_ms)
        deadline = deadline_of(request, *asked, self._now(), self._settings.deadline_ms)
        if declaration.nested and (inner := declaration.inner(message)):
            self._look_closer(request, verb, inner)
        kv = self._handles.get(route.namespace + request.user) or self._callers.kv(request, self._handles)
        if verb is not GET:
            return self._write(request, written(declaration, kv.verbs, message, deadline))
        if self._get_at_once(request, kv, message.key):
            return False  # answered before the turn is over
        self._spawn(request, verb.answer(kv, {"key": request.key}))
        return True

    def _look_closer(self, request: Request, verb: Verb, fields: Mapping[str, Any]) -> None:
        """Warn about fields that the verb does not know, or reject them in strict mode."""
        found = unknown_fields(verb, fields)
        if not found:
            return
        spelled = request.route.dialect.spelled
        request.warning = warning(found, spelled)
        self._request_log.unknown_fields(request, len(found))
        if self._settings.strict_fields:
            raise unknown_field(found[0], spelled)

    def _write(self, request: Request, write: Write) -> bool:
        if write.command is None:
            self._finish(request, write.show(None))
            return False
        self._store.hand_over(write.command, partial(self._written, request, write))
        return True

    def _written(self, request: Request, write: Write, result: Result | HoldfastError) -> None:
        try:
            if isinstance(result, HoldfastError):
                self._finish(request, result)
            else:
                request.replayed = result.replayed
                self._finish(request, write.show(result))
        except Exception as error:
            self._finish(request, error)
        finally:
            self._done(request)

    def _get_later(self, request: Request, call: Any) -> None:
        """Answer a get as a task."""
        self.under_way += 1
        self._intake.adopt(request)
        self._spawn(request, call)

    def _table(self, request: Request, verb: Verb, fields: Mapping[str, Any]) -> bool:
        """Run a call on tables as a task: every call looks something up, and some take long."""
        table = fields.get("table")
        request.key = table[:100] if isinstance(table, str) else ""
        self._spawn(request, verb.answer(self._callers.tables_of(request), fields))
        return True

    def _operate(self, request: Request, verb: Verb, fields: Mapping[str, Any]) -> bool:
        known = {
            **fields,
            "principal": self._callers.principal(subjects.OPERATOR.lower(), request.user),
            "door": request.endpoint.name,
            "slow_log": partial(self._request_log.slow_log.page, instance=self._micro.id),
        }
        self._spawn(request, verb.answer(self._store, known))
        return True

    def _no_verb(self, request: Request) -> InvalidSubject:
        known = ", ".join(sorted(FAMILIES[request.route.family]))
        return InvalidSubject(f"there is no verb {_forget_verb(request)[:60]!r}; known are {known}")

    def _spawn(self, request: Request, call: Any) -> None:
        task = asyncio.create_task(self._call(request, call), name=f"holdfast {request.route.verb}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _call(self, request: Request, call: Any) -> None:
        try:
            self._finish(request, await call)
        except Exception as error:
            self._finish(request, error)
        finally:
            self._done(request)

    def _introduce(self, message: Message) -> None:
        if message.reply and self._guard(message.reply, subjects.OPERATOR):
            self._answers.send(message.reply, self._micro.answer(message.subject))


def _forget_verb(request: Request) -> str:
    """Return an unknown verb and remove it from the request, so that logs and counters never contain it."""
    verb = request.route.verb
    request.route = msgspec.structs.replace(request.route, verb="unknown")
    return verb
