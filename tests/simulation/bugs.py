"""Plants the bugs of `./dev mutate` in simulated worlds and counts the seeds until each is found.

The count is the yardstick of workload and faults. A bug that no seed finds names something that the workload
does not do, or that the judge does not look at.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
import sqlite3
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast import seams
from holdfast.audit import keyring
from holdfast.decide import decision
from holdfast.edges.nats import service
from holdfast.engines.cluster import replica
from holdfast.engines.cluster.shard import Reads
from holdfast.engines.sqlite import SqliteEngine, examiner, raw, reads
from holdfast.engines.sqlite import engine as sqlite_engine
from holdfast.engines.sqlite import setup as sqlite_setup
from holdfast.engines.sqlite.writer import WriteInterrupted, Writer
from holdfast.pipeline.batcher import _Lane
from tests.mutate.planting import Bug, Patches, all_bugs
from tests.simulation.runs import Job, Runner
from tests.simulation.seams import points
from tests.simulation.simulation import Plan

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from holdfast.bus.connection import Connection, Subscription

SEEDS: Final = 20
"""The seeds in which a bug is looked for, if nothing is said."""
WHERE: Final = {
    "verbs": "sqlite",
    "groups": "sqlite",
    "storage": "sqlite",
    "recipes": "sqlite",
    "cluster": "cluster",
    "bugs": "sqlite",
}
"""The target in which the bugs of a module are looked for."""
ELSEWHERE: Final = {
    "a_backup_is_read_at_many_instants": "processes",
    "the_time_of_a_namespace_goes_back_with_the_clock": "cluster",
    "a_run_is_made_twice_in_a_group": "cluster",
    "readers_ask_without_a_pause": "cluster",
    "a_node_starts_with_an_error_of_sqlite": "cluster",
    "a_transaction_that_an_error_has_ended_is_committed": "processes",
    "a_full_disk_at_the_end_of_a_restore_is_an_error_of_sqlite": "processes",
    **dict.fromkeys(
        (
            "a_reader_does_not_ask_whether_others_have_written",
            "a_row_is_kept_though_the_file_changed_while_it_was_read",
            "a_commit_is_believed_to_be_all_that_has_changed",
            "a_commit_is_made_after_the_deadline_of_its_caller",
            "a_refusal_is_not_checked_against_the_file",
            "what_another_program_wrote_is_overwritten",
            "the_store_is_stale_for_ever_after_another_program_wrote",
            "two_processes_have_a_file_alone",
            "a_process_does_not_notice_that_others_write",
            "every_process_does_the_upkeep",
            "the_cache_outlives_the_writes_of_other_processes",
            "nobody_looks_whether_other_processes_have_written",
            "a_service_does_not_follow_what_others_write",
            "a_write_that_was_refused_as_busy_is_done_later",
            "the_next_process_that_opens_the_file_has_another_time",
        ),
        "processes",
    ),
}
"""The target of bugs that can't do harm where others of their module can."""
PROMPT: Final = "how prompt something is"
LOADS: Final = "loads, moves and copies of stores"
FILES: Final = "files that vanish or are replaced"
QUEUES: Final = "who is first in a queue"
DEFECTS: Final = "defects of the service itself"
QUOTAS: Final = "quotas of bytes that a journal fills"
OTHERS: Final = "other programs that write rows"
GROWTH: Final = "how large files grow"
MODULES: Final = {
    "moves": LOADS,
    "sync": "programs with several threads, and forks",
    "http": "HTTP",
}
"""What modules of bugs are about of which nothing is simulated."""
GAPS: Final = {
    "an_expensive_condition_is_judged_in_one_piece": PROMPT,
    "a_new_command_does_not_end_the_wait_for_a_read": PROMPT,
    "an_expensive_command_shares_its_group": PROMPT,
    "a_bell_that_rings_while_nobody_waits_is_not_heard": PROMPT,
    "what_was_executed_one_by_one_is_told_to_nobody": PROMPT,
    "what_a_sweep_for_a_quota_removed_is_told_to_nobody": PROMPT,
    "every_group_hears_of_every_run": PROMPT,
    "a_waiter_does_not_hear_of_a_release": PROMPT,
    "a_retry_comes_before_it_was_asked_for": PROMPT,
    "a_doubt_is_settled_before_every_write": PROMPT,
    "a_node_begins_with_the_oldest_snapshot": PROMPT,
    "only_the_first_run_of_a_crowd_expires": PROMPT,
    "a_lease_is_renewed_when_it_is_over": PROMPT,
    "a_failed_sweep_counts_as_done": "what a service reports about itself",
    "a_service_does_not_follow_what_others_write": "programs that hear of changes by events alone",
    "an_expiry_belongs_to_the_trace_of_the_write_that_finds_it": "traces",
    "a_fenced_write_to_a_blob_shares_a_transaction": "PostgreSQL",
    "a_node_with_a_wrong_clock_serves": "nodes of a cluster whose clocks stay wrong",
    "a_run_is_made_twice_in_a_group": "two sweeps of one namespace at once",
    "the_store_is_stale_for_ever_after_another_program_wrote": OTHERS,
    "the_cache_outlives_a_failed_commit": OTHERS,
    "a_mirror_is_fresh_though_the_storage_is_away": "mirrors",
    "a_mirror_misses_what_happens_while_it_is_loaded": "mirrors",
    "a_mirror_does_not_load_again_after_a_gap": "mirrors",
    "two_names_are_one_flag": "flags",
    "a_claim_that_was_cut_off_is_left_behind": PROMPT,
    "a_waiter_that_gives_up_keeps_its_place": PROMPT,
    "a_request_id_that_was_used_is_retried": PROMPT,
    "each_process_counts_the_pages_of_the_log_alone": GROWTH,
    "snapshots_that_are_not_kept_stay_in_the_stream": GROWTH,
    "two_nodes_lose_each_others_snapshots": GROWTH,
    "the_log_is_trimmed_past_the_slowest_node": PROMPT,
    "parts_that_came_before_are_mixed_into_an_outcome": PROMPT,
    "the_log_grows_with_every_commit": PROMPT,
    "room_in_the_log_is_made_where_the_last_commit_ends": "room that the library makes in a file of SQLite",
    "the_log_is_trimmed_up_to_the_newest_snapshot": FILES,
    "the_log_is_trimmed_though_a_shard_has_no_snapshot": "clusters of several shards",
    "every_process_does_the_upkeep": "how much work is done",
    "a_newcomer_passes_those_who_wait": QUEUES,
    "the_place_of_a_waiter_expires": QUEUES,
    "a_defect_is_told_as_not_taken": DEFECTS,
    "a_group_that_fails_takes_others_with_it": DEFECTS,
    "a_quota_does_not_see_what_the_journal_holds": QUOTAS,
    "a_forwarded_refusal_forgets_by_how_much_a_quota_was_exceeded": QUOTAS,
    "the_namespace_of_a_fence_is_not_locked": "PostgreSQL",
    "the_log_of_a_replaced_file_stays_beside_the_snapshot": FILES,
    "a_loaded_item_does_not_move_the_head_of_its_log": LOADS,
    "a_load_takes_the_version_back": LOADS,
    "a_load_brings_back_what_has_expired": LOADS,
    "the_clock_of_a_node_goes_back_with_a_load": LOADS,
    "two_processes_close_a_store_at_once": LOADS,
    "the_first_shard_is_told_last": LOADS,
    "a_store_counts_as_unchanged_though_its_first_shard_was_told": LOADS,
    "entries_of_a_closed_store_fall_due": LOADS,
    "a_row_of_another_program_is_never_counted": OTHERS,
    "expecting_no_entry_accepts_a_row_of_another_program": OTHERS,
    "the_default_quota_holds_for_nobody": "callers with credentials",
    "the_journal_keeps_a_record_a_moment_too_long": "journals that are trimmed",
    "a_commit_into_a_file_that_vanished_is_acknowledged": FILES,
    "nobody_looks_for_the_index_of_the_log": FILES,
    "a_thread_reads_the_file_that_has_replaced_the_store": FILES,
    "closing_a_store_drops_the_locks_of_another": "locks of POSIX",
    "a_thread_does_not_ask_whether_others_have_written": "programs with several threads",
    "a_damaged_snapshot_is_installed": FILES,
    "a_log_that_discards_by_its_size_is_accepted": "logs that somebody else has configured",
    "a_password_is_sent_over_a_network_in_plain_text": "credentials",
    "the_names_of_forwarded_groups_overflow_a_head": "limits of the size of headers",
}
"""What is not part of any world, by the bugs that only this would find."""
UNNOTICED: Final = {
    "a_node_answers_while_its_replica_is_replaced": (
        "A node fetches a snapshot once it has applied nothing for 15 seconds although the log has more. A "
        "lease lasts a second from a message that the node has applied."
    ),
    "the_log_is_trimmed_by_one_message_too_many": (
        "1,000 messages more than are needed stay. One less makes no difference."
    ),
    "an_attempt_without_an_answer_keeps_the_lease": (
        "Others keep off from when they received the message before, or this one if it is stored. Both is "
        "later than what the older lease counts from. If this message grants no lease, the older one ended "
        "before it was sent."
    ),
    "a_node_that_has_stopped_answers_from_its_file": (
        "Until the lease ends nobody else writes, and what this node has acknowledged is in its file. A "
        "message of another node ends the lease before it is applied, also if applying it fails."
    ),
    "the_holder_tells_less_than_the_asker_has_read": (
        "A reader asks again until the reply names what it has read. So it asks more often, "
        "and shows the same."
    ),
    "a_barrier_is_lost_beside_other_groups": (
        "A renewal that is lost costs the next reader a message. A node that settles a forwarded group and "
        "holds the lease has written since it sent the group, so that the other node refuses the group."
    ),
}
"""Why nobody can notice some bugs, which tests of parts of the library find."""
KEPT: Final = Path("tests/simulation/hunts.jsonl")
"""What docs/explanation/trust.md shows of the bugs."""
NEVER: Final = 50
"""The seeds after which a bug is given up whose code has never run."""


