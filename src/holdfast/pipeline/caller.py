"""Callers, which execute commands for a store and its handles.

A `Pipeline` executes them in this process, on an engine. A `Service` sends them to a running service, which
executes them there. Handles hold a caller and do not know which.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from holdfast import rules
from holdfast.clock import Clock
from holdfast.commands import Command, Result
from holdfast.engine import LATER, Capabilities, Engine, Later, no_hint
from holdfast.errors import HoldfastError, Unavailable, Unsupported
from holdfast.pipeline.watch import Bell
from holdfast.rows import Address, Row
from holdfast.verbs.caller import id_maker
from holdfast.verbs.keys import Verbs

CLOSED: Final = "the store is not open"


class Caller(ABC):
    """Executes commands, and answers those that only read.

    Args:
        clock: The store's clock.
        writer: Name of the writer for calls that give none.
        principal: Name of whoever calls, where it is known for certain; the audit records it.
    """

    def __init__(self, clock: Clock, writer: str, principal: str | None = None) -> None:
        self._clock = clock
        self.writer = writer
        self._principal = principal
        self._new_id = id_maker()
        self._refusal: str | None = CLOSED
        self._bells: defaultdict[str, dict[Bell, Callable[[], None]]] = defaultdict(dict)
        self._retried: Callable[[str, str, str], None] | None = None

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """The properties of the storage."""

    @abstractmethod
    async def open(self) -> None:
        """Connect to the storage or the service, and accept commands.

        Raises:
            HoldfastError: It can't be reached or used.
        """

    def refuse(self) -> None:
        """Refuse new calls, because the store closes."""
        self._refusal = CLOSED

    @abstractmethod
    async def aclose(self) -> None:
        """Refuse new calls, finish those that were accepted, and disconnect."""

    @abstractmethod
    async def ready(self) -> None:
        """Check that a write would be accepted now.

        Raises:
            HoldfastError: The error that would refuse it.
        """

    @abstractmethod
    def call(self, command: Command) -> Awaitable[Any]:
        """Execute a command, or answer one that only reads.

        Args:
            command: The command.

        Returns:
            The command's result, to come.

        Raises:
            HoldfastError: The command was refused.
        """

    @abstractmethod
    async def get_at(self, namespace: str, key: str) -> tuple[Row | None, int]:
        """Get the row of an entry, and the time at which it was read.

        Args:
            namespace: The namespace's full name.
            key: The entry's key, in full.

        Returns:
            The row, or None if there is none or it has expired; and the store's time.

        Raises:
            RateLimited: The namespace is over the rate that its policy allows.
            Unavailable: The store is not open, or its time is not known.
        """

    @abstractmethod
    async def parts(self, addresses: Sequence[Address]) -> list[Row | None]:
        """Read parts of blobs with their bytes. They never change, so this waits for no write.

        Args:
            addresses: Where the parts are.

        Returns:
            A row for each address, by position; None if there is none.
        """

    @abstractmethod
    def require_engine(self) -> Engine:
        """Get the engine, for a read that needs no order among the commands.

        Returns:
            The engine.

        Raises:
            Unavailable: The store is not open, or its time is not known.
            Unsupported: The rows are at a service.
        """

    @abstractmethod
    def _hint(self, namespace: str, ring: Callable[[], None]) -> Callable[[], None] | None:
        """Call `ring` when others may have changed a namespace. Returns the function that ends this.

        Returns None if others may change it and nothing tells.
        """

    def admit(self, namespace: str) -> None:  # noqa: B027 - a service counts the requests that it gets
        """Count a request that the store does not see as one.

        Args:
            namespace: The namespace's full name.

        Raises:
            RateLimited: The namespace is over the rate that its policy allows.
        """

    def peek(self, namespace: str, key: str) -> tuple[Row | None, int] | Later:
        """Get the row of an entry as `get_at` does, from a thread other than the event loop's.

        A write that is pending in another thread may or may not be seen.

        Args:
            namespace: The namespace's full name.
            key: The entry's key, in full.

        Returns:
            The row and the store's time; or `LATER` if the loop has to be asked, which also refuses.
        """
        return LATER

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
            writer=writer or self.writer,
            new_id=self._new_id,
            now=self._clock.now,
            root=root,
            principal=principal or self._principal,
        )

    def now(self) -> int:
        """Get the store's time, in milliseconds since 1970."""
        return self._clock.now()

    def bell(self, namespace: str) -> Bell:
        """Get a bell that rings when something may have changed in a namespace.

        Args:
            namespace: The namespace's full name.

        Returns:
            The bell, to be put away after use.

        Raises:
            Unavailable: The store is not open, or its time is not known.
        """
        self._require_open()
        bell = Bell(lambda: self._put_away(namespace, bell))
        end = self._hint(namespace, bell.ring)
        bell.deaf = end is None
        self._bells[namespace][bell] = end or no_hint
        return bell

    def count_retry(self, namespace: str, outcome: str, code: str, *, kept: bool = False) -> None:
        """Report to the callback of `Store.measure` that a write is repeated or given up.

        Args:
            namespace: The write's namespace.
            outcome: `retried`, `fatal` or `escalated`.
            code: The code of the error.
            kept: Whether the write was stored here as a dead letter. A program that observes commands has
                then counted it already.
        """
        if self._retried is not None:
            self._retried(namespace, outcome, code)

    def _require_open(self) -> None:
        if self._refusal is not None:
            raise Unavailable(self._refusal)

    def _put_away(self, namespace: str, bell: Bell) -> None:
        self._bells[namespace].pop(bell)()
        if not self._bells[namespace]:
            del self._bells[namespace]

    def _close_bells(self) -> None:
        """End the watches."""
        for bells in self._bells.values():
            for bell in bells:
                bell.close()


class Service(Caller):
    """A running service. It groups what it receives, has its own clock, and does the upkeep itself."""

    capabilities = Capabilities(multi_process=True, owns_reaper=True)

    def use(self, clock: Clock | None, writer: str | None) -> None:
        """Use another clock, and another name of the writer than the one that the service gives its callers.

        Args:
            clock: The clock; None for that of the service.
            writer: Name of the writer for calls that give none.
        """
        if clock is not None:
            self._clock = clock
        if writer:
            self.writer = rules.identity(writer, field="writer")

    @abstractmethod
    def time(self) -> float | None:
        """Return the service's time in milliseconds since 1970; None until it has sent it."""

    @abstractmethod
    def observe(
        self,
        *,
        decided: Callable[[Command, Result | HoldfastError], None] | None,
        retried: Callable[[str, str, str], None] | None,
    ) -> None:
        """Report commands and retries to callbacks; see `Store.measure`.

        Args:
            decided: Called with every write of keys and blobs, and its result or error.
            retried: Called for every write that this process repeats or gives up.
        """

    @abstractmethod
    async def operator(self, verb: str, fields: dict[str, Any], *, writes: bool = False) -> Mapping[str, Any]:
        """Call a verb of operators. The service decides whether its caller may use it.

        Args:
            verb: The verb; see `holdfast.edges.calls.operators`.
            fields: The fields of the request.
            writes: Whether it is unknown what was done if no reply comes; the error then says so.

        Returns:
            The fields of the reply.
        """

    def require_engine(self) -> Engine:
        """Raise `Unsupported`: a service does not show its rows."""
        self._require_open()
        raise Unsupported("a service exposes entries only, not the rows of other spaces")
