"""Every writing command becomes a message and the same command again, and so does every result."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.commands import Deleted, LetterStored, Many, Missed, Results, Stored, Versions, WriteCommand
from holdfast.declare import DECLARED
from holdfast.errors import KeyNotFound, ValidationError, VersionConflict
from holdfast.model import KEEP
from holdfast.rows import Row
from holdfast.upkeep_commands import Expire
from holdfast.wire.dialects import PLUGIN, SEMANTIC, Dialect
from holdfast.wire.errors import ERRORS
from holdfast.wire.writes import message_of, result_of, write_of
from tests.verbs import Verbs

EXAMPLES = settings(
    deadline=None, derandomize=True, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
WRITES = {name for name, verb in DECLARED.items() if verb.in_order}
MS = st.integers(0, 253_402_300_799_999)
"""Times up to the end of the year 9999."""
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=30)
NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
VERSIONS = st.none() | st.integers(0, 2**63 - 1)
TTLS = st.integers(1, 2_147_483_647)
NUMBERS = st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
SEMANTICS = st.fixed_dictionaries(
    {},
    optional={
        "purpose": st.sampled_from(["lock", "checkpoint", "x"]),
        "producer": NAMES,
        "consumer_hints": st.lists(TEXT, max_size=3),
    },
)
PROVENANCE = st.fixed_dictionaries(
    {},
    optional={
        "request_id": NAMES,
        "writer": NAMES,
        "spec_ref": TEXT,
        "fence": st.fixed_dictionaries(
            {"lock": NAMES, "token": st.integers(0, 2**63 - 1)}, optional={"live": st.booleans()}
        ),
    },
) | st.fixed_dictionaries({"once": NAMES})
ITEMS = st.fixed_dictionaries(
    {"key": TEXT, "value": VALUES},
    optional={"ttl": TTLS, "expected_version": VERSIONS, "semantics": SEMANTICS},
)
IN_BATCH = (
    st.fixed_dictionaries({"key": TEXT, "value": VALUES}, optional={"ttl": TTLS, "semantics": SEMANTICS})
    | st.fixed_dictionaries({"key": TEXT, "delete": st.just(True)})
    | st.fixed_dictionaries(
        {"key": TEXT, "incr": NUMBERS}, optional={"ttl": TTLS, "only_if_exists": st.booleans()}
    )
    | st.fixed_dictionaries(
        {"append": TEXT, "value": VALUES},
        optional={"ttl": TTLS, "semantics": SEMANTICS, "keep": st.integers(1, 10**12 - 1)},
    )
    | st.fixed_dictionaries({"guard": NAMES})
)
CHECKS = st.fixed_dictionaries({"key": TEXT, "version": st.integers(0, 2**63 - 1)})


def verbs(writer: str = "trivia") -> Verbs:
    """The verbs of a namespace, with ids that do not change."""
    return Verbs("kv/trivia", writer=writer, new_id=lambda: "made-1", now=lambda: 0)


@st.composite
def commands(draw: st.DrawFn) -> WriteCommand:
    """Any command that a caller can give."""
    known, provenance = verbs(), draw(PROVENANCE)
    kind = draw(st.sampled_from(sorted(WRITES)))
    if kind == "escalate":
        return known.escalate(
            draw(plain(PROVENANCE.map(lambda some: some if "once" in some else {"request_id": "r"} | some))),
            error_code=draw(st.sampled_from(sorted(ERRORS))),
            message=draw(TEXT),
            attempts=draw(st.integers(1, 10_000)),
            **provenance,
        )
    return draw(plain(st.just(provenance), kind))


@st.composite
def plain(
    draw: st.DrawFn, provenances: st.SearchStrategy[dict[str, Any]], kind: str | None = None
) -> WriteCommand:
    """A command that does what it says at once; of any kind if none is given."""
    known, provenance = verbs(), draw(provenances)
    kind = kind or draw(st.sampled_from(sorted(WRITES - {"escalate", "set_many"})))
    if kind == "set":
        keep = draw(st.sampled_from([None, KEEP]))
        item = draw(ITEMS)
        ttl = keep or item.pop("ttl", None)
        item.pop("ttl", None)
        return known.set(item.pop("key"), item.pop("value"), ttl=ttl, **item, **provenance)
    if kind == "set_many":
        return known.set_many(draw(st.lists(ITEMS, max_size=4)), **provenance)[0]
    if kind == "delete_many":
        return known.delete_many(draw(st.lists(TEXT, min_size=1, max_size=4)), **provenance)[0]
    if kind == "batch":
        checks, writes = draw(st.lists(CHECKS, max_size=3)), draw(st.lists(IN_BATCH, max_size=4))
        return known.batch(checks=checks, writes=writes, **provenance)
    if kind == "append":
        newest = draw(st.none() | st.integers(1, 10**12 - 1))
        item = draw(st.fixed_dictionaries({}, optional={"ttl": TTLS, "semantics": SEMANTICS}))
        return known.append(draw(TEXT), draw(VALUES), keep=newest, **item, **provenance)
    key, expected = draw(TEXT), draw(VERSIONS)
    own: dict[str, Any] = {"expected_version": expected, **provenance}
    match kind:
        case "delete":
            return known.delete(key, **own)
        case "incr":
            only = draw(st.booleans())
            return known.incr(key, draw(NUMBERS), ttl=draw(st.none() | TTLS), only_if_exists=only, **own)
        case "set_ttl":
            return known.set_ttl(key, draw(TTLS), **own)
        case "touch":
            return known.touch(key, draw(TTLS), **own)
        case "remove_ttl":
            return known.remove_ttl(key, **own)
        case _:
            return known.restore(key, ttl=draw(st.none() | TTLS), **own)


def sent(command: WriteCommand, dialect: Dialect) -> WriteCommand | None:
    """A command after its journey: as the service makes it from the message that a client made of it."""
    verb, fields = message_of(command)
    write = write_of(verb, verbs(writer="somebody else"), dialect.fields(dialect.request(fields)))
    assert write is not None
    return write.command


@EXAMPLES
@given(commands())
def test_every_command_survives_its_message(command: WriteCommand) -> None:
    """What a client's command says, the service's says too, field by field, in both dialects of a client."""
    for dialect in (PLUGIN, SEMANTIC):
        found = sent(command, dialect)
        if isinstance(command, Many) and not command.items:
            assert found is None
        else:
            assert found == command
            assert msgspec.json.encode(found) == msgspec.json.encode(command)


def test_the_number_of_a_letter_survives_its_reply() -> None:
    """Under which number a letter was kept reaches the client."""
    command = verbs().escalate(
        verbs().delete("k", request_id="r"), error_code="BUSY", message="later", attempts=5
    )
    for dialect in (PLUGIN, SEMANTIC):
        assert answered(command, LetterStored(7), dialect) == LetterStored(7)


def test_an_unknown_verb_is_no_write() -> None:
    """What does not write is left to others to answer."""
    assert write_of("get", verbs(), {"key": "k"}) is None
    assert write_of("nonsense", verbs(), {}) is None


def test_semantics_leave_a_client_in_the_spelling_of_the_dialect() -> None:
    """Names within semantics are ours: camelCase in the semantic dialect, in set, set_many and batch."""
    known, meaning = verbs(), {"consumer_hints": ["x"], "ttl_seconds": 5}
    item = {"key": "k", "value": {"snake_name": 1}, "semantics": meaning}
    made = (
        known.set("k", item["value"], semantics=meaning),
        known.set_many([item])[0],
        known.batch(writes=[item]),
    )
    for command in made:
        verb, fields = message_of(command)
        sent = json.loads(SEMANTIC.request(fields))
        holder = sent if verb == "set" else sent["items" if verb == "set_many" else "writes"][0]
        assert holder["semantics"] == {"consumerHints": ["x"], "ttlSeconds": 5}
        assert holder["value"] == {"snake_name": 1}
        assert json.loads(PLUGIN.request(fields)) == json.loads(msgspec.json.encode(fields))


def test_upkeep_is_no_call_of_a_client() -> None:
    """Only commands of callers have a message."""
    with pytest.raises(TypeError, match="Expire"):
        message_of(Expire(namespace="kv/p", space="kv", keys=("k",)))  # type: ignore[arg-type]


@st.composite
def rows(draw: st.DrawFn) -> Row:
    """A row as a write leaves it."""
    value = msgspec.json.encode(draw(VALUES)).decode()
    meaning = draw(st.none() | SEMANTICS.filter(bool))
    command = verbs().set("k", None, semantics=meaning)
    return Row(
        value=value,
        size=len(value.encode()),
        version=draw(st.integers(1, 2**63 - 1)),
        created_at=draw(MS),
        updated_at=draw(MS),
        expires_at=draw(st.none() | MS),
        last_writer=draw(NAMES),
        semantics=command.semantics,
        request_id=draw(st.none() | NAMES),
        spec_ref=draw(st.none() | TEXT),
    )


def answered(command: WriteCommand, result: Any, dialect: Dialect) -> Any:
    """A result after its journey: as the client reads it from the reply that the service made of it."""
    verb, fields = message_of(command)
    write = write_of(verb, verbs(), dialect.fields(dialect.request(fields)))
    assert write is not None
    return result_of(command, dialect.answer(dialect.reply(write.show(result))))


@EXAMPLES
@given(rows(), TEXT)
def test_every_entry_survives_its_reply(row: Row, key: str) -> None:
    """All of an entry's envelope, and its value to the last digit, reach the client."""
    known = verbs()
    made = [
        msgspec.structs.replace(known.set(key, 1), value=row.value, size=row.size),
        known.incr(key),
        known.set_ttl(key, 5),
        known.touch(key, 5),
        known.remove_ttl(key),
        known.restore(key),
    ]
    for command in made:
        for dialect in (PLUGIN, SEMANTIC):
            assert answered(command, Stored(key, row), dialect) == Stored(key, row)


