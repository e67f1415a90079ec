"""What a request may look at: how work is counted, and how a group is decided in slices of it."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast import rules
from holdfast.audit.keyring import NO_KEYS
from holdfast.decide import Decision, Loaded, decide, further, items, needs
from holdfast.decide.draft import DECODED_BYTES, Account, Items
from holdfast.decide.schemas import schema_address
from holdfast.errors import ConditionFailed, DatabaseError, TooExpensive, VersionConflict, peek
from holdfast.rows import KV, Address, Namespace, Row
from holdfast.stored import SeenEntry, SeenItem
from holdfast.tables.commands import ItemsDone
from holdfast.tables.conditions import Condition, comparisons_in, condition_of, holds, judged
from holdfast.tables.items import named_key
from holdfast.tables.paths import compiled, project
from holdfast.tables.schema import table_schema
from holdfast.tables.updates import update_of, updated
from holdfast.testing.exact import refusal
from holdfast.work import SLICE, Work, reading, searching
from tests.verbs import TableVerbs, Verbs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from holdfast.commands import Command

SCHEMA = table_schema("t", partition_key={"name": "p", "type": "string"})
VALUES = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 1.0, -0.0, "", "a", "ab"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)


def row(value: Any, version: int = 1, *, expires_at: int | None = None) -> Row:
    """A stored row."""
    text = msgspec.json.encode(value).decode()
    return Row(value=text, size=len(text), version=version, created_at=0, updated_at=0, expires_at=expires_at)


def test_work_past_what_there_may_be_is_refused() -> None:
    """A refusal names what cost most in all, not what was looked at last."""
    work = Work(100_000)
    for _ in range(9):
        work.begin("many looks")
        work.spend(6_000)
        work.begin("others")
        work.spend(2_000)
    work.begin("the last look")
    with refusal(TooExpensive, says="more than 100000 steps of work, 54000 of them for many looks"):
        work.spend(40_000)


def test_reading_is_dearer_the_more_lists_and_objects_there_are() -> None:
    """Bytes count, and each list and object does; a row that is there without its value costs its bytes."""
    plain, nested = Work(), Work()
    plain.read(row("x" * 400))
    nested.read(row([[]] * 133))
    assert (plain.spent, nested.spent) == (100, 100 + 15 * 134)


@pytest.mark.parametrize(
    ("text", "wanted", "steps"), [("", "a", 0), ("x" * 640, "ab", 20), ("x" * 64_000, "ab", 8_000)]
)
def test_searching_costs_by_the_length_of_both(text: str, wanted: str, steps: int) -> None:
    """A text that is looked for in a long one costs by the length of that alone."""
    assert searching(text, wanted) == steps


@pytest.mark.parametrize(
    ("test", "item"),
    [
        ({"contains": 7}, {"a": [1] * 1_000}),
        ({"contains": [7]}, {"a": [[1]] * 1_000}),
        ({"contains": {"x": 7}}, {"a": [{"x": 1}] * 1_000}),
        ({"contains": 1}, {"a": [True] * 1_000}),
        ({"contains": "x" * 600}, {"a": ["y"] * 1_000}),
        ({"contains": "xx"}, {"a": "x" * 500 + "y" * 33_000}),
        ({"in": [[0]] * 1_000}, {"a": [1]}),
        ({"eq": [1] * 1_000}, {"a": [1] * 1_000}),
        ({"ne": {str(n): 1 for n in range(1_000)}}, {"a": {str(n): 1 for n in range(1_000)}}),
    ],
)
def test_every_way_to_look_at_much_is_counted(test: dict[str, Any], item: dict[str, Any]) -> None:
    """Whatever an operator looks at is counted: members, nested ones too, and characters."""
    condition, work = condition_of({"a": test}), Work()
    holds(condition, item, work=work)
    assert work.spent >= 1_000
    with refusal(TooExpensive, says=f"{next(iter(test))} at 'a'"):
        holds(condition, item, work=Work(900))


def test_search_of_a_list_ends_at_the_first_match() -> None:
    """A list is examined up to the member that matches, and no further."""
    early, late = Work(), Work()
    assert holds(condition_of({"a": {"contains": 1}}), {"a": [1] + [2] * 1_000}, work=early)
    assert holds(condition_of({"a": {"contains": 1}}), {"a": [2] * 1_000 + [1]}, work=late)
    assert early.spent + 1_000 == late.spent


@given(VALUES, st.lists(VALUES, max_size=4))
def test_a_list_has_a_member_that_is_the_same_json(value: Any, members: list[Any]) -> None:
    """The quick look at a list finds what a look at every member finds."""
    slowly = any(holds(condition_of({"a": {"eq": value}}), {"a": member}) for member in members)
    assert holds(condition_of({"a": {"contains": value}}), {"a": members}) == slowly


@given(VALUES, VALUES, st.integers(1, 3))
def test_a_condition_is_judged_alike_in_slices(one: Any, other: Any, depth: int) -> None:
    """Whoever pauses between slices finds what others find at once, for the same work."""
    condition: Any = {"or": [{"a": {"eq": other}}, {"and": [{"a": {"ne": one}}, {"b": {"exists": True}}]}]}
    for _ in range(depth):
        condition = {"not": condition}
    legal = condition_of(condition)
    at_once, in_slices = Work(), Work()
    with pytest.raises(StopIteration) as end:
        next(judged(legal, {"a": one, "b": 1}, in_slices))
    assert end.value.value == holds(legal, {"a": one, "b": 1}, work=at_once)
    assert at_once.spent == in_slices.spent
    assert comparisons_in(legal) == 3


def test_a_long_condition_pauses_after_every_slice() -> None:
    """Between two pauses there is a slice of work, and what one comparison adds to it."""
    condition = condition_of({"or": [{"a": {"contains": n}} for n in range(10)]})
    work = Work()
    pauses = sum(1 for _ in judged(condition, {"a": ["x"] * 60_000}, work))
    assert pauses == 10
    assert work.spent > 10 * SLICE


def test_judging_a_non_condition_is_a_defect() -> None:
    """A condition that no caller can make is a defect, in whichever way it is evaluated."""
    with pytest.raises(TypeError, match="no condition"):
        holds(Condition(), {})
    with pytest.raises(TypeError, match="no condition"):
        next(judged(Condition(), {}, Work()))


def test_projections_and_updates_are_counted() -> None:
    """A projection costs by its steps, an update also by what it copies, moves and unites."""
    with refusal(TooExpensive, says="the projection"):
        project({"a": 1}, compiled([(f"n{n}",) for n in range(100)]), work=Work(6_000))
    paths = update_of(SCHEMA, set={f"n{n}": 1 for n in range(100)})
    with refusal(TooExpensive, says="the paths of the update"):
        updated({"p": "x"}, paths, work=Work(6_000))
    with refusal(TooExpensive, says="the removes of the update"):
        updated({"l": [0] * 90_000}, update_of(SCHEMA, remove=["l[0]", "l[1]"]), work=Work(16_000))
    with refusal(TooExpensive, says="the adds of the update"):
        updated({"l": list(range(9_000))}, update_of(SCHEMA, add={"l": [1]}), work=Work(20_000))


def tables() -> TableVerbs:
    """Makes commands about tables."""
    return TableVerbs(Verbs("table/x", writer="w", new_id=lambda: "id", now=lambda: 0))


def table_rows(name: str, attributes: dict[str, Any]) -> Loaded:
    """A namespace with a table that has this item."""
    schema = msgspec.structs.replace(SCHEMA, id=1)
    key, named = named_key(schema, name)
    rows = {
        schema_address("table/x", "t"): row(msgspec.to_builtins(schema)),
        Address("table/x", schema.item_space, key): row(named | attributes),
    }
    return Loaded(namespaces={"table/x": Namespace(name="table/x", revision=5)}, rows=rows)


def test_a_group_of_dear_commands_is_decided_in_slices() -> None:
    """A part of a group ends when a slice of work is over; the results are those of the whole."""
    loaded = table_rows("a", {"l": [1] * 60_000})
    dear = {"or": [{"l": {"contains": 7}}, {"l": {"contains": 8}}, {"p": {"exists": True}}]}
    about = {"table": "t", "partition_key": "a", "condition": dear}
    commands: list[Command] = [
        tables().put_item({"table": "t", "item": {"p": "b"}, "condition": {"p": {"not_exists": True}}}),
        tables().delete_item(about | {"expected_version": 9}),
        *(tables().update_item(about | {"set": {"n": n}}) for n in range(3)),
    ]
    decision = Decision(loaded, 10, NO_KEYS)
    taken: list[int] = []
    while sum(taken) < len(commands):
        taken.append(decision.take(commands[sum(taken) :]))
    assert taken == [2, 0, 1, 0, 0, 1, 0, 0, 1]
    assert decision.outcome().results[2:] == decide(loaded, commands, 10).results[2:]


MUCH = {"l": [1] * 60_000}
SEEN = [{"l": {"contains": -number}} for number in range(1, 4)]
DEAR: dict[str, Any] = {"or": [*SEEN, {"p": {"exists": True}}]}
UNMET: dict[str, Any] = {"or": SEEN}
TOO_DEAR: dict[str, Any] = {"or": [{"l": {"contains": -number}} for number in range(1, 40)]}


def about(key: str, condition: dict[str, Any]) -> dict[str, Any]:
    return {"table": "t", "partition_key": key, "condition": condition}


DEAR_COMMANDS: dict[str, Callable[[], Command]] = {
    "met": lambda: tables().delete_item(about("a", DEAR)),
    "unmet": lambda: tables().update_item(about("a", UNMET) | {"set": {"n": 1}}),
    "refused": lambda: tables().put_item({"table": "t", "item": {"p": "a"}, "condition": TOO_DEAR}),
    "named": lambda: tables().put_item(
        {"table": "t", "item": {"p": "a"}, "condition": DEAR, "request_id": "once"}
    ),
    "all or nothing": lambda: tables().transact_write(
        {
            "writes": [
                {"check": about("b", UNMET)},
                {"update": about("a", UNMET) | {"set": {"n": 1}}},
                {"delete": about("c", DEAR)},
            ]
        }
    ),
    "after a change": lambda: tables().batch_write_item(
        {
            "table": "t",
            "writes": [
                {"delete": {"partition_key": "b", "condition": UNMET}},
                {"delete": {"partition_key": "a", "condition": DEAR}},
                {"put": {"item": {"p": "new"}, "condition": {"p": {"not_exists": True}}}},
                {"delete": {"partition_key": "c", "condition": UNMET}},
                {"delete": {"partition_key": "c", "condition": UNMET}},
            ],
        }
    )[0],
    "nothing left to spend": lambda: tables().batch_write_item(
        {
            "table": "t",
            "writes": [
                {"delete": {"partition_key": "a", "condition": TOO_DEAR}},
                {"delete": {"partition_key": "b", "condition": UNMET}},
            ],
        }
    )[0],
}


@pytest.mark.parametrize("name", DEAR_COMMANDS)
def test_a_dear_condition_is_judged_in_slices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write is paused while its condition is judged, and comes to what it comes to in one piece."""
    loaded = table_rows("a", MUCH)
    for key in "bc":
        loaded.rows.update(table_rows(key, MUCH).rows)
    commands = [DEAR_COMMANDS[name](), tables().put_item({"table": "t", "item": {"p": "last"}})]
    decision, taken = Decision(loaded, 10, NO_KEYS), list[int]()
    while sum(taken) < len(commands):
        taken.append(decision.take(commands[sum(taken) :]))
    monkeypatch.setattr(items, "SLICE", 10**12)
    sliced, whole = decision.outcome(), decide(loaded, commands, 10)
    assert taken.count(0) >= 1
    assert (sliced.rows, sliced.journal, sliced.namespaces) == (whole.rows, whole.journal, whole.namespaces)
    assert plainly(sliced.results) == plainly(whole.results)


