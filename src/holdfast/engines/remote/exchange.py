"""The exchange of a request and its reply with a service.

Law: by itself it repeats only reads that a lost connection left unanswered, and requests that the service did
not start because the clocks differed. A write without a reply is reported as `OutcomeUnknown`.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import rules
from holdfast.engines.remote.mailbox import Mailbox
from holdfast.errors import OutcomeUnknown, Timeout, Unavailable
from holdfast.families import is_semantic
from holdfast.wire.blobs import FIELDS, HEADER, fields_text
from holdfast.wire.dialects import ADMIN, PLUGIN, SEMANTIC, Dialect
from holdfast.wire.errors import error_of
from holdfast.wire.payload import decode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from holdfast.engines.remote.address import RemoteAddress
    from holdfast.engines.remote.mailbox import Late
    from holdfast.engines.remote.post import Post
    from holdfast.origin import Origin

_TOO_LATE = (Timeout.code, Timeout.code.lower())


class Exchange:
    """The part of the remote engine that sends requests.

    Args:
        address: The address of the service and the login.
        post: Carries requests and replies; None for NATS.
    """

    def __init__(self, address: RemoteAddress, post: Post | None = None) -> None:
        self._address = address
        self._mailbox: Post = Mailbox(address) if post is None else post

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
        fields = fields | self._deadline(seconds)
        if "data" in fields:
            payload, told = fields.pop("data"), fields_text(fields)
        else:
            payload, told = dialect.request(fields), None
        reply = await self._mailbox.ask(
            subject, payload, seconds=seconds, late=late, repeat=repeat, told=told
        )
        if HEADER in reply.head:
            return {**decode((reply.header(FIELDS) or "").encode()), "data": reply.data}
        return dialect.answer(reply.data)

    def _deadline(self, seconds: float) -> dict[str, int]:
        """Return the time by which the service must start, on its own clock, so that delays in transit count.

        Before the first reply its clock is assumed to be ours. If that is wrong, the reply is a TIMEOUT.
        """
        return {"deadline": int(self._mailbox.time() + seconds * 1000)}


def _no_reply(subject: str, seconds: float) -> Unavailable:
    return Unavailable(f"no reply from {subject} came within {seconds:g} s")
