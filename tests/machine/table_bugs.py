"""Mistakes that somebody could make in tables, each planted at will.

As in `bugs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.decide import decision as heart
from holdfast.decide import items, tables
from holdfast.handles import table_walks
from holdfast.rows import Row
from holdfast.tables import indexes, keys, updates
from holdfast.tables.commands import FillIndex
from holdfast.tables.indexes import EntryChanges
from holdfast.tables.items import deadline_of
from holdfast.tables.keys import Range

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def lives_too_long(patch: pytest.MonkeyPatch) -> None:
    """An item is gone at its deadline, not after it."""
    patch.setattr(Row, "alive", lambda row, now: row.expires_at is None or row.expires_at >= now)


def met_when_expired(patch: pytest.MonkeyPatch) -> None:
    """A write does not meet an item that has expired."""
    patch.setattr(items, "_live", lambda draft, schema, address: draft.row(address))


def expiry_not_recorded(patch: pytest.MonkeyPatch) -> None:
    """Writing over an item that has expired unnoticed records the expiry first."""

    def wrong(draft: Any, schema: Any, address: Any, row: Row) -> None:
        items._remove(draft, schema, address, row)
        draft.version()

    patch.setattr(items, "_expired", wrong)


def old_entries_stay(patch: pytest.MonkeyPatch) -> None:
    """Index entries change together with the item."""

    def wrong(schema: Any, before: Any, after: Any, *, item_key: bytes) -> EntryChanges:
        right = indexes.entry_changes(schema, before, after, item_key=item_key)
        return EntryChanges(gone=(), put=right.put) if after is not None else right

    patch.setattr(items, "entry_changes", wrong)


def entries_outlive_their_item(patch: pytest.MonkeyPatch) -> None:
    """An index entry ends when its item does."""
    patch.setattr(indexes, "deadline_of", lambda item, schema: None)


def deadline_forgotten_in_index(patch: pytest.MonkeyPatch) -> None:
    """An entry whose item got another deadline gets it too."""
    entered = items.update_entries

    def wrong(draft: Any, schema: Any, item_key: bytes, *, before: Any, after: Any) -> None:
        name, (row, item) = schema.ttl_attribute, after
        if before is not None and name in before[1]:
            item = {**item, name: before[1][name]}
        entered(draft, schema, item_key, before=before, after=(row, item))

    patch.setattr(items, "update_entries", wrong)


def index_not_filled(patch: pytest.MonkeyPatch) -> None:
    """An index that is made has the items that were there."""

    def wrong(draft: Any, command: FillIndex) -> Any:
        return original(draft, msgspec.structs.replace(command, keys=()))

    original = heart._APPLY[FillIndex]
    patch.setitem(heart._APPLY, FillIndex, wrong)


def dropped_items_still_counted(patch: pytest.MonkeyPatch) -> None:
    """The namespace counts the items that are there."""
    patch.setattr(tables, "count_item", lambda *given, **more: None)


def transaction_half_checked(patch: pytest.MonkeyPatch) -> None:
    """Every write of a transaction is checked before any is done, and all that fail are named."""
    patch.setattr(items, "_of_version", lambda place, write: True)


def add_replaces(patch: pytest.MonkeyPatch) -> None:
    """`add` adds to the number that is there."""
    patch.setattr(updates, "_sum", lambda found, value, path, work: value)


def deadline_rounded_down(patch: pytest.MonkeyPatch) -> None:
    """set_ttl counts from the next whole second."""
    patch.setattr(items, "attribute_for", lambda seconds, now: now // 1000 + seconds)


def truth_is_a_deadline(patch: pytest.MonkeyPatch) -> None:
    """A boolean in the ttl attribute is no deadline."""
    right = deadline_of

    def wrong(item: Any, schema: Any) -> int | None:
        value = None if schema.ttl_attribute is None else item.get(schema.ttl_attribute)
        return 1000 if value is True else right(item, schema)

    patch.setattr(items, "deadline_of", wrong)


def between_leaves_out_its_end(patch: pytest.MonkeyPatch) -> None:
    """`between` has both its ends."""
    right = keys._between

    def wrong(partition: bytes, kind: Any, operand: Any, field: str) -> Range:
        start, stop = right(partition, kind, operand, field)
        return Range(start, None if stop is None else stop[:-1])

    patch.setitem(keys._RANGES, "between", wrong)


def page_turns_round(patch: pytest.MonkeyPatch) -> None:
    """A page that continues another goes in its direction."""
    step = table_walks.step

    def wrong(
        namespace: Any, space: Any, after: Any, *more: Any, reverse: bool = False, **options: Any
    ) -> Any:
        return step(namespace, space, after, *more, reverse=reverse and after is None, **options)

    patch.setattr(table_walks, "step", wrong)


def effect_repeated(patch: pytest.MonkeyPatch) -> None:
    """A request id has one effect."""
    patch.setattr(heart, "once", lambda draft, command, apply: apply(draft, command))


BUGS: Final[tuple[Callable[[pytest.MonkeyPatch], None], ...]] = (
    *(lives_too_long, met_when_expired, expiry_not_recorded, old_entries_stay, entries_outlive_their_item),
    *(deadline_forgotten_in_index, index_not_filled, dropped_items_still_counted, transaction_half_checked),
    *(add_replaces, deadline_rounded_down, truth_is_a_deadline, between_leaves_out_its_end),
    *(page_turns_round, effect_repeated),
)