def plainly(results: Iterable[Any]) -> list[Any]:
    """Results, with errors by what they say and parts one by one."""
    return [
        plainly(one.items) if isinstance(one, ItemsDone) else getattr(one, "message", one) for one in results
    ]


def test_a_slice_ends_with_the_comparison_that_fills_it() -> None:
    """A slice for the reading, then one for each look at a long list, until that is too much."""
    command = tables().delete_item(about("a", TOO_DEAR))
    decision, taken = Decision(table_rows("a", {"l": [1] * 190_000}), 10, NO_KEYS), list[int]()
    while not sum(taken):
        taken.append(decision.take([command]))
    assert taken == [0, 0, 0, 0, 0, 1]


def test_a_slice_ends_with_a_long_reading() -> None:
    """An item that takes long to read is read in a slice of its own, before its condition is judged."""
    command = tables().delete_item(about("a", UNMET | {"l": {"size": {"gt": 1}}}))
    loaded = table_rows("a", {"l": [[]] * 40_000})
    decision = Decision(loaded, 10, NO_KEYS)
    assert decision.take([command]) == 0
    [verdict] = decision._draft.slices.values()
    assert verdict.account.spent == max(map(reading, loaded.rows.values()))


def test_an_item_is_read_once_and_counted_for_each_command() -> None:
    """Commands that ask for the same item share what was read, and each pays for it."""
    stored = row({"a": 1})
    items = Items()
    first = items.attributes(stored)
    assert items.attributes(stored) is first
    command = tables().put_item({"table": "t", "item": {"p": "b"}})
    one, other = Account(command), Account(command)
    one.read(stored)
    one.read(stored)
    other.read(stored)
    assert one.spent == other.spent > 0
    assert one.most == rules.MAX_WORK + rules.MAX_WORK_PER_WRITE