def test_a_touch_of_nothing_survives_its_reply() -> None:
    """A client learns that there was no entry to touch."""
    assert answered(verbs().touch("k", 5), Missed(), PLUGIN) == Missed()


@EXAMPLES
@given(st.none() | st.integers(1, 2**63 - 1))
def test_every_deletion_survives_its_reply(version: int | None) -> None:
    """Whether there was something to delete, and its version, reach the client."""
    assert answered(verbs().delete("k"), Deleted(version), PLUGIN) == Deleted(version)


@EXAMPLES
@given(st.lists(st.none() | st.integers(1, 2**63 - 1), min_size=1, max_size=4))
def test_the_versions_of_a_batch_survive(versions: list[int | None]) -> None:
    """The versions of a batch reach the client by position."""
    command = verbs().batch(writes=[{"key": "k", "delete": True}] * len(versions))
    result = Versions(tuple(versions), (None,) * len(versions))
    assert answered(command, result, SEMANTIC) == result
    numbered = Versions(tuple(versions), (None,) * len(versions), tuple(versions))
    assert answered(command, numbered, PLUGIN) == numbered


@EXAMPLES
@given(rows())
def test_results_of_several_survive_with_their_errors(row: Row) -> None:
    """Each member of a set_many or delete_many comes back as what it was, results and errors alike."""
    command, _ = verbs().set_many([{"key": "a", "value": 1}, {"key": "b", "value": 2}])
    given = msgspec.structs.replace(command.items[0], value=row.value, size=row.size)
    command = msgspec.structs.replace(command, items=(given, *command.items[1:]))
    lost = VersionConflict("lost", current=None)
    for dialect in (PLUGIN, SEMANTIC):
        found = answered(command, Results((Stored("a", row), lost)), dialect)
        assert found.items[0] == Stored("a", row)
        assert (type(found.items[1]), found.items[1].message) == (VersionConflict, "lost")
        deletes, _ = verbs().delete_many(["a", "b", "c"])
        gone = KeyNotFound("gone", field="key")
        found = answered(deletes, Results((Deleted(4), Deleted(None), gone)), dialect)
        assert found.items[:2] == (Deleted(4), Deleted(None))
        assert (type(found.items[2]), found.items[2].field) == (KeyNotFound, "key")


