"""The cluster engine: outcomes go through a replicated log, and every node applies them to files of its own.

`decide` runs on the node that was called. What it decided is published to JetStream on top of the state that
it was decided on, and saved here once the log has it. Other nodes follow the log and save the same rows.

The way of a write: `ClusterEngine.transact` chooses the shard of the namespace. `Shard.transact` forwards the
group to the node that writes now (`Forwarding`), or queues it here (`WriteQueue`). `Shard._commit` waits
until no other node holds the lease, has the group decided on the rows of the replica, and publishes the
outcome (`Publisher`). Once the log has it, `Replica.apply` saves it and the lease is granted anew.

The way of a read: `Reads.glance` answers from the replica while this node's lease runs. Otherwise
`Reads.fresh` asks the node that holds the lease how far the log is, and waits until the replica has followed
it (`Follower`, `Replica.take`).

A shard has a file, a log and a consumer of its own, so that a node may come to hold only some of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from functools import partial
from math import ceil
from pathlib import Path
from typing import Final, TypeVar
from zlib import crc32

import msgspec

from holdfast import families, private, seams
from holdfast.audit.keyring import Keyring
from holdfast.bus.connection import Requester
from holdfast.bus.errors import BusError, LoginRefused
from holdfast.clock import KeptLine, SystemClock
from holdfast.commands import Command, WriteCommand
from holdfast.decide import Outcome
from holdfast.engine import (
    LATER,
    Capabilities,
    ClusterFigures,
    Due,
    JournalPage,
    JournalQuery,
    Later,
    Scan,
    Scanned,
    Totals,
)
from holdfast.engine.raw import CHANGED
from holdfast.engines.cluster import moves, servers
from holdfast.engines.cluster.address import ClusterAddress
from holdfast.engines.cluster.jetstream import JetStream, NodeConnection, NoMajority, Unreached
from holdfast.engines.cluster.log import Stream, ensure
from holdfast.engines.cluster.messages import encode_names, key_name_statements
from holdfast.engines.cluster.operators import NodeAnswers
from holdfast.engines.cluster.replica import Replica, kept_epoch
from holdfast.engines.cluster.shard import Shard
from holdfast.engines.cluster.snapshots import SnapshotInstaller, SnapshotMaker, Snapshots
from holdfast.engines.cluster.write_queue import NOTHING
from holdfast.engines.sqlite import SqliteEngine
from holdfast.errors import Busy, HoldfastError, PermissionDenied, Unavailable, Unsupported
from holdfast.model import Policy
from holdfast.rows import Address, Row

T = TypeVar("T")

ANSWER_SECONDS: Final = 2.0
"""How long a call of JetStream's API waits before it is repeated."""
SETTLE_SECONDS: Final = 1.0
"""How often a node looks for shards that a process left closed, which died while it opened the store."""

_log = logging.getLogger("holdfast.cluster")


