"""Bugs in the cluster: leases, replicas, forwarding, snapshots, loads. Tests once missed most of them."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast import seams
from holdfast.engines.cluster import (
    forwarding,
    lease,
    log,
    membership,
    messages,
    moves,
    operators,
    shard,
    snapshots,
    write_queue,
)
from holdfast.engines.cluster.engine import ClusterEngine
from holdfast.engines.cluster.forwarding import Forwarding, Moved
from holdfast.engines.cluster.lease import ShardLease
from holdfast.engines.cluster.log import Publisher
from holdfast.engines.cluster.messages import Assembler
from holdfast.engines.cluster.replica import Replica
from holdfast.engines.cluster.shard import Reads, Shard
from holdfast.engines.cluster.snapshots import SnapshotInstaller, SnapshotMaker, Snapshots
from holdfast.engines.cluster.write_queue import WriteQueue
from holdfast.errors import DatabaseError, HoldfastError, OutcomeUnknown, QuotaExceeded
from tests.mutate.planting import bug

if TYPE_CHECKING:
    from holdfast.bus.protocol import Message
    from tests.mutate.planting import Patches

_replace: Final = msgspec.structs.replace


class _NeverRaised(Exception):
    """An error that nothing raises."""


async def _nothing(*given: Any, **fields: Any) -> None:
    """Do nothing."""


# Leases


@bug("tests/engines/cluster/test_lease.py")
def others_write_before_a_lease_has_ended(patch: Patches) -> None:
    """Other nodes keep off for longer than the lease of the writer lasts."""
    patch.set(lease, "MARGIN", 0.9)


@bug("tests/engines/test_cluster_faults.py")
def other_nodes_write_while_a_lease_runs(patch: Patches) -> None:
    """A node that sees a message of another keeps off while that one holds its lease."""

    def wrong(see: Any, lease: ShardLease, *given: Any, **named: Any) -> None:
        see(lease, *given, **named)
        lease._keep_off = 0.0

    patch.wrap(ShardLease, "see", wrong)


@bug("tests/engines/test_cluster_faults.py")
def a_renewal_keeps_nobody_off(patch: Patches) -> None:
    """A message that only renews a lease grants as much time as one that writes."""

    def wrong(see: Any, lease: ShardLease, *given: Any, wrote: bool) -> None:
        if wrote:
            see(lease, *given, wrote=wrote)

    patch.wrap(ShardLease, "see", wrong)


@bug("tests/engines/cluster/test_reads.py")
def a_reader_does_not_wait_for_what_the_holder_has(patch: Patches) -> None:
    """A node that has asked the holder of the lease how far the log is answers once it is there, too."""
    patch.within((Reads, "_ask_holder"), (Replica, "reach"), _nothing)


@bug("tests/engines/cluster/test_lease.py")
def a_node_that_makes_way_writes_into_the_lease_of_another(patch: Patches) -> None:
    """A node that is asked to make way keeps off at least as long as the lease that it has seen lasts."""

    def wrong(make_way: Any, lease: ShardLease) -> None:
        lease._keep_off = 0.0
        make_way(lease)

    patch.wrap(ShardLease, "make_way", wrong)


@bug("tests/engines/cluster/test_shard.py")
def a_message_that_is_saved_late_takes_the_lease_of_the_next_one(patch: Patches) -> None:
    """A message grants a lease only if no message of another node has come since."""

    def wrong(see: Any, lease: ShardLease, seq: int, *given: Any, **named: Any) -> None:
        see(lease, 0, *given, **named)

    patch.wrap(ShardLease, "see", wrong)


@bug("tests/engines/test_cluster_operators.py")
def a_node_is_opened_by_a_wrong_clock(patch: Patches) -> None:
    """A node takes its time only from a clock that agrees with those of the others."""
    patch.set(operators.NodeAnswers, "require_right_clock", lambda answers: None)


@bug("tests/engines/test_cluster_faults.py")
def a_lease_counts_from_the_answer(patch: Patches) -> None:
    """A lease counts from when its message was first sent."""
    patch.wrap(
        Shard,
        "_saved",
        lambda saved, shard, place, save, sent, milliseconds: saved(
            shard, place, save, seams.ticks(), milliseconds
        ),
    )


@bug("tests/engines/test_cluster_faults.py")
def a_node_keeps_the_lease_that_its_message_ends(patch: Patches) -> None:
    """A node that sends a message without a lease answers nothing from its file from then on."""
    patch.within((Shard, "_publish"), (ShardLease, "give_up"))


@bug("tests/engines/cluster/test_shard.py")
def a_node_answers_while_its_replica_is_replaced(patch: Patches) -> None:
    """A node that fetches a snapshot shows nothing meanwhile."""
    patch.within((Shard, "_renewed"), (ShardLease, "give_up"))


@bug("tests/engines/cluster/test_shard.py")
def a_node_that_has_stopped_answers_from_its_file(patch: Patches) -> None:
    """A node that does not follow the log any more shows nothing."""
    patch.within((Shard, "_halt"), (ShardLease, "give_up"))


@bug("tests/engines/cluster/test_shard.py")
def a_node_that_could_not_save_a_write_keeps_its_lease(patch: Patches) -> None:
    """A node whose file lacks what the log has shows nothing."""
    patch.within((Shard, "_saved"), (ShardLease, "give_up"))


@bug("tests/engines/cluster/test_shard.py")
def a_node_that_starts_again_writes_into_a_lease(patch: Patches) -> None:
    """A node that starts again waits for the lease of the last message that it knows."""

    async def wrong(take: Any, shard: Shard, entry: Any) -> Any:
        if entry.place.seq == shard.replica.at.seq:
            return await shard.replica.take(entry)
        return await take(shard, entry)

    patch.wrap(Shard, "_take", wrong)


# Publishing


@bug("tests/engines/cluster/test_publishing.py")
def an_attempt_without_an_answer_keeps_the_lease(patch: Patches) -> None:
    """While a message is in doubt, its node shows nothing from its file."""
    patch.within((Publisher, "publish"), (ShardLease, "give_up"))


@bug("tests/engines/cluster/test_publishing.py")
def a_late_message_in_doubt_is_decided_again(patch: Patches) -> None:
    """A message that may be stored is not decided again, even if its callers have given up."""

    async def wrong(publish: Any, publisher: Publisher, proposal: Any, late: Any) -> Any:
        try:
            return await publish(publisher, proposal, late)
        except OutcomeUnknown:
            if late():
                return None
            raise

    patch.wrap(Publisher, "publish", wrong)


@bug("tests/engines/cluster/test_publishing.py")
def a_node_that_falls_behind_mistakes_what_is_certain(patch: Patches) -> None:
    """A write is unavailable if it is certainly not stored, and unknown otherwise."""
    patch.wrap(
        Publisher,
        "_catch_up",
        lambda catch_up, publisher, seq, end, *, doubt: catch_up(publisher, seq, end, doubt=not doubt),
    )


@bug("tests/engines/test_cluster_faults.py")
def a_write_without_an_answer_is_decided_again(patch: Patches) -> None:
    """A write whose message the log has brought is stored, although nobody acknowledged it."""
    patch.within((Publisher, "publish"), (Replica, "stored"))


@bug("tests/engines/cluster/test_publishing.py")
def a_doubt_is_settled_before_every_write(patch: Patches) -> None:
    """A message in doubt is settled by one empty message."""

    async def wrong(settle: Any, shard: Shard, now: Any) -> None:
        await settle(shard, now)
        shard._doubt = True

    patch.wrap(Shard, "_settle_doubt", wrong)


@bug("tests/engines/cluster/test_messages.py")
def parts_that_came_before_are_mixed_into_an_outcome(patch: Patches) -> None:
    """An outcome is made of its own parts, also after one whose last part was lost."""

    def wrong(add: Any, assembler: Assembler, message: Message) -> Any:
        before = list(assembler._pieces)
        entry = add(assembler, message)
        if entry is None and len(assembler._pieces) == 1:
            assembler._pieces[:0] = before
        return entry

    patch.wrap(Assembler, "add", wrong)


# Groups that wait


@bug("tests/engines/cluster/test_write_queue.py")
def the_names_of_forwarded_groups_overflow_a_head(patch: Patches) -> None:
    """A message names no more forwarded groups than its headers hold."""
    patch.set(write_queue, "MOST_FORWARDED", 2_000)


@bug("tests/engines/cluster/test_write_queue.py")
def a_barrier_is_lost_beside_other_groups(patch: Patches) -> None:
    """A barrier is stored, whatever it shares a message with."""

    def wrong(together: Any, queue: WriteQueue, groups: Any) -> Any:
        for group in groups:
            group.force = all(one.force for one in groups)
        return together(queue, groups)

    patch.wrap(WriteQueue, "_together", wrong)


@bug("tests/engines/cluster/test_write_queue.py")
def a_group_that_fails_takes_others_with_it(patch: Patches) -> None:
    """A group that can't be decided fails alone."""
    patch.set(write_queue, "Defect", _NeverRaised)
    patch.set(write_queue, "TooExpensive", _NeverRaised)


