"""Mistakes that somebody could make in the decision of the library, each planted at will.

A bug is a function that plants it with monkeypatch, named for what it gets wrong; its docstring says
which rule it breaks. Nothing here is found by the bug's own name: the machine must see its effect.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast import rules
from holdfast.commands import Batch, Delete, Deleted, Incr, Many, Removed, Restore, Results, Set, Stored
from holdfast.decide import decision, entries, keys, policies, upkeep
from holdfast.decide.draft import Draft
from holdfast.engines.memory import MemoryEngine
from holdfast.errors import HoldfastError, VersionConflict
from holdfast.rows import KV, TRASH, Address, Overdue, Row
from holdfast.upkeep_commands import Expire, ExpireRun

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def expires_late(patch: pytest.MonkeyPatch) -> None:
    """An entry is gone at its instant, not after it."""
    patch.setattr(Row, "alive", lambda row, now: row.expires_at is None or row.expires_at >= now)


def birth_survives_expiry(patch: pytest.MonkeyPatch) -> None:
    """created_at survives overwriting, but not expiry."""
    store = keys._store

    def wrong(draft: Draft, key: str, before: Row | None, origin: Any, **given: Any) -> Stored:
        old = draft._loaded.rows.get(Address(draft.name, KV, key))
        if old is not None:
            given.setdefault("created_at", old.created_at)
        return store(draft, key, before, origin, **given)

    patch.setattr(keys, "_store", wrong)


def birth_lost_on_overwriting(patch: pytest.MonkeyPatch) -> None:
    """created_at survives overwriting."""
    store = keys._store

    def wrong(draft: Draft, key: str, before: Row | None, origin: Any, **given: Any) -> Stored:
        return store(draft, key, before, origin, **{"created_at": draft.now, **given})

    patch.setattr(keys, "_store", wrong)


def version_reused_after_delete(patch: pytest.MonkeyPatch) -> None:
    """A version is never used twice."""

    def wrong(draft: Draft, command: Delete) -> Any:
        result = original(draft, command)
        if result.version is not None:
            draft.namespace.revision -= 1
        return result

    original = _replace(patch, Delete, wrong)


def deadline_lost_on_incr(patch: pytest.MonkeyPatch) -> None:
    """On a live key incr keeps the deadline."""

    def wrong(draft: Draft, command: Incr) -> Stored:
        result = original(draft, command)
        return _changed(draft, result, expires_at=None)

    original = _replace(patch, Incr, wrong)


def incr_moves_the_deadline(patch: pytest.MonkeyPatch) -> None:
    """The ttl of an incr applies only when it creates the key."""

    def wrong(draft: Draft, command: Incr) -> Stored:
        result = original(draft, command)
        return (
            result
            if command.ttl is None
            else _changed(draft, result, expires_at=draft.now + command.ttl * 1000)
        )

    original = _replace(patch, Incr, wrong)


def keep_ignored(patch: pytest.MonkeyPatch) -> None:
    """KEEP keeps the running deadline."""

    def wrong(draft: Draft, command: Set) -> Any:
        return original(draft, msgspec.structs.replace(command, keep_ttl=False))

    original = _replace(patch, Set, wrong)


def semantics_not_replaced(patch: pytest.MonkeyPatch) -> None:
    """A set replaces the semantics."""

    def wrong(draft: Draft, command: Set) -> Any:
        before = entries.live(draft, command.key)
        if before is not None and command.semantics is None:
            command = msgspec.structs.replace(command, semantics=before.semantics)
        return original(draft, command)

    original = _replace(patch, Set, wrong)


def checks_after_the_writes(patch: pytest.MonkeyPatch) -> None:
    """A batch is judged before its first write."""

    def wrong(draft: Draft, command: Batch) -> Any:
        result = original(draft, msgspec.structs.replace(command, checks=()))
        original(draft, msgspec.structs.replace(command, writes=()))
        return result

    original = _replace(patch, Batch, wrong)


def batch_half_done(patch: pytest.MonkeyPatch) -> None:
    """A batch is all or nothing: here its failed checks stop only the writes of their keys."""

    def wrong(draft: Draft, command: Batch) -> Any:
        try:
            return original(draft, command)
        except VersionConflict as conflict:
            failed = {one.key for one in conflict.conflicts}
            rest = tuple(write for write in command.writes if getattr(write, "key", "") not in failed)
            return original(draft, msgspec.structs.replace(command, checks=(), writes=rest))

    original = _replace(patch, Batch, wrong)


def request_content_ignored(patch: pytest.MonkeyPatch) -> None:
    """A request id with other content is a conflict."""
    patch.setattr(decision, "blake2b", lambda _, digest_size: blake2b(b"", digest_size=digest_size))


def requests_remembered_too_long(patch: pytest.MonkeyPatch) -> None:
    """A request is remembered for 24 hours."""
    patch.setattr(rules, "REQUEST_RETENTION", 8 * 86_400)


def refusals_remembered(patch: pytest.MonkeyPatch) -> None:
    """What set_many refused is judged anew when it is sent again."""

    def wrong(draft: Draft, command: Any, content: str, known: Any, apply: Any) -> Results:
        again = decision._again
        return Results(
            tuple(
                VersionConflict("refused before") if reply is None else again(item, reply)
                for item, reply in zip(command.items, known, strict=True)
            )
        )

    patch.setattr(decision, "_complete", wrong)


def expired_key_deleted(patch: pytest.MonkeyPatch) -> None:
    """Deleting a key that has expired answers false."""

    def wrong(draft: Draft, command: Delete) -> Any:
        there = draft.row(Address(draft.name, KV, command.key)) is not None
        result = original(draft, command)
        return Deleted(draft.namespace.revision) if there and result.version is None else result

    original = _replace(patch, Delete, wrong)


def expiry_without_a_record(patch: pytest.MonkeyPatch) -> None:
    """Writing over an entry that has expired unnoticed records the expiry first."""
    patch.setattr(entries, "expire", entries.remove)


def journal_not_rolled_back(patch: pytest.MonkeyPatch) -> None:
    """A refused command leaves no record."""

    class Indelible(list[Any]):
        def __delitem__(self, part: Any) -> None:
            """What was written stays."""

    def wrong(draft: Draft, name: str) -> None:
        if not isinstance(draft._journal, Indelible):
            draft._journal = Indelible(draft._journal)
        original(draft, name)

    original = Draft._enter
    patch.setattr(Draft, "_enter", wrong)


def restored_with_the_old_version(patch: pytest.MonkeyPatch) -> None:
    """A restored entry has a new version."""

    def wrong(draft: Draft, command: Restore) -> Any:
        kept = draft.row(Address(draft.name, TRASH, command.key.encode()))
        result = original(draft, command)
        return result if kept is None else _changed(draft, result, version=kept.version)

    original = _replace(patch, Restore, wrong)


def restored_with_the_old_deadline(patch: pytest.MonkeyPatch) -> None:
    """A restored entry has no deadline unless one is given."""

    def wrong(draft: Draft, command: Restore) -> Any:
        kept = draft.row(Address(draft.name, TRASH, command.key.encode()))
        result = original(draft, command)
        if kept is None or command.ttl is not None:
            return result
        return _changed(draft, result, expires_at=kept.expires_at)

    original = _replace(patch, Restore, wrong)


def trash_outlives_its_week(patch: pytest.MonkeyPatch) -> None:
    """The trash is kept for 7 days."""
    patch.setattr(rules, "TRASH_RETENTION", 8 * 86_400)


def everything_goes_to_the_trash(patch: pytest.MonkeyPatch) -> None:
    """Locks, caches and sessions skip the trash."""
    patch.setattr(policies, "_UNTRASHED", frozenset())


def fences_ignored(patch: pytest.MonkeyPatch) -> None:
    """An older holder of a lock can't write."""
    patch.setattr(decision, "_check_fence", lambda draft, fence: None)


