"""Updates: the effects of `set`, `remove` and `add` on an item.

An update reads the item as it was before, so the order of its actions does not matter; two actions on
the same place are refused. It never changes the key. It does not modify the item it is given. The data it
reads and copies is counted (`holdfast.work`).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec

from holdfast import rules
from holdfast.errors import ValidationError, ValueTooLarge
from holdfast.tables.conditions import type_of
from holdfast.tables.items import MAX_ITEM_BYTES
from holdfast.tables.paths import (
    MISSING,
    Path,
    Tree,
    assign,
    discard,
    in_order,
    lookup,
    path_of,
    paths_of,
    shown,
    tree_of,
)
from holdfast.tables.schema import TableSchema
from holdfast.work import NODE, STEP, Work

_DEEPEST: Final = 70
"""Depth limit. Deeper data is not part of a legal update and is left for the rules to refuse."""

MAX_ACTIONS: Final = 1_000
_STEP: Final = 8 * STEP
"""Steps of work for a step of a path, which is read, sorted and followed more than once."""
_LARGE: Final = 2**60
"""Few numbers below this have the same hash. From here on, every number is whole."""
_MOVED: Final = 16
"""Number of members of a list or an object that are copied or moved in one step of work."""


class IfNotExists(msgspec.Struct, frozen=True):
    """A value for `set` that is stored only where none exists."""

    value: Any = msgspec.field(name="if_not_exists")


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """The actions on an item."""

    set: tuple[tuple[Path, Any], ...] = ()
    remove: tuple[Path, ...] = ()
    add: tuple[tuple[Path, Any], ...] = ()


def if_not_exists(value: Any) -> IfNotExists:
    """Wrap a value for `set` of `Tables.update_item`, so that it is set only where there is no value.

    Args:
        value: The JSON value.

    Returns:
        The wrapped value.

    Example:
        `await tables.update_item("scores", "alice", 7, set={"points": holdfast.if_not_exists(0)})`
    """
    return IfNotExists(value)


def update_of(
    schema: TableSchema, *, set: object = None, remove: object = None, add: object = None
) -> Update:
    """Return a legal update of items of a table.

    Args:
        schema: The schema, which defines the key. The key can't be changed.
        set: Values by path: an object, or a list of pairs where a path is a list of steps. A value
            `{"if_not_exists": value}` is set only where none exists.
        remove: A list of paths.
        add: Numbers to add to numbers, and lists of texts or numbers to add to such lists as sets.

    Raises:
        ValidationError: `field` names the argument. It contains no action, touches the key or one place
            twice, or has too many actions.
        ValueTooLarge: Its values are larger than an item can be.
    """
    update = Update(
        set=tuple((path, _settable(value)) for path, value in _pairs(set, "set")),
        remove=() if remove is None else paths_of(remove, field="remove"),
        add=tuple((path, _addable(value)) for path, value in _pairs(add, "add")),
    )
    _check_places(update, schema)
    _check_values(update)
    return update


def updated(item: Mapping[str, Any], update: Update, *, work: Work | None = None) -> dict[str, Any]:
    """Return the item after an update. The given item is not modified.

    Raises:
        ValidationError: A path leads through a value without such members, a list would get a gap, or `add`
            meets a value it can't add to.
        TooExpensive: This takes more work than allowed.
    """
    slices = updating(item, update, work or Work())
    while True:
        try:
            next(slices)
        except StopIteration as done:
            after: dict[str, Any] = done.value
            return after


def actions_in(update: Update) -> int:
    """Return the number of actions in an update."""
    return len(update.set) + len(update.remove) + len(update.add)


def updating(item: Mapping[str, Any], update: Update, work: Work) -> Generator[None, None, dict[str, Any]]:
    """Compute what `updated` returns, yielding after every slice of work so that others have a turn."""
    places = [*(path for path, _ in update.set), *update.remove, *(path for path, _ in update.add)]
    work.begin("the paths of the update")
    work.spend(sum(NODE + _STEP * len(path) for path in places))
    after: dict[str, Any] = _opened(dict(item), tree_of(places), work)
    if work.pausing():
        yield
    for path, value in sorted(update.set, key=lambda pair: in_order(pair[0])):
        if not isinstance(value, IfNotExists):
            assign(after, path, value, field="set")
        elif lookup(item, path) is MISSING:
            assign(after, path, value.value, field="set")
    work.begin("the adds of the update")
    for path, value in sorted(update.add, key=lambda pair: in_order(pair[0])):
        total = yield from _sum(lookup(item, path), value, path, work)
        assign(after, path, total, field="add")
    work.begin("the removes of the update")
    for path in sorted(update.remove, key=in_order, reverse=True):
        work.spend(_moved(lookup(after, path[:-1])))
        discard(after, path)
        if work.pausing():
            yield
    if work.pausing():  # before the item is written, which takes equally long
        yield
    return after


def _moved(container: Any) -> int:
    """Return the cost of copying a list or an object, or of removing a member from its middle."""
    return len(container) // _MOVED if isinstance(container, (dict, list)) else 0


def _pairs(given: object, field: str) -> list[tuple[Path, Any]]:
    if given is None:
        return []
    pairs = list(given.items()) if isinstance(given, Mapping) else given
    if not isinstance(pairs, (list, tuple)) or not all(_is_pair(pair) for pair in pairs):
        raise ValidationError(
            f"{field} must be an object of values by path, or a list of pairs of a path and a value",
            field=field,
        )
    return [(path_of(path, field=field), value) for path, value in pairs]


def _is_pair(given: object) -> bool:
    return isinstance(given, (list, tuple)) and len(given) == 2


def _settable(value: Any) -> Any:
    if isinstance(value, Mapping) and value.keys() == {"if_not_exists"}:
        return IfNotExists(value["if_not_exists"])
    return value


def _addable(value: Any) -> Any:
    """Return a number, or the members of a set: texts or numbers."""
    if type_of(value) == "number" or _is_set(value):
        return value
    raise ValidationError(
        f"add takes a number, or a list of texts or of numbers, not {rules.kind_of(value)}", field="add"
    )


def _is_set(value: Any) -> bool:
    if not isinstance(value, (list, tuple)):
        return False
    kinds = set(map(type, value))
    if kinds == {str} or (kinds and kinds <= {int, float}):  # faster than checking each member
        return True
    return {type_of(member) for member in value} in ({"string"}, {"number"})


def _check_places(update: Update, schema: TableSchema) -> None:
    places = [("set", path) for path, _ in update.set]
    places += [("remove", path) for path in update.remove]
    places += [("add", path) for path, _ in update.add]
    if not 1 <= len(places) <= MAX_ACTIONS:
        raise ValidationError(
            f"an update has 1 to {MAX_ACTIONS} actions in set, remove and add, not {len(places)}", field="set"
        )
    names = {attribute.name for attribute in schema.key_attributes}
    for field, path in places:
        if path[0] in names:
            raise ValidationError(f"{field}: {path[0]!r} is part of the key and can't change", field=field)
    # In sorted order, paths that begin with another path directly follow it.
    places.sort(key=lambda place: in_order(place[1]))
    for (_, path), (field, following) in pairwise(places):
        if following[: len(path)] == path:
            raise ValidationError(
                f"{field}: the path {shown(following)} overlaps with another of the update",
                field=field,
            )


def _check_values(update: Update) -> None:
    room = MAX_ITEM_BYTES
    for field, pairs in (("set", update.set), ("add", update.add)):
        for _, value in pairs:
            operand = value.value if isinstance(value, IfNotExists) else value
            room -= rules.encode_value(operand, most=MAX_ITEM_BYTES, field=field)[1]
            if room < 0:
                raise ValueTooLarge(
                    f"The values of the update exceed the {MAX_ITEM_BYTES} bytes that an item may have",
                    field=field,
                )


def _sum(found: Any, value: Any, path: Path, work: Work) -> Generator[None, None, Any]:
    if isinstance(value, (list, tuple)):
        return (yield from _union(found, value, path, work))
    if found is MISSING:
        return value
    if type_of(found) != "number":
        raise _not_addable(path, "a number")
    try:
        total = found + value
        rules.encode_value(total, most=rules.MAX_VALUE_BYTES, field="add")
    except (OverflowError, ValidationError):
        raise ValidationError("add: the sum is too large for a number", field="add") from None
    return total


def _union(found: Any, value: Sequence[Any], path: Path, work: Work) -> Generator[None, None, list[Any]]:
    work.spend(NODE * len(value))
    if work.pausing():
        yield
    before = [] if found is MISSING else found
    members = len(before) if isinstance(before, list) else 0
    work.spend(members)
    if before != [] and (not _is_set(before) or type_of(before[0]) != type_of(value[0])):
        raise _not_addable(path, "a list of such members")
    if work.pausing():
        yield
    work.spend(members)
    present = set(_marks(before))
    if work.pausing():
        yield
    work.spend(members)
    after = [*before]
    for mark, member in zip(_marks(value), value, strict=True):
        if mark not in present:
            present.add(mark)
            after.append(member)
    return after


def _marks(members: Sequence[Any]) -> Sequence[Any]:
    """Return what tells the members of a set apart.

    Anybody can find many large integers with the same hash, which a Python set compares with each other. So
    their digits stand for them. Nobody can foresee the hash of a text.
    """
    if not members or isinstance(members[0], str) or -_LARGE < min(members) <= max(members) < _LARGE:
        return members
    return [one if -_LARGE < one < _LARGE else hex(int(one)) for one in members]


def _not_addable(path: Path, wanted: str) -> ValidationError:
    return ValidationError(f"add: the value at {shown(path)} is not {wanted}", field="add")


def _opened(value: Any, tree: Tree, work: Work) -> Any:
    """Copy the objects and lists on the paths of a tree. Everything else is shared."""
    if not tree or not isinstance(value, (dict, list)):
        return value
    work.spend(NODE + _moved(value))
    copy: Any = value.copy()
    for step, branch in tree.items():
        child = lookup(value, (step,))
        if child is not MISSING:
            copy[step] = _opened(child, branch, work)
    return copy


def plain(value: Any, room: int = _DEEPEST) -> Any:
    """Return a part of an update as plain JSON data."""
    if room == 0:
        return value
    if isinstance(value, Mapping):
        return {name: plain(member, room - 1) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(member, room - 1) for member in value]
    return {"if_not_exists": value.value} if isinstance(value, IfNotExists) else value
