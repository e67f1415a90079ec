"""The part of a service that all doors share: it accepts requests, queues, starts and finishes them.

A request waits in its plugin's queue. In its turn it is decoded: a write is handed to the store's batcher, a
get is answered at once where possible, and anything else becomes a task. The order of a plugin's requests is
kept: a read of a key with a pending write runs after that write.

Each queue is bounded in number and bytes, and so are the requests under way of one plugin and of all
together. So a flood from one plugin fills only its own queue, and memory stays bounded.

A door decides who is asking and how an answer is sent; what a request means is decided behind the store.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from holdfast import seams, tracing
from holdfast.bounded import Bounded
from holdfast.commands import Result
from holdfast.declare import missing
from holdfast.edges.calls import FAMILIES, Verb, keys
from holdfast.edges.calls.unknown import unknown_field, unknown_fields, warning
from holdfast.edges.intake.request_log import KEPT, RequestLog
from holdfast.edges.intake.requests import (
    LONG,
    Answer,
    Endpoint,
    Request,
    deadline_of,
    hand_back,
    require_fitting,
)
from holdfast.engine import Later
from holdfast.errors import (
    Busy,
    Defect,
    HoldfastError,
    InternalError,
    InvalidSubject,
    OutcomeUnknown,
    Unavailable,
)
from holdfast.handles.kv import KV
from holdfast.pace import COMPANY_SECONDS, IN_A_GROUP, IN_COMPANY, OWN_STARTED, STARTED, TO_GATHER, Turn
from holdfast.pipeline.rates import Rates
from holdfast.rows import Row
from holdfast.store import Store
from holdfast.tracing import Trace
from holdfast.wire import subjects
from holdfast.wire.blobs import with_data
from holdfast.wire.dialects import PAYLOAD, PLUGIN
from holdfast.wire.replies import row_fields
from holdfast.wire.subjects import Route
from holdfast.wire.writes import Write, written

if TYPE_CHECKING:
    from holdfast.handles.tables import Tables

LARGE: Final = 13
"""A request counts as one more for every 8 KB (a power of two) of its payload, because decoding and executing
a large one takes as long as many small ones."""

LARGE_IN_COMPANY: Final = 11
"""The same for what a plugin starts in a turn while others send requests too: one more for every 2 KB."""

ALL_WAITING: Final = 65_536
"""Maximum number of pending requests in total. Without payloads they would never reach the limit of bytes."""
KNOWN_NAMES: Final = 4_096
"""Number of plugins and projects whose handles are cached; handles of others are created again."""
ANSWERING: Final = 10.0
"""Seconds for which a stopping service continues to start requests that are waiting. With the grace periods
of the doors for reading and sending, it ends within the 30 seconds that orchestrators usually give it."""
OPEN: Final = "open"
"""The mode of a service that does not know who its callers are."""
TOKEN: Final = "token"
TOKEN_SIGN: Final = "#"
"""The mode of a principal that a token authenticates, and the sign before the token's id. No namespace and no
user of NATS begins with it, so that handles of different callers have different names."""
TRUSTED: Final = "trusted"
"""The principal of callers that name the plugin in the payload and may act for any plugin."""
GET: Final = keys.VERBS["get"]
"""The verb with a fast path beside the catalogue: all gets of a turn share one lookup."""

_log = logging.getLogger("holdfast.service")


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on pending requests and on requests under way."""

    waiting: int = 4_096
    waiting_bytes: int = 16 * 1024 * 1024
    all_waiting_bytes: int = 64 * 1024 * 1024
    under_way: int = 128
    all_under_way: int = 1_024


class PluginQueue(msgspec.Struct, eq=False):
    """The requests of one plugin. `begun` and `under_way` are weighted by size; see `LARGE`.

    `begun` counts what was started in turn `turn`, and what is left of large requests before it.
    """

    waiting: deque[Request] = msgspec.field(default_factory=deque)
    waiting_bytes: int = 0
    under_way: int = 0
    queued: bool = False
    reading: bool = False
    begun: int = 0
    turn: int = 0


