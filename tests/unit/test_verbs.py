"""How a call becomes a command: the one way for every door.

Commands are compared field by field; what a field may hold is tested with the rules.
"""

from __future__ import annotations

import inspect
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from holdfast.commands import Batch, Check, Delete, Guard, Incr, Many, Restore, Set, SetTtl, Touch
from holdfast.declare import DECLARED
from holdfast.errors import MissingField, ValidationError, ValueTooLarge
from holdfast.handles.kv import KV
from holdfast.model import KEEP, Entry, Semantics
from holdfast.origin import Fence, Origin
from holdfast.testing.exact import refusal
from holdfast.verbs.caller import id_maker
from tests.verbs import Verbs

NAME = "kv/a"
MADE = Origin(writer="me", request_id="made")
ROOT = "tenant/acme/project/web/"


@pytest.fixture
def verbs() -> Verbs:
    """The verbs of a plugin."""
    return Verbs(NAME, writer="me", new_id=lambda: "made", now=lambda: 0)


@pytest.fixture
def semantic() -> Verbs:
    """The verbs of a tenant's project."""
    return Verbs("semantic/acme/web", writer="me", new_id=lambda: "made", now=lambda: 0, root=ROOT)


def test_set_carries_value_size_deadline_version_and_semantics(verbs: Verbs) -> None:
    """A set has the compact value, its size, and the given deadline, version and semantics."""
    assert verbs.set("k", {"a": 1}) == Set(namespace=NAME, origin=MADE, key="k", value='{"a":1}', size=7)
    full = verbs.set(
        "k",
        "é",
        ttl=5,
        expected_version=3,
        semantics={"purpose": "flag"},
        request_id="r",
        writer="w",
        spec_ref="s",
        fence={"lock": "l", "token": 2},
    )
    assert full == Set(
        namespace=NAME,
        origin=Origin(
            writer="w", request_id="r", repeatable=True, spec_ref="s", fence=Fence(lock="l", token=2)
        ),
        key="k",
        expected=3,
        value='"é"',
        size=4,
        ttl=5,
        semantics='{"purpose":"flag"}',
    )


def test_set_takes_its_deadline_from_ttl_or_semantics(verbs: Verbs) -> None:
    """A ttl, the ttl of the semantics, both when they agree, or KEEP; never two that differ."""
    assert verbs.set("k", 1, ttl=KEEP) == Set(
        namespace=NAME, origin=MADE, key="k", value="1", size=1, keep_ttl=True
    )
    meant = Semantics(ttl_seconds=9)
    assert verbs.set("k", 1, semantics=meant).ttl == 9
    assert verbs.set("k", 1, ttl=9, semantics=meant).ttl == 9
    for other in (8, KEEP):
        with refusal(ValidationError, field="ttl", says="9"):
            verbs.set("k", 1, ttl=other, semantics=meant)
    with refusal(ValidationError, field="ttl"):
        verbs.set("k", 1, ttl=9.0, semantics=meant)


def test_each_verb_makes_its_own_command(verbs: Verbs) -> None:
    """Each verb makes its own command with its own fields."""
    key: dict[str, Any] = {"namespace": NAME, "origin": MADE, "key": "k"}
    assert verbs.delete("k") == Delete(**key)
    assert verbs.delete("k", expected_version=0) == Delete(**key, expected=0)
    assert verbs.incr("k") == Incr(**key, by=1)
    assert verbs.incr("k", 0.5, ttl=5, expected_version=2) == Incr(**key, by=0.5, ttl=5, expected=2)
    assert verbs.set_ttl("k", 5, expected_version=2) == SetTtl(**key, ttl=5, expected=2)
    assert verbs.incr("k", only_if_exists=True) == Incr(**key, by=1, only_if_exists=True)
    assert verbs.touch("k", 5, expected_version=2) == Touch(**key, ttl_seconds=5, expected=2)
    assert verbs.remove_ttl("k") == SetTtl(**key, ttl=None)
    assert verbs.restore("k", ttl=5, expected_version=0) == Restore(**key, ttl=5, expected=0)


def test_an_incr_remembered_by_an_older_version_is_still_the_same_request(verbs: Verbs) -> None:
    """A plain incr has the content that it had before only_if_exists, so that a retry finds its reply."""
    assert b"only_if_exists" not in msgspec.json.encode(verbs.incr("k", only_if_exists=False))
    assert b'"only_if_exists":true' in msgspec.json.encode(verbs.incr("k", only_if_exists=True))


def test_caller_chosen_request_id_makes_a_command_repeatable(verbs: Verbs) -> None:
    """A request id that the caller chose makes a command repeatable; a generated one does not."""
    assert verbs.delete("k").origin == MADE
    assert verbs.delete("k", request_id="r").origin == Origin(writer="me", request_id="r", repeatable=True)


