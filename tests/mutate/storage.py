"""Bugs in the SQLite engine and in the clocks of a store."""

from __future__ import annotations

import fcntl
import os
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast import clock
from holdfast.clock import KeptLine
from holdfast.engines.sqlite import SqliteEngine, files, reads, setup, sharing, writer
from holdfast.engines.sqlite.cache import RowCache
from holdfast.engines.sqlite.files import Presence
from holdfast.engines.sqlite.log import FRAME, LogHeader, LogRoom, Span
from holdfast.engines.sqlite.reads import ThreadConnections
from holdfast.engines.sqlite.sharing import Turn, UpkeepLease
from holdfast.engines.sqlite.writer import PendingJob, Stale, Writer
from holdfast.errors import OutcomeUnknown
from holdfast.pipeline.change_feed import ChangeFeed
from holdfast.rows import Row
from tests.mutate.planting import bug

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.decide import Outcome
    from holdfast.engine import Scan, Scanned
    from holdfast.rows import Address
    from tests.mutate.planting import Patches

_replace: Final = msgspec.structs.replace


async def _nothing(*given: Any, **fields: Any) -> None:
    """Do nothing."""


# The rows that a SQLite store keeps in memory


@bug("tests/engines/test_sqlite_cache.py")
def the_older_rows_of_the_cache_are_never_removed(patch: Patches) -> None:
    """The cache forgets a row that was removed, alone or in a run."""

    def wrong(learn: Any, cache: RowCache, outcome: Outcome, span: Span | None) -> None:
        before = dict(cache._before)
        learn(cache, outcome, span)
        cache._before.update(before)

    patch.wrap(RowCache, "learn", wrong)


@bug("tests/engines/test_sqlite_cache.py")
def a_row_that_grew_too_large_for_the_cache_stays_as_it_was(patch: Patches) -> None:
    """The cache forgets a row that is replaced by one that is too large for it."""

    def wrong(remove: Any, cache: RowCache, address: Address) -> None:
        known = cache._rows.get(address)
        remove(cache, address)
        if known is not None:
            cache._rows[address] = known

    patch.wrap(RowCache, "_remove", wrong)


@bug("tests/engines/test_sqlite_cache.py")
def the_cache_outlives_a_failed_commit(patch: Patches) -> None:
    """After a failed commit nothing is known of the file."""

    async def wrong(save: Any, engine: SqliteEngine, *given: Any, **fields: Any) -> None:
        forget = engine._cache.forget
        engine._cache.forget = lambda: None  # type: ignore[method-assign]
        try:
            await save(engine, *given, **fields)
        finally:
            engine._cache.forget = forget  # type: ignore[method-assign]

    patch.wrap(SqliteEngine, "save", wrong)


@bug("tests/engines/test_sqlite_cache.py")
def a_reader_does_not_ask_whether_others_have_written(patch: Patches) -> None:
    """A read sees what another program committed before it."""

    def wrong(cache: RowCache) -> bytes | None:
        cache._at = cache._at or b"some header"
        return cache._at

    patch.set(RowCache, "fresh", wrong)


@bug("tests/engines/test_sqlite_cache.py")
def a_thread_does_not_ask_whether_others_have_written(patch: Patches) -> None:
    """A read on another thread sees what another program committed before it."""
    patch.set(RowCache, "peek", lambda cache, address: cache._rows.get(address))


@bug("tests/engines/test_sqlite_cache.py")
def a_row_is_kept_though_the_file_changed_while_it_was_read(patch: Patches) -> None:
    """A row is kept only if the file is the same before and after it was read."""

    def wrong(cache: RowCache, at: bytes, rows: Iterable[tuple[Address, Row]]) -> bool:
        for address, row in rows:
            cache._put(address, row)
        return True

    patch.set(RowCache, "keep", wrong)


@bug("tests/engines/test_sqlite_cache.py")
def a_commit_is_believed_to_be_all_that_has_changed(patch: Patches) -> None:
    """After a commit the cache keeps the other rows only if nobody else has written."""
    patch.set(RowCache, "_move", lambda cache, span: None)


@bug("tests/engines/test_sqlite_cache.py")
def closing_a_store_drops_the_locks_of_another(patch: Patches) -> None:
    """A store that is closed leaves the locks of SQLite alone that others of its process hold."""

    def wrong(header: LogHeader) -> None:
        os.close(header._descriptor)
        header._known.clear()

    patch.set(LogHeader, "leave", wrong)


