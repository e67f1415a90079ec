"""The requests that a transfer of a blob is made of, each in the queue of its plugin.

A transfer over HTTP takes the steps that a client over NATS takes: `head` and `get_part`, or `begin`,
`put_part` and `commit`. So it shares queues, turns, rates and budgets with all other requests, part by part.

Law: a step that is refused because the plugin is busy or asks too often is taken again after a while, since
the client can't continue in the middle of a body. Nothing is decided here.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.edges.calls import FAMILIES
from holdfast.edges.http.spoken import HttpDialect
from holdfast.edges.intake.lines import Request
from holdfast.errors import HoldfastError, Transient
from holdfast.wire.blobs import blob_message, blob_result, part_fields, part_of
from holdfast.wire.replies import row_of
from holdfast.wire.subjects import Route

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from holdfast.commands import Result, WriteCommand
    from holdfast.edges.http.routes import PathOwner
    from holdfast.rows import Address, Row

ATTEMPTS: Final = 5
"""Number of times that a step is taken before the transfer fails."""
PAUSE: Final = 0.2
"""Seconds before a step is taken again if the refusal names no time."""
_STORING: Final = frozenset({"put", "commit"})

Answer = tuple[dict[str, Any], HoldfastError | None]


class TransferCaller(NamedTuple):
    """The caller of a transfer: whose blobs they are, and the suffix of the caller's principal."""

    place: PathOwner
    user: str


class BlobSteps:
    """The steps of one transfer.

    Args:
        caller: The caller.
        queue: Queues a request of this door and returns its answer.
        deadline: The fields of the caller's deadline, which holds for the step that stores the blob.
    """

    def __init__(
        self,
        caller: TransferCaller,
        queue: Callable[[Callable[..., Request]], Awaitable[Answer]],
        deadline: Mapping[str, Any],
    ) -> None:
        self._caller = caller
        self._queue = queue
        self._deadline = deadline
        self.taken = False
        """True once a step was queued: a refusal is recorded already."""

    async def execute(self, command: WriteCommand) -> Result:
        """Execute a command on blobs."""
        verb, fields = blob_message(command)
        if verb in _STORING:
            fields |= self._deadline
        result: Result = blob_result(command, await self._ask(verb, fields))
        return result

    async def head(self, key: str) -> dict[str, Any]:
        """Return the reply that describes a blob."""
        return await self._ask("head", {"key": key, **self._deadline})

    async def get_at(self, namespace: str, key: str) -> tuple[Row | None, int]:
        """Return the row of a blob's entry; see `Pipeline.get_at`."""
        fields = await self._ask("head", {"key": key})
        return (row_of(fields), 0) if fields["exists"] else (None, 0)

    async def parts(self, addresses: Sequence[Address]) -> list[Row | None]:
        """Return parts of a blob; see `Pipeline.parts`."""
        return await asyncio.gather(*map(self._part, addresses))

    async def _part(self, address: Address) -> Row | None:
        fields = await self._ask("get_part", part_fields(address))
        return part_of(fields) if fields["exists"] else None

    async def _ask(self, name: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Take a step. The first one is refused at once, as any other request would be."""
        data = fields.pop("data", None)
        attempts = ATTEMPTS if self.taken else 1
        self.taken = True
        while True:
            attempts -= 1
            try:
                return await self._once(name, fields, data)
            except Transient as refusal:
                if not attempts:
                    raise
                await asyncio.sleep(PAUSE if refusal.retry_after is None else refusal.retry_after)

    async def _once(self, name: str, fields: dict[str, Any], data: bytes | None) -> dict[str, Any]:
        place, user = self._caller
        dialect = HttpDialect(name="http", given=fields, told=None if data is None else b"{}")
        verb = FAMILIES[place.family][name]
        made = partial(
            Request,
            line=place.owner,
            route=Route(dialect, name, place.namespace, place.owner, place.root, family=place.family),
            reply="",
            payload=data or b"",
            began=time.perf_counter(),
            verb=verb,
            writes=verb.in_order,
            user=user,
        )
        reply, error = await self._queue(made)
        if error is not None:
            raise error
        return reply
