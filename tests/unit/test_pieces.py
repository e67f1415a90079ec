"""Pieces of work between two turns of the loop: a large item makes none of them long.

What is done is counted, by bytes, members or steps of work. No test here looks at a clock.
"""

from __future__ import annotations

import asyncio
import gc
import math
import sys
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast
from holdfast import rules, stored
from holdfast.decide import draft, items
from holdfast.edges.calls import keys
from holdfast.engines.sqlite import reads
from holdfast.errors import HoldfastError, TooExpensive, ValidationError
from holdfast.pipeline import watch
from holdfast.testing.exact import refusal
from holdfast.wire.writes import write_of
from holdfast.work import SLICE, Work
from tests.verbs import Verbs, table_calls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

LONGEST: Final = 250_000
"""How many steps of work there may be in one piece: 5 ms, at 20 ns each."""


@pytest.fixture
async def store() -> AsyncIterator[holdfast.Store]:
    """A store on SQLite, since others load as their drivers do."""
    async with holdfast.open("sqlite:///:memory:", reap=False) as opened:
        yield opened


async def test_a_list_is_no_key_and_is_not_made(
    store: holdfast.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index about an attribute that is a long list costs no more than to pass over the list."""
    made: list[int] = []
    value = stored._value

    def noted(text: str, key: str) -> Any:
        made.append(len(text))
        return value(text, key)

    tables = store.tables("p")
    await tables.create_table("t", partition_key=("p", "string"))
    for number in range(3):
        await tables.put_item("t", {"p": f"i{number}", "l": [[1]] * 9_000, "o": {"x": [1] * 9_000}})
    await tables.put_item("t", {"p": "text", "l": "a", "o": "b"})
    monkeypatch.setattr(stored, "_value", noted)
    for name in ("l", "o"):
        await tables.create_index("t", f"by-{name}", key=(name, "string"))
        assert (await tables.check_index("t", f"by-{name}"))["entries"] == 1
    assert 0 < max(made) < 100


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The steps of work that are counted in each turn of the loop."""
    turns = [0]
    spend, look, run = Work.spend, Work.look, asyncio.Handle._run

    def spending(work: Work, steps: int) -> None:
        turns[-1] += steps
        spend(work, steps)

    def looking(work: Work, name: object, steps: int) -> None:
        turns[-1] += steps
        look(work, name, steps)

    def turning(handle: asyncio.Handle) -> None:
        turns.append(0)
        run(handle)

    monkeypatch.setattr(Work, "spend", spending)
    monkeypatch.setattr(Work, "look", looking)
    monkeypatch.setattr(asyncio.Handle, "_run", turning)
    yield turns
    assert sum(turns) > SLICE, "there was something to count"


LONG: Final = [1] * 150_000
REQUESTS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "looks at a list in a filter": (
        "scan",
        {"filter": {"or": [{"l": {"contains": -n}} for n in range(1, 6)]}},
    ),
    "looks at a list in a condition": (
        "delete_item",
        {"partition_key": "i0", "condition": {"or": [{"l": {"contains": -n}} for n in range(1, 6)]}},
    ),
    "removes from a list": ("update_item", {"partition_key": "i0", "remove": [f"l[{n}]" for n in range(60)]}),
    "more removes than may be": (
        "update_item",
        {"partition_key": "i0", "remove": [f"l[{n}]" for n in range(400)]},
    ),
    "a union of two lists": ("update_item", {"partition_key": "i0", "add": {"l": list(range(9_000))}}),
    "a projection": ("scan", {"projection": [f"l[{n}]" for n in range(900)]}),
}


async def _refusal(store: holdfast.Store, verb: str, fields: dict[str, Any]) -> HoldfastError | None:
    try:
        await table_calls(store, "table/p")(verb, fields)
    except HoldfastError as error:
        return error
    return None


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_piece_of_a_request_is_short(store: holdfast.Store, pieces: list[int], name: str) -> None:
    """Between two turns of the loop there are at most 5 ms of work, however much the request takes in all."""
    tables = store.tables("p")
    await tables.create_table("t", partition_key=("p", "string"))
    for number in range(3):
        await tables.put_item("t", {"p": f"i{number}", "l": LONG})
    verb, fields = REQUESTS[name]
    pieces[:] = [0]
    refused = await _refusal(store, verb, {"table": "t", **fields})
    assert isinstance(refused, TooExpensive) == (name == "more removes than may be")
    assert max(pieces) <= LONGEST