def test_conflicts_of_a_call_share_what_they_show() -> None:
    """What several refusals of one call show is made once; past the room of an answer there is no value."""
    account = Account(tables().put_item({"table": "t", "item": {"p": "b"}}))
    item, entry = row({"a": 1}), row("x" * 500_000)
    assert account.item(item) is account.item(item)
    assert account.entry("k", entry)().value == "x" * 500_000
    assert account.entry("k", entry)().value is msgspec.UNSET
    assert account.item(item)().version == 1
    unseen = msgspec.structs.replace(item, value=None)
    other = Account(tables().put_item({"table": "t", "item": {"p": "b"}}))
    assert other.entry("k", unseen)().value is msgspec.UNSET
    assert other.entry("k", item) is other.entry("k", item)


def test_decoded_items_of_a_group_are_bounded() -> None:
    """At most a megabyte of decoded items is held for a group."""
    items = Items()
    small, large = row({"a": 1}), row({"a": "x" * DECODED_BYTES})
    first = items.attributes(small)
    items.attributes(large)
    assert items.attributes(small) is not first
    assert items.attributes(small) == first


def test_conflict_details_are_decoded_on_first_access() -> None:
    """An error keeps the stored data until it is looked at, is the same at every look, and can be pickled."""
    stored = row({"a": 1}, version=4)
    entry, item = SeenEntry(stored, key="k"), SeenItem(stored)
    assert (entry.version, entry.semantics, item.version) == (4, None, 4)
    for error in (
        VersionConflict("no", current=entry, item=item),
        pickle.loads(pickle.dumps(VersionConflict("no", current=entry, item=item))),
    ):
        assert isinstance(peek(error, "current"), SeenEntry)
        assert error.current is not None
        assert error.item is not None
        assert error.current.value == error.item.value == {"a": 1}
        assert error.current is error.current is peek(error, "current")
        assert error.conflicts == ()
    failed = ConditionFailed("no", current=item)
    assert failed.current is item()
    assert VersionConflict("no").current is None