class RequestScheduler:
    """Queues requests and starts them, taking turns between plugins.

    Args:
        begin: Starts a request. Returns True if it is under way; `done` is then called for it later.
        over: Called at the end of each turn.
        limits: Limits on pending requests and on requests under way.
    """

    def __init__(self, begin: Callable[[Request], bool], over: Callable[[], None], limits: Limits) -> None:
        self._begin = begin
        self._over = over
        self._limits = limits
        self._queues: dict[str, PluginQueue] = {}
        self._turns: deque[PluginQueue] = deque()
        self._bytes = 0
        self._waiting = 0
        self._under_way = 0
        self._scheduled = False
        self._turn = 0
        self._latest = ""
        self._most = limits.under_way  # current limit for one plugin
        self._company_until = 0.0
        self._idle: asyncio.Event | None = None
        # Requests start in a context of their own: none takes over the trace of the one that made a turn due.
        self._context = contextvars.Context()
        self._context.run(tracing.CURRENT.set, UNSET)

    @property
    def waiting(self) -> int:
        """The number of pending requests."""
        return self._waiting

    @property
    def under_way(self) -> int:
        """The number of requests that were started and are not answered yet."""
        return self._under_way

    def take(self, request: Request) -> bool:
        """Queue a request. Returns False if there is no room for it."""
        limits, size, owner = self._limits, len(request.payload), request.queue
        queue = self._queues.get(owner) or PluginQueue()
        if (
            len(queue.waiting) >= limits.waiting
            or queue.waiting_bytes + size > limits.waiting_bytes
            or self._bytes + size > limits.all_waiting_bytes
            or self._waiting >= ALL_WAITING
        ):
            return False
        self._queues[owner] = queue
        if owner != self._latest:  # two plugins compete when both asked recently
            if self._latest:
                self._company_until = request.began + COMPANY_SECONDS
            self._latest = owner
        self._most = limits.under_way
        if request.began < self._company_until and self._most > IN_COMPANY:
            self._most = IN_COMPANY
        queue.waiting.append(request)
        queue.waiting_bytes += size
        self._bytes += size
        self._waiting += 1
        self._enqueue(queue)
        return True

    def done(self, request: Request) -> None:
        """Record the end of a request that was under way."""
        queue = self._queues[request.queue]
        queue.under_way -= 1 + (len(request.payload) >> LARGE)
        self._under_way -= 1
        self._enqueue(queue)
        if not queue.waiting and not queue.under_way:
            self._leave(request.queue)

    def adopt(self, request: Request) -> None:
        """Count a request as under way that was started and expected to be answered at once."""
        queue = self._queues.setdefault(request.queue, PluginQueue())
        queue.under_way += 1 + (len(request.payload) >> LARGE)
        self._under_way += 1

    def withdraw(self) -> list[Request]:
        """Remove and return every pending request. Those under way go on."""
        withdrawn = [request for queue in self._queues.values() for request in queue.waiting]
        self._turns.clear()
        self._waiting = self._bytes = 0
        for owner, queue in list(self._queues.items()):
            queue.waiting.clear()
            queue.waiting_bytes, queue.queued = 0, False
            if not queue.under_way:
                self._leave(owner)
        return withdrawn

    async def drained(self) -> None:
        """Wait until no request is pending or under way."""
        while self._queues:
            self._idle = self._idle or asyncio.Event()
            await self._idle.wait()

    def _enqueue(self, queue: PluginQueue) -> None:
        if queue.waiting and not queue.queued and queue.under_way < self._most:
            queue.queued = True
            self._turns.append(queue)
        if self._turns and not self._scheduled and self._under_way < self._limits.all_under_way:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._pump, context=self._context)

    def _pump(self) -> None:
        """Start requests within the limits, one of each plugin in turn.

        A request that weighs more than a plugin may start in a turn takes up the next turns too.

        A read that becomes a task looks nothing up before the loop's next round. So a write that was sent
        after it is held back until then: the tasks are scheduled before the next pump is.
        """
        held: list[PluginQueue] = []
        self._turn = turn = self._turn + 1
        turns, most, all_most = self._turns, self._most, self._limits.all_under_way
        large = LARGE if most > IN_COMPANY else LARGE_IN_COMPANY
        for _ in range(STARTED):
            if not turns or self._under_way >= all_most:
                break
            queue = turns.popleft()
            if queue.turn != turn:
                if queue.begun:
                    queue.begun = max(0, queue.begun - OWN_STARTED * (turn - queue.turn))
                queue.turn, queue.reading = turn, False
            if queue.begun >= OWN_STARTED or (queue.reading and queue.waiting[0].writes):
                held.append(queue)
                continue
            request = queue.waiting.popleft()
            size = len(request.payload)
            weight = 1 + (size >> LARGE)
            queue.begun += 1 + (size >> large)
            queue.waiting_bytes -= size
            self._bytes -= size
            self._waiting -= 1
            if self._begin(request):
                queue.under_way += weight
                self._under_way += 1
                queue.reading = queue.reading or not request.writes
            queue.queued = bool(queue.waiting) and queue.under_way < most
            if queue.queued:
                turns.append(queue)
            elif not queue.waiting and not queue.under_way:
                self._leave(request.queue)
        self._over()
        turns.extend(held)
        self._scheduled = bool(turns) and self._under_way < all_most
        if self._scheduled:
            asyncio.get_running_loop().call_soon(self._pump, context=self._context)

    def _leave(self, owner: str) -> None:
        """Forget a plugin that has no requests left."""
        self._queues.pop(owner, None)
        if self._idle is not None and not self._queues:
            self._idle.set()
            self._idle = None


class RequestSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a service that do not depend on the door."""

    deadline_ms: int = 1_000
    slow_seconds: float = 0.1
    slow_walk_seconds: float = 0.5
    slow_kept: int = KEPT
    rate: float | None = None
    strict_fields: bool = False
    limits: Limits = Limits()


class Callers:
    """The handles with which a service acts for its callers: one for each caller and namespace.

    Args:
        store: The store.
        mode: The name of what authenticates callers without a token; `open` does not.
    """

    def __init__(self, store: Store, mode: str) -> None:
        self._store = store
        self._mode = mode
        self.handles: Bounded[str, KV] = Bounded(KNOWN_NAMES)
        """Handles by namespace and user."""
        self.trusted: Bounded[str, KV] = Bounded(KNOWN_NAMES)
        """The same for callers that name the plugin in the payload."""
        self.tables: Bounded[str, Tables] = Bounded(KNOWN_NAMES)

    def kv(self, request: Request, handles: Bounded[str, KV]) -> KV:
        """Make a handle on keys and keep it."""
        route, user = request.route, request.user
        owner = TRUSTED if route.dialect is PAYLOAD else route.owner
        verbs = self._store.pipeline.verbs(
            route.namespace, root=route.root, writer=route.owner, principal=self.principal(owner, user)
        )
        return handles.keep(route.namespace + user, KV(self._store.pipeline, verbs))

    def tables_of(self, request: Request) -> Tables:
        """Return the handle on tables for a request."""
        namespace, user = request.route.namespace, request.user
        tables = self.tables.get(namespace + user)
        if tables is None:
            owner = request.route.owner
            tables = self._store.tables_in(namespace, writer=owner, principal=self.principal(owner, user))
            self.tables.keep(namespace + user, tables)
        return tables

    def principal(self, owner: str, user: str) -> str:
        """Return the principal: the owner, and the mode that authenticates it (`open` does not)."""
        mode = TOKEN if user.startswith(TOKEN_SIGN) else self._mode
        return f"{mode}:{owner}{user}"


class RequestService:
    """Accepts the requests of all doors, so that they share queues, turns, rates and budgets.

    Args:
        store: An open store.
        settings: The settings; the defaults if not given.
        request_log: Logs and counts every operation.
        mode: The name of what authenticates callers without a token; `open` does not.
    """

    def __init__(
        self,
        store: Store,
        settings: RequestSettings | None = None,
        request_log: RequestLog | None = None,
        *,
        mode: str = OPEN,
    ) -> None:
        self._store = store
        self._pipeline = store.pipeline
        store.pipeline.in_groups_of(IN_A_GROUP, turns=TO_GATHER)
        self._settings = settings = settings or RequestSettings()
        self.id = seams.token(8)
        """The name of this instance."""
        self.request_log = request_log or RequestLog(
            slow=settings.slow_seconds, slow_walk=settings.slow_walk_seconds, kept=settings.slow_kept
        )
        self.now: Callable[[], int] = Turn(store.pipeline.now).now
        """Returns the store's time, read once in a turn of the loop."""
        self.patient = False
        """True while answers may be delayed briefly, to be sent together with the next ones."""
        self._scheduler = RequestScheduler(self._begin, self._answer_gets, settings.limits)
        self._glances = store.capabilities.glances
        self._gets: list[tuple[Request, KV]] = []
        self._callers = Callers(store, mode)
        self._handles, self._trusted = self._callers.handles, self._callers.trusted
        self._rated = settings.rate is not None
        self._rates = Rates(store.now, settings.rate, called="its rate")
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        """The number of pending requests."""
        return self._scheduler.waiting

    @property
    def under_way(self) -> int:
        """The number of requests that were started and are not answered yet."""
        return self._scheduler.under_way

    def accept(self, request: Request) -> None:
        """Queue a request, or refuse it. This does no other work, so that a door goes on reading."""
        if tracing.spans is not None:
            name = "unknown" if request.verb is None else request.route.verb
            request.span = tracing.spans.begin(name, request.trace, server=True)
            if request.span is not None:
                request.trace = request.span.trace
        if (self._rated and not self._admitted(request)) or not self._scheduler.take(request):
            self._refuse(request)

    async def ask(
        self,
        route: Route,
        payload: bytes,
        *,
        verb: Verb,
        endpoint: Endpoint,
        user: str = "",
        trace: Trace | UnsetType = UNSET,
    ) -> dict[str, Any]:
        """Queue a request and return the fields of its answer.

        Raises:
            HoldfastError: The request was refused.
        """
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.accept(
            Request(
                queue=route.owner,
                route=route,
                payload=payload,
                received=self.now(),
                began=seams.monotonic(),
                endpoint=endpoint,
                verb=verb,
                writes=verb.in_order,
                user=user,
                back=partial(hand_back, answer),
                trace=trace,
            )
        )
        fields, error = await answer
        if error is not None:
            raise error
        return fields

    def refused(self, where: str, error: HoldfastError) -> None:
        """Record a request that a door refused before it was known who is asking."""
        self.request_log.unrouted(where, error)

    async def stop(self) -> None:
        """Wait until every accepted request is answered. Those that still wait after a while are refused.

        The doors must have stopped passing on requests.
        """
        drained = asyncio.create_task(self._scheduler.drained())
        await asyncio.wait([drained], timeout=ANSWERING)
        if not drained.done():
            late = self._scheduler.withdraw()
            _log.warning(
                "stopping before executing %d requests that are waiting; they are refused", len(late)
            )
            for request in late:
                self._finish(request, Unavailable("the service is stopping: nothing was done; try again"))
        await drained
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _admitted(self, request: Request) -> bool:
        if request.route.family == "admin":
            return True
        request.wait = self._rates.take(request.queue, request.began)
        return request.wait == 0

    def _refuse(self, request: Request) -> None:
        if request.wait:
            error: HoldfastError = self._rates.refusal(request.queue, request.wait)
        else:
            error = Busy(f"too many requests of {request.queue} are waiting", retry_after=0.1)
        self._finish(request, error)

    def _begin(self, request: Request) -> bool:
        """Start a request. Returns True if it is under way, False if it has been answered."""
        collects = False
        before = None if request.trace is UNSET else tracing.CURRENT.set(request.trace)
        if request.span is not None and tracing.spans is not None:
            tracing.spans.record("queue", request.span.trace, request.span.began)
        try:
            if len(request.payload) > LONG:
                require_fitting(request)
                collects = gc.isenabled()
                gc.disable()  # see `uncollected`, which costs more
            verb, message = request.verb, None
            declaration = None if verb is None else verb.declaration
            if declaration is not None and request.route.dialect is PLUGIN and not request.head:
                try:
                    message = declaration.decode(request.payload)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    pass  # its fields show what is wrong, or they are those of a newer program
                else:
                    deadline = deadline_of(
                        request, message.deadline, message.deadline_ms, self.now(), self._settings.deadline_ms
                    )
                    if declaration.nested and (inner := declaration.inner(message)):
                        self._check_names(request, inner)
            if message is None:
                verb, fields = self._fields(request)
                if declaration is None:
                    return self._operate(request, verb, fields)
                message, deadline = declaration.of_fields(fields), fields["deadline"]
            assert verb is not None and declaration is not None  # noqa: PT018 - of what has a message
            route = request.route
            if route.family == "table":
                return self._table(request, verb, message, deadline)
            handles = self._trusted if route.dialect is PAYLOAD else self._handles
            kv = handles.get(route.namespace + request.user) or self._callers.kv(request, handles)
            if declaration.in_order:
                return self._write(request, written(declaration, kv.verbs, message, deadline))
            if verb is GET and self._get_at_once(request, kv, message.key):
                return False  # answered before the turn is over
            self._spawn(request, verb.answer(kv, message, deadline))
            return True
        except Exception as error:
            self._finish(request, error)
            return False
        finally:
            if collects:
                gc.enable()
            if before is not None:
                tracing.CURRENT.reset(before)

    def _fields(self, request: Request) -> tuple[Verb, dict[str, Any]]:
        """Return the verb and the fields of a request of any dialect, with the deadline that it gets here."""
        verb, route = request.verb, request.route
        fields = (
            with_data(request.head, request.payload)
            if request.head
            else route.dialect.fields(request.payload)
        )
        if route.dialect is PAYLOAD:
            request.route = subjects.identified(route, fields)
            del fields["plugin_name"]
        deadline = deadline_of(
            request, fields.get("deadline"), fields.get("deadline_ms"), self.now(), self._settings.deadline_ms
        )
        if verb is None:
            raise _no_verb(request)
        if not fields.keys() <= verb.plain:
            self._check_names(request, fields)
        fields["deadline"] = deadline
        return verb, fields

    def _check_names(self, request: Request, fields: Mapping[str, Any]) -> None:
        """Warn about fields that the verb does not know, or reject them in strict mode."""
        assert request.verb is not None
        names = unknown_fields(request.verb, fields)
        if not names:
            return
        spelled = request.route.dialect.spelled
        request.warning = warning(names, spelled)
        self.request_log.unknown_fields(request, len(names))
        if self._settings.strict_fields:
            raise unknown_field(names[0], spelled)

    def _write(self, request: Request, write: Write) -> bool:
        if write.command is None:
            self._finish(request, write.show(None))
            return False
        self._pipeline.submit(write.command, partial(self._written, request, write))
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
            self._scheduler.done(request)

    def _get_at_once(self, request: Request, kv: KV, key: object) -> bool:
        """Defer a get to the end of the turn, where one lookup answers all. Returns False if it can't be.

        Gets do not see the writes of their turn, which have not started. A get of a key with a pending write
        waits for that write.
        """
        if key is None or key is UNSET:
            raise missing("key")
        request.key = kv.verbs.key(key)
        if not self._glances or self._pipeline.writing(kv.namespace, request.key):
            return False
        self._pipeline.admit(kv.namespace)
        self._gets.append((request, kv))
        return True

    def _answer_gets(self) -> None:
        """Answer the gets of a turn.

        Where the storage has to be waited for, such as at a node of a cluster that does not hold the lease,
        they are answered as tasks, before the writes of the turn.
        """
        if not self._gets:
            return
        gets, self._gets = self._gets, []
        finish = self._finish
        began = 0 if tracing.spans is None else seams.wall_ns()
        try:
            rows = self._pipeline.glance([(kv.namespace, request.key) for request, kv in gets])
        except Exception as error:
            for request, _ in gets:
                finish(request, error)
            return
        if isinstance(rows, Later):
            for request, kv in gets:
                self._scheduler.adopt(request)
                self._spawn(request, self._awaited_get(request, kv))
            return
        if tracing.spans is not None:
            for request, _ in gets:
                if request.span is not None:
                    size = {tracing.GROUP_SIZE: len(gets)}
                    tracing.spans.record("engine", request.span.trace, began, size)
        # Under a mixed load the results of a commit are about to be sent. Sending gets along with them saves
        # the NATS server and the clients a wake-up.
        self.patient = self._pipeline.busy
        try:
            for (request, _), row in zip(gets, rows, strict=True):
                try:
                    finish(request, row_fields(request.key, row))
                except Exception as error:  # the other gets, and the requests after them, have to go on
                    finish(request, error)
        finally:
            self.patient = False

    def _awaited_get(self, request: Request, kv: KV) -> Awaitable[Any]:
        """Return the call that answers a get once the storage does.

        A write of the key that is pending by now came after the get, which takes its place before it.
        """
        if self._pipeline.writing(kv.namespace, request.key):
            return _fields_of(request.key, self._pipeline.get_first(kv.namespace, request.key))
        answer: Awaitable[Any] = GET.call(kv, {"key": request.key})
        return answer

    def _table(self, request: Request, verb: Verb, message: Any, deadline: int | None) -> bool:
        """Run a call on tables as a task: every call looks something up, and some take long."""
        table = getattr(message, "table", None)
        request.key = table[:100] if isinstance(table, str) else ""
        self._spawn(request, verb.answer(self._callers.tables_of(request), message, deadline))
        return True

    def _operate(self, request: Request, verb: Verb, fields: Mapping[str, Any]) -> bool:
        arguments = {
            **fields,
            "principal": self._callers.principal(subjects.OPERATOR.lower(), request.user),
            "door": request.endpoint.name,
            "slow_log": partial(self.request_log.slow_log.page, instance=self.id),
        }
        self._spawn(request, verb.answer(self._store, arguments))
        return True

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
            self._scheduler.done(request)

    def _finish(self, request: Request, answer: dict[str, Any] | Exception) -> None:
        """Answer a request with fields or with an error, and log what the caller receives."""
        seconds = seams.monotonic() - request.began
        fields, error = (answer, None) if isinstance(answer, dict) else ({}, _reported(answer))
        if request.back is not None:
            error = request.back(request, fields, error)
        request.endpoint.count(seconds, None if error is None else error.code)
        self.request_log.done(request, seconds, hit=fields.get("exists"), error=error)
        if request.span is not None:
            _end_span(request, error)


def _end_span(request: Request, error: HoldfastError | None) -> None:
    assert request.span is not None
    request.span.end(
        None if error is None else error.code,
        failed=isinstance(error, Defect | OutcomeUnknown) or (error is not None and error.retryable),
        attributes={
            "db.system.name": "holdfast",
            "db.namespace": request.route.namespace,
            "db.operation.name": "unknown" if request.verb is None else request.route.verb,
            "db.holdfast.door": request.endpoint.name,
        },
    )


async def _fields_of(key: str, row: Awaitable[Row | None]) -> Any:
    return row_fields(key, await row)


def _no_verb(request: Request) -> InvalidSubject:
    """Return the refusal of an unknown verb, and remove it from the request: logs must not contain it."""
    verb = request.route.verb
    request.route = msgspec.structs.replace(request.route, verb="unknown")
    known = ", ".join(sorted(FAMILIES[request.route.family]))
    return InvalidSubject(f"there is no verb {verb[:60]!r}; known are {known}")


def _reported(error: Exception) -> HoldfastError:
    """Return the error that the caller receives. Details of unexpected errors are hidden."""
    if isinstance(error, HoldfastError):
        return error
    reported = InternalError("internal error; see the service log")
    reported.__cause__ = error
    return reported
