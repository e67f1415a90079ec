"""Bugs in what the verbs mean: expiry, versions, refusals, quotas, the trash. `tests/machine` has more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast import families, rules
from holdfast.commands import Append, Guard, Load, Restore, Set, Stored
from holdfast.decide import audit, decision, entries, keys, policies, upkeep
from holdfast.decide import draft as drafts
from holdfast.decide.decision import Decision
from holdfast.decide.draft import Draft, Needs
from holdfast.engines.postgres import engine as postgres
from holdfast.engines.postgres import sql
from holdfast.errors import HoldfastError
from holdfast.rows import GUARD, KV, TRASH, Address, Namespace, Overdue
from tests.mutate.planting import bug

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.mutate.planting import Patches

_replace: Final = msgspec.structs.replace


def _apply(patch: Patches, kind: type, wrong: Callable[..., Any]) -> None:
    """Have commands of a kind applied wrongly, alone and as parts of a batch."""
    for table in (decision._APPLY, keys.APPLY):
        patch.wrap(table, kind, wrong)


# Refusals


@bug("tests/unit/test_decide.py")
def a_refusal_leaves_its_counters_behind(patch: Patches) -> None:
    """A refused command changes no counter of its namespace."""

    def wrong(attempt: Any, draft: Draft, apply: Any, command: Any) -> Any:
        changed: list[Namespace] = []

        def noting(draft: Draft, command: Any) -> Any:
            changed.append(draft.namespace)
            return apply(draft, command)

        result = attempt(draft, noting, command)
        if isinstance(result, HoldfastError):
            draft._namespaces[draft.name] = draft.namespace = changed[0]
        return result

    patch.wrap(Draft, "attempt", wrong)


@bug("tests/unit/test_decide.py")
def a_refusal_leaves_its_first_row_behind(patch: Patches) -> None:
    """A refused command changes no row."""
    patch.wrap(Draft, "_take_back", lambda take_back, draft, length: take_back(draft, length + 1))


@bug("tests/unit/test_slices.py")
def a_refusal_in_a_later_slice_leaves_the_earlier_ones_behind(patch: Patches) -> None:
    """A command that is applied in slices is refused as a whole."""

    def wrong(attempt: Any, draft: Draft, apply: Any, command: Any) -> Any:
        draft._suspended = None
        return attempt(draft, apply, command)

    patch.wrap(Draft, "attempt", wrong)


@bug("tests/unit/test_slices.py")
def a_slice_can_not_be_taken_back(patch: Patches) -> None:
    """What a slice needs to be taken back is kept until its command is done."""

    def wrong(take: Any, decision: Decision, commands: Any) -> int:
        count: int = take(decision, commands)
        decision._draft.keep()
        return count

    patch.wrap(Decision, "take", wrong)


@bug("tests/unit/test_slices.py")
def every_slice_of_a_batch_makes_its_checks(patch: Patches) -> None:
    """The checks of a batch are made once, before its first write."""
    patch.set(keys, "begun", lambda draft, phase: False)


@bug("tests/unit/test_work.py")
def an_expensive_condition_is_judged_in_one_piece(patch: Patches) -> None:
    """A condition that takes long is judged in slices, between which other callers get their turn."""
    patch.set(Draft, "unchanged", property(lambda draft: False))


# Versions and time


@bug("tests/unit/test_load.py")
def a_load_takes_the_version_back(patch: Patches) -> None:
    """Versions of a namespace only rise, whatever versions a load brings."""

    def wrong(draft: Draft, *, at_least: int = 0) -> int:
        draft.namespace.revision = at_least or draft.namespace.revision + 1
        draft.namespace.changed_at = draft.now
        return draft.namespace.revision

    patch.set(Draft, "version", wrong)


@bug("tests/unit/test_decide.py")
def the_time_of_a_namespace_goes_back_with_the_clock(patch: Patches) -> None:
    """The time of a change is never before that of the change before it."""

    def wrong(enter: Any, draft: Draft, name: str) -> None:
        enter(draft, name)
        draft.now = draft._group_now

    patch.wrap(Draft, "_enter", wrong)


@bug("tests/unit/test_decide.py")
def an_expiry_uses_no_version(patch: Patches) -> None:
    """Each expiry has a version of its own."""
    patch.within((entries, "expire"), (Draft, "version"), lambda draft: draft.namespace.revision)


@bug("tests/engines/test_runs.py")
def a_run_is_made_twice_in_a_group(patch: Patches) -> None:
    """What a run removes was counted before the group, so a group makes one run of a namespace."""
    patch.set(Draft, "overdue", property(lambda draft: draft._loaded.runs.get(draft.name, Overdue())))


@bug("tests/conformance/test_memory.py")
def entries_that_the_trash_keeps_expire_in_a_run(patch: Patches) -> None:
    """Where the trash keeps every entry, none expires without going there."""
    patch.within((upkeep, "expire_run"), (entries, "trash_seconds"))


@bug("tests/conformance/test_memory.py")
def audited_entries_expire_in_a_run(patch: Patches) -> None:
    """In an audited namespace every expiry is audited."""
    patch.within((upkeep, "expire_run"), (entries, "audited"), lambda namespace: False)


# Reads and writes


@bug("tests/conformance/test_sqlite.py")
def a_value_is_not_loaded_if_another_command_does_without(patch: Patches) -> None:
    """A group loads a value if any of its commands needs it."""
    patch.set(Needs, "row", lambda needs, address, *, value=False: needs.rows.update({address: value}))


@bug("tests/unit/test_load.py")
def a_load_brings_back_what_has_expired(patch: Patches) -> None:
    """A load leaves out entries whose deadline has passed."""

    def wrong(load: Any, draft: Draft, command: Load) -> Any:
        living = tuple(
            (key, row if row.alive(draft.now) else _replace(row, expires_at=None))
            for key, row in command.entries
        )
        return load(draft, _replace(command, entries=living))

    _apply(patch, Load, wrong)


@bug("tests/conformance/test_memory.py")
def a_restored_entry_stays_in_the_trash(patch: Patches) -> None:
    """An entry can be restored once."""

    def wrong(restore: Any, draft: Draft, command: Restore) -> Any:
        address = Address(draft.name, TRASH, command.key.encode())
        kept = draft.row(address)
        result = restore(draft, command)
        draft.put(address, kept)
        return result

    _apply(patch, Restore, wrong)


@bug("tests/conformance/test_memory.py")
def an_entry_can_be_restored_after_its_time_in_the_trash(patch: Patches) -> None:
    """What the trash has kept for its time is gone, even before it is swept."""

    def wrong(restore: Any, draft: Draft, command: Restore) -> Any:
        address = Address(draft.name, TRASH, command.key.encode())
        if (kept := draft.row(address)) is not None:
            draft.put(address, _replace(kept, expires_at=None))
        return restore(draft, command)

    _apply(patch, Restore, wrong)


@bug("tests/conformance/test_memory.py")
def a_restored_entry_is_new(patch: Patches) -> None:
    """A restored entry was created when it was first written."""

    def wrong(restore: Any, draft: Draft, command: Restore) -> Stored:
        result = restore(draft, command)
        row = _replace(result.row, created_at=draft.now)
        draft.put(Address(draft.name, KV, command.key), row)
        return Stored(command.key, row)

    _apply(patch, Restore, wrong)


@bug("tests/conformance/test_memory.py")
def a_lock_is_taken_with_the_token_before(patch: Patches) -> None:
    """Each holder of a lock has a greater token than the one before."""

    def wrong(guard: Any, draft: Draft, command: Guard) -> Stored:
        row = guard(draft, command).row
        row = _replace(row, version=row.version - 1)
        draft.put(Address(draft.name, GUARD, command.lock.encode()), row)
        return Stored(command.lock, row)

    _apply(patch, Guard, wrong)


@bug("tests/conformance/test_memory.py")
def a_request_with_an_id_ignores_its_fence(patch: Patches) -> None:
    """A fence holds for every write, also for one that may be repeated."""

    def wrong(fenced: Any, draft: Draft, command: Any) -> Any:
        if command.origin.repeatable:
            return decision._APPLY[type(command)](draft, command)
        return fenced(draft, command)

    patch.wrap(decision, "_apply_fenced", wrong)


# Rows that other programs wrote


@bug("tests/unit/test_decide.py")
def a_row_of_another_program_is_never_counted(patch: Patches) -> None:
    """An entry is counted once Holdfast writes it, even over a row that another program wrote."""

    def wrong(put: Any, draft: Draft, key: str, before: Any, row: Any) -> None:
        unseen = before is not None and before.version == 0
        put(draft, key, _replace(before, version=-1) if unseen else before, row)

    patch.wrap(keys, "put", wrong)


@bug("tests/unit/test_decide.py")
def expecting_no_entry_accepts_a_row_of_another_program(patch: Patches) -> None:
    """A write that expects no entry does not overwrite what another program wrote."""

    def wrong(expected: Any, draft: Draft, command: Any) -> Any:
        row = entries.live(draft, command.key)
        return row if row is not None and command.expected == row.version else expected(draft, command)

    patch.wrap(keys, "_expected", wrong)


# Quotas and policies


@bug("tests/unit/test_kept.py")
def a_namespace_past_its_quota_may_not_shrink(patch: Patches) -> None:
    """A write that makes a namespace smaller is accepted, however full the namespace is."""

    def wrong(check: Any, before: Namespace, after: Namespace, command: Any, *, defaults: Any) -> None:
        empty = Namespace(name=before.name, keys=before.keys, revision=before.revision)
        check(empty, after, command, defaults=defaults)

    patch.wrap(drafts, "check_quota", wrong)


@bug("tests/unit/test_kept.py")
def the_default_quota_holds_for_nobody(patch: Patches) -> None:
    """A namespace without a quota of its own has the default one."""
    patch.wrap(policies, "quota_of", lambda quota_of, namespace, defaults: quota_of(namespace, None))


@bug("tests/unit/test_kept.py")
def a_quota_does_not_see_what_the_journal_holds(patch: Patches) -> None:
    """A quota counts the details that the journal keeps."""
    patch.set(drafts, "record_weight", lambda record: len(record.key))


# Logs, intentions and fences


@bug("tests/conformance/test_memory.py", "-k", "in_the_way")
def an_item_overwrites_an_entry_in_its_way(patch: Patches) -> None:
    """An append passes over a number whose key was written by other means."""
    patch.set(keys, "_next_number", lambda draft, name, last: last + 1)


@bug("tests/conformance/test_memory.py", "-k", "keep")
def a_log_keeps_one_item_too_few(patch: Patches) -> None:
    """With `keep`, so many of the newest items stay."""
    patch.wrap(
        keys,
        "_trimmed",
        lambda trimmed, draft, command, first, upto: trimmed(draft, command, first, upto + 1),
    )


@bug("tests/conformance/test_memory.py", "-k", "loaded_items")
def a_loaded_item_does_not_move_the_head_of_its_log(patch: Patches) -> None:
    """A log goes on after the items that were loaded from another store."""
    patch.set(keys, "_keep_number", lambda draft, key: None)


@bug("tests/conformance/test_memory.py", "-k", "never_given_twice or numbers_outlive")
def a_log_begins_again_when_its_last_item_is_gone(patch: Patches) -> None:
    """No number is given twice, whatever becomes of the items."""

    def wrong(following: Any, draft: Draft, name: str, last: int) -> int:
        while last and draft.look(Address(draft.name, KV, rules.item_key(name, last))) is None:
            last -= 1
        number: int = following(draft, name, last)
        return number

    patch.wrap(keys, "_next_number", wrong)


@bug("tests/conformance/test_memory.py", "-k", "first_result_counts")
def an_intention_is_bound_to_its_content(patch: Patches) -> None:
    """A known id of an intention returns the first result, whatever else the command says."""

    def wrong(once: Any, draft: Draft, command: Any, apply: Any) -> Any:
        origin = _replace(command.origin, once=msgspec.UNSET)
        return once(draft, _replace(command, origin=origin), apply)

    patch.wrap(decision, "once", wrong)


@bug("tests/conformance/test_memory.py", "-k", "first_result_counts")
def an_intention_returns_the_second_value(patch: Patches) -> None:
    """A known id of an intention returns the value of the first time."""
    patch.set(decision, "_contains_value", lambda command: isinstance(command, Set | Append))


@bug("tests/conformance/test_memory.py", "-k", "belongs_to_its_verb")
def an_intention_returns_the_result_of_another_verb(patch: Patches) -> None:
    """An id that another verb has used is refused."""

    def wrong(once: Any, draft: Draft, command: Any, apply: Any) -> Any:
        known = draft.row(decision.request_address(command))
        if known is None or command.origin.once is not True:
            return once(draft, command, apply)
        memory = msgspec.json.decode(known.value or "", type=decision.Memory)
        return decision._again(command, memory.reply)

    patch.wrap(decision, "once", wrong)


@bug("tests/unit/test_tracing.py")
def an_expiry_belongs_to_the_trace_of_the_write_that_finds_it(patch: Patches) -> None:
    """The trace of a request has what the request has asked for."""
    patch.wrap(
        audit, "_trace_id", lambda trace_id, draft, record: trace_id(draft, _replace(record, op="set"))
    )


@bug("tests/conformance/test_memory.py", "-k", "live_fence")
def a_live_fence_does_not_look_at_the_lease(patch: Patches) -> None:
    """A live fence refuses a holder whose lease has run out."""
    patch.wrap(
        decision,
        "_check_fence",
        lambda check, draft, fence: check(draft, _replace(fence, live=msgspec.UNSET)),
    )


@bug("tests/conformance/test_memory.py", "-k", "fences_of")
def a_fence_of_a_blob_looks_for_its_lock_among_the_blobs(patch: Patches) -> None:
    """Writes to tables and blobs rely on locks among the plugin's keys."""
    patch.set(families, "locks", lambda namespace: namespace)


@bug("tests/engines/test_postgres.py", "-k", "fence")
def a_fenced_write_to_a_blob_shares_a_transaction(patch: Patches) -> None:
    """In PostgreSQL a transaction of several plugins has no fence whose lock it does not hold."""
    patch.set(postgres, "families", SimpleNamespace(has_keys=lambda namespace: True))


@bug("tests/engines/test_postgres.py", "-k", "fence")
def the_namespace_of_a_fence_is_not_locked(patch: Patches) -> None:
    """In PostgreSQL nobody takes a lock between the check of a fence and the commit."""
    patch.wrap(
        sql, "lock_namespace", lambda lock, name: "SELECT 1" if name.startswith("'kv/") else lock(name)
    )