@bug("tests/engines/cluster/test_write_queue.py")
def every_group_hears_of_every_run(patch: Patches) -> None:
    """Listeners hear of a run of expiries once."""

    def wrong(shares: Any, outcome: Any, groups: Any) -> Any:
        return [_replace(share, runs=outcome.runs) for share in shares(outcome, groups)]

    patch.wrap(write_queue, "shares", wrong)


@bug("tests/engines/cluster/test_write_queue.py")
def the_half_of_a_group_that_is_stored_is_reported_as_failed(patch: Patches) -> None:
    """If the second half of a large group fails, the first half is stored and reported so."""

    async def wrong(in_halves: Any, *given: Any) -> Any:
        outcome = await in_halves(*given)
        for result in outcome.results:
            if isinstance(result, HoldfastError):
                raise result
        return outcome

    for module in (write_queue, shard):
        patch.wrap(module, "in_halves", wrong)


# Forwarded groups


@bug("tests/engines/cluster/test_shard.py")
def a_forwarded_group_that_lost_its_place_is_decided_again(patch: Patches) -> None:
    """A forwarded group is left to its sender once another node has written."""
    patch.within((Shard, "_commit"), (Forwarding, "require"))


@bug("tests/engines/test_cluster_forwarding.py")
def a_forwarded_group_is_decided_however_late(patch: Patches) -> None:
    """A forwarded group that comes late is left to its sender, which may have decided it by then."""
    patch.set(Forwarding, "require", lambda forwarding, names: None)