def test_an_illegal_member_keeps_its_place() -> None:
    """A member that breaks a rule is refused in its place, and the others are done."""
    write = write_of("set_many", verbs(), {"items": [{"key": "", "value": 1}, {"key": "b", "value": 2}, 5]})
    assert write is not None
    assert isinstance(write.command, Many)
    assert [item.key for item in write.command.items] == ["b"]
    row = Row(value="2", size=1, version=3, created_at=0, updated_at=0)
    shown = write.show(Results((Stored("b", row),)))["results"]
    assert [member["success"] for member in shown] == [False, True, False]
    assert (shown[0]["error_code"], shown[0]["field"]) == ("VALIDATION_ERROR", "key")
    assert shown[1] == {"success": True, "version": 3, "expires_at": None}
    assert (shown[2]["error_code"], shown[2]["field"]) == ("VALIDATION_ERROR", "items")


def test_a_write_of_which_nothing_is_legal_has_no_command() -> None:
    """When no member is legal nothing is handed to the store, and every error is shown."""
    write = write_of("delete_many", verbs(), {"keys": ["", 5]})
    assert write is not None
    assert write.command is None
    assert [member["field"] for member in write.show(None)["results"]] == ["key", "key"]


def test_ttl_and_ttl_seconds_are_the_same_field() -> None:
    """Both names are accepted; given both, they must agree."""
    plain = verbs().set("k", 1, ttl=5)
    for fields in ({"ttl": 5}, {"ttl_seconds": 5}, {"ttl": 5, "ttl_seconds": 5}):
        write = write_of("set", verbs(), {"key": "k", "value": 1, **fields})
        assert write is not None
        assert write.command == plain
    with pytest.raises(ValidationError) as caught:
        write_of("set", verbs(), {"key": "k", "value": 1, "ttl": 5, "ttl_seconds": 6})
    assert caught.value.field == "ttl"


@pytest.mark.parametrize("by", [0.1, -0.0, 5e-324, 1.7976931348623157e308, 2**63, -(10**20)])
def test_an_increment_is_exact(by: float) -> None:
    """The number to add arrives with its type, its sign and every digit."""
    found = sent(verbs().incr("k", by), PLUGIN)
    assert found is not None
    arrived = found.by  # type: ignore[attr-defined]
    assert type(arrived) is type(by)
    assert (arrived, math.copysign(1, arrived)) == (by, math.copysign(1, by))
