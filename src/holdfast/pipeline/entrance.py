"""The entrance of the pipeline: every command is admitted here, and every commit is announced from here.

Law: the entrance orders commands, passes them on and rings the watchers' bells. It does not know what a
command means.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING

from holdfast import rules
from holdfast.clock import SystemClock
from holdfast.commands import WriteCommand
from holdfast.engine import LocalFile, SharedStorage, Sharer, no_hint, service_of
from holdfast.errors import HoldfastError, Unavailable
from holdfast.pipeline.batcher import Batcher
from holdfast.pipeline.commits import Groups
from holdfast.pipeline.rates import Rates
from holdfast.pipeline.timekeeper import UNSURE, Timekeeper
from holdfast.pipeline.watch import Bell
from holdfast.verbs.caller import id_maker
from holdfast.verbs.keys import Verbs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast.clock import Clock
    from holdfast.commands import Command, Result
    from holdfast.decide import Outcome
    from holdfast.engine import Capabilities, Engine, ServiceEngine, Swept
    from holdfast.model import Policy
    from holdfast.rows import Record


CLOSED = "the store is not open"


class Entrance:
    """The part of a pipeline that takes commands.

    Args:
        engine: Where rows are kept.
        make_room: Removes expired entries of a namespace that is full, so that a write fits.
        clock: The store's clock.
        writer: Name of the writer for calls that give none.
        defaults: The quota of bytes and the rate of namespaces whose policies set none. Nothing else of it
            applies.
    """

    _retried: Callable[[str, str, str], None] | None = None

    def __init__(
        self,
        engine: Engine,
        make_room: Callable[[str, int], Awaitable[Swept]],
        *,
        clock: Clock | None = None,
        writer: str | None = None,
        defaults: Policy | None = None,
    ) -> None:
        self._engine = engine
        self._service = service_of(engine)
        if defaults is not None:
            engine.defaults = defaults
        self._clock = SystemClock() if clock is None else clock
        self._writer = rules.identity(writer, field="writer") if writer else _default_writer(engine)
        self._new_id = id_maker()
        self._rates = Rates(self._clock.now, None if defaults is None else defaults.rate_limit)
        self._listeners: list[Callable[[list[Record]], None]] = []
        self._groups = Groups(engine, self._clock, make_room, self._tell, self._listeners)
        self._batcher = Batcher(
            self._groups.run,
            lane_per_namespace=self.capabilities.lane_per_namespace,
            sharer=engine if isinstance(engine, Sharer) else None,
        )
        self._bells: defaultdict[str, dict[Bell, Callable[[], None]]] = defaultdict(dict)
        self._refusal: str | None = CLOSED
        self.timekeeper: Timekeeper = Timekeeper(self._clock, engine, self._trust_time)
        self._gets = 0
        self._peeker = engine if isinstance(engine, LocalFile) else None
        self._batching = self.capabilities.batching

    @property
    def capabilities(self) -> Capabilities:
        """The properties of this store's engine."""
        return self._engine.capabilities

    def verbs(
        self,
        namespace: str,
        *,
        root: str | None = None,
        writer: str | None = None,
        principal: str | None = None,
    ) -> Verbs:
        """Get the maker of commands for a namespace, for an edge that knows who writes.

        Args:
            namespace: The namespace's full name.
            root: The beginning of full keys in the semantic family; None elsewhere.
            writer: Name of the writer if a call does not give one; the store's if None.
            principal: Name of the caller, where it is known for certain; the audit records it.

        Returns:
            The maker of commands.
        """
        return Verbs(
            namespace,
            writer=writer or self._writer,
            new_id=self._new_id,
            now=self._clock.now,
            root=root,
            principal=principal,
        )

    def now(self) -> int:
        """Get the store's time, in milliseconds since 1970."""
        return self._clock.now()

    @property
    def waiting(self) -> int:
        """The number of pending commands."""
        return self._batcher.waiting

    def in_groups_of(self, most: int, *, turns: int) -> None:
        """Limit the number of commands that share a commit.

        Args:
            most: Largest number of commands in a group.
            turns: Turns of the event loop for which commands that are not alone wait for others.
        """
        self._batcher.most, self._batcher.turns = most, turns

    def listen(self, listener: Callable[[list[Record]], None]) -> None:
        """Pass the changes of every commit of this store on to a listener, after the commit and in its order.

        Args:
            listener: Called with the records of each commit.
        """
        self._listeners.append(listener)

    def unlisten(self, listener: Callable[[list[Record]], None]) -> None:
        """Stop passing changes on to a listener.

        Args:
            listener: The listener. One that does not listen is ignored.
        """
        if listener in self._listeners:
            self._listeners.remove(listener)

    async def execute(self, command: Command) -> Result:
        """Execute a command.

        Args:
            command: The command.

        Returns:
            The command's result.

        Raises:
            HoldfastError: The command was refused.
        """
        if not self._batching:
            self._reading()
            done = await self._groups.run([command])
            if done.tell is not None:
                await done.tell()
            [result] = done.results
            if isinstance(result, HoldfastError):
                raise result
            return result
        return await self.submit(command)

    def submit(self, command: Command) -> asyncio.Future[Result]:
        """Accept a command that will be executed together with others.

        Args:
            command: The command.

        Returns:
            A future of the command's result or error.

        Raises:
            Unavailable: The store is not open, or its time is not known.
            RateLimited: The namespace is over the rate that its policy allows.
        """
        self._admit(command)
        return self._batcher.submit(command)

    def hand_over(self, command: Command, tell: Callable[[Result | HoldfastError], None]) -> None:
        """Accept a command that will be executed together with others, and report its outcome to a callback.

        Args:
            command: The command.
            tell: Called with the command's result or error.

        Raises:
            Unavailable: The store is not open, or its time is not known.
            RateLimited: The namespace is over the rate that its policy allows.
        """
        self._admit(command)
        self._batcher.hand_over(command, tell)

    def _admit(self, command: Command) -> None:
        if self._refusal is not None:
            if self._refusal != CLOSED and isinstance(command, WriteCommand):
                self._groups.outage.failed(self._refusal)
            raise Unavailable(self._refusal)
        self.timekeeper.answered = True
        if command.limited:
            self._rates.admit(command.namespace)

    @property
    def busy(self) -> bool:
        """True while a write is pending."""
        return self._batcher.busy

    def writing(self, namespace: str, key: str) -> bool:
        """Return True if a write of a key is pending.

        Args:
            namespace: The namespace's full name.
            key: The key, in full.

        Returns:
            True if one is.
        """
        return self._batcher.writing(namespace, key)

    @property
    def service(self) -> ServiceEngine | None:
        """The engine, if its other side is a service; else None."""
        self._reading()
        return self._service

    def admit(self, namespace: str) -> None:
        """Count a request that the store does not see as one.

        Args:
            namespace: The namespace's full name.

        Raises:
            RateLimited: The namespace is over the rate that its policy allows.
        """
        self._rates.admit(namespace)

    def bell(self, namespace: str) -> Bell:
        """Get a bell that rings when something may have changed in a namespace.

        Args:
            namespace: The namespace's full name.

        Returns:
            The bell, to be put away after use.

        Raises:
            Unavailable: The store is not open, or its time is not known.
        """
        bell = Bell(lambda: self._put_away(namespace, bell))
        engine = self._reading()
        stop = engine.hint(namespace, bell.ring) if isinstance(engine, SharedStorage) else no_hint
        self._bells[namespace][bell] = stop
        return bell

    def _put_away(self, namespace: str, bell: Bell) -> None:
        self._bells[namespace].pop(bell)()
        if not self._bells[namespace]:
            del self._bells[namespace]

    def _reading(self) -> Engine:
        if self._refusal is not None:
            raise Unavailable(self._refusal)
        self.timekeeper.answered = True
        return self._engine

    def _trust_time(self, sure: bool) -> None:
        """Accept requests while the time is known, and refuse them while it is not."""
        if self._refusal != CLOSED:
            self._refusal = None if sure else UNSURE

    def _tell(self, outcome: Outcome) -> None:
        """Ring the bells of changed namespaces, and pass the changes on to listeners."""
        self._rates.learn(outcome.namespaces)
        if self._bells:
            changed = {record.namespace for record in outcome.journal}
            changed |= {run.namespace for run in outcome.runs}
            for namespace in changed & self._bells.keys():
                for bell in self._bells[namespace]:
                    bell.ring()
        for listener in self._listeners:
            listener(outcome.journal)

    async def ready(self) -> None:
        """Check that a write would be accepted now.

        Raises:
            HoldfastError: The error that would refuse it.
        """
        if self._refusal == CLOSED:
            raise Unavailable(CLOSED)
        # The storage is asked even if the time is not known: an outage lasts until writes are accepted.
        await self._groups.ready(self._reading)

    def count_retry(self, namespace: str, outcome: str, code: str, *, kept: bool = False) -> None:
        """Report to the callback of `measure` that a write is repeated or given up.

        Args:
            namespace: The write's namespace.
            outcome: `retried`, `fatal` or `escalated`.
            code: The code of the error.
            kept: Whether the write was stored here as a dead letter. A program that observes commands has
                then counted it already.
        """
        if self._retried is None or (kept and self._batching and self._groups.decided is not None):
            return
        self._retried(namespace, outcome, code)


def _default_writer(engine: Engine) -> str:
    """Return the writer for calls that give none: empty for a service, which knows its callers itself."""
    return "embedded" if engine.capabilities.batching else ""
