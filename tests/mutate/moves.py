"""Bugs in the moves of whole stores: what is lost, kept or not compared. Tests once missed most of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.engines.sqlite import SqliteEngine
from holdfast.engines.sqlite.raw import SqliteLoader
from holdfast.errors import OutcomeUnknown, Unavailable
from holdfast.moves import backups, transfers
from holdfast.moves.transfers import Copier, StoreTransfer, _Work
from tests.mutate.planting import bug

if TYPE_CHECKING:
    from tests.mutate.planting import Patches

_replace: Final = msgspec.structs.replace


async def _nothing(*given: Any, **fields: Any) -> None:
    """Do nothing."""


# The proof of a switch


@bug("tests/moves/test_proof.py")
def what_was_written_during_a_switch_is_compared_by_version(patch: Patches) -> None:
    """What was written during a switch is compared by its contents."""

    async def wrong(renew: Any, work: _Work, section: Any, found: list[Any], positions: list[Any]) -> Any:
        ours = {
            one.position: one.content.version for one in await work._ours.find(work._name, section, positions)
        }
        equal = {one.position for one in found if ours.get(one.position) == one.content.version}
        rest = [position for position in positions if position not in equal]
        return await renew(work, section, [one for one in found if one.position not in equal], rest)

    patch.wrap(_Work, "_renew", wrong)


@bug("tests/moves/test_proof.py")
def a_switch_compares_versions_alone(patch: Patches) -> None:
    """Everything is compared by its contents before a switch."""
    patch.wrap(
        StoreTransfer,
        "step",
        lambda step, transfer, *, thorough=False, since=None: step(transfer, since=since),
    )


@bug("tests/moves/test_proof.py")
def a_small_store_is_not_compared_whole_while_it_is_closed(patch: Patches) -> None:
    """If all of a store can be compared in time, it is compared while nothing can change."""
    patch.wrap(
        StoreTransfer,
        "_prove",
        lambda prove, transfer, since, *, thorough: prove(transfer, since, thorough=False),
    )


@bug("tests/moves/test_proof.py")
def the_proof_of_a_switch_skips_what_was_written_during_it(patch: Patches) -> None:
    """The proof of a switch compares what has changed since everything was compared."""
    patch.wrap(
        StoreTransfer,
        "_prove",
        lambda prove, transfer, since, *, thorough: prove(transfer, {}, thorough=thorough),
    )


@bug("tests/moves/test_proof.py")
def a_switch_goes_on_without_a_proof(patch: Patches) -> None:
    """If the two stores do not become equal, nothing moves."""

    async def wrong(prove: Any, transfer: StoreTransfer, *given: Any, **fields: Any) -> None:
        try:
            await prove(transfer, *given, **fields)
        except Unavailable:
            return

    patch.wrap(StoreTransfer, "_prove", wrong)


@bug("tests/moves/test_proof.py")
def a_hand_over_whose_outcome_is_unknown_opens_the_source(patch: Patches) -> None:
    """Two stores are never open: while the target may be in use, the source stays closed."""

    async def wrong(hand_over: Any, transfer: StoreTransfer) -> None:
        try:
            await hand_over(transfer)
        except OutcomeUnknown:
            await transfer._give_back()
            raise

    patch.wrap(StoreTransfer, "_hand_over", wrong)


@bug("tests/moves/test_proof.py")
def a_switch_that_fails_leaves_the_source_closed(patch: Patches) -> None:
    """If a switch fails or is interrupted, the source accepts writes again."""
    patch.set(StoreTransfer, "_give_back", _nothing)


@bug("tests/moves/test_following.py")
def a_switch_leaves_the_source_open_to_writes(patch: Patches) -> None:
    """No write is accepted by a store that has moved."""
    patch.within((StoreTransfer, "_switch"), (SqliteEngine, "close_to_writes"))


# Copies


@bug("tests/moves/test_copying.py")
def a_namespace_counts_as_in_step_before_it_is(patch: Patches) -> None:
    """A copy that was interrupted goes on where it was, and skips nothing."""

    async def compare_all(right: Any, work: _Work) -> None:
        rows = {one.name: one for one in await work._theirs.namespaces()}
        await work.flush(rows.get(work._name))
        await right(work)

    async def follow(right: Any, work: _Work, new: Any, *given: Any) -> None:
        await work.flush(new)
        await right(work, new, *given)

    patch.wrap(_Work, "compare_all", compare_all)
    patch.wrap(_Work, "follow", follow)


@bug("tests/moves/test_copying.py")
def a_pass_does_not_look_further_back_than_the_target_is(patch: Patches) -> None:
    """A pass reads the journal from where it is told to."""
    patch.wrap(transfers, "_before", lambda before, new, old, since: before(new, old, {}))


@bug("tests/moves/test_copying.py")
def a_copy_relies_on_a_journal_that_was_trimmed(patch: Patches) -> None:
    """Where the journal does not reach back, everything is compared."""
    patch.wrap(
        transfers,
        "_before",
        lambda before, new, *rest: before(new and _replace(new, journal_floor=0), *rest),
    )


@bug("tests/moves/test_copying.py")
def a_target_that_is_ahead_is_left_as_it_is(patch: Patches) -> None:
    """A target with later versions than its source is brought back."""
    patch.wrap(
        transfers,
        "_before",
        lambda before, new, *rest: before(new and _replace(new, revision=10**9), *rest),
    )


@bug("tests/moves/test_copying.py")
def a_copy_keeps_namespaces_that_its_source_does_not_have(patch: Patches) -> None:
    """A copy holds what its source holds and nothing else."""
    patch.within((Copier, "step"), (SqliteLoader, "drop_namespaces"))


@bug("tests/moves/test_copying.py")
def a_copy_passes_itself_off_as_its_source(patch: Patches) -> None:
    """A copy is a store of its own, with an epoch of its own."""
    patch.wrap(StoreTransfer, "finish", lambda finish, transfer, **fields: finish(transfer, keep_epoch=True))


@bug("tests/moves/test_copying.py")
def a_target_is_overwritten_without_asking(patch: Patches) -> None:
    """Whoever copies is asked before anything is overwritten."""
    patch.wrap(StoreTransfer, "begin", lambda begin, transfer, overwrite: begin(transfer, lambda names: None))


# Backups


@bug("tests/moves/test_backup_file.py")
def fields_of_a_newer_backup_are_left_out(patch: Patches) -> None:
    """A backup of a newer version is refused rather than restored in part."""
    patch.set(backups, "_FIELDS", {})


@bug("tests/moves/test_backups.py")
def the_checksums_of_a_backup_are_not_compared(patch: Patches) -> None:
    """A damaged backup is refused."""

    class Anything(bytes):
        __hash__ = bytes.__hash__

        def __eq__(self, other: object) -> bool:
            return True

        def __ne__(self, other: object) -> bool:
            return False

    patch.wrap(backups, "_checksum", lambda checksum, *given: Anything(checksum(*given)))