class ClusterEngine:
    """See `holdfast.engine.Engine` and `holdfast.engine.raw.Movable`.

    Args:
        address: The servers, the name of the store, and the options of this node.
        keys: The keys that sign the audit, the same on all nodes. Without a key, audited writes are refused.
    """

    def __init__(self, address: ClusterAddress, keys: Keyring | None = None) -> None:
        self._address = address
        self.keys = Keyring() if keys is None else keys
        self.defaults: Policy | None = None
        self._node = seams.token(4)
        self._connection = NodeConnection(
            name=f"holdfast cluster {address.name}", on_reconnected=self._on_reconnected
        )
        self._requests = Requester(self._connection)
        self._jetstream = JetStream(self._connection, self._requests)
        self._snapshots = Snapshots(address, self._connection, self._jetstream)
        self._installer = SnapshotInstaller(address, self._jetstream, self._snapshots)
        maker = SnapshotMaker(
            address, self._connection, self._jetstream, snapshots=self._snapshots, node=self._node
        )
        self.answers = NodeAnswers(address, self._connection, node=self._node, maker=maker)
        self._epoch: str | None = None
        self._creates = True
        self._loads = False
        self._visit: tempfile.TemporaryDirectory[str] | None = None
        self._settling: asyncio.Task[None] | None = None
        self._shards: list[Shard] = []
        self._clock: SystemClock | None = None
        self._keeps_line: SqliteEngine | None = None
        self._rings: defaultdict[str, set[Callable[[], None]]] = defaultdict(set)

    @property
    def capabilities(self) -> Capabilities:
        """See `Engine.capabilities`: the nodes that hold the leases expire entries."""
        others = bool(self._shards) and all(shard.lease.wait for shard in self._shards)
        return Capabilities(multi_process=True, lane_per_namespace=True, owns_reaper=others, glances=True)

    async def start(self) -> None:
        """Connect, create the log if there is none, and follow it until this node has all of it.

        Raises:
            Unavailable: The servers can't be reached, or too few of them.
            Unsupported: The servers could lose acknowledged writes, or are too old.
            PermissionDenied: The servers refuse this user's login.
            DatabaseError: The replica on this node contradicts the log.
        """
        try:
            await self._connect()
            private.make_folder(self._address.data)
            self._epoch = await seams.aside(kept_epoch, self._address.data / "shard-0.db")
            stream = await self._stream()
            self._epoch = stream.epoch
            self._shards = [self._shard(number, stream) for number in range(stream.shards)]
            for shard in self._shards:
                shard.loads = self._loads
                await shard.open()
            self.answers.start(self._shards, visits=self._visit is not None)
            with contextlib.suppress(HoldfastError):
                await self.answers.compare_clocks(opening=True)
            if len(self._shards) > 1:
                self._settling = asyncio.create_task(self._settle(), name="holdfast cluster settling")
        except BaseException:
            await self.aclose()
            raise

    async def transact(self, commands: Sequence[Command], now: Callable[[], int]) -> Outcome:
        """See `Engine.transact`. All commands must be for one namespace."""
        namespace = commands[0].namespace
        shard = self._of(namespace)
        if families.has_keys(namespace) or self._of(families.locks(namespace)) is shard:
            return await shard.transact(commands, now)
        # A lock in another shard can't be checked as a write commits.
        refusal = Unsupported(
            "the plugin's locks are in another shard of this store than its tables or blobs, so that writes "
            "to these can't have a fence",
            field="fence",
        )
        rest = [command for command in commands if not _is_fenced(command)]
        outcome = await shard.transact(rest, now) if rest else NOTHING
        results = iter(outcome.results)
        return msgspec.structs.replace(
            outcome, results=[refusal if _is_fenced(command) else next(results) for command in commands]
        )

    def glance(self, addresses: Sequence[Address], now: int) -> list[Row | None] | Later:
        """See `Engine.glance`: a node answers at once for the shards whose leases it holds."""
        if len(self._shards) == 1:
            return self._glance(self._shards[0], addresses, now)
        rows: list[Row | None] = []
        for address in addresses:
            one = self._glance(self._of(address.namespace), [address], now)
            if one is LATER:
                return LATER
            rows += one
        return rows

    async def read(self, addresses: Sequence[Address], now: int) -> list[Row | None]:
        """See `Engine.read`."""
        by_shard: defaultdict[Shard, list[int]] = defaultdict(list)
        for position, address in enumerate(addresses):
            by_shard[self._of(address.namespace)].append(position)
        rows: list[Row | None] = [None] * len(addresses)
        for shard, positions in by_shard.items():
            in_shard = [addresses[position] for position in positions]
            loaded = await self._look(shard, partial(shard.replica.file.read, in_shard, now))
            for position, row in zip(positions, loaded, strict=True):
                rows[position] = row
        return rows

    async def scan(self, query: Scan, now: int) -> Scanned:
        """See `Engine.scan`."""
        shard = self._of(query.namespace)
        return await self._look(shard, partial(shard.replica.file.scan, query, now))

    async def due(self, space: str, now: int, *, limit: int, namespace: str | None = None) -> list[Due]:
        """See `Engine.due`. Nothing of a closed store can be removed."""
        shards = self._shards if namespace is None else [self._of(namespace)]
        shards = [shard for shard in shards if shard.replica.status.closed is None]
        entries = [
            due
            for shard in shards
            for due in await shard.reads.recent(
                partial(shard.replica.file.due, space, now, limit=limit, namespace=namespace)
            )
        ]
        return sorted(entries, key=lambda due: due.expires_at)[:limit]

    async def falling_due(self, since: int, until: int, *, limit: int) -> list[Due]:
        """See `Engine.falling_due`: what this node knows of, since the deadline watcher asks often."""
        entries = [
            due
            for shard in self._shards
            for due in await shard.replica.file.falling_due(since, until, limit=limit)
        ]
        return sorted(entries, key=lambda due: due.expires_at)[:limit]

    async def journal(self, query: JournalQuery) -> JournalPage:
        """See `Engine.journal`."""
        shard = self._of(query.namespace)
        return await self._look(shard, partial(shard.replica.file.journal, query))

    async def totals(self, now: int, *, namespace: str | None = None) -> list[Totals]:
        """See `Engine.totals`."""
        shards = self._shards if namespace is None else [self._of(namespace)]
        all_totals = [
            totals
            for shard in shards
            for totals in await self._look(
                shard, partial(shard.replica.file.totals, now, namespace=namespace)
            )
        ]
        return sorted(all_totals, key=lambda totals: totals.namespace.name)

    async def owners(self, space: str) -> list[str]:
        """See `Engine.owners`."""
        names = [
            name
            for shard in self._shards
            for name in await self._look(shard, partial(shard.replica.file.owners, space))
        ]
        return sorted(names)

    async def ready(self) -> None:
        """See `Engine.ready`: the log must have a leader and most of its servers.

        Raises:
            Unavailable: It has not, and the message names the missing servers; or the store is closed.
            DatabaseError: The log was replaced or removed.
        """
        for shard in self._shards:
            shard.require()
            if not self._loads:
                shard.replica.status.require_open(self._address.name)
        if not all(shard.lease.held() for shard in self._shards):
            await self._stream()

    def hint(self, namespace: str, ring: Callable[[], None]) -> Callable[[], None]:
        """See `SharedStorage.hint`: the log tells what other nodes change."""
        self._rings[namespace].add(ring)
        return partial(self._forget, namespace, ring)

    async def examine(self, *, seconds: float | None = None) -> None:
        """Return None: a replica is checked where its file is."""

    def figures(self) -> ClusterFigures:
        """See `SharedStorage.figures`."""
        return self.answers.figures()

    async def clock(self, ticks: Callable[[], float]) -> None:
        """Return None: there is no clock but this machine's.

        Raises:
            Unavailable: The machine's clock differs from those of most nodes. A node that is opened meanwhile
                begins its time once it no longer does.
        """
        self.answers.require_right_clock()

    async def remembered(self) -> int:
        """See `DurableStorage.remembered`."""
        return max([await shard.replica.file.remembered() for shard in self._shards])

    async def remember(self, now: int) -> int:
        """See `DurableStorage.remember`: the time is kept on this node."""
        first = self._first
        if self._clock is not None and first is not self._keeps_line:  # a snapshot has replaced the file
            await self.agree_on_line(self._clock)
        return await first.remember(now)

    async def kept_line(self) -> KeptLine | None:
        """See `LineKeeper.kept_line`: this node's own, as if it had been closed now.

        The node has answered with no later time than its line has now, if the ticks tell that. The times that
        the log has brought are those of other nodes. To be sure, a store that was not closed would start two
        seconds later than the latest of them, and would differ too much from the other nodes to serve.
        """
        kept = await self._first.kept_line()
        if kept is None:
            return KeptLine(machine=None, line=0.0, at=0, open=False)
        at = kept.at
        if kept.open and kept.machine is not None and kept.machine == seams.this_machine():
            at = max(at, ceil(seams.ticks() * 1000 + kept.line))
        return msgspec.structs.replace(kept, at=at, open=False)

    async def agree_on_line(self, clock: SystemClock) -> KeptLine | None:
        """See `LineKeeper.agree_on_line`: this node's own."""
        self._clock, self._keeps_line = clock, self._first
        self.answers.begun = True
        return await self._first.agree_on_line(clock)

    async def close_line(self, clock: SystemClock) -> None:
        """See `LineKeeper.close_line`."""
        self._clock = None
        await self._first.close_line(clock)

    async def kept_keys(self) -> list[str]:
        """See `DurableStorage.kept_keys`."""
        return await self._shards[0].reads.fresh(self._first.kept_keys)

    async def keep_keys(self, names: Sequence[str], *, before: Sequence[str]) -> list[str]:
        """See `DurableStorage.keep_keys`: the log carries the names to all nodes."""
        key_names = (list(names), list(before))
        await self._shards[0].put(encode_names(key_names), key_name_statements(key_names))
        return await self.kept_keys()

    def open_read_only(self) -> None:
        """See `Movable.open_read_only`: keep the replica in a temporary folder, and create no log."""
        self._creates = False
        self._visiting()

    def open_unfinished(self) -> None:
        """See `Movable.open_unfinished`: commands that move stores have replicas of their own."""
        self._loads = True
        self._visiting()

    @contextlib.asynccontextmanager
    async def snapshot(self) -> AsyncIterator[moves.ClusterSnapshot]:
        """See `Movable.snapshot`."""
        async with contextlib.AsyncExitStack() as stack:
            parts = []
            for shard in self._shards:
                await shard.reads.fresh(shard.replica.file.remembered)
                parts.append(await stack.enter_async_context(shard.replica.file.snapshot()))
            yield moves.ClusterSnapshot(parts, self.shard_of)

    @contextlib.asynccontextmanager
    async def loading(self) -> AsyncIterator[moves.ClusterLoader]:
        """See `Movable.loading`.

        What is loaded goes through the log in pieces, so the store has to be closed first, for a reason that
        names the process that loads.

        Raises:
            Busy: The store was closed for another reason, or opened, in between.
        """
        facts = await moves.facts_now(self._shards[0])
        loader = moves.ClusterLoader(self._shards, self.shard_of, facts)
        yield loader
        await loader.flush()

    async def close_to_writes(self, reason: str | None, *, instead_of: str | None) -> None:
        """See `Movable.close_to_writes`."""
        facts = await moves.facts_now(self._shards[0])
        if facts.closed != instead_of:
            raise Busy(CHANGED)
        new = msgspec.structs.replace(facts, closed=reason)
        await moves.publish_facts(self._shards, new, before=facts)

    async def aclose(self) -> None:
        """See `Engine.aclose`."""
        await self.answers.close()
        if self._settling is not None:
            self._settling.cancel()
            await asyncio.gather(self._settling, return_exceptions=True)
        for shard in self._shards:
            await shard.close()
        self._shards = []
        await self._connection.close()
        if self._visit is not None:
            await seams.aside(self._visit.cleanup)

    @property
    def _first(self) -> SqliteEngine:
        return self._shards[0].replica.file

    def _of(self, namespace: str) -> Shard:
        """Return the shard of a namespace, the same on every node and in every version."""
        shards = self._shards
        if not shards:
            raise Unavailable(f"the store {self._address.name} is not open")
        return shards[crc32(namespace.encode()) % len(shards)]

    def shard_of(self, namespace: str) -> int:
        """Return the number of a namespace's shard, the same on every node and in every version."""
        return self._of(namespace).number

    def _glance(self, shard: Shard, addresses: Sequence[Address], now: int) -> list[Row | None] | Later:
        if self._address.local_reads and shard.replica.status.closed is None:
            return shard.replica.file.glance(addresses, now)
        return shard.reads.glance(addresses, now)

    async def _look(self, shard: Shard, look: Callable[[], Awaitable[T]]) -> T:
        if self._address.local_reads:
            shard.require()
            return await look()
        return await shard.reads.fresh(look)

    def _shard(self, number: int, stream: Stream) -> Shard:
        path = self._address.data / f"shard-{number}.db"
        replica = Replica(
            path,
            self.keys,
            epoch=stream.epoch,
            changed=self._changed,
            inspect=partial(self.answers.inspect, number, path),
            install=partial(self._installer.install, number, path),
            defaults=self.defaults,
        )
        return Shard(
            number,
            self._address,
            node=self._node,
            connection=self._connection,
            requests=self._requests,
            jetstream=self._jetstream,
            replica=replica,
        )

    async def _connect(self) -> None:
        address = self._address
        try:
            await self._connection.reach(address.servers, address.remote.login())
        except LoginRefused:
            raise PermissionDenied(f"the NATS server at {address.shown} does not admit this node") from None
        except (OSError, BusError) as error:
            raise Unreached(f"no NATS server can be reached at {address.shown}: {error}") from error
        servers.require_version(self._connection.server_version, address.shown)
        await servers.require_sync(address)

    async def _stream(self) -> Stream:
        """Return the stream, once the servers agree about it."""
        what = f"the log of {self._address.name} can't be used"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._address.timeout):
                while True:
                    with contextlib.suppress(TimeoutError, BusError):
                        return await ensure(
                            self._address,
                            self._jetstream,
                            known=self._epoch,
                            creates=self._creates,
                            seconds=ANSWER_SECONDS,
                        )
                    await asyncio.sleep(0.1)
        raise NoMajority(await servers.no_quorum(self._address, what))

    async def _settle(self) -> None:
        """Open shards that were left closed, as soon as there are any, until cancelled."""
        while True:
            await asyncio.sleep(SETTLE_SECONDS)
            try:
                await moves.settle(self._shards)
            except HoldfastError as error:
                _log.warning("a shard of %s stays closed for now: %s", self._address.name, error.message)

    def _visiting(self) -> None:
        """Keep the replica in a temporary folder, which is removed at the end."""
        if self._visit is None:
            self._visit = tempfile.TemporaryDirectory(prefix="holdfast-visit-")
            self._address = msgspec.structs.replace(self._address, data=Path(self._visit.name))

    def _on_reconnected(self) -> None:
        for shard in self._shards:
            shard.follower.restart()

    def _changed(self, names: Iterable[str]) -> None:
        for name in names:
            for ring in list(self._rings.get(name, ())):
                ring()

    def _forget(self, namespace: str, ring: Callable[[], None]) -> None:
        self._rings[namespace].discard(ring)
        if not self._rings[namespace]:
            del self._rings[namespace]


def _is_fenced(command: Command) -> bool:
    return isinstance(command, WriteCommand) and command.origin.fence is not None
