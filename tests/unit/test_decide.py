"""The pure heart by itself: what can't be reached through a store, and what an engine relies on.

Rows go in and rows come out; no engine, no store and no clock is involved.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import holdfast.decide as heart
from holdfast.commands import Deleted, Get, Got, Removed, Stored
from holdfast.decide import Decision, Loaded, decide, further, needs
from holdfast.decide.decision import ReplyParts
from holdfast.errors import DatabaseError, HoldfastError, ValidationError, VersionConflict
from holdfast.model import Policy
from holdfast.rows import KV, REQUEST, TRASH, Address, Namespace, Row
from holdfast.upkeep_commands import Expire, Trim
from holdfast.verbs.caller import id_maker
from tests.verbs import Verbs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.commands import Command
    from holdfast.decide import Outcome

NAME = "kv/a"
NOW = 1_700_000_000_000
VERBS = Verbs(NAME, writer="w", new_id=id_maker(), now=lambda: 0)
K = Address(NAME, KV, "k")


def row(value: str = "1", **fields: Any) -> Row:
    """A row that somebody wrote at the beginning of time."""
    made = Row(value=value, size=len(value), version=0, created_at=1, updated_at=1)
    return msgspec.structs.replace(made, **fields)


def loaded(
    *, revision: int = 9, keys: int = 0, rows: dict[Address, Row] | None = None, **more: Any
) -> Loaded:
    """What an engine has loaded of a namespace."""
    namespace = Namespace(name=NAME, revision=revision, keys=keys, created_at=1, **more)
    return Loaded(namespaces={NAME: namespace}, rows=rows or {})


def namespace_of(outcome: Outcome) -> Namespace:
    """The one namespace that is to be saved."""
    [namespace] = outcome.namespaces
    return namespace


class World:
    """An engine in a few lines: keeps what `decide` says."""

    def __init__(self) -> None:
        self.loaded = Loaded(namespaces={}, rows={})

    def apply(self, *commands: Command, now: int = NOW) -> list[Any]:
        """Decide on a group and keep the outcome."""
        outcome = decide(self.loaded, commands, now)
        for namespace in outcome.namespaces:
            self.loaded.namespaces[namespace.name] = namespace
        for address, new in outcome.rows.items():
            if new is None:
                del self.loaded.rows[address]
            else:
                self.loaded.rows[address] = new
        return outcome.results


def test_a_row_written_outside_is_an_entry() -> None:
    """A row of version 0 is there for every verb, and has no version that could be expected."""
    outside = loaded(rows={K: row("5")})
    assert decide(outside, [Get(namespace=NAME, key="k")], NOW).results == [Got(row("5"))]
    for expected in (0, 1, 9):
        [error] = decide(outside, [VERBS.set("k", 1, expected_version=expected)], NOW).results
        assert isinstance(error, VersionConflict)
        assert error.current is not None
        assert error.current.version == 0
    [error] = decide(outside, [VERBS.batch(checks=[{"key": "k", "version": 0}], writes=[])], NOW).results
    assert isinstance(error, VersionConflict)
    [stored] = decide(outside, [VERBS.incr("k")], NOW).results
    assert isinstance(stored, Stored)
    assert (stored.row.value, stored.row.version, stored.row.created_at) == ("6", 10, 1)


def test_a_row_written_outside_is_not_counted() -> None:
    """What was never counted is not taken off the counters, and is counted when it is overwritten."""
    outside = loaded(keys=3, bytes=100, rows={K: row("5")})
    expired = loaded(keys=3, bytes=100, rows={K: row("5", expires_at=NOW)})
    sweep = Expire(namespace=NAME, space=KV, keys=("k",))
    for outcome in (decide(outside, [VERBS.delete("k")], NOW), decide(expired, [sweep], NOW)):
        namespace = namespace_of(outcome)
        assert (namespace.keys, namespace.bytes) == (3, 100)
    namespace = namespace_of(decide(outside, [VERBS.set("k", 22)], NOW))
    assert (namespace.keys, namespace.bytes) == (4, 103)


def test_a_row_written_outside_expires() -> None:
    """Its deadline counts like any other, and its expiry is told with version 0."""
    outcome = decide(loaded(rows={K: row(expires_at=NOW - 5)}), [VERBS.set("k", 2)], NOW)
    assert [(record.op, record.version, record.expired_version) for record in outcome.journal] == [
        ("expired", 10, 0),
        ("set", 11, None),
    ]


@pytest.mark.parametrize(("deadline", "expired"), [(NOW - 5, True), (NOW + 5, False)])
def test_an_outcome_says_whether_an_entry_has_expired(deadline: int, expired: bool) -> None:
    """The log has a line for an entry whose expiry a write noticed, so an outcome says if there is one."""
    outcome = decide(loaded(rows={K: row(version=3, expires_at=deadline)}), [VERBS.delete("k")], NOW)
    assert outcome.expired is expired


@pytest.mark.parametrize("text", ["", "{", "NaN", "not json"])
def test_a_value_that_can_not_be_read(text: str) -> None:
    """A stored value that is no JSON is a database error naming the key, for that command alone."""
    broken = loaded(rows={K: row(text, version=3)})
    commands = [
        VERBS.incr("k"),
        VERBS.set("k", 1, expected_version=1),
        VERBS.set("other", 1),
    ]
    results = decide(broken, commands, NOW).results
    for error in results[:2]:
        assert isinstance(error, DatabaseError)
        assert "'k'" in error.message
    assert isinstance(results[2], Stored)


def test_a_get_in_a_group_goes_by_the_groups_time() -> None:
    """A get that takes its turn among writes sees an entry until its deadline, and not at it."""
    entry = row("5", version=3, expires_at=NOW)
    found = loaded(rows={K: entry})
    get = Get(namespace=NAME, key="k")
    assert decide(found, [get], NOW - 1).results == [Got(entry)]
    assert decide(found, [get], NOW).results == [Got(None)]


def test_a_value_that_can_not_be_read_can_be_replaced() -> None:
    """Overwriting and deleting need not read the value."""
    broken = loaded(rows={K: row("{", version=3)})
    assert isinstance(decide(broken, [VERBS.set("k", 1)], NOW).results[0], Stored)
    assert isinstance(decide(broken, [VERBS.delete("k")], NOW).results[0], Deleted)


def every_command() -> list[Command]:
    """One command of every kind, with everything that can be asked for."""
    given: dict[str, Any] = {"request_id": "r", "fence": {"lock": "l", "token": 4}}
    many, _ = VERBS.set_many([{"key": "k", "value": 1}, {"key": "m", "value": 1}], request_id="many")
    deletes, _ = VERBS.delete_many(["k", "m"])
    return [
        Get(namespace=NAME, key="k"),
        VERBS.set("k", 1, **given),
        VERBS.set("k", 1, expected_version=3),
        VERBS.delete("k", expected_version=3, **given),
        VERBS.incr("k", **given),
        VERBS.set_ttl("k", 5, **given),
        VERBS.touch("k", 5, **given),
        VERBS.remove_ttl("k", **given),
        VERBS.restore("k", **given),
        VERBS.restore("gone", **given),
        many,
        deletes,
        VERBS.batch(
            checks=[{"key": "c", "version": 0}],
            writes=[
                {"key": "k", "value": 1},
                {"key": "d", "delete": True},
                {"key": "i", "incr": 1},
                {"guard": "g"},
            ],
            **given,
        ),
        Expire(namespace=NAME, space=KV, keys=("k", "expired")),
        Expire(namespace=NAME, space=TRASH, keys=(b"gone",)),
        Expire(namespace=NAME, space=REQUEST, keys=(b"old",), before=NOW + 5),
        Trim(namespace=NAME, upto=5),
    ]


def full() -> Loaded:
    """A namespace with a row of every kind."""
    world = World()
    meant = {"purpose": "flag"}
    world.apply(
        VERBS.set("k", 7, semantics=meant),
        VERBS.set("gone", 1, semantics=meant),
        VERBS.delete("gone"),
        VERBS.batch(writes=[{"guard": "l"}]),
        VERBS.set("m", 1),
        VERBS.set("old", 1, request_id="old"),
    )
    world.apply(VERBS.set("expired", 1, ttl=1, semantics=meant), now=NOW - 5_000)
    return world.loaded


class Guarded(dict[Address, Row]):
    """Rows of which only those can be looked at that were asked for."""

    def __init__(self, rows: dict[Address, Row], allowed: set[Address]) -> None:
        super().__init__(rows)
        self.allowed = allowed

    def get(self, address: Address, default: Any = None) -> Any:
        """A row, if it was asked for."""
        assert address in self.allowed, f"{address} was not asked for"
        return super().get(address, default)


@pytest.mark.parametrize("number", range(len(every_command())))
def test_needs_names_everything(number: int) -> None:
    """`decide` looks at nothing that `needs` did not name, and at no value that it did not want."""
    command = every_command()[number]
    wanted = needs([command])
    assert wanted.namespaces == {NAME}
    everything = full()
    bare = {
        address: row
        if wanted.rows.get(address) or row.expires_at is not None
        else msgspec.structs.replace(row, value=None)
        for address, row in everything.rows.items()
    }
    guarded = Loaded(namespaces=everything.namespaces, rows=Guarded(bare, set(wanted.rows)))
    outcome, expected = decide(guarded, [command], NOW), decide(everything, [command], NOW)
    assert outcome.rows == expected.rows
    assert outcome.journal == expected.journal
    assert list(map(shown, outcome.results)) == list(map(shown, expected.results))


def shown(result: Any) -> Any:
    """A result for comparison: an error by its text."""
    return repr(result) if isinstance(result, HoldfastError) else result


@pytest.mark.parametrize("number", range(len(every_command())))
def test_decide_leaves_its_arguments_unchanged(number: int) -> None:
    """The arguments stay as they were, and the same arguments give the same outcome."""
    command, given = every_command()[number], full()
    before = copy.deepcopy((given.namespaces, given.rows))
    first, second = decide(given, [command], NOW), decide(given, [command], NOW)
    assert (given.namespaces, given.rows) == before
    assert list(map(shown, first.results)) == list(map(shown, second.results))
    assert (first.namespaces, first.rows, first.journal, first.trims) == (
        second.namespaces,
        second.rows,
        second.journal,
        second.trims,
    )


def folded() -> list[Command]:
    """Commands on one key that follow from each other."""
    return [
        VERBS.set("k", 1, ttl=60, semantics={"purpose": "flag"}, request_id="a"),
        VERBS.incr("k", 4),
        VERBS.set("k", "text", expected_version=1),
        VERBS.set("k", "text", expected_version=2),
        VERBS.incr("k"),
        VERBS.delete("k", request_id="b"),
        VERBS.delete("k"),
        VERBS.delete("k", request_id="b"),
        VERBS.restore("k"),
        VERBS.set("k", 1, ttl=60, semantics={"purpose": "flag"}, request_id="a"),
        VERBS.batch(
            checks=[{"key": "k", "version": 4}], writes=[{"key": "k", "value": 1}, {"key": "k", "incr": 1}]
        ),
        VERBS.batch(checks=[{"key": "k", "version": 4}], writes=[{"key": "k", "delete": True}]),
        Get(namespace=NAME, key="k"),
    ]


def test_a_group_is_its_commands_one_after_the_other() -> None:
    """Several commands on one key in one group come to the same as each in a group of its own."""
    commands = folded()
    together, apart = World(), World()
    results = together.apply(*commands)
    assert list(map(shown, results)) == [shown(apart.apply(command)[0]) for command in commands]
    assert together.loaded == apart.loaded


def test_a_decision_in_parts() -> None:
    """An engine may hand over a group in parts; it comes to the same as the whole."""
    commands = folded()
    given = Loaded(namespaces={}, rows={})
    whole = decide(given, commands, NOW)
    decision = Decision(given, NOW)
    for start in range(0, len(commands), 3):
        decision.take(commands[start : start + 3])
    parts = decision.outcome()
    assert list(map(shown, parts.results)) == list(map(shown, whole.results))
    assert (parts.rows, parts.journal, parts.namespaces) == (whole.rows, whole.journal, whole.namespaces)


def test_a_refusal_leaves_the_others_as_they_are() -> None:
    """A group with refused commands comes to what it would without them."""
    text = {Address(NAME, KV, "text"): row('"x"', version=2)}
    good: Sequence[Command] = [VERBS.set("a", 1), VERBS.incr("a"), VERBS.delete("text")]
    bad: Sequence[Command] = [
        VERBS.incr("text"),
        VERBS.batch(
            writes=[{"key": "a", "value": 5}, {"key": "new", "value": 1}, {"key": "text", "incr": 1}]
        ),
        VERBS.batch(writes=[{"key": "a", "value": 5}, {"key": "text", "incr": 1}], request_id="s"),
        VERBS.set("new", 1, expected_version=8, request_id="r"),
    ]
    mixed = [good[0], *bad, good[1], bad[1], good[2]]
    with_bad, without = decide(loaded(rows=text), mixed, NOW), decide(loaded(rows=text), good, NOW)
    assert (with_bad.rows, with_bad.journal, with_bad.namespaces) == (
        without.rows,
        without.journal,
        without.namespaces,
    )
    assert [isinstance(result, ValidationError) for result in with_bad.results[1:3]] == [True, True]


def test_a_request_is_counted_once() -> None:
    """A request that is completed when it comes again, or was forgotten meanwhile, is one that is kept."""
    world = World()
    world.apply(VERBS.set("k", 1))
    items = [{"key": "k", "value": 2, "expected_version": 0}, {"key": "l", "value": 2}]
    for now, refused in ((NOW, True), (NOW + 1, True), (NOW + 10 * 86_400_000, True)):
        [done] = world.apply(VERBS.set_many(items, request_id="r")[0], now=now)
        assert [isinstance(one, HoldfastError) for one in done.items] == [refused, False]
        assert world.loaded.namespaces[NAME].requests == 1


def test_reads_and_refusals_leave_nothing_to_save() -> None:
    """Reads, refusals and deletions of missing keys leave nothing to save, even in a new namespace."""
    commands = [
        Get(namespace=NAME, key="k"),
        VERBS.delete("k"),
        VERBS.set("k", 1, expected_version=3),
        Expire(namespace=NAME, space=KV, keys=("k",)),
        Trim(namespace=NAME, upto=9),
    ]
    for given in (Loaded(namespaces={}, rows={}), loaded(revision=0)):
        outcome = decide(given, commands, NOW)
        assert outcome.empty
        assert (outcome.namespaces, outcome.rows, outcome.journal) == ([], {}, [])


def test_row_made_and_removed_in_one_group_is_not_saved() -> None:
    """A row that was made and removed in one group is not saved; one that was there before is removed."""
    both = [VERBS.set("k", 1), VERBS.delete("k")]
    assert K not in decide(loaded(), both, NOW).rows
    assert decide(loaded(rows={K: row(version=2)}), both, NOW).rows[K] is None


def test_time_does_not_go_back() -> None:
    """A write uses at least the time of the namespace's last change, and deadlines are judged by it."""
    later = NOW + 60_000
    given = loaded(changed_at=later, rows={K: row(version=3, expires_at=NOW + 30_000)})
    [gone, stored] = decide(given, [VERBS.delete("k"), VERBS.set("k", 1, ttl=1)], NOW).results
    assert gone == Deleted(None)
    assert isinstance(stored, Stored)
    assert (stored.row.updated_at, stored.row.expires_at) == (later, later + 1000)
    outcome = decide(given, [VERBS.set("k", 1)], later + 5)
    assert namespace_of(outcome).changed_at == later + 5