# Bugs that no test of the suite could find without power cuts, many clients, or a clock that is watched


def commits_are_not_synced(patch: Patches) -> None:
    """A write is acknowledged once the disk has it."""
    patch.set(sqlite_setup, "prepare", _with(sqlite_setup.prepare, sync="OFF"))
    patch.set(sqlite_engine, "prepare", sqlite_setup.prepare)


def requests_are_not_remembered(patch: Patches) -> None:
    """A request that is sent again has one effect."""
    patch.set(decision, "once", lambda draft, command, apply: apply(draft, command))


def fences_are_not_checked(patch: Patches) -> None:
    """A former holder of a lock writes nothing."""
    patch.set(decision, "_check_fence", lambda draft, fence: None)


def the_loop_waits_by_reading_the_clock(patch: Patches) -> None:
    """No callback keeps the event loop for long."""

    def wrong(attempt: Any, engine: SqliteEngine, *args: Any, **fields: Any) -> Any:
        end = seams.monotonic() + 0.05
        while seams.monotonic() < end:
            pass
        return attempt(engine, *args, **fields)

    patch.wrap(SqliteEngine, "save", wrong)


def a_long_commit_that_gave_way_counts_as_done(patch: Patches) -> None:
    """A large write that gives way to small ones is made after them."""

    def wrong(commit: Any, writer: Writer, *args: Any, **fields: Any) -> None:
        try:
            commit(writer, *args, **fields)
        except WriteInterrupted:
            return

    patch.wrap(Writer, "commit", wrong)


