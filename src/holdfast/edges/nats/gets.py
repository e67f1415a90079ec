"""The gets of a turn: one lookup answers all of them.

Law: gets do not see the writes of their turn, which have not started. A get of a key with a pending write
waits for that write, so it is not taken here. Where the storage has to be waited for, such as at a node of a
cluster that does not hold the lease, a get is answered as a task, before the writes of its turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from holdfast.declare import missing
from holdfast.edges.calls import keys
from holdfast.engine import Later
from holdfast.errors import HoldfastError
from holdfast.wire.replies import row_fields

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast.edges.intake.lines import Request
    from holdfast.edges.nats.replies import Answers
    from holdfast.handles.kv import KV
    from holdfast.rows import Row
    from holdfast.store import Store

GET: Final = keys.VERBS["get"]
"""The verb with a fast path beside the catalogue: all gets of a turn share one lookup."""


class Gets:
    """Collects the gets of a turn and answers them at its end.

    Args:
        store: The store that they read.
        answers: Sends the replies.
        later: Answers a request as a task, with the fields that a call returns.
    """

    def __init__(
        self, store: Store, answers: Answers, later: Callable[[Request, Awaitable[Any]], None]
    ) -> None:
        self._store = store
        self._answers = answers
        self._later = later
        self._glances = store.capabilities.glances
        self._gets: list[tuple[Request, KV]] = []

    def take(self, request: Request, kv: KV, key: object) -> bool:
        """Defer a get to the end of the turn. Returns False if it can't be."""
        if key is None or key is UNSET:
            raise missing("key")
        request.key = kv.verbs.key(key)
        if not self._glances or self._store.writing(kv.namespace, request.key):
            return False
        self._store.admit(kv.namespace)
        self._gets.append((request, kv))
        return True

    def answer(self) -> None:
        """Answer the gets of a turn."""
        if not self._gets:
            return
        gets, self._gets = self._gets, []
        finish = self._answers.finish
        try:
            rows = self._store.glance([(kv.namespace, request.key) for request, kv in gets])
        except HoldfastError as error:
            for request, _ in gets:
                finish(request, error)
            return
        if isinstance(rows, Later):
            for request, kv in gets:
                self._later(request, self._waited(request, kv))
            return
        # Under a mixed load the results of a commit are about to be sent. Sending gets along with them saves
        # the server and the clients a wake-up.
        self._answers.patient = self._store.busy
        try:
            for (request, _), row in zip(gets, rows, strict=True):
                try:
                    fields = row_fields(request.key, row)
                except HoldfastError as error:
                    finish(request, error)
                else:
                    finish(request, fields)
        finally:
            self._answers.patient = False

    def _waited(self, request: Request, kv: KV) -> Awaitable[Any]:
        """Return the call that answers a get once the storage does.

        A write of the key that is pending by now came after the get, which takes its place before it.
        """
        if self._store.writing(kv.namespace, request.key):
            return self._shown(request.key, self._store.get_first(kv.namespace, request.key))
        answer: Awaitable[Any] = GET.answer(kv, {"key": request.key})
        return answer

    async def _shown(self, key: str, found: Awaitable[Row | None]) -> Any:
        return row_fields(key, await found)