def test_unreadable_entry_is_a_database_error_not_a_conflict() -> None:
    """A refusal that would show damaged data is a DATABASE_ERROR instead."""
    for wrong in ("{broken", "[1]"):
        with pytest.raises(DatabaseError):
            SeenItem(msgspec.structs.replace(row(1), value=wrong))
    with pytest.raises(DatabaseError):
        SeenEntry(msgspec.structs.replace(row(1), value="{broken"), key="k")


def test_checks_ask_for_the_values_of_what_fails_alone() -> None:
    """The values of entries that pass their checks are not loaded, and of the others as many as are shown."""
    verbs = Verbs("kv/x", writer="w", new_id=lambda: "id", now=lambda: 0)
    names = [f"k{n}" for n in range(12)]
    checks = [{"key": name, "version": 7} for name in [*names, "k1", "gone", "outside"]]
    batch = verbs.batch(checks=checks, writes=[{"key": "z", "value": 1}])
    wanted = needs([batch])
    assert not any(wanted.rows.values())
    large = row("x" * 65_000, version=3)
    rows = {Address("kv/x", KV, name): large for name in names}
    rows[Address("kv/x", KV, "k0")] = row(1, version=7)
    more = further([batch], wanted, Loaded(namespaces={}, rows=rows))
    assert more is not None
    assert [address.key for address in more.rows] == names[1:9]
    zero = verbs.batch(checks=[{"key": "k0", "version": 0}], writes=[{"key": "z", "value": 1}])
    outside = {Address("kv/x", KV, "k0"): row(1, version=0)}
    more = further([zero], needs([zero]), Loaded(namespaces={}, rows=outside))
    assert more is not None
    assert list(more.rows.values()) == [True]


def test_a_command_is_weighed_for_itself_alone() -> None:
    """A command about too many stored bytes is refused, in company too, and its company is not."""
    verbs = Verbs("kv/x", writer="w", new_id=lambda: "id", now=lambda: 0)
    names = [f"k{n}" for n in range(130)]
    large = row("x" * 65_000)
    loaded = Loaded(namespaces={}, rows={Address("kv/x", KV, name): large for name in names})
    heavy, light = verbs.delete_many(names)[0], verbs.delete_many(names[:9])[0]
    blind = verbs.set_many([{"key": name, "value": 1} for name in names])[0]
    refused, done, also = decide(loaded, [heavy, light, blind], 5).results
    assert isinstance(refused, TooExpensive)
    assert not isinstance(done, Exception)
    assert not isinstance(also, Exception)


async def test_the_error_is_public() -> None:
    """TooExpensive is a name of the library, is refused for good, and says so."""
    assert holdfast.TooExpensive is TooExpensive
    assert not TooExpensive.retryable
    assert issubclass(TooExpensive, holdfast.errors.Refused)
