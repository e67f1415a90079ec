"""The operators' part of a store: contents, removed entries, audits and policies.

Law: everything here is for operators, never for programs that use the store. This module holds no state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from holdfast import operators, rules
from holdfast.clock import moment
from holdfast.commands import Removed, Written
from holdfast.decide.policies import policy_of
from holdfast.engine import LocalFile, Movable, service_of
from holdfast.errors import Unsupported, ValidationError
from holdfast.families import has_blobs
from holdfast.model import Policy, Stats
from holdfast.pipeline.pipeline import Pipeline
from holdfast.rows import KV, SYSTEM
from holdfast.upkeep_commands import Recount

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from holdfast.engine import Checkup
    from holdfast.errors import HoldfastError
    from holdfast.model import Entry, Rescued, SlowPage, TrashPage
    from holdfast.operators.audit import Audit
    from holdfast.operators.holdings import Survey
    from holdfast.operators.letters import Letters
    from holdfast.operators.tokens import Tokens
    from holdfast.pipeline.outage import Outage
    from holdfast.verbs.fields import Provenance


class Operations(Pipeline):
    """The part of a store that is for operators."""

    _engine_at: Callable[[str], object] | None = None

    def may_move(self, engine_at: Callable[[str], object]) -> None:
        """Note how this process gets the engine of another URL, because it follows a store that moves.

        Args:
            engine_at: Returns the engine of a URL, not started.
        """
        self._engine_at = engine_at

    async def namespaces(self) -> list[Stats]:
        """List what every namespace holds, ordered by name."""
        found = await self._reading().totals(self.now())
        return [operators.stats_of(one) for one in found if not one.namespace.name.startswith(SYSTEM)]

    async def stats(self, namespace: str) -> Stats:
        """Get what one namespace holds, at a cost that does not grow with it.

        Args:
            namespace: Full name: `kv/<plugin>`, `table/<plugin>` or `semantic/<tenant>/<project>`.

        Returns:
            Its numbers. A namespace that was never written to is empty.

        Raises:
            Refused: `InvalidPluginName` or `ValidationError`, if this is not the name of a namespace.

        Example:
            `stats = await store.stats("kv/trivia")`
        """
        await self._batcher.settled(rules.namespace(namespace))
        found = await self._reading().totals(self.now(), namespace=namespace)
        if found:
            return operators.stats_of(found[0])
        return Stats(namespace=namespace, keys=0, bytes=0, version=0, changed_at=moment(0))

    async def policy(self, namespace: str) -> Policy:
        """Get the policy of a namespace.

        Args:
            namespace: Full name: `kv/<plugin>`, `table/<plugin>` or `semantic/<tenant>/<project>`.

        Returns:
            Its policy, in which a field that was never set is None.

        Raises:
            Refused: `InvalidPluginName` or `ValidationError`, if this is not the name of a namespace.
        """
        found = await self._reading().totals(self.now(), namespace=rules.namespace(namespace))
        return policy_of(found[0].namespace.policy if found else None)

    async def defaults(self, namespace: str) -> Policy:
        """Get the quota and the rate that hold for a namespace whose policy has none.

        Args:
            namespace: Full name: `kv/<plugin>`, `table/<plugin>` or `semantic/<tenant>/<project>`.

        Returns:
            A policy with the defaults.

        Raises:
            Refused: `InvalidPluginName` or `ValidationError`, if this is not the name of a namespace.
        """
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
        """Replace the policy of a namespace. It applies to every caller.

        Args:
            namespace: Full name: `kv/<plugin>`, `table/<plugin>` or `semantic/<tenant>/<project>`.
            policy: The new policy, or its fields.
            principal: Name of the caller, where it is known for certain; the audit records it.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

        Returns:
            The policy as it is stored.

        Raises:
            ValidationError: The policy has a field that does not exist or a value that is not allowed.

        Example:
            `await store.set_policy("kv/trivia", {"quota_bytes": 10_000_000, "trash": True})`
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
        """Put entries with their whole envelopes, as another store had them, except those that have expired.

        Args:
            namespace: Full name: `kv/<plugin>`, `table/<plugin>` or `semantic/<tenant>/<project>`.
            entries: At most 1,000 entries.
            keep_versions: Whether an entry keeps its version if that is greater than the namespace's last
                one, which then continues from there. Otherwise every entry gets a new version.
            principal: Name of the caller, where it is known for certain; the audit records it.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

        Returns:
            The number of entries that were put.

        Raises:
            ValidationError: One of the entries breaks a rule; nothing was written.
            ValueTooLarge: The entries have more than 524,288 bytes together.
        """
        root = rules.semantic_root(rules.namespace(namespace))
        if has_blobs(namespace):
            raise ValidationError(
                "the entries of blobs can't be loaded without their bytes", field="namespace"
            )
        verbs = self.verbs(namespace, root=root, principal=principal)
        result = await self.execute(verbs.load(entries, keep_versions=keep_versions, **provenance))
        assert isinstance(result, Written)
        return result.count

    async def recount(self, namespace: str) -> int:
        """Count what a namespace keeps and correct its counters.

        This is needed only after rows were changed with SQL. It reads everything that the namespace keeps,
        and writes to it wait until it has ended.

        Args:
            namespace: Full name: `kv/<plugin>`, `table/<plugin>` or `semantic/<tenant>/<project>`.

        Returns:
            The number of counters that were wrong.

        Raises:
            Refused: `InvalidPluginName` or `ValidationError`, if this is not the name of a namespace.
        """
        service, name = self.service, rules.namespace(namespace)
        if service is not None:
            return await service.recount(name)
        result = await self.execute(Recount(namespace=name))
        assert isinstance(result, Removed)
        return result.count

    async def rescue(self, path: str | Path) -> Rescued:
        """Copy everything into a new file while the store is in use, also when its own file has vanished.

        Args:
            path: File to create, on the machine of the store. A relative path starts at the folder of the
                store's file.

        Returns:
            What the copy holds.

        Raises:
            ValidationError: The path can't be used, for example because there is a file.
            Unsupported: The store is not a SQLite file.
        """
        engine = self._reading()
        service = service_of(engine)
        if service is not None:
            return await service.rescue(str(path))
        if isinstance(engine, LocalFile):
            return await engine.rescue(str(path))
        raise Unsupported("only a SQLite file can be copied like this: use the tools of your database")

    async def examine(self, *, seconds: float | None = None) -> Checkup | None:
        """Check the storage for corruption.

        Args:
            seconds: Seconds after which to stop; None examines everything.

        Returns:
            What was found, or None if this storage can't be examined.
        """
        engine = self._reading()
        return await engine.examine(seconds=seconds) if isinstance(engine, Movable) else None

    def announce(self, url: str) -> None:
        """Announce to other processes of this machine where this store is served.

        They can then write through the service.

        Args:
            url: The service's URL.
        """
        engine = self._reading()
        if isinstance(engine, LocalFile):
            engine.announce(url)

    @property
    def outage(self) -> Outage:
        """The time for which the storage has refused writes, as far as is known."""
        return self._groups.outage

    async def overdue(self) -> float:
        """Get the seconds for which the longest overdue entry has been due; 0 if none is."""
        now = self.now()
        due = await self._reading().due(KV, now, limit=1)
        return (now - due[0].expires_at) / 1000 if due else 0.0

    def survey(self) -> Survey:
        """Get the numbers that monitoring needs, at a bounded cost."""
        return operators.Survey(self._reading(), self.now)

    async def trash(
        self,
        namespace: str,
        prefix: str = "",
        *,
        limit: int | None = None,
        cursor: str | None = None,
        values: bool = False,
    ) -> TrashPage:
        """List the entries that were removed and can be restored, in the order of their keys.

        A page ends as that of `KV.list` does. An entry that has expired is in the trash once its expiry was
        noticed.

        Args:
            namespace: Full name: `kv/<plugin>`, `table/<plugin>` or `semantic/<tenant>/<project>`.
            prefix: The beginning of the keys; empty for all keys.
            limit: Largest number of entries in the page, from 1 to 10,000; 1,000 if not given.
            cursor: The cursor of the page before.
            values: Whether the entries have their values. A service masks them if the policy `reveal` of the
                namespace is `audited` or `never`.

        Returns:
            A page of removed entries.

        Raises:
            ValidationError: An argument breaks its rule.
        """
        verbs = self.verbs(rules.namespace(namespace), root=rules.semantic_root(namespace))
        query = operators.trash_query(
            namespace, verbs.prefix(prefix), limit=limit, cursor=cursor, values=values
        )
        with self._batcher.reading(namespace):
            await self._batcher.settled(namespace)
            return await operators.trash_page(self._reading(), query, self.now())

    async def slowlog(
        self, *, before: int | None = None, limit: int | None = None, instance: str | None = None
    ) -> SlowPage:
        """List the slow requests of a running service, newest first. For operators.

        Args:
            before: Return older requests than this number, the `next` of an earlier page. Then also pass the
                instance of that page.
            limit: Return at most this many, 1 to 10,000. A page never has more than 200.
            instance: The instance of the service to ask, if there are several. By default, any answers.

        Returns:
            A page of slow requests.

        Raises:
            Unsupported: The store is not reached through a service.
        """
        service = self.service
        if service is None:
            raise Unsupported(
                "only a running service has a slow log: open the store through one, at its NATS URL"
            )
        if before is not None:
            rules.positive(before, field="before", most=rules.MAX_LOADED_VERSION)
        return await service.slowlog(before=before, limit=rules.limit(limit), instance=instance)

    def audit(self, namespace: str) -> Audit:
        """Get the audit of a namespace: the record of who changed what.

        Args:
            namespace: Full name: `kv/<plugin>`, `table/<plugin>` or `semantic/<tenant>/<project>`.

        Returns:
            A handle that reads and verifies the audit.

        Raises:
            Refused: `InvalidPluginName` or `ValidationError`, if this is not the name of a namespace.

        Example:
            `verdict = await store.audit("kv/trivia").verify()`
        """
        return operators.Audit(self._reading(), rules.namespace(namespace), self.now)

    async def audits(self) -> list[str]:
        """List the names of the namespaces that have an audit or should have one, in order."""
        return await operators.audits(self._reading(), self.now)

    async def audit_heads(self) -> dict[str, str]:
        """Get the heads of all audits, as `number:signature`, by namespace, without verifying anything.

        Keep them elsewhere: `Audit.verify` takes them later, and finds what was cut off since.

        Returns:
            The heads. A store behind a service returns none: the service logs them.
        """
        engine = self._reading()
        return {} if service_of(engine) is not None else await operators.heads(engine, self.now)

    async def suspected_audits(self) -> dict[str, str]:
        """Get the audits that were tampered with at first sight, each with the reason.

        Returns:
            The reasons, by namespace; that of "" is about the store as a whole. A store behind a service
            returns none: the service logs them.
        """
        engine = self._reading()
        return {} if service_of(engine) is not None else await operators.suspects(engine, self.now)

    async def require_able(self, place: str) -> None:
        """Check that this process, or the service of this store, has the driver for a store at another place.

        Args:
            place: The URL of the other store. Nothing is opened.

        Raises:
            Unsupported: The driver is missing; the message names the extra that brings it.
        """
        if (service := service_of(self._reading())) is not None:
            await service.require_able(place)
        elif self._engine_at is not None:
            self._engine_at(place)

    async def key_trouble(self) -> HoldfastError | None:
        """Get the error that would refuse audited writes for lack of a key; None if there is none."""
        return await operators.key_trouble(self._reading(), self.now)

    async def bind_keys(self) -> int:
        """Sign every audit with the newest key, and retire the others.

        A store with a reaper does this when it is opened and with every upkeep.

        Returns:
            The number of audits that changed their key.
        """
        return await operators.bind_keys(self._reading(), self.execute, self.now)

    def tokens(self) -> Tokens:
        """Get the tokens that let callers in over HTTP.

        Returns:
            A handle that makes, lists and revokes tokens.

        Example:
            `made = await store.tokens().create(plugin="trivia", verbs=["get", "list"], ttl=86_400)`
        """
        return operators.tokens_of(self._reading(), self)

    def letters(self, namespace: str, *, principal: str | None = None) -> Letters:
        """Get the dead letters of a namespace.

        Args:
            namespace: Full name: `kv/<plugin>`, `table/<plugin>` or `semantic/<tenant>/<project>`.
            principal: Name of the caller, where it is known for certain; the audit records it.

        Returns:
            A handle that lists, retries and drops the letters.

        Raises:
            Refused: `InvalidPluginName` or `ValidationError`, if this is not the name of a namespace.
        """
        root = rules.semantic_root(rules.namespace(namespace))
        verbs = self.verbs(namespace, root=root, principal=principal)
        return operators.Letters(
            self._reading(), verbs, now=self.now, execute=self.execute, policy=self.policy
        )