def the_disk_has_half_of_a_batch(patch: Patches) -> None:
    """A batch is written whole or not at all."""

    def wrong(attempt: Any, writer: Writer, plan: Any, *args: Any) -> None:
        middle = len(plan) // 2
        attempt(writer, plan[:middle], *args)
        attempt(writer, plan[middle:], *args)

    patch.wrap(Writer, "_attempt", wrong)


def a_large_call_runs_beside_a_group_of_its_namespace(patch: Patches) -> None:
    """No namespace is in two groups at a time, so that both are decided from what is there."""
    patch.wrap(_Lane, "take_expensive", lambda take, lane, group: take(lane, ()))


def readers_ask_without_a_pause(patch: Patches) -> None:
    """A node that can't ask how far the log is gives its event loop a rest."""

    async def wrong(pause: Any, reads: Reads, end: float) -> None:
        if seams.monotonic() > end:
            await pause(reads, end)

    patch.wrap(Reads, "_pause", wrong)


def the_key_of_the_audit_is_not_synced(patch: Patches) -> None:
    """What signs the audit is on the disk before the first record is."""

    def wrong(write: Any, path: Path, content: Iterable[bytes], *, new: bool = False) -> None:
        path.write_bytes(b"".join(secret + b"\n" for secret in content))
        path.chmod(0o600)

    patch.wrap(keyring, "_write", wrong)


