"""The semantics of the verbs on keys.

Each verb is one function over a draft, found in `APPLY`. `NEEDS` names the rows that it reads, and `FURTHER`
more of them if those that were loaded show that they are needed. An entry that has reached its deadline does
not exist: the command that finds it records its expiry first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import UNSET

from holdfast import rules
from holdfast.commands import (
    Append,
    Batch,
    BatchPart,
    Check,
    Delete,
    Deleted,
    Get,
    Got,
    Guard,
    Incr,
    KeyChange,
    Load,
    Many,
    Missed,
    Restore,
    Results,
    Set,
    SetTtl,
    Stored,
    Touch,
    Versions,
    WriteCommand,
    Written,
)
from holdfast.decide.draft import Draft, Loaded, Needs, begun, each
from holdfast.decide.entries import (
    deadline,
    deadline_of_write,
    expire,
    live,
    need_trash,
    put,
    record,
    remove,
    to_trash,
    trashed,
)
from holdfast.decide.policies import check_endless, check_value
from holdfast.errors import KeyNotFound, ValidationError, VersionConflict
from holdfast.model import Conflict, number_in
from holdfast.origin import Origin
from holdfast.rows import GUARD, KV, LOG, TRASH, Address, Row
from holdfast.rules import MAX_VALUE_BYTES
from holdfast.stored import purpose_of, value_of

MAX_TRIMMED: Final = 100
"""Largest number of old items of a log that one append removes, so that it takes little time."""
MAX_TAKEN: Final = 100
"""Largest number of numbers that an append passes over because other writes have taken their keys."""


def _get(draft: Draft, command: Get) -> Got:
    row = draft.row(Address(draft.name, KV, command.key))
    return Got(row if row is not None and row.alive(draft.now) else None)


def _set(draft: Draft, command: Set) -> Stored:
    before = _expected(draft, command)
    expires_at = deadline_of_write(draft, command, before)
    size = command.size
    if size > MAX_VALUE_BYTES:
        check_value(draft.namespace, size)
    return _store(
        draft,
        command.key,
        before,
        command.origin,
        value=command.value,
        size=size,
        expires_at=expires_at,
        semantics=command.semantics,
        spec_ref=command.origin.spec_ref,
    )


def _delete(draft: Draft, command: Delete) -> Deleted:
    before = _expected(draft, command)
    if before is None:
        return Deleted(None)
    return Deleted(_removed(draft, command.key, before, command.origin), purpose_of(before.semantics))


def _removed(draft: Draft, key: str, before: Row, origin: Origin) -> int:
    """Remove an entry. Returns the version of the deletion."""
    remove(draft, key, before)
    to_trash(draft, key, before, op="deleted", by=origin.writer)
    version = draft.version()
    record(draft, "deleted", key, version=version, origin=origin, before=before, after=None)
    return version


def _incr(draft: Draft, command: Incr) -> Stored:
    before = _expected(draft, command)
    if before is None:
        if command.only_if_exists is True:
            raise KeyNotFound(f"key {command.key!r} does not exist", field="key")
        value, size = rules.encode_value(command.by)
        expires_at, semantics, spec_ref = deadline(draft, command.ttl), None, None
    else:
        value, size = _sum(command, before)
        expires_at, semantics, spec_ref = before.expires_at, before.semantics, before.spec_ref
    return _store(
        draft,
        command.key,
        before,
        command.origin,
        value=value,
        size=size,
        expires_at=expires_at,
        semantics=semantics,
        spec_ref=command.origin.spec_ref or spec_ref,
    )


def _sum(command: Incr, before: Row) -> tuple[str, int]:
    number = value_of(command.key, before)
    if type(number) is not int and type(number) is not float:
        raise ValidationError(f"the value of key {command.key!r} is not a number", field="value")
    try:
        return rules.encode_value(number + command.by)
    except (OverflowError, ValidationError):
        raise ValidationError("the sum is too large for a number", field="by") from None


def _set_ttl(draft: Draft, command: SetTtl) -> Stored:
    before = _expected(draft, command)
    if before is None:
        raise KeyNotFound(f"key {command.key!r} does not exist", field="key")
    if command.ttl is None:
        check_endless(draft.namespace)
    return _expiring(draft, command, before, command.ttl)


def _touch(draft: Draft, command: Touch) -> Stored | Missed:
    before = _expected(draft, command)
    return Missed() if before is None else _expiring(draft, command, before, command.ttl_seconds)


def _expiring(draft: Draft, command: KeyChange, before: Row, ttl: int | None) -> Stored:
    """Store an entry again with another deadline."""
    return _store(
        draft,
        command.key,
        before,
        command.origin,
        value=before.value,
        size=before.size,
        expires_at=None if ttl is None else deadline(draft, ttl),
        semantics=before.semantics,
        spec_ref=command.origin.spec_ref or before.spec_ref,
    )


def _restore(draft: Draft, command: Restore) -> Stored:
    current = _expected(draft, command)
    if current is not None:
        raise VersionConflict(
            f"key {command.key!r} exists at version {current.version}: delete it before restoring",
            current=draft.account.entry(command.key, current),
        )
    address = Address(draft.name, TRASH, command.key.encode())
    kept = draft.row(address)
    if kept is None or not kept.alive(draft.now):
        raise KeyNotFound(f"key {command.key!r} is not in the trash", field="key")
    value = bytes(trashed(command.key, kept).value)
    draft.put(address, None)
    return _store(
        draft,
        command.key,
        None,
        command.origin,
        op="restored",
        value=value.decode(),
        size=len(value),
        expires_at=deadline(draft, command.ttl),
        created_at=kept.created_at,
        semantics=kept.semantics,
        spec_ref=command.origin.spec_ref or kept.spec_ref,
    )


class LogHead(msgspec.Struct, frozen=True):
    """The stored head of a log: the number of its newest item, and the first that may still have an entry.

    It is never removed, so that no number is given twice, whatever becomes of the items.
    """

    last: int = 0
    first: int = 1


def _append(draft: Draft, command: Append) -> Stored:
    address = _log_address(draft.name, command.name)
    head = _head(draft.row(address))
    number = _next_number(draft, command.name, head.last)
    if command.size > MAX_VALUE_BYTES:
        check_value(draft.namespace, command.size)
    stored = _store(
        draft,
        rules.item_key(command.name, number),
        None,
        command.origin,
        value=command.value,
        size=command.size,
        expires_at=deadline(draft, command.ttl),
        semantics=command.semantics,
        spec_ref=command.origin.spec_ref,
    )
    first = (
        head.first if command.keep is None else _trimmed(draft, command, head.first, number - command.keep)
    )
    _put_head(draft, address, LogHead(last=number, first=first))
    return stored


def _next_number(draft: Draft, name: str, last: int) -> int:
    """Return the number after the last one. One whose key another write has taken is passed over."""
    for number in range(last + 1, min(last + MAX_TAKEN, rules.MAX_LOG_NUMBER) + 1):
        if _item(draft, rules.item_key(name, number)) is None:
            return number
    if last + MAX_TAKEN > rules.MAX_LOG_NUMBER:
        raise ValidationError(f"log {name!r} has no number left", field="name")
    key = rules.item_key(name, last + 1)
    raise VersionConflict(
        f"the keys after item {last} of log {name!r} are taken: {MAX_TAKEN} entries from {key!r} on were "
        "written by other means; delete them"
    )


def _trimmed(draft: Draft, command: Append, first: int, upto: int) -> int:
    """Remove the items up to a number, as many as one call may. Returns the first that is left."""
    for number in range(first, min(upto, first + MAX_TRIMMED - 1) + 1):
        key = rules.item_key(command.name, number)
        row = _item(draft, key)
        if row is not None:
            _removed(draft, key, row, command.origin)
        first = number + 1
    return first


def _item(draft: Draft, key: str) -> Row | None:
    """Return the live entry of an item, which may not have been loaded."""
    row = draft.look(Address(draft.name, KV, key))
    if row is None or row.alive(draft.now):
        return row
    expire(draft, key, row)
    return None


@lru_cache(maxsize=1024)
def _log_address(namespace: str, name: str) -> Address:
    return Address(namespace, LOG, name.encode())


def _head(row: Row | None) -> LogHead:
    return LogHead() if row is None else msgspec.json.decode(row.value or "", type=LogHead)


def _put_head(draft: Draft, address: Address, head: LogHead) -> None:
    value = msgspec.json.encode(head)
    row = Row(
        value=value.decode(),
        size=len(value),
        version=draft.namespace.revision,
        created_at=draft.now,
        updated_at=draft.now,
    )
    draft.put(address, row)


def _keep_number(draft: Draft, key: str) -> None:
    """See that a log never gives the number of an item that comes from another store."""
    number = number_in(key)
    if number is not None:
        address = _log_address(draft.name, key.rpartition("/")[0])
        head = _head(draft.row(address))
        if number > head.last:
            _put_head(draft, address, LogHead(last=number, first=head.first))


def _guard(draft: Draft, command: Guard) -> Stored:
    version = draft.version()
    row = Row(
        value="null",
        size=4,
        version=version,
        created_at=draft.now,
        updated_at=draft.now,
        last_writer=command.origin.writer,
        request_id=command.origin.request_id,
    )
    draft.put(Address(draft.name, GUARD, command.lock.encode()), row)
    return Stored(command.lock, row)


def _batch(draft: Draft, command: Batch) -> Versions:
    results = () if begun(draft, 1) else each(draft, 0, command.checks, _failed)
    conflicts = [conflict for conflict in results if conflict is not None]
    if conflicts:
        named = ", ".join(repr(conflict.key) for conflict in conflicts[:5])
        raise VersionConflict(
            f"{len(conflicts)} of {len(command.checks)} checks failed: {named}",
            current=conflicts[0].current,
            conflicts=conflicts,
        )
    made = each(draft, 1, command.writes, _part)
    versions, purposes, numbers = zip(*made, strict=True) if made else ((), (), ())
    return Versions(versions, purposes, UNSET if not any(numbers) else numbers)


def _load(draft: Draft, command: Load) -> Written:
    count = 0
    for key, row in command.entries:
        if not row.alive(draft.now):
            continue
        if row.size > MAX_VALUE_BYTES:
            check_value(draft.namespace, row.size)
        before = live(draft, key)
        version = draft.version(at_least=row.version if command.keep_versions else 0)
        after = msgspec.structs.replace(row, version=version)
        put(draft, key, before, after)
        origin = Origin(
            writer=row.last_writer,
            request_id=row.request_id or command.origin.request_id,
            spec_ref=row.spec_ref,
        )
        record(
            draft,
            "set",
            key,
            version=version,
            origin=origin,
            before=before,
            after=after,
            by=command.origin,
        )
        _keep_number(draft, key)
        count += 1
    return Written(count)


def _part(draft: Draft, write: BatchPart) -> tuple[int | None, str | None, int | None]:
    """Apply one of the writes of a batch. Returns its version, the entry's purpose, and an item's number."""
    result = APPLY[type(write)](draft, write)
    if isinstance(result, Stored):
        number = number_in(result.key) if isinstance(write, Append) else None
        return result.row.version, purpose_of(result.row.semantics), number
    return result.version, result.purpose, None


def _many(draft: Draft, command: Many) -> Results:
    return Results(tuple(each(draft, 0, command.items, _attempt)))


def _attempt(draft: Draft, item: Set | Delete) -> Any:
    return draft.attempt(APPLY[type(item)], item)


def _failed(draft: Draft, check: Check) -> Conflict | None:
    row = live(draft, check.key)
    if check.version == (0 if row is None else row.version) and (check.version or row is None):
        return None
    current: Any = None if row is None else draft.account.entry(check.key, row)
    return Conflict(key=check.key, expected_version=check.version, current=current)


def _expected(draft: Draft, command: KeyChange) -> Row | None:
    """Return the live entry, after checking that it is the one the caller expects."""
    row = live(draft, command.key)
    if command.expected is None:
        return row
    if row is None:
        if command.expected == 0:
            return None
        raise VersionConflict(
            f"key {command.key!r} does not exist, but version {command.expected} was expected"
        )
    if command.expected == row.version != 0:
        return row
    expected = f"version {command.expected}" if command.expected else "no entry"
    raise VersionConflict(
        f"key {command.key!r} is at version {row.version}, but {expected} was expected",
        current=draft.account.entry(command.key, row),
    )


def _store(
    draft: Draft,
    key: str,
    before: Row | None,
    origin: Origin,
    *,
    value: str | None,
    size: int,
    expires_at: int | None,
    semantics: str | None,
    spec_ref: str | None,
    op: str = "set",
    created_at: int | None = None,
) -> Stored:
    version = draft.version()
    if created_at is None:
        created_at = draft.now if before is None else before.created_at
    row = Row(
        value=value,
        size=size,
        version=version,
        created_at=created_at,
        updated_at=draft.now,
        expires_at=expires_at,
        last_writer=origin.writer,
        semantics=semantics,
        request_id=origin.request_id,
        spec_ref=spec_ref,
    )
    put(draft, key, before, row)
    record(draft, op, key, version=version, origin=origin, before=before, after=row)
    return Stored(key, row)


APPLY: Final[dict[type, Callable[[Draft, Any], Any]]] = {
    Get: _get,
    Set: _set,
    Delete: _delete,
    Incr: _incr,
    Append: _append,
    SetTtl: _set_ttl,
    Touch: _touch,
    Restore: _restore,
    Guard: _guard,
    Batch: _batch,
    Many: _many,
    Load: _load,
}


def _needs_key(needs: Needs, command: Any) -> None:
    """Request the entry with its value, which a reply or the trash may need."""
    needs.row(Address(command.namespace, KV, command.key), value=True)


def _needs_set(needs: Needs, command: Set) -> None:
    """Request the entry, with its value if a reply may need it."""
    shown = command.expected is not None or command.origin.repeatable
    needs.row(Address(command.namespace, KV, command.key), value=shown)


def _needs_restore(needs: Needs, command: Restore) -> None:
    _needs_key(needs, command)
    needs.row(Address(command.namespace, TRASH, command.key.encode()), value=True)


def _needs_batch(needs: Needs, command: Batch) -> None:
    for check in command.checks:
        needs.row(Address(command.namespace, KV, check.key))
    for write in command.writes:
        NEEDS[type(write)](needs, write)


def _need_conflicts(more: Needs, command: Batch, loaded: Loaded) -> None:
    """Request the values of entries that fail a check, as far as the reply has room for them."""
    _need_trash_of(more, command.writes, loaded)
    for write in command.writes:
        if isinstance(write, Append):
            _need_items(more, write, loaded)
    room = rules.MAX_TRANSFER_BYTES
    for check in command.checks:
        address = Address(command.namespace, KV, check.key)
        row = loaded.rows.get(address)
        if row is None or address in more.rows:
            continue
        if row.version != check.version or not check.version:
            room -= row.size
            if room < 0:
                return
            more.row(address, value=True)


def _need_trash(more: Needs, command: Delete, loaded: Loaded) -> None:
    need_trash(more, command.namespace, command.key, loaded)


def _need_trash_of_many(more: Needs, command: Many, loaded: Loaded) -> None:
    _need_trash_of(more, command.items, loaded)


def _need_trash_of(more: Needs, writes: Iterable[WriteCommand], loaded: Loaded) -> None:
    for write in writes:
        if isinstance(write, Delete):
            need_trash(more, write.namespace, write.key, loaded)


def _needs_many(needs: Needs, command: Many) -> None:
    for item in command.items:
        NEEDS[type(item)](needs, item)


def _needs_append(needs: Needs, command: Append) -> None:
    needs.row(_log_address(command.namespace, command.name), value=True)


def _need_items(more: Needs, command: Append, loaded: Loaded) -> None:
    """Request the entry at the next number, and those of the items that the log lets go of."""
    address = _log_address(command.namespace, command.name)
    head = _head(loaded.rows.get(address))
    number = loaded.appended[address] = max(head.last, loaded.appended.get(address, 0)) + 1
    more.row(Address(command.namespace, KV, rules.item_key(command.name, number)))
    if command.keep is not None:
        upto = min(number - command.keep, head.first + MAX_TRIMMED - 1)
        for old in range(head.first, upto + 1):
            more.row(Address(command.namespace, KV, rules.item_key(command.name, old)), value=True)


def _needs_load(needs: Needs, command: Load) -> None:
    for key, _ in command.entries:
        needs.row(Address(command.namespace, KV, key))
        if number_in(key) is not None:
            needs.row(_log_address(command.namespace, key.rpartition("/")[0]), value=True)


def _needs_guard(needs: Needs, command: Guard) -> None:
    """Request the guard, because its size is counted."""
    needs.row(Address(command.namespace, GUARD, command.lock.encode()))


NEEDS: Final[dict[type, Callable[[Needs, Any], None]]] = {
    Get: _needs_key,
    Set: _needs_set,
    Delete: _needs_key,
    Incr: _needs_key,
    Append: _needs_append,
    SetTtl: _needs_key,
    Touch: _needs_key,
    Restore: _needs_restore,
    Guard: _needs_guard,
    Batch: _needs_batch,
    Many: _needs_many,
    Load: _needs_load,
}

FURTHER: Final[dict[type, Callable[[Needs, Any, Loaded], None]]] = {
    Append: _need_items,
    Batch: _need_conflicts,
    Delete: _need_trash,
    Many: _need_trash_of_many,
}
"""Functions that request more rows, once the first ones are loaded."""
