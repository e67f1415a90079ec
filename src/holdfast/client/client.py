"""A client of a service: it makes a message of a command, sends it, and makes the result of the reply.

By itself it repeats only reads that a lost connection left unanswered, and requests that the service did not
start because the clocks differed. A write without a reply is reported as `OutcomeUnknown`.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from holdfast import seams
from holdfast.client.transport import Late, Transport
from holdfast.clock import Reading, SystemClock
from holdfast.commands import Command, Done, Load, ReadStats, Result, SetPolicy, WriteCommand, Written
from holdfast.errors import (
    HoldfastError,
    OutcomeUnknown,
    PermissionDenied,
    Timeout,
    Unavailable,
    Unsupported,
)
from holdfast.families import has_blobs, has_tables
from holdfast.origin import Origin, origin_fields
from holdfast.pipeline.caller import Service
from holdfast.pipeline.write_log import report
from holdfast.replies import StatsReply
from holdfast.rows import Address, Row
from holdfast.stored import entry_of
from holdfast.tracing import current
from holdfast.wire.blobs import (
    FIELDS,
    HEADER,
    fields_text,
    part_fields,
    part_of,
)
from holdfast.wire.dialects import Dialect
from holdfast.wire.errors import error_of
from holdfast.wire.payload import decode
from holdfast.wire.reads import READS
from holdfast.wire.replies import entry_fields, row_of
from holdfast.wire.writes import message_of, result_of

T = TypeVar("T")
_TOO_LATE = (Timeout.code, Timeout.code.lower())


class Client(Service):
    """What clients over NATS and over HTTP have in common.

    Args:
        transport: Carries requests and replies.
        timeout: The seconds after which a call without a deadline gives up.
    """

    def __init__(self, transport: Transport, timeout: float) -> None:
        super().__init__(SystemClock(), "")
        self.transport = transport
        self._timeout = timeout
        self._decided: Callable[[Command, Result | HoldfastError], None] | None = None
        self._knows_time = False

    async def open(self) -> None:
        """Connect. Only the first call shows whether a service answers there."""
        await self.transport.open()
        self._refusal = None

    async def aclose(self) -> None:
        """See `Caller.aclose`."""
        self.refuse()
        self._close_bells()
        await self.transport.close()

    def time(self) -> float | None:
        """See `Service.time`."""
        return self.transport.time() if self.transport.knows_time else None

    def observe(
        self,
        *,
        decided: Callable[[Command, Result | HoldfastError], None] | None,
        retried: Callable[[str, str, str], None] | None,
    ) -> None:
        """See `Service.observe`."""
        self._decided = decided
        self._retried = retried

    @abstractmethod
    def _place(self, namespace: str, verb: str) -> tuple[Dialect, str]:
        """Return where a verb of a namespace is called, and in which dialect."""

    @abstractmethod
    def _operators_place(self, verb: str) -> tuple[Dialect, str]:
        """Return where a verb of operators is called, and in which dialect."""

    async def call(self, command: Command) -> Any:
        """Have a command executed or answered by the service.

        Args:
            command: The command.

        Returns:
            The command's result.

        Raises:
            HoldfastError: The command was refused.
            OutcomeUnknown: No reply to a write came in time.
        """
        self._require_open()
        if not isinstance(command, WriteCommand):
            if isinstance(command, ReadStats):
                return READS[StatsReply].read(command, await self._stats(command.namespace))
            return await self._read(command)
        try:
            result = await self._write(command)
        except HoldfastError as error:
            self._tell(command, error)
            raise
        self._tell(command, result)
        return result

    async def get_at(self, namespace: str, key: str) -> tuple[Row | None, int]:
        """See `Caller.get_at`."""
        self._require_open()
        verb = "head" if has_blobs(namespace) else "get"
        return _taken_from(await self._ask(namespace, verb, {"key": key}), _row_in, verb), self.now()

    async def parts(self, addresses: Sequence[Address]) -> list[Row | None]:
        """See `Caller.parts`."""
        self._require_open()
        return await asyncio.gather(*map(self._part, addresses))

    async def _part(self, address: Address) -> Row | None:
        reply = await self._ask(address.namespace, "get_part", part_fields(address))
        return _taken_from(reply, _part_in, "get_part")

    async def _read(self, command: Command) -> Any:
        if command.declaration is None:
            raise Unsupported("the service itself does the upkeep")
        verb, fields = command.declared.name, command.declared.fields_of(command)
        reply = await self._ask(command.namespace, verb, fields)
        return _taken_from(reply, partial(_result, command), verb)

    async def _stats(self, namespace: str) -> Mapping[str, Any]:
        """Ask with the owner's verb. If that is refused, try the operators' verb."""
        try:
            return await self._ask(namespace, "stats", {})
        except (PermissionDenied, Unavailable) as refused:
            try:
                return await self._ask_operator("stats", {"namespace": namespace})
            except HoldfastError:
                raise refused from None

    async def _write(self, command: WriteCommand) -> Any:
        seconds = self._left(command.origin)
        if isinstance(command, Load | SetPolicy):
            return await self._operate(command, seconds)
        verb, fields = _message(command)
        late = None if fields.get("dry_run") else self._unknown(verb, seconds)
        reply = await self._ask(command.namespace, verb, fields, late, seconds)
        return _taken_from(reply, partial(_result, command), verb, repeat=late is None)

    def _tell(self, command: WriteCommand, result: Any) -> None:
        """Log a write as a store of this process would, and report it to the observer."""
        if has_tables(command.namespace):  # its result is what callers see, and not that of the command
            return
        report(command, result)
        if self._decided is not None:
            self._decided(command, result)

    async def _operate(self, command: Load | SetPolicy, seconds: float) -> Written | Done:
        """Have one of the commands executed that are verbs of operators."""
        fields: dict[str, Any] = {"namespace": command.namespace} | origin_fields(command.origin)
        if isinstance(command, SetPolicy):
            fields["policy"] = msgspec.Raw(command.policy.encode())
            await self._ask_operator("set_policy", fields, self._unknown("set_policy", seconds), seconds)
            return Done()
        fields["entries"] = [entry_fields(entry_of(key, row)) for key, row in command.entries]
        fields["keep_versions"] = command.keep_versions
        late = self._unknown("load", seconds)
        return Written((await self._ask_operator("load", fields, late, seconds))["written"])

    async def operator(self, verb: str, fields: dict[str, Any], *, writes: bool = False) -> Mapping[str, Any]:
        """See `Service.operator`."""
        self._require_open()
        return await self._ask_operator(verb, fields, self._unknown(verb) if writes else None)

    def _ask(
        self,
        namespace: str,
        verb: str,
        fields: dict[str, Any],
        late: Late | None = None,
        seconds: float | None = None,
    ) -> Awaitable[Mapping[str, Any]]:
        """Return the reply to a verb of a namespace. A call without `late` may be repeated."""
        return self._exchange(self._place(namespace, verb), fields, late, seconds)

    def _ask_operator(
        self, verb: str, fields: dict[str, Any], late: Late | None = None, seconds: float | None = None
    ) -> Awaitable[Mapping[str, Any]]:
        """Return the reply to a verb of operators. A call without `late` may be repeated."""
        return self._exchange(self._operators_place(verb), fields, late, seconds)

    def _left(self, origin: Origin) -> float:
        """Return the seconds until the call's deadline or, if it has none, the timeout of the address.

        Raises:
            Timeout: The deadline has passed.
        """
        if origin.deadline is msgspec.UNSET:
            return self._timeout
        seconds = (origin.deadline - self.now()) / 1000
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
        self._follow_time()
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
            subject, payload, seconds=seconds, late=late, repeat=repeat, fields=text, trace=current()
        )
        try:
            if HEADER in reply.head:
                return {**decode((reply.header(FIELDS) or "").encode()), "data": reply.data}
            answer = dialect.answer(reply.data)
            if isinstance(answer["success"], bool):
                return answer
        except (HoldfastError, LookupError, TypeError):
            pass
        raise _unreadable(subject, repeat=repeat)

    def _follow_time(self) -> None:
        """Follow the time of the service, which it sends with every reply. A clock moved by hand is right."""
        clock = self._clock
        if isinstance(clock, SystemClock) and self.transport.knows_time:
            reading = Reading(self.transport.time(), clock.ticks())
            if self._knows_time:
                clock.follow(reading)
            else:
                clock.start(reading)
                self._knows_time = True

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
    return message_of(command)


def _result(command: Any, reply: Mapping[str, Any]) -> Any:
    """Return the result of a command in the reply to its message."""
    if has_tables(command.namespace):
        # late: tables take 5 ms to import, and few programs have any
        from holdfast.wire import tables

        return tables.result_of(command, reply)
    codec = READS.get(command.declared.reply)
    if codec is not None:
        return codec.read(command, reply)
    return result_of(command, reply)


def _row_in(reply: Mapping[str, Any]) -> Row | None:
    return row_of(reply) if reply["exists"] else None


def _part_in(reply: Mapping[str, Any]) -> Row | None:
    return part_of(reply) if reply["exists"] else None


def _taken_from(
    reply: Mapping[str, Any], take: Callable[[Mapping[str, Any]], T], where: str, *, repeat: bool = True
) -> T:
    """Return what a function takes from a successful reply.

    Raises:
        HoldfastError: Fields are missing or wrong: something between here and the service made the reply.
    """
    try:
        return take(reply)
    except (LookupError, TypeError, ValueError) as error:
        raise _unreadable(where, repeat=repeat) from error


def _unreadable(where: str, *, repeat: bool) -> HoldfastError:
    """Return the error for a reply that no service sends."""
    said = f"the reply from {where} can't be read"
    if repeat:
        return Unavailable(said)
    return OutcomeUnknown(f"{said}: it may or may not have been done")


def _no_reply(subject: str, seconds: float) -> Unavailable:
    return Unavailable(f"no reply from {subject} came within {seconds:g} s")
