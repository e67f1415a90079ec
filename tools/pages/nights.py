"""The tables of recorded runs of the simulation, for the page about trust."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

LEASE: Final = "a read in the last milliseconds of a lease, at a node that hears the log late"
DOUBT: Final = "a message that is stored without an answer, right before another node writes"
OVERTAKEN: Final = "a forwarded group that another node's message overtakes"
SAVED: Final = "a caller that waits for less than a lease lasts, and a file that fails"
READERS: Final = "readers at two nodes within a millisecond of a write, and a third node that hears late"
SNAPSHOT: Final = "a node that is cut off and fetches a snapshot while it waits for a reply"
NEEDED: Final = {
    "a_renewed_lease_counts_from_the_answer": "a renewal that is answered late, and another holder meanwhile",
    "a_lease_goes_by_the_slower_clock": "a process that agrees on the time of its file while it holds a lock",
    "the_limit_of_a_short_page_stays": "a query on the loop of more steps than a short page may take",
    "what_may_take_a_lock_runs_beside_a_fenced_write": (
        "a reader in another process between two commits of one service"
    ),
    "others_write_before_a_lease_has_ended": LEASE,
    "a_look_that_outlasts_the_lease_is_shown": (
        "a slow look that begins under a lease and shows what the next holder has not heard of"
    ),
    "a_node_that_could_not_save_a_write_keeps_its_lease": SAVED,
    "a_late_message_in_doubt_is_decided_again": DOUBT,
    "a_node_that_falls_behind_mistakes_what_is_certain": DOUBT,
    "a_write_without_an_answer_is_decided_again": DOUBT,
    "an_unknown_outcome_is_told_as_not_taken": OVERTAKEN,
    "a_forwarded_group_that_lost_its_place_is_decided_again": OVERTAKEN,
    "a_forwarded_group_is_decided_however_late": OVERTAKEN,
    "a_forwarded_group_without_a_reply_is_decided_again": OVERTAKEN,
    "the_holder_tells_less_than_its_file_shows": READERS,
    "a_reader_shows_what_the_holder_of_the_lease_has_not_seen": READERS,
    "a_gap_in_the_log_is_passed_over": "a message that is skipped, and a read before it comes again",
    "a_run_shares_its_group": "a write of an entry in one group with its expiry in a crowd",
    "commands_share_a_group_with_a_change_of_policy": (
        "not known: groups with a policy and a write are common, and nothing disagrees after them"
    ),
    "a_commit_is_made_after_the_deadline_of_its_caller": "a pause in a transaction, and a reader meanwhile",
    "a_write_that_was_refused_as_busy_is_done_later": "a process that stands still in its turn for over 5 s",
    "a_row_is_kept_though_the_file_changed_while_it_was_read": (
        "another process's commit during a read of over 128 rows, and a second read meanwhile"
    ),
    "a_killed_store_goes_on_from_the_time_that_it_had_stored": "a clock set back while its machine is off",
    "the_next_process_that_opens_the_file_has_another_time": "a clock that is set before a process starts",
    "a_disk_that_fails_counts_as_a_corrupt_store": "a read of a page that fails right when a service starts",
    "a_node_that_starts_again_writes_into_a_lease": (
        "a node that starts again and writes while another one that has a lease hears late and only reads"
    ),
    "a_snapshot_hides_that_a_forwarded_group_is_stored": SNAPSHOT,
    "a_forwarded_group_from_before_a_snapshot_is_taken": SNAPSHOT,
    "a_replaced_replica_does_not_know_what_its_file_shows": SNAPSHOT,
    "a_snapshot_claims_what_was_written_meanwhile": (
        "over 30 messages while a file is copied, and a node that needs the snapshot at once"
    ),
    "a_full_disk_at_the_end_of_a_restore_is_an_error_of_sqlite": "a disk that is full at its commit",
    "an_unknown_outcome_is_given_up_at_once": "a retried write without an answer",
}
"""What a world must bring together for a bug that was looked for without success, where that is known."""
RECORDS: Final = Path(__file__).resolve().parents[2] / "tests" / "simulation"


def _nights() -> Iterator[str]:
    yield "| day | target | seeds | operations | faults | virtual minutes | replayed, equal | with findings |"
    yield "|---|---|---|---|---|---|---|---|"
    days: dict[tuple[str, str], Counter[str]] = {}
    for run in _lines("nights"):
        day = days.setdefault((run["at"][:10], run["target"]), Counter())
        counted = ("seeds", "ops", "virtual", "replayed", "equal", "findings")
        day.update({name: run.get(name, 0) for name in counted})
        day["faults"] += sum(run["faults"].values())
    for (at, target), day in days.items():
        yield (
            f"| {at} | {target} | {day['seeds']:,} | {day['ops']:,} | {day['faults']:,} "
            f"| {day['virtual'] / 60:,.1f} | {day['replayed']}, {day['equal']} | {day['findings']} |"
        )


def _hunts() -> Iterator[str]:
    latest: dict[str, dict[str, Any]] = {}
    for one in _lines("hunts"):
        before = latest.get(one["bug"], {})
        tried = 0 if "kind" in before else before.get("seeds", 0)
        latest[one["bug"]] = {**one, "seeds": tried + one.get("seeds", 0)}
    found = sorted((one for one in latest.values() if "kind" in one), key=lambda one: one["seeds"])
    missed = [one for one in latest.values() if "kind" not in one and "target" in one]
    absent = [one for one in latest.values() if "target" not in one and "proof" not in one]
    unnoticed = [one for one in latest.values() if "proof" in one]
    median = statistics.median(one["seeds"] for one in found)
    yield (
        f"The simulation has found {len(found)} of the {len(found) + len(missed)} planted bugs that were "
        f"looked for, half of them within {median:g} seeds; {len(absent)} more are about what it does not "
        f"simulate, and {len(unnoticed)} change nothing that a user could notice."
    )
    yield ""
    yield "| found | target | seeds | in seed | as |"
    yield "|---|---|---|---|---|"
    for one in found:
        seed = " ".join(filter(None, [str(one["seed"]), one.get("plan")]))
        yield f"| `{one['bug']}` | {one['target']} | {one['seeds']} | {seed} | {one['kind']} |"
    yield ""
    yield "| not found yet | target | seeds | what has to come together |"
    yield "|---|---|---|---|"
    for one in missed:
        yield f"| `{one['bug']}` | {one['target']} | {one['seeds']} | {NEEDED.get(one['bug'], 'not known')} |"
    yield ""
    yield "| no user can notice | why |"
    yield "|---|---|"
    for one in unnoticed:
        yield f"| `{one['bug']}` | {one['proof']} |"
    yield ""
    yield "| not simulated | bugs |"
    yield "|---|---|"
    for gap in sorted({one["gap"] for one in absent}):
        bugs = ", ".join(f"`{one['bug']}`" for one in absent if one["gap"] == gap)
        yield f"| {gap} | {bugs} |"


def _lines(name: str) -> Iterator[dict[str, Any]]:
    for line in (RECORDS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
        yield json.loads(line)


BLOCKS: Final[dict[str, Callable[[], Iterable[str]]]] = {"nights": _nights, "hunts": _hunts}