def a_backup_is_read_at_many_instants(patch: Patches) -> None:
    """A backup holds a store as it was at one instant."""

    def wrong(begun: Any, path: Path) -> Any:
        connection = begun(path)
        connection.execute("COMMIT")
        return connection

    patch.wrap(raw, "_begun", wrong)


def a_full_disk_at_the_end_of_a_restore_is_an_error_of_sqlite(patch: Patches) -> None:
    """A restore for which the disk has no room ends with an error that says so."""

    def wrong(end_load: Any, writer: Writer) -> None:
        writer._finish(0)

    patch.wrap(Writer, "end_load", wrong)


def a_disk_that_fails_counts_as_a_corrupt_store(patch: Patches) -> None:
    """Only a damaged store is called corrupt."""
    patch.set(examiner, "_CODE", re.compile("(?!)"))
    patch.set(examiner, "_unreadable", lambda error: "SQLite can't read a page that it needs")


def a_transaction_that_an_error_has_ended_is_committed(patch: Patches) -> None:
    """A read that the disk fails reports the error of the disk."""

    def wrong(read: Any, connection: sqlite3.Connection, *args: Any) -> Any:
        try:
            return read(connection, *args)
        except sqlite3.Error:
            connection.execute("COMMIT")
            raise

    patch.wrap(reads, "journal", wrong)
    patch.wrap(reads, "totals", wrong)


def a_node_starts_with_an_error_of_sqlite(patch: Patches) -> None:
    """A node whose file can't be opened says which file that is."""
    patch.set(replica, "translated", lambda error, where: error)


def a_service_that_stops_denies(patch: Patches) -> None:
    """A service that stops is not there any more for those who ask before they call."""

    async def leave(client: Connection, subscriptions: Sequence[Subscription]) -> None:
        for one in subscriptions:
            await client.drain(one)

    async def wrong(
        drain: Any, subscriptions: Mapping[Connection, Sequence[Subscription]]
    ) -> set[Connection]:
        await asyncio.gather(*(leave(client, some) for client, some in subscriptions.items()))
        return set()

    patch.wrap(service, "_drain", wrong)


OWN: Final = (
    a_full_disk_at_the_end_of_a_restore_is_an_error_of_sqlite,
    a_disk_that_fails_counts_as_a_corrupt_store,
    a_transaction_that_an_error_has_ended_is_committed,
    a_node_starts_with_an_error_of_sqlite,
    a_service_that_stops_denies,
    a_backup_is_read_at_many_instants,
    the_key_of_the_audit_is_not_synced,
    a_large_call_runs_beside_a_group_of_its_namespace,
    readers_ask_without_a_pause,
    commits_are_not_synced,
    requests_are_not_remembered,
    fences_are_not_checked,
    the_loop_waits_by_reading_the_clock,
    a_long_commit_that_gave_way_counts_as_done,
    the_disk_has_half_of_a_batch,
)


def _with(function: Callable[..., Any], **fixed: Any) -> Callable[..., Any]:
    return lambda *args, **fields: function(*args, **{**fields, **fixed})


def planted(name: str) -> Callable[[], None]:
    """What plants a bug."""
    return _planted(_known()[name])


def _known() -> dict[str, Bug]:
    own = {plant.__name__: Bug(plant.__name__, plant.__doc__ or "", plant, ()) for plant in OWN}
    return {**own, **all_bugs()}


def look_for_bugs(arguments: argparse.Namespace, ops: Mapping[str, int]) -> int:
    """Plant bugs and print the seeds until each is found; 1 if one is not found.

    A seed counts only if nothing is found in it without the bug.
    """
    bugs = _known()
    if unknown := set(arguments.bugs) - set(bugs):
        print(f"unknown bugs: {', '.join(sorted(unknown))}")
        return 2
    counts: list[int] = []
    missed = 0
    with Runner(arguments.jobs) as runner:
        hunt = Hunt(runner, arguments, ops)
        for bug, target, gap in _chosen(arguments, bugs):
            if target is None:
                proof = UNNOTICED.get(bug.name, "")
                print(f"{'not noticed: ' if proof else 'not simulated: '}{gap:<40} {bug.name}")
                found = Hunted(bug.name, gap="" if proof else gap, proof=proof)
            else:
                found = hunt.look_for(bug, target)
                missed += not found.kind
                if found.kind:
                    counts.append(found.seeds)
            if arguments.record:
                with KEPT.open("ab") as file:
                    file.write(msgspec.json.encode(found) + b"\n")
    median = statistics.median(counts) if counts else 0
    print(f"{len(counts)} of {len(counts) + missed} bugs found, the median after {median:g} seeds")
    return int(missed > 0)