@bug("tests/engines/cluster/test_forwarding.py")
def a_forwarded_group_without_a_reply_is_decided_again(patch: Patches) -> None:
    """A sender without a reply looks into the log before it decides a group itself."""

    async def wrong(forwarding: Forwarding, sent: Any, now: Any) -> bytes:
        return b"-"

    patch.set(Forwarding, "_settled", wrong)


@bug("tests/engines/cluster/test_shard.py")
def a_snapshot_hides_that_a_forwarded_group_is_stored(patch: Patches) -> None:
    """A forwarded group that may have come with a snapshot is not decided again."""

    def wrong(forwarding: Forwarding, seq: int) -> None:
        forwarding._foreign = max(forwarding._foreign, seq)

    patch.set(Forwarding, "skipped", wrong)


@bug("tests/engines/cluster/test_shard.py")
def a_forwarded_group_from_before_a_snapshot_is_taken(patch: Patches) -> None:
    """A node that was brought up by a snapshot takes no group that was sent before it."""

    def wrong(forwarding: Forwarding, seq: int) -> None:
        for sent in forwarding._sent.values():
            sent.logged = True

    patch.set(Forwarding, "skipped", wrong)


@bug("tests/engines/cluster/test_forwarding.py")
def an_unknown_outcome_is_told_as_not_taken(patch: Patches) -> None:
    """A forwarded group that may be stored is not decided by its sender."""

    async def wrong(decided: Any, forwarding: Forwarding, data: bytes) -> Any:
        try:
            return await decided(forwarding, data)
        except OutcomeUnknown:
            raise Moved from None

    patch.wrap(Forwarding, "_decided", wrong)