@bug("tests/engines/test_sqlite_log.py")
def room_in_the_log_is_made_where_the_last_commit_ends(patch: Patches) -> None:
    """What follows the commits that this process has seen may belong to one that is being written."""

    def wrong(room: LogRoom, needed: int, size: int) -> None:
        with room._path.open("r+b") as log:
            log.seek(needed - 8 * FRAME)
            log.write(bytes(size - needed))

    patch.set(LogRoom, "_extend", wrong)


@bug("tests/engines/test_sqlite_log.py")
def the_log_grows_with_every_commit(patch: Patches) -> None:
    """Commits find room in the log."""
    patch.set(LogRoom, "provide", lambda room, header, pages: None)


# Other programs that use a SQLite file


@bug("tests/engines/test_sqlite_others.py")
def a_refusal_is_not_checked_against_the_file(patch: Patches) -> None:
    """A refusal is true of what other programs have written meanwhile."""
    patch.set(Writer, "make_sure", lambda writer, seen: None)


@bug("tests/engines/test_sqlite_others.py")
def what_another_program_wrote_is_overwritten(patch: Patches) -> None:
    """A group is decided again if another program has written since its rows were loaded."""
    patch.within((Writer, "_attempt"), (Writer, "_look_for_others"))


@bug("tests/engines/test_sqlite_others.py")
def the_store_is_stale_for_ever_after_another_program_wrote(patch: Patches) -> None:
    """A store goes on after another program has written to its file."""

    async def wrong(save: Any, engine: SqliteEngine, *given: Any, **fields: Any) -> None:
        version = engine._writer.data_version
        try:
            await save(engine, *given, **fields)
        except Stale:
            engine._writer.data_version = version
            raise

    patch.wrap(SqliteEngine, "save", wrong)


@bug("tests/engines/test_sqlite_close.py")
def two_processes_have_a_file_alone(patch: Patches) -> None:
    """One process at a time has a file for itself."""
    patch.set(sharing, "fcntl", SimpleNamespace(**{**vars(fcntl), "LOCK_EX": fcntl.LOCK_SH}))


# Commits and reads of SQLite


@bug("tests/engines/test_sqlite_others.py")
def a_failed_commit_leaves_its_transaction_open(patch: Patches) -> None:
    """A failed commit does not keep the next one from succeeding."""
    patch.within((Writer, "_attempt"), (Writer, "_roll_back"))


@bug("tests/engines/test_sqlite.py")
def a_commit_that_broke_off_counts_as_not_made(patch: Patches) -> None:
    """If a commit fails half way, its outcome is unknown."""

    def wrong(finish: Any, writer: Writer, pages: int) -> None:
        try:
            finish(writer, pages)
        except OutcomeUnknown as error:
            raise error.__cause__ or error from None

    patch.wrap(Writer, "_finish", wrong)


@bug("tests/unit/test_deadlines.py")
def a_commit_is_made_after_the_deadline_of_its_caller(patch: Patches) -> None:
    """A write whose caller has given up is not made, however long its commit had to wait."""
    patch.wrap(
        Writer,
        "_attempt",
        lambda attempt, writer, plan, pages, now, deadline, *given, **more: attempt(
            writer, plan, pages, now, None, *given, **more
        ),
    )


@bug("tests/conformance/test_sqlite.py")
def reading_several_keys_shows_what_has_expired(patch: Patches) -> None:
    """A read of several keys leaves out those whose deadline has passed."""
    patch.within((SqliteEngine, "read"), (Row, "alive"), lambda row, now: True)


@bug("tests/engines/test_sqlite_vanished.py")
def a_commit_into_a_file_that_vanished_is_acknowledged(patch: Patches) -> None:
    """A write is acknowledged only if the file is there after its commit."""
    patch.set(Presence, "still", lambda presence: presence._gone is None)


@bug("tests/engines/test_sqlite_vanished.py")
def nobody_looks_for_the_index_of_the_log(patch: Patches) -> None:
    """A store notices that any of its files has vanished."""
    patch.set(files, "_SUFFIXES", ("-wal",))


@bug("tests/engines/test_sqlite_vanished.py")
def a_thread_reads_the_file_that_has_replaced_the_store(patch: Patches) -> None:
    """No thread reads another file than the one that the store has open."""
    patch.wrap(
        ThreadConnections,
        "__init__",
        lambda init, connections, path, there: init(connections, path, lambda: True),
    )


# Clocks