def test_generated_request_ids_differ() -> None:
    """No two generated ids are the same, from one source or from two."""
    one, other = id_maker(), id_maker()
    made = [one() for _ in range(100)] + [other() for _ in range(100)]
    assert len(set(made)) == 200


def test_semantic_keys_are_completed(semantic: Verbs) -> None:
    """In the semantic family every key and prefix is completed."""
    assert semantic.key("a/b") == semantic.key(ROOT + "a/b") == ROOT + "a/b"
    assert semantic.prefix("") == ROOT
    assert semantic.set("a", 1).key == ROOT + "a"
    command = semantic.batch(checks=[{"key": "c", "version": 1}], writes=[{"key": "w", "delete": True}])
    assert command.checks == (Check(key=ROOT + "c", version=1),)
    assert semantic.keys(["a", "A"]).legal == [ROOT + "a"]


def test_illegal_keys_keep_their_place_among_results(verbs: Verbs) -> None:
    """An illegal key keeps its position, and the results of the others are put around it."""
    wanted = verbs.keys(["a", "", "b", 5])
    assert wanted.legal == ["a", "b"]
    assert sorted(wanted.refused) == [1, 3]
    merged = wanted.merge(["A", "B"])
    assert [merged[0], merged[2]] == ["A", "B"]
    assert [type(merged[1]), type(merged[3])] == [ValidationError, ValidationError]


def test_set_many_takes_the_fields_of_set(verbs: Verbs) -> None:
    """Items have the fields of a set; the command holds those that are legal."""
    command, members = verbs.set_many(
        [
            {"key": "a", "value": 1, "ttl_seconds": 5, "expected_version": 2, "unknown": 1},
            {"key": "", "value": 1},
            {"key": "b", "value": None, "keep_ttl": True, "semantics": {"purpose": "flag"}},
        ],
        request_id="r",
    )
    origin = Origin(writer="me", request_id="r", repeatable=True)
    base: dict[str, Any] = {"namespace": NAME, "origin": origin}
    assert command == Many(
        namespace=NAME,
        origin=origin,
        items=(
            Set(**base, key="a", value="1", size=1, ttl=5, expected=2),
            Set(**base, key="b", value="null", size=4, keep_ttl=True, semantics='{"purpose":"flag"}'),
        ),
    )
    assert list(members.refused) == [1]


def test_delete_many_makes_unconditional_deletions(verbs: Verbs) -> None:
    """Keys become deletions without an expected version."""
    command, members = verbs.delete_many(["a", None, "b"])
    assert [item.key for item in command.items] == ["a", "b"]
    assert list(members.refused) == [1]


@pytest.mark.parametrize(
    ("fields", "ttl", "keep"),
    [
        ({}, None, False),
        ({"ttl": 5}, 5, False),
        ({"ttl_seconds": 5}, 5, False),
        ({"ttl": 5, "ttl_seconds": 5}, 5, False),
        ({"ttl": None, "ttl_seconds": None, "keep_ttl": None}, None, False),
        ({"keep_ttl": False, "ttl": 5}, 5, False),
        ({"keep_ttl": True}, None, True),
        ({"ttl": KEEP}, None, True),
        ({"ttl": KEEP, "keep_ttl": True}, None, True),
    ],
)
def test_item_ttl_may_be_ttl_ttl_seconds_or_keep_ttl(
    verbs: Verbs, fields: dict[str, Any], ttl: int | None, keep: bool
) -> None:
    """An item may say ttl, ttl_seconds or keep_ttl."""
    [write] = verbs.batch(writes=[{"key": "k", "value": 1, **fields}]).writes
    assert isinstance(write, Set)
    assert (write.ttl, write.keep_ttl) == (ttl, keep)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"ttl": 5, "ttl_seconds": 6}, "ttl"),
        ({"ttl": 1, "ttl_seconds": True}, "ttl_seconds"),
        ({"ttl": True, "ttl_seconds": 1}, "ttl"),
        ({"ttl": 1.0, "ttl_seconds": 1}, "ttl"),
        ({"ttl_seconds": 0}, "ttl_seconds"),
        ({"ttl": 5, "keep_ttl": True}, "ttl"),
        ({"ttl_seconds": 5, "keep_ttl": True}, "ttl"),
        ({"keep_ttl": "yes"}, "keep_ttl"),
        ({"keep_ttl": 1}, "keep_ttl"),
    ],
)
def test_contradicting_ttls_are_refused(verbs: Verbs, fields: dict[str, Any], field: str) -> None:
    """Two that differ, or one beside keep_ttl, are refused; so is what only looks like the other."""
    with refusal(ValidationError, field=field):
        verbs.batch(writes=[{"key": "k", "value": 1, **fields}])