PLANTED: Final = "the planted bug"
"""Counts how often the code of a bug has run, beside the points of the library."""


class Counted(Patches):
    """Patches that count how often they are used. A value that is no function counts as used."""

    def set(self, owner: Any, name: Any, value: Any) -> None:
        """See `Patches.set`."""
        if inspect.isfunction(value):
            super().set(owner, name, _counted(value))
        elif isinstance(value, property) and value.fget is not None:
            super().set(owner, name, property(_counted(value.fget)))
        else:
            points[PLANTED] += 1
            super().set(owner, name, value)


def _counted(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def counted(*args: Any, **fields: Any) -> Any:
        points[PLANTED] += 1
        return function(*args, **fields)

    return counted


class Hunted(msgspec.Struct, omit_defaults=True):
    """What came of looking for a bug: in how many seeds, the seed that found it and as what, or why none did.

    Attributes:
        gap: What is not simulated, or what a search without success has shown.
        proof: Why nobody can notice the bug.
        plan: What of the seeds was run, if not all.
    """

    bug: str
    target: str = ""
    seeds: int = 0
    seed: int = 0
    kind: str = ""
    gap: str = ""
    proof: str = ""
    ops: int = 0
    plan: str = ""


class Hunt:
    """Looks for bugs, one after the other.

    Args:
        runner: Makes the runs.
        arguments: Of the command line.
        ops: The usual number of operations of each target.
    """

    def __init__(self, runner: Runner, arguments: argparse.Namespace, ops: Mapping[str, int]) -> None:
        self._runner = runner
        self._arguments = arguments
        self._ops = ops
        self._plan = Plan.parse(arguments.plan or [])
        self._clean: dict[tuple[str, int], bool] = {}

    def look_for(self, bug: Bug, target: str) -> Hunted:
        """Plant a bug in one seed after the other until it is found."""
        tried = reached = 0
        for number in range(self._arguments.seeds or SEEDS):
            seed, ops = self._arguments.first + number, self._arguments.ops or self._ops[target]
            job = Job(target, seed, self._plan, ops)
            result = self._runner.one(job._replace(before=_planted(bug)))
            if result.findings and not self._is_clean(job):
                continue
            tried += 1
            reached += result.points.get(PLANTED, 0)
            if result.findings:
                finding = result.findings[0]
                text = " ".join(finding.text.split())[:90]
                print(f"{target:<8} after {tried:>3} seeds  {bug.name}: {finding.kind}: {text}", flush=True)
                return Hunted(bug.name, target, tried, seed, finding.kind, ops=ops, plan=str(self._plan))
            if tried >= NEVER and not reached:
                break
        runs = "" if reached else ", its code never ran"
        print(f"{target:<8} not in {tried:>2} seeds  {bug.name}{runs}", flush=True)
        gap = "" if reached else "its code never ran"
        return Hunted(bug.name, target, tried, gap=gap, ops=ops, plan=str(self._plan))

    def _is_clean(self, job: Job) -> bool:
        place = (job.target, job.seed)
        if place not in self._clean:
            self._clean[place] = not self._runner.one(job).findings
        return self._clean[place]


def _chosen(arguments: argparse.Namespace, bugs: Mapping[str, Bug]) -> Iterator[tuple[Bug, str | None, str]]:
    """The bugs to look for, with their targets, or with what is not simulated."""
    for bug in bugs.values():
        subject = bug.plant.__module__.rpartition(".")[2]
        target = ELSEWHERE.get(bug.name) or WHERE.get(subject)
        if arguments.bugs and bug.name not in arguments.bugs:
            continue
        gap = UNNOTICED.get(bug.name) or GAPS.get(bug.name) or (None if target else MODULES[subject])
        if gap is not None:
            yield bug, None, gap
        elif arguments.target in {None, target}:
            yield bug, target, ""


def _planted(bug: Bug) -> Callable[[], None]:
    return lambda: bug.plant(Counted())