def one_refusal_stops_the_rest(patch: pytest.MonkeyPatch) -> None:
    """Each item of a set_many stands for itself."""

    def wrong(draft: Draft, command: Many) -> Any:
        results = original(draft, command)
        for result in results.items:
            if isinstance(result, HoldfastError):
                raise result
        return results

    original = _replace(patch, Many, wrong)


def sweep_takes_too_much(patch: pytest.MonkeyPatch) -> None:
    """A sweep removes what is due and nothing else: here it counts what others have noticed before it."""

    def wrong(draft: Draft, command: Expire) -> Removed:
        original(draft, command)
        return Removed(len(command.keys) + 1)

    original = _replace(patch, Expire, wrong)


def bytes_of_the_old_value_stay(patch: pytest.MonkeyPatch) -> None:
    """Stats count the bytes of what is there."""

    def wrong(draft: Draft, key: str, row: Row) -> None:
        draft.namespace.keys -= 1

    patch.setattr(entries, "_uncount", wrong)


def run_reuses_a_version(patch: pytest.MonkeyPatch) -> None:
    """Each expiry has a version of its own, also when many go together."""

    def wrong(draft: Draft, command: ExpireRun) -> Removed:
        result: Removed = original(draft, command)
        draft.namespace.revision -= bool(result.count)
        return result

    original = _replace(patch, ExpireRun, wrong)