@bug("tests/engines/cluster/test_forwarding.py")
def a_defect_is_told_as_not_taken(patch: Patches) -> None:
    """A forwarded group that failed in an unforeseen way may be stored."""

    async def wrong(decided: Any, forwarding: Forwarding, data: bytes) -> Any:
        try:
            return await decided(forwarding, data)
        except HoldfastError:
            raise
        except Exception:
            raise Moved from None

    patch.wrap(Forwarding, "_decided", wrong)


@bug("tests/engines/cluster/test_forwarding.py")
def a_forwarded_refusal_forgets_by_how_much_a_quota_was_exceeded(patch: Patches) -> None:
    """A sender makes as much room as the refusal of a forwarded group asks for."""

    def wrong(error_of: Any, refusal: Any) -> HoldfastError:
        error: HoldfastError = error_of(refusal)
        if isinstance(error, QuotaExceeded):
            error.excess = 0
        return error

    patch.wrap(forwarding, "_error", wrong)


# Reading


@bug("tests/engines/cluster/test_reads.py")
def the_holder_tells_less_than_its_file_shows(patch: Patches) -> None:
    """The holder of a lease tells how far the log is that its readers may have seen."""

    def wrong(on_index: Any, reads: Reads, message: Message) -> None:
        replica = reads._shard.replica
        latest, replica.latest = replica.latest, 0
        on_index(reads, message)
        replica.latest = latest

    patch.wrap(Reads, "_on_index", wrong)


@bug("tests/engines/cluster/test_reads.py")
def the_holder_tells_less_than_the_asker_has_read(patch: Patches) -> None:
    """The holder of a lease replies once it has come as far as the node that asks."""
    patch.wrap(
        Reads, "_on_index", lambda on_index, reads, message: on_index(reads, _replace(message, data=b""))
    )


@bug("tests/engines/cluster/test_replica.py")
def a_replaced_replica_does_not_know_what_its_file_shows(patch: Patches) -> None:
    """A replica that was replaced by a snapshot knows how far its file has come."""

    async def wrong(opened: Any, replica: Replica) -> None:
        latest = replica.latest
        await opened(replica)
        replica.latest = latest

    patch.wrap(Replica, "_open", wrong)


@bug("tests/engines/cluster/test_shard.py")
def a_look_that_outlasts_the_lease_is_shown(patch: Patches) -> None:
    """What a look finds counts only if the lease still runs after it."""

    async def wrong(fresh: Any, reads: Reads, look: Any) -> Any:
        return await look() if reads._shard.lease.held() else await fresh(reads, look)

    patch.wrap(Reads, "fresh", wrong)


@bug("tests/engines/test_cluster.py")
def a_node_answers_from_its_file_after_its_lease(patch: Patches) -> None:
    """A node without a lease asks before it answers."""
    patch.set(Reads, "glance", lambda reads, *given: reads._shard.replica.file.glance(*given))


@bug("tests/engines/cluster/test_reads.py")
def a_reader_trusts_its_own_replica(patch: Patches) -> None:
    """A read shows all that was acknowledged before it, on whatever node."""
    patch.set(Reads, "_confirmed", _nothing)