@bug("tests/clocks/test_wall.py")
def the_line_of_a_killed_store_is_ignored(patch: Patches) -> None:
    """A store that was killed goes on from the time that it may have answered with."""
    patch.set(KeptLine, "counts_for", lambda line, clock: False)


@bug("tests/clocks/test_wall.py")
def a_line_counts_after_the_machine_was_restarted(patch: Patches) -> None:
    """Ticks are compared only with ticks of the same machine since the same start."""
    patch.set(KeptLine, "counts_for", lambda line, clock: line.open and line.machine is not None)


@bug("tests/clocks/test_wall.py")
def a_killed_store_goes_on_from_the_time_that_it_had_stored(patch: Patches) -> None:
    """Without ticks to compare, a killed store starts no earlier than it may have answered."""
    patch.set(clock, "UNREMEMBERED", 0)


@bug("tests/clocks/test_wall.py")
def a_store_that_was_closed_counts_as_killed(patch: Patches) -> None:
    """A store that was closed goes on from the time at which it was closed."""
    patch.set(SqliteEngine, "close_line", _nothing)


@bug("tests/engines/test_sqlite_interrupted.py")
def a_process_checkpoints_in_the_turn_of_another(patch: Patches) -> None:
    """The log is written back only by the process whose turn it is."""
    patch.within((Writer, "checkpoint"), (Turn, "attempt"), lambda turn: True)


@bug("tests/engines/test_sqlite_sharing.py")
def a_process_does_not_notice_that_others_write(patch: Patches) -> None:
    """No increment of one of several processes is lost."""
    patch.set(Writer, "_look_for_others", lambda writer, connection, seen: None)


@bug("tests/engines/test_sqlite_sharing.py")
def the_cache_outlives_the_writes_of_other_processes(patch: Patches) -> None:
    """What a process knows about a file is forgotten once another process has written to it."""
    patch.set(RowCache, "forget", lambda cache: None)


@bug("tests/engines/test_sqlite_sharing.py")
def nobody_looks_whether_other_processes_have_written(patch: Patches) -> None:
    """A commit verifies that no other process has written since its rows were loaded."""
    patch.set(writer, "_version_of", lambda connection: 1)


@bug("tests/engines/test_sqlite_sharing.py")
def each_process_counts_the_pages_of_the_log_alone(patch: Patches) -> None:
    """The log has one bound, however many processes fill it."""
    patch.set(Turn, "_tell", lambda turn: None)


@bug("tests/edges/nats/test_events.py")
def a_service_does_not_follow_what_others_write(patch: Patches) -> None:
    """A change of any process is published."""
    patch.set(ChangeFeed, "_take_heads", lambda feed, heads: None)


@bug("tests/engines/test_sqlite_sharing.py")
def every_process_does_the_upkeep(patch: Patches) -> None:
    """Of several processes, one does the upkeep."""
    patch.set(UpkeepLease, "leads", lambda lease: True)


@bug("tests/engines/test_sqlite_sharing.py")
def a_write_that_was_refused_as_busy_is_done_later(patch: Patches) -> None:
    """A caller that was told BUSY finds nothing written afterwards."""
    patch.set(PendingJob, "begin", lambda job: None)


@bug("tests/engines/test_sqlite.py", "-k", "short_page")
def the_limit_of_a_short_page_stays(patch: Patches) -> None:
    """Only short pages are interrupted when they take long, and no other query on the loop."""

    def wrong(scan: Any, connection: Any, query: Scan, now: int) -> Scanned | None:
        found: Scanned | None = scan(connection, query, now)
        connection.set_progress_handler(count().__next__, reads.BRIEF_STEPS)
        return found

    patch.wrap(reads, "scan_briefly", wrong)


@bug("tests/engines/test_sqlite.py", "-k", "a_page_has_every_row")
def a_long_page_ends_where_the_loop_stops_to_look(patch: Patches) -> None:
    """A page has all rows that it may have, also if it has more than the loop reads."""

    def wrong(scan: Any, connection: Any, query: Scan, now: int) -> Scanned | None:
        found: Scanned | None = scan(connection, query, now)
        return None if found is None else msgspec.structs.replace(found, more=False)

    patch.wrap(reads, "scan_briefly", wrong)


@bug("tests/clocks/test_wall.py")
def the_next_process_that_opens_the_file_has_another_time(patch: Patches) -> None:
    """All processes that have a file open have the same time."""
    patch.set(setup, "agreed_line", lambda connection: None)
