"""Writes that are repeated until they succeed, are refused for good, or are given up as dead letters.

    conflict     again after 1, 2, 4, 8, 16 and 32 s; the seventh is given up
    transient    again after a random part of 0.5, 1, 2 and 4 s, at least `retry_after`; the fifth is given up
    fatal        raised at once

One request id has one content, so that repeated attempts take effect once. Nothing is given up silently: it
is logged, counted, raised as `Escalated`, and stored in full if the storage allows.

`update` is a plain compare-and-set loop, for keys that many callers change at once. A lost race is repeated
at once from the winner's entry, which the refusal contains. Only a caller that keeps losing pauses.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from inspect import isawaitable
from typing import Any, Final, TypedDict, TypeVar

import msgspec
from msgspec import UNSET

from holdfast import rules, seams
from holdfast.commands import LetterStored, Result, WriteCommand
from holdfast.declare import DECLARED
from holdfast.errors import Escalated, HoldfastError, OutcomeUnknown, Transient, VersionConflict
from holdfast.handles.kv import KV, KeyWrites, entry_in
from holdfast.model import KEEP, Entry, Keep, Semantics
from holdfast.rules import MAX_REASON_CHARACTERS
from holdfast.verbs.keys import Verbs

CONFLICT_PAUSES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Seconds to wait after each conflict."""
TRANSIENT_PAUSES: Final = (0.5, 1.0, 2.0, 4.0)
"""Longest pauses after each transient error, in seconds. Each pause is a random part of it."""

UNCHANGED: Final = 8
"""How often the same version may be found instead of the same other one: a local read may lag behind."""

T = TypeVar("T")

_log = logging.getLogger("holdfast.retry")


AT_ONCE: Final = 8
"""Number of lost races that are repeated without a pause."""
LONGEST_PAUSE: Final = 0.05
"""Longest pause after further lost races, in seconds. The pause is a random part of it."""


class Attempts:
    """The failures of one write, and the pause before its next attempt."""

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random
        self._conflicts = iter(CONFLICT_PAUSES)
        self._transients = iter(TRANSIENT_PAUSES)
        self.failed = 0

    def pause(self, error: HoldfastError) -> float | None:
        """Return the seconds to wait after an error that may pass, or None to give up."""
        if isinstance(error, VersionConflict):
            return next(self._conflicts, None)
        most = next(self._transients, None)
        if most is None:
            return None
        retry_after = error.retry_after if isinstance(error, Transient) else None
        return max(self._random() * most, retry_after or 0.0)