@bug("tests/engines/test_cluster_faults.py")
def a_reader_shows_what_the_holder_of_the_lease_has_not_seen(patch: Patches) -> None:
    """What one node has shown, no other node takes back."""
    patch.set(Reads, "_reached", _nothing)


@bug("tests/engines/test_cluster_faults.py")
def a_gap_in_the_log_is_passed_over(patch: Patches) -> None:
    """A replica applies a message only after the one before it."""

    async def wrong(take: Any, replica: Replica, entry: Any) -> Any:
        return entry.base.seq > replica.at.seq or await take(replica, entry)

    patch.wrap(Replica, "take", wrong)


@bug("tests/engines/test_cluster_operators.py")
def a_node_with_a_wrong_clock_serves(patch: Patches) -> None:
    """A node whose clock differs too much from the others' serves nobody."""
    patch.set(operators, "MOST_SKEW", float("inf"))


# Snapshots and trimming


@bug("tests/engines/cluster/test_snapshots.py")
def the_log_is_trimmed_past_the_slowest_node(patch: Patches) -> None:
    """The log keeps what the slowest node needs."""

    async def wrong(*given: Any) -> list[Any]:
        return []

    patch.set(snapshots, "node_reports", wrong)


@bug("tests/engines/cluster/test_snapshots.py")
def the_log_is_trimmed_though_a_shard_has_no_snapshot(patch: Patches) -> None:
    """The log of a shard without a snapshot is kept whole."""
    notes = Snapshots.notes

    async def wrong(snapshots: Snapshots, shard: int) -> Any:
        return await notes(snapshots, shard) or [SimpleNamespace(seq=10**9)]

    patch.within((SnapshotMaker, "_trimmed"), (Snapshots, "notes"), wrong)


@bug("tests/engines/cluster/test_snapshots.py")
def the_log_is_trimmed_up_to_the_newest_snapshot(patch: Patches) -> None:
    """The log keeps what comes after the oldest snapshot that is kept."""
    notes = Snapshots.notes

    async def wrong(snapshots: Snapshots, shard: int) -> Any:
        return (await notes(snapshots, shard))[::-1]

    patch.within((SnapshotMaker, "_trimmed"), (Snapshots, "notes"), wrong)


@bug("tests/engines/cluster/test_snapshots.py")
def the_log_is_trimmed_by_one_message_too_many(patch: Patches) -> None:
    """Trimming keeps the message at the place that is needed."""
    for module in (log, snapshots):
        patch.wrap(
            module, "trim", lambda trim, *given, needed, **fields: trim(*given, needed=needed + 1, **fields)
        )


@bug("tests/engines/cluster/test_snapshots.py")
def a_snapshot_claims_what_was_written_meanwhile(patch: Patches) -> None:
    """A snapshot names the place in the log that its own file has."""
    patch.wrap(
        snapshots,
        "kept_place",
        lambda kept_place, copy: kept_place(Path(str(copy).removesuffix(".copy"))),
    )


@bug("tests/engines/cluster/test_snapshots.py")
def snapshots_that_are_not_kept_stay_in_the_stream(patch: Patches) -> None:
    """A snapshot that is not kept any more is removed."""
    api = Snapshots._api

    async def wrong(snapshots: Snapshots, call: str, body: Any) -> Any:
        return None if call == "STREAM.PURGE" else await api(snapshots, call, body)

    patch.set(Snapshots, "_api", wrong)


@bug("tests/engines/cluster/test_snapshots.py")
def two_nodes_lose_each_others_snapshots(patch: Patches) -> None:
    """Of two nodes that store a snapshot at once one is refused."""
    put = Snapshots._put
    patch.within(
        (Snapshots, "_replace_notes"),
        (Snapshots, "_put"),
        lambda snapshots, rest, data, headers: put(snapshots, rest, data, {}),
    )


