"""Bugs between the handles and the engines: groups, their order, quotas that make room, sweeps, watches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.errors import HoldfastError, QuotaExceeded
from holdfast.handles import table_answers
from holdfast.pipeline import batcher, executor, pipeline
from holdfast.pipeline.batcher import Batcher, PendingCommand, _Lane
from holdfast.pipeline.executor import Executor
from holdfast.pipeline.watch import Bell
from holdfast.upkeep.reaper import RUN, Reaper
from holdfast.upkeep_commands import ExpireRun
from tests.mutate.planting import bug

if TYPE_CHECKING:
    from holdfast.decide import Outcome
    from tests.mutate.planting import Patches

_replace: Final = msgspec.structs.replace


class _Nothing:
    """A kind that no command is of."""


# Executor


@bug("tests/unit/test_batcher.py")
def commands_share_a_group_with_a_change_of_policy(patch: Patches) -> None:
    """Commands after a change of policy are loaded under the new policy."""
    patch.set(batcher, "SetPolicy", _Nothing)


@bug("tests/unit/test_batcher.py")
def a_run_shares_its_group(patch: Patches) -> None:
    """A run of expiries is in no group with commands that may be about the same entries."""
    patch.set(batcher, "ExpireRun", _Nothing)


@bug("tests/unit/test_order.py")
def a_write_passes_a_read_that_is_under_way(patch: Patches) -> None:
    """A write waits for every slow read that was submitted before it."""
    patch.set(
        PendingCommand,
        "held",
        property(lambda waiting: bool(waiting.after) and not any(read.done() for read in waiting.after)),
    )


@bug("tests/unit/test_batcher.py")
def a_new_command_does_not_end_the_wait_for_a_read(patch: Patches) -> None:
    """A write that waits for a read does not hold up commands that need not wait."""
    patch.within((Batcher, "_lane"), (_Lane, "wake"))


@bug("tests/unit/test_batcher.py")
def an_expensive_command_shares_its_group(patch: Patches) -> None:
    """A command that takes long does not hold up other namespaces."""
    patch.set(batcher, "_is_expensive", lambda waiting: False)


@bug("tests/unit/test_company.py")
def what_may_take_a_lock_runs_beside_a_fenced_write(patch: Patches) -> None:
    """No fenced write is decided while a command that may take its lock is being executed."""

    def wrong(take: Any, lane: _Lane, group: list[PendingCommand]) -> PendingCommand | None:
        plain = [waiting for waiting in group if len(set(waiting.read_namespaces)) == 1]
        taken: PendingCommand | None = take(lane, plain)
        return taken

    patch.wrap(_Lane, "take_expensive", wrong)


@bug("tests/unit/test_store.py")
def a_command_that_fails_takes_its_group_with_it(patch: Patches) -> None:
    """A command that can't be executed fails alone."""

    async def wrong(executor: Executor, commands: list[Any], error: Exception | None) -> Outcome:
        raise error or AssertionError

    patch.set(Executor, "_one_by_one", wrong)


@bug("tests/unit/test_store.py")
def what_was_executed_one_by_one_is_told_to_nobody(patch: Patches) -> None:
    """Listeners hear of every commit."""

    async def wrong(one_by_one: Any, executor: Executor, *given: Any) -> Any:
        return _replace(await one_by_one(executor, *given), journal=[])

    patch.wrap(Executor, "_one_by_one", wrong)


@bug("tests/unit/test_policies.py")
def what_a_sweep_for_a_quota_removed_is_told_to_nobody(patch: Patches) -> None:
    """Listeners hear of entries that expired to make room."""

    async def wrong(sweeping: Any, executor: Executor, commands: Any, outcome: Outcome) -> Any:
        return _replace(await sweeping(executor, commands, outcome), journal=outcome.journal)

    patch.wrap(Executor, "_after_sweeping", wrong)


@bug("tests/unit/test_policies.py")
def a_quota_refuses_parts_without_a_sweep(patch: Patches) -> None:
    """A quota refuses a part of a command only after expired entries were removed."""
    patch.set(executor, "_may_be_full", lambda kind: kind is QuotaExceeded)


@bug("tests/unit/test_policies.py")
def parts_that_were_done_are_done_again_after_a_sweep(patch: Patches) -> None:
    """After a sweep only the refused parts of a command are executed again."""
    patch.set(executor, "_anew", lambda command, positions: command)


# Sweeps


@bug("tests/unit/test_reaper.py")
def only_the_first_run_of_a_crowd_expires(patch: Patches) -> None:
    """A sweep removes every entry that is due."""

    async def wrong(reaper: Reaper, namespace: str) -> int:
        return await reaper._ask(ExpireRun(namespace=namespace, limit=RUN))

    patch.set(Reaper, "_expire_runs", wrong)


@bug("tests/unit/test_reaper.py")
def a_failed_sweep_counts_as_done(patch: Patches) -> None:
    """A sweep that fails is reported and made again."""

    async def wrong(expire: Any, reaper: Reaper, *given: Any, **fields: Any) -> int:
        try:
            return int(await expire(reaper, *given, **fields))
        except HoldfastError:
            return 0

    patch.wrap(Reaper, "_expire", wrong)


@bug("tests/conformance/test_memory.py")
def the_journal_keeps_a_record_a_moment_too_long(patch: Patches) -> None:
    """A record is dropped at the end of its retention."""
    patch.wrap(Reaper, "_trim_journal", lambda trim, reaper, namespace, now: trim(reaper, namespace, now - 1))


# Watches


@bug("tests/conformance/test_memory.py")
def a_watch_skips_what_did_not_fit(patch: Patches) -> None:
    """A page of changes goes on where the one before it ended."""

    async def wrong(records_after: Any, *given: Any, **fields: Any) -> Any:
        found = await records_after(*given, **fields)
        return msgspec.structs.replace(found, next=found.head)

    for module in (pipeline, table_answers):
        patch.wrap(module, "records_after", wrong)


@bug("tests/unit/test_watch.py")
def a_bell_that_rings_while_nobody_waits_is_not_heard(patch: Patches) -> None:
    """A change during a read is seen at once, not a second later."""

    async def wrong(heard: Any, bell: Bell) -> None:
        bell._rung.clear()
        await heard(bell)

    patch.wrap(Bell, "heard", wrong)