class Retry(KeyWrites):
    """The writing verbs of a `KV`, repeated on conflicts and transient errors. Get it from `KV.retry`.

    A conflict is repeated after 1, 2, 4, 8, 16 and 32 seconds, a transient error after a random part of 0.5,
    1, 2 and 4 seconds. After that the write is kept as a dead letter and `Escalated` is raised. A write
    without a `request_id` or `once` gets an id, so that it takes effect at most once. A `timeout` is that of
    each attempt. A conflict is repeated unchanged; use `update` to compute the value again.

    Args:
        kv: The handle whose verbs are repeated.
        sleep: Waits for a number of seconds.
        random: Returns a number from 0 to below 1.
        count: Called with `retried`, `fatal` or `escalated` and the code of the error.

    Raises:
        Escalated: By every verb, if a conflict or a transient error has not passed.
        HoldfastError: By every verb at once, if any other error occurs.
    """

    def __init__(
        self,
        kv: KV,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Callable[[], float] | None = None,
        count: Callable[[str, str], None] | None = None,
    ) -> None:
        self._kv = kv
        self.verbs: Verbs = kv.verbs
        self._sleep = sleep
        self._random = seams.uniform if random is None else random
        self._count = count

    async def update(
        self,
        key: str,
        change: Callable[[Entry | None], Any],
        *,
        ttl: int | Keep | None = KEEP,
        semantics: Semantics | Mapping[str, Any] | None = None,
        writer: str | None = None,
        spec_ref: str | None = None,
        fence: Mapping[str, Any] | None = None,
        once: str | None = None,
    ) -> Entry:
        """Read an entry, compute its new value and set it, repeating this if other writers interfere.

        Each computed value is a request of its own. The last one is kept as a dead letter if the update
        fails.

        Args:
            key: The entry's key.
            change: Takes the entry, or None if there is none, and returns the new value. It may be called
                several times. If it raises, nothing is written and `update` raises the same.
            ttl: Seconds until the entry expires; None for never; the entry keeps its deadline if not given.
            semantics: Why the entry exists and for whom; the entry keeps its semantics if not given.
            writer: Name of the writer.
            spec_ref: The document that governs the entry.
            fence: The lock that the write relies on.
            once: Names what the update is for. If it is known, the first entry is returned, and what
                `change` returns is not written.

        Returns:
            The new entry.

        Raises:
            Escalated: A conflict or a transient error has not passed.
            VersionConflict: A conflict does not change between attempts, so that no attempt can help.

        Example:
            `await kv.retry.update("hits", lambda entry: 1 if entry is None else entry.value + 1)`
        """
        attempts = Attempts(self._random)
        refusals: list[tuple[int, int | None]] = []
        known: dict[str, Any] = {"writer": writer, "spec_ref": spec_ref, "fence": fence, "once": once}
        while True:
            entry = await self._repeated(attempts, partial(self._kv.get, key), None)
            fields = known | {
                "key": key,
                "value": change(entry),
                "ttl": ttl,
                "expected_version": 0 if entry is None else entry.version,
                "semantics": kept_semantics(entry) if semantics is None else semantics,
            }
            command = self._made("set", fields)
            try:
                return entry_in(await self._repeated(attempts, self._doing(command), command, anew=True))
            except VersionConflict as conflict:
                try:
                    require_progress(key, entry, conflict, refusals)
                except VersionConflict as hopeless:
                    self._tell_fatal(hopeless, command)
                    raise
                await self._wait(attempts, conflict, command)

    async def _perform(self, verb: str, **fields: Any) -> Result:
        command = self._made(verb, fields)
        doing = self._doing(command, timeout=fields.get("timeout"))
        return await self._repeated(Attempts(self._random), doing, command)

    def _made(self, verb: str, fields: Mapping[str, Any]) -> WriteCommand:
        """Build the command once, so that a caller changing the value meanwhile affects no attempt."""
        try:
            known = dict(fields)
            if fields.get("once") is None:
                known["request_id"] = fields.get("request_id") or seams.token(16)
            command: WriteCommand = DECLARED[verb].call(self.verbs, **known)
        except HoldfastError as error:
            self._tell_fatal(error, None)
            raise
        return command

    def _doing(self, command: WriteCommand, *, timeout: float | None = None) -> Callable[[], Awaitable[Any]]:
        """Return a function that executes a command. With a timeout, each attempt gets its own deadline."""
        if timeout is None:
            return partial(self._kv.store.call, command)

        def attempt() -> Awaitable[Any]:
            origin = msgspec.structs.replace(command.origin, deadline=self._kv.verbs.deadline(timeout))
            return self._kv.store.call(msgspec.structs.replace(command, origin=origin))

        return attempt

    async def _repeated(
        self,
        attempts: Attempts,
        call: Callable[[], Awaitable[T]],
        command: WriteCommand | None,
        *,
        anew: bool = False,
    ) -> T:
        """Repeat a call until it succeeds. With `anew`, a conflict is raised for the caller to recompute."""
        while True:
            try:
                return await call()
            except HoldfastError as error:
                if anew and _is_race(error):
                    raise
                await self._wait(attempts, error, command)

    async def _wait(self, attempts: Attempts, error: HoldfastError, command: WriteCommand | None) -> None:
        """Wait for the next attempt, or raise the error that ends the retries."""
        attempts.failed += 1
        if not _is_race(error) and not isinstance(error, (Transient, OutcomeUnknown)):
            self._tell_fatal(error, command)
            raise error
        pause = attempts.pause(error)
        if pause is None:
            raise await self._escalated(attempts.failed, error, command) from error
        self._tell("retried", error)
        _log.info(
            "%s in %s: attempt %d failed, the next is in %.3f s",
            error.code,
            self._place(command),
            attempts.failed,
            pause,
        )
        await self._sleep(pause)

    async def _escalated(self, failed: int, error: HoldfastError, command: WriteCommand | None) -> Escalated:
        """Build the error to raise after storing the request as a dead letter."""
        letter = None if command is None else await self._keep(failed, error, command)
        self._tell("escalated", error, kept=letter is not None)
        kept = "not kept" if letter is None else f"kept as dead letter {letter}"
        message = f"given up after {failed} attempts and {kept}: {error.message}"
        _log.error("%s in %s: %s", error.code, self._place(command), message)
        return Escalated(message, error=error, attempts=failed, letter=letter)

    async def _keep(self, failed: int, error: HoldfastError, command: WriteCommand) -> int | None:
        """Store a dead letter, with a write's number of attempts. Returns its number, or None on failure."""
        attempts = Attempts(self._random)
        try:
            keep = self._kv.verbs.escalate(
                command,
                error_code=error.code,
                message=error.message[:MAX_REASON_CHARACTERS],
                attempts=failed,
                request_id=seams.token(16),
                writer=command.origin.writer or None,
            )
            while True:
                try:
                    result = await self._kv.store.call(keep)
                    assert isinstance(result, LetterStored)
                    return result.number
                except (Transient, OutcomeUnknown) as unkept:
                    pause = attempts.pause(unkept)
                    if pause is None:
                        raise
                    await self._sleep(pause)
        except HoldfastError as unkept:
            _log.error(
                "storing request %s of %s as a dead letter failed: %s %s",
                command.origin.request_id,
                self._kv.namespace,
                unkept.code,
                unkept.message,
            )
            return None

    def _place(self, command: WriteCommand | None) -> str:
        """Return the namespace, and the request if one was made, for a log line."""
        namespace = self._kv.namespace
        return namespace if command is None else f"{namespace}, request {command.origin.request_id}"

    def _tell_fatal(self, error: HoldfastError, command: WriteCommand | None) -> None:
        self._tell("fatal", error)
        _log.error("%s in %s: %s", error.code, self._place(command), error.message)

    def _tell(self, what: str, error: HoldfastError, *, kept: bool = False) -> None:
        """Count what happened. `kept` says that the write was stored as a dead letter."""
        self._kv.store.count_retry(self._kv.namespace, what, error.code, kept=kept)
        if self._count is not None:
            self._count(what, error.code)