@bug("tests/engines/cluster/test_snapshots.py")
def a_node_begins_with_the_oldest_snapshot(patch: Patches) -> None:
    """A node that is far behind begins with the newest snapshot."""
    notes = Snapshots.notes

    async def wrong(snapshots: Snapshots, shard: int) -> Any:
        return (await notes(snapshots, shard))[::-1]

    patch.within((SnapshotInstaller, "install"), (Snapshots, "notes"), wrong)


@bug("tests/engines/cluster/test_snapshots.py")
def the_log_of_a_replaced_file_stays_beside_the_snapshot(patch: Patches) -> None:
    """The write-ahead log of a file goes with the file."""
    patch.set(snapshots, "replace_file", lambda path, new: os.replace(new, path))


@bug("tests/engines/test_cluster_operators.py")
def a_damaged_snapshot_is_installed(patch: Patches) -> None:
    """A node does not begin with a snapshot that is damaged."""

    async def wrong(fetch: Any, snapshots: Snapshots, *given: Any) -> None:
        try:
            await fetch(snapshots, *given)
        except DatabaseError:
            return

    patch.wrap(Snapshots, "fetch", wrong)


# Loads, and the log itself


@bug("tests/engines/test_cluster.py", "-k", "killed_node")
def a_killed_node_starts_two_seconds_ahead(patch: Patches) -> None:
    """A node that starts is not further ahead than the nodes that it knows."""

    async def wrong(kept_line: Any, engine: ClusterEngine) -> Any:
        return await engine._first.kept_line() or await kept_line(engine)

    patch.wrap(ClusterEngine, "kept_line", wrong)


@bug("tests/engines/cluster/test_moves.py")
def the_clock_of_a_node_goes_back_with_a_load(patch: Patches) -> None:
    """A load never takes the clock of a node back."""
    patch.set(messages, "_CLOCK", messages._CLOCK.partition(" WHERE ")[0])


@bug("tests/engines/cluster/test_moves.py")
def two_processes_close_a_store_at_once(patch: Patches) -> None:
    """Of two processes that close a store at once one is refused."""
    patch.wrap(moves, "_put", lambda put, shard, changes, allow: put(shard, changes, moves._always))


@bug("tests/engines/cluster/test_moves.py")
def the_first_shard_is_told_last(patch: Patches) -> None:
    """A store is open or closed as its first shard says, so that one is told first."""
    patch.wrap(
        moves,
        "publish_facts",
        lambda publish, shards, *given, **fields: publish(shards[::-1], *given, **fields),
    )


@bug("tests/engines/cluster/test_moves.py")
def a_store_counts_as_unchanged_though_its_first_shard_was_told(patch: Patches) -> None:
    """If a store is opened or closed in part, the outcome is unknown."""

    async def wrong(publish: Any, *given: Any, **fields: Any) -> None:
        try:
            await publish(*given, **fields)
        except OutcomeUnknown as error:
            raise error.__cause__ or error from None

    patch.wrap(moves, "publish_facts", wrong)


@bug("tests/engines/cluster/test_moves.py")
def entries_of_a_closed_store_fall_due(patch: Patches) -> None:
    """Nothing of a closed store is removed."""

    async def wrong(engine: ClusterEngine, *given: Any, **fields: Any) -> list[Any]:
        return [due for shard in engine._shards for due in await shard.replica.file.due(*given, **fields)]

    patch.set(ClusterEngine, "due", wrong)


@bug("tests/engines/cluster/test_log.py")
def a_log_that_discards_by_its_size_is_accepted(patch: Patches) -> None:
    """A store is not kept in a log that may lose messages."""
    patch.wrap(log, "_checked", lambda checked, address, config: checked(address, config | {"max_bytes": -1}))


@bug("tests/engines/cluster/test_reports.py")
def a_password_is_sent_over_a_network_in_plain_text(patch: Patches) -> None:
    """A password goes over TLS, or stays on this machine."""

    class Everywhere:
        def __contains__(self, host: object) -> bool:
            return True

    patch.set(membership, "_HERE", Everywhere())