async def test_request_without_pauses_is_one_long_piece(
    store: holdfast.Store, pieces: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If nothing pauses, the same removes are one piece that is too long."""
    monkeypatch.setattr(Work, "pausing", lambda work: False)
    with pytest.raises(AssertionError):
        await test_a_piece_of_a_request_is_short(store, pieces, "removes from a list")


async def test_large_values_are_loaded_beside_the_loop(
    store: holdfast.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many large values the loop loads 128 KB; the reader's thread loads the rest."""
    loads: list[tuple[int, int]] = []
    load_rows = reads.load_rows

    def noted(file: Any, wanted: Any, room: Any = None, *, most: int = 0) -> Any:
        try:
            rows = load_rows(file, wanted, room, most=most)
        except reads.TooLargeToLoad as rest:
            loads.append((most, sum(row.size for row in rest.rows.values())))
            raise
        loads.append((most, sum(row.size for row in rows.values())))
        return rows

    kv = store.kv("p")
    keys = [f"k{number}" for number in range(60)]
    for key in keys:
        await kv.set(key, "x" * 60_000)
    monkeypatch.setattr(reads, "load_rows", noted)
    result = await kv.delete_many(keys[:40], request_id="r")
    assert result == [True] * 40
    assert max(size for most, size in loads if most) <= 131_072 + 60_002
    assert sum(size for _, size in loads) == 40 * 60_002
    assert (await kv.list()).keys == keys[40:]


async def test_no_more_changes_are_read_than_fit_a_reply(
    store: holdfast.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a long journal a page is read that fits a reply, whatever the limit of the call; the next follows.

    To a service a change is its record; no other object is made of it.
    """
    kv = store.kv("p")
    for _ in range(3):
        await kv.set_many([{"key": f"k{number}", "value": 1} for number in range(1_000)])
    asked: list[int] = []
    journal = reads.journal

    def noted(connection: Any, query: Any, epoch: str) -> Any:
        asked.append(query.limit)
        return journal(connection, query, epoch)

    def none_is_made(record: object) -> Any:
        raise AssertionError(f"a change was made of {record}")

    monkeypatch.setattr(reads, "journal", noted)
    monkeypatch.setattr(watch, "change_of", none_is_made)
    versions: list[int] = []
    since = 0
    while len(versions) < 3_000:
        page = await keys.VERBS["changes"].call(kv, {"since": since, "limit": 10_000})
        versions += [change["version"] for change in page["changes"]]
        since = page["next"]
    assert versions == [*range(1, 3_001)]
    assert len(asked) == 2
    assert max(asked) == 2_049


BUILT: Final[dict[str, tuple[dict[str, Any], int]]] = {
    "set_many": ({"items": [{"key": f"k{n}", "value": n} for n in range(1_000)]}, 8),
    "batch": (
        {
            "writes": [{"key": f"k{n}", "value": "x"} for n in range(900)],
            "checks": [{"key": "c", "version": 1}] * 100,
        },
        9,
    ),
}


@pytest.mark.parametrize("verb", BUILT)
def test_a_call_about_many_keys_is_built_with_few_steps(verb: str) -> None:
    """A plain member of a call of a thousand takes few calls in Python, since all are built in one piece."""
    fields, most = BUILT[verb]
    verbs = Verbs("kv/p", writer="w", new_id=lambda: "r", now=lambda: 0)
    write_of(verb, verbs, fields)
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        write = write_of(verb, verbs, fields)
    finally:
        sys.setprofile(None)
    assert write is not None
    assert 1_000 < calls < most * 1_000


async def test_a_load_that_is_too_large_is_refused_in_pieces_too(store: holdfast.Store) -> None:
    """What one write may have to look at is counted over all pieces."""
    tables = store.tables("p")
    await tables.create_table("t", partition_key=("p", "string"))
    for number in range(22):
        await tables.put_item("t", {"p": f"i{number}", "l": "x" * 400_000})
    with refusal(TooExpensive, says="more than 8388608 bytes"):
        await tables.transact_write(
            [{"delete": {"table": "t", "partition_key": f"i{number}"}} for number in range(22)]
        )


async def test_an_update_in_slices_is_the_update(
    store: holdfast.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an update makes of an item does not depend on how often it was paused."""
    paused: list[int] = []
    take_back = draft.Draft._take_back

    def counted(self: draft.Draft, undo: int) -> None:
        paused.append(undo)
        take_back(self, undo)

    monkeypatch.setattr(draft.Draft, "_take_back", counted)
    tables = store.tables("p")
    await tables.create_table("t", partition_key=("p", "string"))
    found = []
    for slice_size in (SLICE, 10**9):
        monkeypatch.setattr(items, "SLICE", slice_size)
        await tables.put_item("t", {"p": "a", "l": list(range(50_000)), "s": [1]})
        paused.clear()
        update: dict[str, Any] = {
            "set": {"l[7]": "seven", "new.deep": 1},
            "add": {"s": list(range(5_000))},
            "remove": [f"l[{number}]" for number in range(100, 130)],
        }
        await tables.update_item("t", "a", **update)
        found.append((await tables.get_item("t", "a")).value)  # type: ignore[union-attr]
        assert bool(paused) == (slice_size == SLICE)
    assert found[0] == found[1]
    assert found[0]["l"][5:9] == [5, 6, "seven", 8]
    assert len(found[0]["l"]) == 50_000 - 30


async def test_an_update_in_slices_may_be_refused(store: holdfast.Store) -> None:
    """An update that can't be made of what is there says so, also where it is computed in slices."""
    tables = store.tables("p")
    await tables.create_table("t", partition_key=("p", "string"))
    await tables.put_item("t", {"p": "a", "l": [1] * 150_000})
    with refusal(ValidationError, field="set"):
        await tables.update_item("t", "a", set={"l.x": 1, "b": 2})


LETTERS: Final = st.characters(exclude_categories=["Cs"])
"""All that UTF-8 has. Asked for no letters in particular, hypothesis works that out anew, for two seconds."""
PLAIN: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(LETTERS, max_size=3) | st.just(2**70),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(LETTERS, max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


def _refused(call: Callable[[], object]) -> str:
    try:
        call()
    except ValidationError as error:
        return error.message
    return ""


@pytest.mark.unmeasured  # the tests below reach the same lines
@settings(max_examples=50)
@given(PLAIN | st.builds(lambda inner: {1: inner}, PLAIN))
def test_a_large_value_is_judged_as_a_small_one(value: Any) -> None:
    """Level by level a value is never taken for legal that a walk refuses."""
    if rules._is_plain(value):
        assert _refused(lambda: rules.require_json(value, rules.MAX_NESTING)) == ""


@pytest.mark.parametrize("depth", [62, 63, 64, 65])
@pytest.mark.parametrize("innermost", [[], {}, 1, {"a": []}])
def test_the_depth_of_a_large_value_is_that_of_a_small_one(depth: int, innermost: Any) -> None:
    """A value of 64 levels is legal and one of 65 is not, whatever else it holds."""
    value = innermost
    for _ in range(depth):
        value = [value]
    pad = ["x" * 5_000]
    assert _refused(lambda: rules.encode_value(value)) == _refused(lambda: rules.encode_value([*value, *pad]))


WRONG: Final = {"nan": math.nan, "inf": math.inf, "digits": 10**4_300, "bytes": b"x", "name": {1: 2}}


@pytest.mark.parametrize("name", WRONG)
def test_large_values_without_a_json_form_are_refused(name: str) -> None:
    """The message is the same as for a small value."""
    small = _refused(lambda: rules.encode_value([WRONG[name]]))
    assert small
    assert _refused(lambda: rules.encode_value([[WRONG[name]], "x" * 5_000])) == small


def test_a_large_value_may_hold_everything_that_json_has() -> None:
    """Also integers of many digits, which are counted one by one."""
    value = [[10**4_000, 2**70, 2.5, True, None, {"a": {"b": [1, {}]}}], "x" * 5_000]
    assert rules.encode_value(value)[1] > 9_000


def test_a_long_value_is_read_without_looking_for_garbage() -> None:
    """To read thousands of lists collects none of them meanwhile, and leaves the collector as it was."""
    text = f"[{','.join(['[]'] * 20_000)}]"
    collected: list[str] = []
    gc.callbacks.append(lambda phase, info: collected.append(phase))
    try:
        for enabled in (True, False):
            (gc.enable if enabled else gc.disable)()
            collected.clear()
            read = stored._value(text, "k")
            assert (len(read), gc.isenabled()) == (20_000, enabled)
            assert collected.count("start") <= 1  # it may come when all is read
    finally:
        gc.enable()
        gc.callbacks.pop()


@pytest.mark.parametrize("verb", ["get", "get_many", "list"])
async def test_a_service_passes_values_on_as_they_are_stored(
    store: holdfast.Store, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """A read at the NATS door makes no list of a value's text, and so takes no longer than to copy it."""
    kv = store.kv("p")
    value: list[list[list[int]]] = [[[]] * 50] * 50
    await kv.set("k", value)

    def none_is_made(text: str, key: str) -> Any:
        raise AssertionError(f"the value of {key} was made")

    monkeypatch.setattr(stored, "_value", none_is_made)
    answer = await keys.VERBS[verb].call(kv, {"key": "k", "keys": ["k", "none"], "values": True})
    monkeypatch.undo()
    shown = msgspec.json.decode(msgspec.json.encode(answer))
    [entry, *others] = {"get": [shown], "get_many": shown.get("results"), "list": shown.get("entries")}[verb]
    assert (entry["exists"], entry["value"], entry["version"]) == (True, value, 1)
    assert others in ([], [{"success": True, "exists": False}])