def _is_race(error: HoldfastError) -> bool:
    """Return True for a lost race, which may pass. A reused request id is a conflict that never passes."""
    return isinstance(error, VersionConflict) and error.reason is None


def require_progress(
    key: str, entry: Entry | None, conflict: VersionConflict, refusals: list[tuple[int, int | None]]
) -> None:
    """Give up an update whose conflict does not change between two attempts, so that no attempt can help.

    Args:
        key: The key that is updated.
        entry: The entry that was expected.
        conflict: The refusal.
        refusals: The versions that were expected and found by the attempts so far, added to here.

    Raises:
        VersionConflict: It is given up. `current` is the entry that was found.
    """
    if conflict.reason is not None:
        raise conflict
    current = conflict.current
    expected, actual = 0 if entry is None else entry.version, None if current is None else current.version
    refusals.append((expected, actual))
    unchanged = actual == (None if entry is None else expected)
    if unchanged or refusals.count((expected, actual)) > UNCHANGED:
        loaded = "no entry" if entry is None else f"version {expected}"
        stands = "there is none" if actual is None else f"it is at version {actual}"
        raise VersionConflict(
            f"the update of key {key!r} is given up, since its conflict does not change between attempts: "
            f"{loaded} was expected, and {stands}",
            current=current,
        ) from conflict


def kept_semantics(entry: Entry | None) -> Semantics | None:
    """Return an entry's semantics without their ttl, which belonged to the write that set them."""
    if entry is None or entry.semantics is None:
        return None
    return msgspec.structs.replace(entry.semantics, ttl_seconds=None)


class Updating(TypedDict, total=False):
    """The keyword arguments of `KV.update`, which documents them."""

    default: Any
    ttl: int | None
    semantics: Semantics | Mapping[str, Any] | None
    timeout: float
    writer: str | None
    spec_ref: str | None
    fence: Mapping[str, Any] | None
    once: str | None


async def update(
    kv: KV,
    key: str,
    change: Callable[[Any], Any],
    *,
    default: Any = None,
    ttl: int | None = None,
    semantics: Semantics | Mapping[str, Any] | None = None,
    timeout: float = 30.0,  # noqa: ASYNC109 - writes that have started must finish
    **known: Any,
) -> Entry:
    """See `KV.update`."""
    until = seams.monotonic() + rules.timeout(timeout)
    entry, lost = await kv.get(key), 0
    refusals: list[tuple[int, int | None]] = []
    while True:
        try:
            value = change(default if entry is None else entry.value)
            value = await value if isawaitable(value) else value
        except Exception:
            first = await _first_result(kv, key, known)
            if first is None:
                raise
            return first
        try:
            return await kv.set(
                key,
                value,
                ttl=ttl if entry is None else KEEP,
                expected_version=0 if entry is None else entry.version,
                semantics=kept_semantics(entry) if semantics is None else semantics,
                **known,
            )
        except VersionConflict as conflict:
            require_progress(key, entry, conflict, refusals)
            if seams.monotonic() >= until:
                raise
            kv.store.count_retry(kv.namespace, "retried", conflict.code)
            entry, lost = await _winner(kv, key, conflict), lost + 1
        if lost > AT_ONCE:
            await asyncio.sleep(seams.uniform() * LONGEST_PAUSE)


async def _first_result(kv: KV, key: str, known: dict[str, Any]) -> Entry | None:
    """Return the entry that an earlier update for the same purpose has left; None if there was none.

    A change that has been made often can't be computed again, such as taking something off a list. No entry
    has the version that is expected here, so this writes nothing.
    """
    if known.get("once") is None:
        return None
    try:
        return await kv.set(key, None, expected_version=rules.MAX_VERSION, **known)
    except VersionConflict as conflict:
        if conflict.reason is not None:
            raise
        return None


async def _winner(kv: KV, key: str, conflict: VersionConflict) -> Entry | None:
    """Return the entry that was there instead, read again if the refusal leaves out its value."""
    current = conflict.current
    return await kv.get(key) if current is not None and current.value is UNSET else current