def test_batch_makes_commands_in_order(verbs: Verbs) -> None:
    """Writes become commands in their order, with one origin."""
    command = verbs.batch(
        checks=[{"key": "c", "version": 0}],
        writes=[
            {"key": "a", "value": None},
            {"key": "b", "delete": True, "value_of_no_interest": 1},
            {"key": "i", "incr": -2, "ttl": 5},
            {"guard": "lock"},
            {"key": "n", "value": 1, "delete": None, "incr": None, "expected_version": None},
        ],
    )
    base: dict[str, Any] = {"namespace": NAME, "origin": MADE}
    assert command == Batch(
        **base,
        checks=(Check(key="c", version=0),),
        writes=(
            Set(**base, key="a", value="null", size=4),
            Delete(**base, key="b"),
            Incr(**base, key="i", by=-2, ttl=5),
            Guard(**base, lock="lock"),
            Set(**base, key="n", value="1", size=1),
        ),
    )


@pytest.mark.parametrize(
    ("write", "kind", "field"),
    [
        ({"key": "k"}, ValidationError, "writes"),
        ({"key": "k", "value": 1, "incr": 1}, ValidationError, "writes"),
        ({"key": "k", "delete": True, "expected_version": 1}, ValidationError, "writes"),
        ({"key": "k", "delete": "yes"}, ValidationError, "delete"),
        ({"key": "k", "incr": 1, "keep_ttl": True}, ValidationError, "ttl"),
        ({"delete": True}, MissingField, "key"),
        ("k", ValidationError, "writes"),
    ],
)
def test_batch_rejects_ambiguous_writes(verbs: Verbs, write: Any, kind: Any, field: str) -> None:
    """A write has a key and exactly one effect."""
    with refusal(kind, field=field):
        verbs.batch(writes=[write])


def test_batch_rejects_more_than_512_kb(verbs: Verbs) -> None:
    """A batch holds 512 KB of keys, values, semantics, addends and locks, and not a byte more."""
    legal = [{"key": f"{number:04}", "value": "x" * 65_530} for number in range(8)]
    assert len(verbs.batch(writes=legal).writes) == 8
    extras: tuple[dict[str, Any], ...] = (
        {"key": "k", "value": 1},
        {"key": "k", "delete": True},
        {"key": "k", "incr": 1},
        {"guard": "lock"},
    )
    for extra in extras:
        with refusal(ValueTooLarge, says="524288", about=extra):
            verbs.batch(writes=[*legal, extra])
    hints = {"consumer_hints": ["x" * 100] * 16}
    with refusal(ValueTooLarge, says="524288"):
        verbs.batch(writes=[*legal[:7], {"key": "k", "value": "x" * 65_000, "semantics": hints}])
    with refusal(ValueTooLarge, says="set_many"):
        verbs.set_many([*legal, {"key": "k", "value": 1}])


def entry(**fields: Any) -> Entry:
    """An entry of another store."""
    base = Entry(
        key="k",
        value=[1],
        version=7,
        created_at=datetime(2020, 1, 1, tzinfo=UTC),
        updated_at=datetime(2020, 1, 2, tzinfo=UTC),
        expires_at=None,
        last_writer="w",
        semantics=None,
        request_id=None,
        spec_ref=None,
    )
    return msgspec.structs.replace(base, **fields)


def test_load_applies_the_rules_of_set(verbs: Verbs) -> None:
    """An entry of another store is judged by the same rules as a set."""
    command = verbs.load([entry(), entry(key="l", semantics=Semantics(purpose="flag"))], keep_versions=True)
    assert [key for key, _ in command.entries] == ["k", "l"]
    assert command.entries[1][1].semantics == '{"purpose":"flag"}'
    wrongs: tuple[tuple[Any, str], ...] = (
        ("no entry", "entries"),
        (entry(key=""), "key"),
        (entry(value=float("nan")), "value"),
        (entry(version=-1), "version"),
        (entry(last_writer=""), "last_writer"),
        (entry(request_id="\n"), "request_id"),
        (entry(spec_ref="x" * 501), "spec_ref"),
        (entry(semantics=Semantics(purpose="")), "semantics.purpose"),
    )
    for wrong, field in wrongs:
        with refusal(ValidationError, field=field, about=wrong):
            verbs.load([wrong], keep_versions=False)
    with refusal(ValueTooLarge, says="load"):
        verbs.load([entry(value="x" * 65_000)] * 9, keep_versions=False)


def test_set_policy_is_sent_as_json(verbs: Verbs) -> None:
    """A policy travels as JSON."""
    assert verbs.set_policy({"quota_keys": 5}).policy == '{"quota_keys":5}'


def test_methods_take_what_their_verbs_declare() -> None:
    """A method of a handle has the parameters that its verb declares, but for second names of a field."""
    second = {"ttl_seconds", "keep_ttl", "ttl"}
    for name, declaration in DECLARED.items():
        if declaration.in_order and name != "escalate":
            parameters = inspect.signature(getattr(KV, name)).parameters.keys() - {"self", "provenance"}
            assert parameters - second == declaration.own.keys() - second, name
            assert parameters <= declaration.own.keys(), name