def run_is_not_uncounted(patch: pytest.MonkeyPatch) -> None:
    """Stats count what is there, also after many went together."""

    def wrong(draft: Draft, command: ExpireRun) -> Removed:
        result: Removed = original(draft, command)
        draft.namespace.keys += result.count
        return result

    original = _replace(patch, ExpireRun, wrong)


def run_takes_what_means_something(patch: pytest.MonkeyPatch) -> None:
    """An entry with semantics goes to the trash however many go together."""

    def wrong(engine: MemoryEngine, namespace: str, now: int) -> list[tuple[Any, Row]]:
        due = [(key, row) for key, row in engine._range(namespace, KV, "", None) if not row.alive(now)]
        return sorted(due, key=lambda found: found[1].expires_at or 0)

    patch.setattr(MemoryEngine, "_plain", wrong)


def run_is_not_late(patch: pytest.MonkeyPatch) -> None:
    """The record of an expiry says how late it was noticed."""
    run = Draft.run

    def wrong(draft: Draft, overdue: Overdue) -> None:
        run(draft, overdue)
        draft._runs[-1] = msgspec.structs.replace(draft._runs[-1], at=overdue.until)

    patch.setattr(Draft, "run", wrong)


def log_forgets_a_number(patch: pytest.MonkeyPatch) -> None:
    """The items of a log have no gaps."""
    following = keys._next_number
    patch.setattr(keys, "_next_number", lambda draft, name, last: following(draft, name, last + (last == 1)))


def log_keeps_one_too_many(patch: pytest.MonkeyPatch) -> None:
    """`keep` is the number of items that stay."""
    trimmed = keys._trimmed
    patch.setattr(
        keys, "_trimmed", lambda draft, command, first, upto: trimmed(draft, command, first, upto - 1)
    )


def intention_carried_out_again(patch: pytest.MonkeyPatch) -> None:
    """What was intended once is done once."""
    once = decision.once

    def wrong(draft: Draft, command: Any, apply: Any) -> Any:
        return apply(draft, command) if command.origin.once is True else once(draft, command, apply)

    patch.setattr(decision, "once", wrong)


BUGS: Final[tuple[Callable[[pytest.MonkeyPatch], None], ...]] = (
    expires_late,
    birth_survives_expiry,
    birth_lost_on_overwriting,
    version_reused_after_delete,
    deadline_lost_on_incr,
    incr_moves_the_deadline,
    keep_ignored,
    semantics_not_replaced,
    checks_after_the_writes,
    batch_half_done,
    request_content_ignored,
    requests_remembered_too_long,
    refusals_remembered,
    expired_key_deleted,
    expiry_without_a_record,
    journal_not_rolled_back,
    restored_with_the_old_version,
    restored_with_the_old_deadline,
    trash_outlives_its_week,
    everything_goes_to_the_trash,
    fences_ignored,
    one_refusal_stops_the_rest,
    sweep_takes_too_much,
    bytes_of_the_old_value_stay,
    run_reuses_a_version,
    run_is_not_uncounted,
    run_takes_what_means_something,
    run_is_not_late,
    log_forgets_a_number,
    log_keeps_one_too_many,
    intention_carried_out_again,
)
"""All of them."""


def _replace(patch: pytest.MonkeyPatch, kind: type, wrong: Callable[[Draft, Any], Any]) -> Any:
    """Have commands of a kind applied wrongly; the right way is returned."""
    original = decision._APPLY[kind]
    for table in (keys.APPLY, upkeep.APPLY, decision._APPLY):
        if kind in table:
            patch.setitem(table, kind, wrong)
    return original


def _changed(draft: Draft, result: Stored, **fields: Any) -> Stored:
    """An entry that was just stored, with other fields."""
    row = msgspec.structs.replace(result.row, **fields)
    draft.put(Address(draft.name, KV, result.key), row)
    return Stored(result.key, row)
