"""A client of a service: it makes a message of a command, sends it, and makes the result of the reply.

By itself it repeats only reads that a lost connection left unanswered, and requests that the service did not
start because the clocks differed. A write without a reply is reported as `OutcomeUnknown`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import seams
from holdfast.commands import Done, Load, SetPolicy, WriteCommand, Written
from holdfast.errors import OutcomeUnknown, Timeout, Unavailable, Unsupported
from holdfast.families import has_blobs, has_tables
from holdfast.origin import origin_fields
from holdfast.stored import entry_of
from holdfast.wire.blobs import FIELDS, HEADER, blob_message, blob_result, fields_text
from holdfast.wire.errors import error_of
from holdfast.wire.payload import decode
from holdfast.wire.reads import READS
from holdfast.wire.replies import entry_fields
from holdfast.wire.writes import message_of, result_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from holdfast.client.transport import Late, Transport
    from holdfast.commands import Command
    from holdfast.origin import Origin
    from holdfast.wire.dialects import Dialect

_TOO_LATE = (Timeout.code, Timeout.code.lower())


class Client(ABC):
    """What clients over NATS and over HTTP have in common.

    Args:
        transport: Carries requests and replies.
        timeout: The seconds after which a call without a deadline gives up.
    """

    def __init__(self, transport: Transport, timeout: float) -> None:
        self.transport = transport
        self._timeout = timeout

    @abstractmethod
    async def ready(self) -> None:
        """Ask the service whether it is ready.

        Raises:
            HoldfastError: It is not, or nobody answers.
        """

    @abstractmethod
    def hint(self, namespace: str, ring: Callable[[], None]) -> Callable[[], None]:
        """Call a function whenever something may have changed. Returns the function that ends this."""

    @abstractmethod
    def _place(self, namespace: str, verb: str) -> tuple[Dialect, str]:
        """Return where a verb of a namespace is called, and in which dialect."""

    @abstractmethod
    def _operators_place(self, verb: str) -> tuple[Dialect, str]:
        """Return where a verb of operators is called, and in which dialect."""

    async def call(self, command: Command, now: Callable[[], int]) -> Any:
        """Have a command executed or answered by the service.

        Args:
            command: The command.
            now: Returns the store's time, from which the command's deadline counts.

        Returns:
            The command's result.

        Raises:
            HoldfastError: The command was refused.
            OutcomeUnknown: No reply to a write came in time.
        """
        if not isinstance(command, WriteCommand):
            if command.declaration is None:
                raise Unsupported("the service itself does the upkeep")
            verb, fields = command.declared.name, command.declared.fields_of(command)
            return _result(command, await self.ask(command.namespace, verb, fields))
        seconds = self._left(command.origin, now)
        if isinstance(command, Load | SetPolicy):
            return await self._operate(command, seconds)
        verb, fields = _message(command)
        late = None if fields.get("dry_run") else self._unknown(verb, seconds)
        return _result(command, await self.ask(command.namespace, verb, fields, late, seconds))

    async def _operate(self, command: Load | SetPolicy, seconds: float) -> Written | Done:
        """Have one of the commands executed that are verbs of operators."""
        fields: dict[str, Any] = {"namespace": command.namespace} | origin_fields(command.origin)
        if isinstance(command, SetPolicy):
            fields["policy"] = msgspec.Raw(command.policy.encode())
            await self.ask_operator("set_policy", fields, self._unknown("set_policy", seconds), seconds)
            return Done()
        fields["entries"] = [entry_fields(entry_of(key, row)) for key, row in command.entries]
        fields["keep_versions"] = command.keep_versions
        late = self._unknown("load", seconds)
        return Written((await self.ask_operator("load", fields, late, seconds))["written"])

    async def operator(self, verb: str, fields: dict[str, Any], *, writes: bool = False) -> Mapping[str, Any]:
        """Return the reply to a verb of operators. The service decides whether its caller may use it."""
        return await self.ask_operator(verb, fields, self._unknown(verb) if writes else None)

    def ask(
        self,
        namespace: str,
        verb: str,
        fields: dict[str, Any],
        late: Late | None = None,
        seconds: float | None = None,
    ) -> Awaitable[Mapping[str, Any]]:
        """Return the reply to a verb of a namespace. A call without `late` may be repeated."""
        return self._exchange(self._place(namespace, verb), fields, late, seconds)

    def ask_operator(
        self, verb: str, fields: dict[str, Any], late: Late | None = None, seconds: float | None = None
    ) -> Awaitable[Mapping[str, Any]]:
        """Return the reply to a verb of operators. A call without `late` may be repeated."""
        return self._exchange(self._operators_place(verb), fields, late, seconds)

    def _left(self, origin: Origin, now: Callable[[], int]) -> float:
        """Return the seconds until the call's deadline or, if it has none, the timeout of the address.

        Raises:
            Timeout: The deadline has passed.
        """
        if origin.deadline is msgspec.UNSET:
            return self._timeout
        seconds = (origin.deadline - now()) / 1000
        if seconds <= 0:
            raise Timeout("the deadline passed before the request was sent: nothing was done")
        return seconds

    def _unknown(self, verb: str, seconds: float | None = None) -> Late:
        within = self._timeout if seconds is None else seconds
        return lambda: OutcomeUnknown(
            f"no reply to {verb} came within {within:g} s: it may or may not have been done"
        )

    async def _exchange(
        self,
        place: tuple[Dialect, str],
        fields: dict[str, Any],
        late: Late | None,
        seconds: float | None = None,
        *,
        repeat: bool = False,
    ) -> Mapping[str, Any]:
        seconds = self._timeout if seconds is None else seconds
        if late is None:
            repeat = True
            late = partial(_no_reply, place[1], seconds)
        end = seams.monotonic() + seconds
        reply = await self._attempt(place, fields, seconds, late, repeat=repeat)
        if reply.get("error_code") in _TOO_LATE and (left := end - seams.monotonic()) > 0:
            # The deadline has not passed by our clock, so the service's clock has jumped. Nothing was done:
            # retry.
            self.transport.relearn_time()
            reply = await self._attempt(place, fields, left, late, repeat=repeat)
        if not reply["success"]:
            raise error_of(reply)
        return reply

    async def _attempt(
        self, place: tuple[Dialect, str], fields: dict[str, Any], seconds: float, late: Late, *, repeat: bool
    ) -> Mapping[str, Any]:
        dialect, subject = place
        fields = fields | self._deadline(seconds)
        text = None
        if "data" in fields:
            payload, text = fields.pop("data"), fields_text(fields)
        else:
            payload = dialect.request(fields)
        reply = await self.transport.ask(
            subject, payload, seconds=seconds, late=late, repeat=repeat, fields=text
        )
        if HEADER in reply.head:
            return {**decode((reply.header(FIELDS) or "").encode()), "data": reply.data}
        return dialect.answer(reply.data)

    def _deadline(self, seconds: float) -> dict[str, int]:
        """Return the time by which the service must start, on its own clock, so that delays in transit count.

        Before the first reply its clock is assumed to be ours. If that is wrong, the reply is a TIMEOUT.
        """
        return {"deadline": int(self.transport.time() + seconds * 1000)}


def _message(command: WriteCommand) -> tuple[str, dict[str, Any]]:
    """Return the verb of a write and the fields of its message."""
    declaration = command.declared
    if has_tables(command.namespace):
        # late: tables take 5 ms to import, and few programs have any
        from holdfast.wire import tables

        return declaration.name, tables.message_of(command)
    if not declaration.in_order:
        return declaration.name, declaration.fields_of(command) | origin_fields(command.origin)
    return (blob_message if has_blobs(command.namespace) else message_of)(command)


def _result(command: Any, reply: Mapping[str, Any]) -> Any:
    """Return the result of a command in the reply to its message."""
    if has_tables(command.namespace):
        # late: tables take 5 ms to import, and few programs have any
        from holdfast.wire import tables

        return tables.result_of(command, reply)
    codec = READS.get(command.declared.reply)
    if codec is not None:
        return codec.read(command, reply)
    return (blob_result if has_blobs(command.namespace) else result_of)(command, reply)


def _no_reply(subject: str, seconds: float) -> Unavailable:
    return Unavailable(f"no reply from {subject} came within {seconds:g} s")