def test_each_namespace_has_its_own_time_and_versions() -> None:
    """In one group every command goes by its own namespace."""
    other = Verbs("kv/b", writer="w", new_id=id_maker(), now=lambda: 0)
    given = Loaded(namespaces={NAME: Namespace(name=NAME, revision=5, changed_at=NOW + 9)}, rows={})
    results = decide(given, [VERBS.set("k", 1), other.set("k", 1), VERBS.set("k", 2)], NOW).results
    rows = [result.row for result in results if isinstance(result, Stored)]
    assert [(row.version, row.updated_at) for row in rows] == [(6, NOW + 9), (1, NOW), (7, NOW + 9)]


def test_an_entry_without_a_deadline_can_be_expired_by_nobody() -> None:
    """Upkeep looks again: what has no deadline, or a later one, stays."""
    given = loaded(rows={K: row(version=1), Address(NAME, KV, "later"): row(version=2, expires_at=NOW + 1)})
    outcome = decide(given, [Expire(namespace=NAME, space=KV, keys=("k", "later", "none"))], NOW)
    assert outcome.results == [Removed(0)]
    assert outcome.empty


@pytest.mark.parametrize(
    ("semantics", "policy", "kept"),
    [
        (None, None, False),
        (None, Policy(trash=True), True),
        ({"purpose": "flag"}, None, True),
        ({"purpose": "flag"}, Policy(trash=False), False),
        ({"purpose": "lock"}, None, False),
    ],
)
def test_replaced_trash_row_is_loaded_before_the_decision(
    semantics: Any, policy: Policy | None, kept: bool
) -> None:
    """The row of the trash that a deleted entry replaces is loaded before the decision, if there is one."""
    text = None if semantics is None else msgspec.json.encode(semantics).decode()
    told = None if policy is None else msgspec.json.encode(policy).decode()
    known = loaded(rows={K: row(version=3, semantics=text)}, policy=told)
    commands = [VERBS.delete("k")]
    more = further(commands, needs(commands), known)
    assert (None if more is None else more.rows) == ({Address(NAME, TRASH, b"k"): False} if kept else None)


def test_a_trashed_entry_of_a_new_namespace_is_decided_once() -> None:
    """That holds as well where the namespace has no row yet, and so no policy."""
    flag = row(version=3, semantics='{"purpose":"flag"}')
    commands = [VERBS.delete("k")]
    more = further(commands, needs(commands), Loaded(namespaces={}, rows={K: flag}))
    assert more is not None
    assert set(more.rows) == {Address(NAME, TRASH, b"k")}


def test_the_names_of_the_package() -> None:
    """All that an engine uses is there under one name, though it is imported on demand; nothing else is."""
    assert {name: hasattr(heart, name) for name in heart.__all__} == dict.fromkeys(heart.__all__, True)
    assert not hasattr(heart, "nonsense")


def test_a_remembered_reply_keeps_its_stored_name() -> None:
    """A store of an earlier version remembers replies of several writes under this name."""
    assert msgspec.json.encode(ReplyParts((None,))) == b'{"type":"Several","items":[null]}'
