"""What operators ask of a store: what is in it, what was removed, what is recorded, what is to be kept.

Law: everything here is for whoever runs the store, never for what runs on it. Nothing is kept here: it is a
part of `holdfast.store.Store`, which has the rest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Unpack

from holdfast import rules
from holdfast.commands import Recount, Removed, Written
from holdfast.decide.policies import policy_of
from holdfast.engine import Announcer, Examined, Housekeeper, Rescuer
from holdfast.errors import Unsupported
from holdfast.model import Policy, Stats, moment
from holdfast.rows import KV

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from holdfast.auditing import Audit
    from holdfast.batcher import Batcher
    from holdfast.commands import Command, Result
    from holdfast.engine import Checkup, Engine
    from holdfast.errors import HoldfastError
    from holdfast.groups import Groups
    from holdfast.letters import Letters
    from holdfast.model import Entry, Rescued, TrashPage
    from holdfast.outage import Outage
    from holdfast.reaper import Reaper
    from holdfast.survey import Survey
    from holdfast.verbs import Provenance, Verbs


class Operations(ABC):
    """The part of a store that is for operators."""

    _batcher: Batcher
    _groups: Groups
    _retried: Callable[[str, str, str], None] | None = None

    @property
    @abstractmethod
    def _reaper(self) -> Reaper:
        """What notices expiry."""

    @abstractmethod
    def now(self) -> int:
        """The store's time."""

    @abstractmethod
    def verbs(
        self,
        namespace: str,
        *,
        root: str | None = None,
        writer: str | None = None,
        principal: str | None = None,
    ) -> Verbs:
        """What makes commands for a namespace."""

    @abstractmethod
    async def execute(self, command: Command) -> Result:
        """Have a command done."""

    @abstractmethod
    def _reading(self) -> Engine:
        """The engine, if the store is open."""

    @abstractmethod
    async def _finish_indexes(self) -> None:
        """Go on with indexes that were not filled to the end."""

    async def namespaces(self) -> list[Stats]:
        """What every namespace holds, by name."""
        from holdfast.survey import stats_of

        return [stats_of(totals) for totals in await self._reading().totals(self.now())]

    async def stats(self, namespace: str) -> Stats:
        """What one namespace holds, at a cost that does not grow with it. One never written to is empty."""
        from holdfast.survey import stats_of

        await self._batcher.settled(rules.namespace(namespace))
        found = await self._reading().totals(self.now(), namespace=namespace)
        if found:
            return stats_of(found[0])
        return Stats(namespace=namespace, keys=0, bytes=0, version=0, changed_at=moment(0))

    async def sweep(self) -> int:
        """Remove what has expired, now; how many entries that was."""
        keeper = self._reading()
        return await (keeper if isinstance(keeper, Housekeeper) else self._reaper).sweep()

    async def upkeep(self) -> None:
        """Drop what the trash, the memory of requests and the journal have kept long enough, now.

        What was interrupted goes on: dropping tables and indexes, and filling indexes.
        """
        keeper = self._reading()
        if isinstance(keeper, Housekeeper):
            await keeper.upkeep()
        else:
            await self._reaper.upkeep()
            await self._finish_indexes()

    async def purge(self, namespace: str) -> None:
        """Remove what is left of tables and indexes that were dropped; upkeep does it too."""
        self._reading()
        await self._reaper.purge(rules.namespace(namespace))

    async def policy(self, namespace: str) -> Policy:
        """What was asked of a namespace."""
        found = await self._reading().totals(self.now(), namespace=rules.namespace(namespace))
        return policy_of(found[0].namespace.policy if found else None)

    async def defaults(self, namespace: str) -> Policy:
        """The quota and the rate that hold for a namespace where its policy names none."""
        engine = self._reading()
        found = await engine.totals(self.now(), namespace=rules.namespace(namespace))
        told = found[0].defaults if found else None
        return told or engine.defaults or Policy()

    async def set_policy(
        self,
        namespace: str,
        policy: Policy | dict[str, Any],
        *,
        principal: str | None = None,
        **provenance: Unpack[Provenance],
    ) -> Policy:
        """Put a namespace under a policy, in place of the one it has; it applies at every door.

        A door that knows who asks says so as the `principal`, which the audit records.
        """
        verbs = self.verbs(rules.namespace(namespace), principal=principal)
        command = verbs.set_policy(policy, **provenance)
        await self.execute(command)
        return policy_of(command.policy)

    async def load(
        self,
        namespace: str,
        entries: Sequence[Entry],
        *,
        keep_versions: bool,
        principal: str | None = None,
        **provenance: Unpack[Provenance],
    ) -> int:
        """Put at most 1,000 entries with their whole envelopes, as another store had them; how many that was.

        Those that have expired are left out. With `keep_versions` an entry keeps its version where that is
        greater than the namespace's last one, which then goes on from there; else it gets a new one.
        """
        root = rules.semantic_root(rules.namespace(namespace))
        verbs = self.verbs(namespace, root=root, principal=principal)
        result = await self.execute(verbs.load(entries, keep_versions=keep_versions, **provenance))
        assert isinstance(result, Written)
        return result.count

    async def recount(self, namespace: str) -> int:
        """Count anew what a namespace keeps, and put its counters right; how many of them were wrong.

        Nobody needs that unless rows were changed with SQL. It looks at all that the namespace keeps, and
        writes to it wait for that long.
        """
        keeper, name = self._reading(), rules.namespace(namespace)
        if isinstance(keeper, Housekeeper):
            return await keeper.recount(name)
        result = await self.execute(Recount(namespace=name))
        assert isinstance(result, Removed)
        return result.count

    async def ready(self) -> None:
        """Make sure that a write would be accepted now; the error that would refuse it is raised."""
        self._reading()
        await self._groups.ready()

    async def rescue(self, path: str | Path) -> Rescued:
        """Copy everything into a new file while the store is in use, also when its own file has vanished.

        Args:
            path: Where the copy goes, on the machine of the store. Nothing may be there. A relative path is
                taken from the folder of the store's file.

        Raises:
            ValidationError: The path can't be used.
            Unsupported: The store is no SQLite file.
        """
        engine = self._reading()
        if isinstance(engine, Rescuer):
            return await engine.rescue(str(path))
        raise Unsupported("only a SQLite file can be copied like this: use the tools of your database")

    async def examine(self, *, seconds: float | None = None) -> Checkup | None:
        """Look for corruption, thoroughly or for so many seconds; None if this storage has no way to."""
        engine = self._reading()
        return await engine.examine(seconds=seconds) if isinstance(engine, Examined) else None

    def announce(self, url: str) -> None:
        """Tell other processes of this machine where this store is served, so that they can write there."""
        engine = self._reading()
        if isinstance(engine, Announcer):
            engine.announce(url)

    @property
    def outage(self) -> Outage:
        """Since when the storage takes no writes, as far as is known."""
        return self._groups.outage

    async def overdue(self) -> float:
        """For how many seconds the entry has been due that should go first; 0 if none is."""
        now = self.now()
        due = await self._reading().due(KV, now, limit=1)
        return (now - due[0].expires_at) / 1000 if due else 0.0

    def measure(
        self,
        *,
        grouped: Callable[[int], None] | None = None,
        swept: Callable[[int, float], None] | None = None,
        failed: Callable[[], None] | None = None,
        decided: Callable[[Command, Result | HoldfastError], None] | None = None,
        retried: Callable[[str, str, str], None] | None = None,
    ) -> None:
        """Have the size of every group passed on, of every sweep what it removed and the seconds, and more.

        Args:
            grouped: Is given the size of a group.
            swept: Is given what a sweep removed and the seconds that it took.
            failed: Is called when a sweep of this store's own failed.
            decided: Is given every command and what became of it.
            retried: Is told of every write that this process repeats or gives up: its namespace, `retried`,
                `fatal` or `escalated`, and the code of the error.
        """
        self._batcher.grouped = grouped
        self._reaper.swept = swept
        self._reaper.failed = failed
        self._groups.decided = decided
        self._retried = retried

    def count_retry(self, namespace: str, outcome: str, code: str) -> None:
        """Tell who measures that a write is repeated, or given up."""
        if self._retried is not None:
            self._retried(namespace, outcome, code)

    def survey(self) -> Survey:
        """What monitoring looks up, at a bounded cost."""
        from holdfast.survey import Survey

        return Survey(self._reading(), self.now)

    async def trash(
        self,
        namespace: str,
        prefix: str = "",
        *,
        limit: int | None = None,
        cursor: str | None = None,
        values: bool = False,
    ) -> TrashPage:
        """What was removed of the keys that begin with a prefix and can be restored, for operators.

        A page ends as that of a listing does. An entry is in the trash once its expiry has been noticed.
        """
        from holdfast.trash import trash_page, trash_query

        verbs = self.verbs(rules.namespace(namespace), root=rules.semantic_root(namespace))
        query = trash_query(namespace, verbs.prefix(prefix), limit=limit, cursor=cursor, values=values)
        with self._batcher.reading(namespace):
            await self._batcher.settled(namespace)
            return await trash_page(self._reading(), query, self.now())

    def audit(self, namespace: str) -> Audit:
        """The record of who changed what in a namespace, for operators."""
        from holdfast.auditing import Audit

        return Audit(self._reading(), rules.namespace(namespace), self.now)

    async def audits(self) -> list[str]:
        """The namespaces that have an audit or should have one, by name, for operators."""
        from holdfast.audits import audits

        return await audits(self._reading(), self.now)

    async def key_trouble(self) -> HoldfastError | None:
        """Why audited writes would be refused for want of a key; None if they would not. Nothing is made."""
        from holdfast.key_in_force import key_trouble

        return await key_trouble(self._reading(), self.now)

    async def bind_keys(self) -> int:
        """Have every audit go over to the newest key and retire the others; how many went over.

        A store that notices expiry by itself does this when it is opened and with every upkeep.
        """
        from holdfast.key_in_force import bind_keys

        return await bind_keys(self._reading(), self.execute, self.now)

    def letters(self, namespace: str, *, principal: str | None = None) -> Letters:
        """The dead letters of a namespace, for operators."""
        from holdfast.letters import Letters

        root = rules.semantic_root(rules.namespace(namespace))
        verbs = self.verbs(namespace, root=root, principal=principal)
        return Letters(self._reading(), verbs, now=self.now, execute=self.execute)
