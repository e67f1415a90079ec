"""Logs: items that the store numbers in the order in which they are committed."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from holdfast.clock import ManualClock, moment
from holdfast.errors import (
    Fenced,
    HoldfastError,
    MissingField,
    ValidationError,
    ValueTooLarge,
    VersionConflict,
)
from holdfast.handles.kv import KV
from holdfast.store import Store
from holdfast.testing.conformance.fixtures import DAY, Fixtures, Reopen
from holdfast.testing.exact import present, refusal

NO_NAME: Final[tuple[Any, ...]] = ("", 5, None, "x" * 243, "a\x00b", ["a"])
NO_COUNT: Final[tuple[Any, ...]] = (0, -1, True, 1.0, "5", 10**12)
NO_APPEND: Final[tuple[tuple[dict[str, Any], type[HoldfastError], str], ...]] = (
    ({"append": "log"}, MissingField, "value"),
    ({"append": "log", "value": 1, "key": "k"}, ValidationError, "writes"),
    ({"append": "log", "value": 1, "delete": True}, ValidationError, "writes"),
    ({"append": "log", "incr": 1}, ValidationError, "writes"),
    ({"append": "log", "guard": "g"}, ValidationError, "writes"),
    ({"append": "", "value": 1}, ValidationError, "name"),
    ({"append": "log", "value": 1, "keep": 0}, ValidationError, "keep"),
    ({"append": "log", "value": 1, "keep_ttl": True}, ValidationError, "keep_ttl"),
)
"""Illegal writes of a batch, with the refusal of each and the field that it names."""


async def numbers(kv: KV, name: str = "log", **given: Any) -> list[int | None]:
    """Return the numbers of the items that a listing shows."""
    page = await kv.list(f"{name}/", values=True, **given)
    return [entry.number for entry in page.entries or ()]


class LogRules(Fixtures):
    """The rules of append."""

    async def test_the_store_numbers_items(self, kv: KV) -> None:
        """Items get the numbers 1, 2, 3, and each is an entry whose key has its number in 12 digits."""
        items = [await kv.append("log", value) for value in ("a", None, {"b": [1.0]})]
        assert [item.number for item in items] == [1, 2, 3]
        assert [item.key for item in items] == [f"log/{number:012}" for number in (1, 2, 3)]
        assert [await kv.get(item.key) for item in items] == items
        assert [item.version for item in items] == [1, 2, 3]
        assert (await kv.list("log/", values=True)).entries == items
        assert [change.key for change in (await kv.changes()).changes] == [item.key for item in items]

    async def test_an_item_has_an_envelope(self, kv: KV, clock: ManualClock) -> None:
        """An item has what every entry has: writer, spec_ref, semantics, request id and deadline."""
        item = await kv.append(
            "log",
            1,
            ttl=60,
            semantics={"purpose": "message", "producer": "me"},
            writer="me",
            spec_ref="doc",
            request_id="r",
        )
        assert item == await kv.get(item.key)
        assert (item.last_writer, item.spec_ref, item.request_id) == ("me", "doc", "r")
        assert present(item).semantics is not None
        assert item.expires_at == moment(clock.now() + 60_000)

    async def test_many_writers_leave_no_gap(self, kv: KV, store: Store) -> None:
        """However many append at once, each gets a number of its own, in the order of commit."""
        other = store.kv("trivia")
        items = await asyncio.gather(
            *((other if turn % 2 else kv).append("log", turn, writer=f"w{turn}") for turn in range(120))
        )
        assert sorted(item.number or 0 for item in items) == list(range(1, 121))
        by_version = sorted(items, key=lambda item: item.version)
        assert [item.number for item in by_version] == list(range(1, 121))
        assert await numbers(kv) == list(range(1, 121))

    async def test_logs_are_independent(self, kv: KV, store: Store) -> None:
        """Each log has its own numbers, in each namespace."""
        assert [(await kv.append(name, 1)).number for name in ("a", "b", "a/b", "a", "é/", "a/b")] == [
            *(1, 1, 1, 2, 1, 2)
        ]
        assert (await store.kv("elsewhere").append("a", 1)).number == 1
        assert (await store.semantic("acme", "web").append("a", 1)).number == 1
        full = "tenant/acme/project/web/a"
        assert (await store.semantic("acme", "web").append(full, 1)).key == f"{full}/000000000002"

    async def test_a_number_is_never_given_twice(self, kv: KV, store: Store, clock: ManualClock) -> None:
        """Deleting, expiry and the removal of all items leave the numbers of later items as they are."""
        await kv.delete((await kv.append("log", 1)).key)
        await kv.append("log", 2, ttl=1)
        clock.advance(1)
        assert (await kv.append("log", 3)).number == 3
        await kv.append("log", 4, ttl=1)
        clock.advance(1)
        await store.sweep()
        assert await numbers(kv) == [3]
        await kv.delete_prefix("log/")
        clock.advance(30 * DAY)
        await store.upkeep()
        assert (await kv.append("log", 5)).number == 5

    async def test_numbers_outlive_opening_again(self, kv: KV, reopen: Reopen) -> None:
        """A log goes on from its last number when the storage is opened again."""
        await kv.delete((await kv.append("log", 1)).key)
        again = await reopen()
        if again is None:
            return
        assert (await again.kv("trivia").append("log", 2)).number == 2

    async def test_a_refused_item_takes_no_number(self, kv: KV) -> None:
        """After any refusal the next item gets the number that the refused one would have had."""
        [token] = (await kv.batch(writes=[{"guard": "lock"}])).versions
        await kv.batch(writes=[{"guard": "lock"}])
        with refusal(Fenced, field="fence"):
            await kv.append("log", 1, fence={"lock": "lock", "token": token})
        with refusal(ValueTooLarge, field="value"):
            await kv.append("log", "x" * 65_536)
        with refusal(VersionConflict):
            await kv.batch(checks=[{"key": "k", "version": 7}], writes=[{"append": "log", "value": 1}])
        await kv.set("text", "a")
        with refusal(ValidationError, field="value"):
            await kv.batch(writes=[{"append": "log", "value": 1}, {"key": "text", "incr": 1}])
        assert (await kv.append("log", 1)).number == 1

    async def test_a_repeated_request_appends_once(self, kv: KV) -> None:
        """A request that is sent again gets the item that it made, also if that is gone by now."""
        first = await kv.append("log", {"a": 1}, keep=1, request_id="r")
        await kv.append("log", 2, keep=1)
        assert await kv.append("log", {"a": 1}, keep=1, request_id="r") == first
        with refusal(VersionConflict) as caught:
            await kv.append("log", 3, request_id="r")
        assert caught.value.reason == "request_id_reused"
        assert await numbers(kv) == [2]

    async def test_keep_trims_to_the_newest(self, kv: KV, store: Store) -> None:
        """With `keep`, only so many of the newest items stay, and the journal has each removal."""
        for value in range(7):
            await kv.append("log", value)
        assert (await kv.append("log", 7, keep=3)).number == 8
        assert await numbers(kv) == [6, 7, 8]
        await kv.append("log", 8, keep=5)
        assert await numbers(kv) == [6, 7, 8, 9]
        await kv.append("log", 9, keep=1)
        assert await numbers(kv) == [10]
        assert (await store.stats("kv/trivia")).keys == 1
        deleted = [change.key for change in (await kv.changes()).changes if change.op == "deleted"]
        assert deleted == [f"log/{number:012}" for number in range(1, 10)]
        assert await store.recount("kv/trivia") == 0

    async def test_keep_with_many_writers(self, kv: KV) -> None:
        """However many append with `keep` at once, the newest items stay, and no others."""
        await asyncio.gather(*(kv.append("log", turn, keep=10) for turn in range(120)))
        assert await numbers(kv) == list(range(111, 121))

    async def test_a_long_log_is_trimmed_bit_by_bit(self, kv: KV) -> None:
        """One call removes at most 100 items; the next ones go on."""
        writes = [{"append": "log", "value": number} for number in range(250)]
        await kv.batch(writes=writes)
        await kv.append("log", 1, keep=10)
        assert await numbers(kv) == list(range(101, 252))
        await kv.append("log", 1, keep=10)
        assert await numbers(kv) == list(range(201, 253))
        await kv.append("log", 1, keep=10)
        assert await numbers(kv) == list(range(244, 254))

    async def test_trimmed_items_go_to_the_trash(self, kv: KV) -> None:
        """An item with semantics that a log lets go of can be restored, as after a delete."""
        first = await kv.append("log", "first", semantics={"purpose": "message"})
        await kv.append("log", "second", keep=1, semantics={"purpose": "message"})
        assert await kv.get(first.key) is None
        assert (await kv.restore(first.key)).value == "first"

    async def test_batches_append(self, kv: KV) -> None:
        """A batch appends together with its other writes, and says which numbers it gave."""
        await kv.append("a", 0)
        done = await kv.batch(
            checks=[{"key": "head", "version": 0}],
            writes=[
                {"append": "a", "value": 1, "ttl": 60},
                {"key": "head", "value": "x"},
                {"append": "b", "value": 2},
                {"append": "a", "value": 3, "keep": 2},
                {"key": "nothing", "delete": True},
            ],
        )
        assert done.numbers == [2, None, 1, 3, None]
        assert done.versions == [2, 3, 4, 5, None]
        assert await numbers(kv, "a") == [2, 3]
        assert (await kv.batch(writes=[{"key": "k", "value": 1}])).numbers == [None]
        assert (await kv.batch(writes=[])).numbers == []

    async def test_a_repeated_batch_appends_once(self, kv: KV) -> None:
        """A batch that is sent again gets the versions and numbers of the first time."""
        writes = [{"append": "log", "value": 1}, {"key": "k", "value": 1}]
        first = await kv.batch(writes=writes, request_id="r")
        await kv.append("log", 2)
        assert await kv.batch(writes=writes, request_id="r") == first
        assert await numbers(kv) == [1, 2]

    async def test_an_entry_in_the_way_is_not_overwritten(self, kv: KV, clock: ManualClock) -> None:
        """A number whose key was written by other means is passed over."""
        await kv.append("log", 1)
        mine = await kv.set("log/000000000002", "mine")
        await kv.set("log/000000000003", "brief", ttl=1)
        clock.advance(1)
        assert (await kv.append("log", 2)).number == 3
        assert await kv.get(mine.key) == mine
        await kv.set_many([{"key": f"log/{number:012}", "value": 0} for number in range(4, 104)])
        with refusal(VersionConflict, says="'log/000000000004'"):
            await kv.append("log", 3)
        await kv.delete("log/000000000103")
        assert (await kv.append("log", 3)).number == 103

    async def test_reading_on_from_a_number(self, kv: KV, store: Store) -> None:
        """A listing begins after a number, which need not exist, or goes backwards from the newest item."""
        for value in range(5):
            await kv.append("log", value)
        await kv.append("log2", 1)
        await kv.set("log", "not an item")
        await kv.delete("log/000000000003")
        for after, left in ((0, [1, 2, 4, 5]), (2, [4, 5]), (3, [4, 5]), (5, []), (10**15, [])):
            assert await numbers(kv, after=after) == left, after
        page = await kv.list("log/", after=1, limit=2)
        assert page.keys == ["log/000000000002", "log/000000000004"]
        assert (await kv.list("log/", cursor=page.cursor)).keys == ["log/000000000005"]
        assert await numbers(kv, reverse=True) == [5, 4, 2, 1]
        page = await kv.list("log/", reverse=True, limit=3)
        assert page.keys == [f"log/{number:012}" for number in (5, 4, 2)]
        assert (await kv.list("log/", reverse=True, cursor=page.cursor)).keys == ["log/000000000001"]
        project = store.semantic("acme", "web")
        await project.append("log", 1)
        assert await numbers(project, after=0) == [1]

    async def test_illegal_places_to_read_on_from(self, kv: KV) -> None:
        """A number to read on from goes with the prefix of a log, and without a cursor."""
        await kv.append("log", 1)
        await kv.append("log", 1)
        cursor = (await kv.list("log/", limit=1)).cursor
        wrongs: tuple[tuple[str, dict[str, Any]], ...] = (
            ("log", {"after": 1}),
            ("", {"after": 1}),
            ("log/", {"after": -1}),
            ("log/", {"after": "1"}),
            ("log/", {"after": True}),
            ("log/", {"after": 1, "cursor": cursor}),
            ("log/", {"after": 1, "reverse": True}),
        )
        for prefix, wrong in wrongs:
            with refusal(ValidationError, field="after", about=wrong):
                await kv.list(prefix, **wrong)

    async def test_illegal_items(self, kv: KV, store: Store) -> None:
        """A log's name is text that leaves room for the number, and `keep` is a number from 1."""
        for name in NO_NAME:
            with refusal(ValidationError, field="name", about=name):
                await kv.append(name, 1)
        for count in NO_COUNT:
            with refusal(ValidationError, field="keep", about=count):
                await kv.append("log", 1, keep=count)
        for write, kind, field in NO_APPEND:
            with refusal(kind, field=field, about=write):
                await kv.batch(writes=[write])
        with refusal(ValidationError, field="name"):
            await store.semantic("acme", "web").append("No such name", 1)
        assert (await kv.append("x" * 242, 1)).number == 1
        assert (await kv.list()).keys == [f"{'x' * 242}/000000000001"]

    async def test_the_head_is_no_entry(self, kv: KV, store: Store) -> None:
        """What the store remembers of a log appears in no listing and no count of keys."""
        item = await kv.append("log", 1)
        assert (await kv.list()).keys == [item.key]
        assert await kv.get("log") is None
        assert (await store.stats("kv/trivia")).keys == 1
        assert await store.recount("kv/trivia") == 0

    async def test_loaded_items_keep_their_numbers(self, kv: KV, store: Store) -> None:
        """Items that are loaded from another store are items of the log, which goes on after them."""
        items = [await kv.append("log", value) for value in range(3)]
        await store.load("kv/copy", [items[2], items[1]], keep_versions=True)
        copy = store.kv("copy")
        assert await numbers(copy) == [2, 3]
        assert (await copy.append("log", 3, keep=2)).number == 4
        assert await numbers(copy) == [3, 4]
        await store.load("kv/other", [items[0]], keep_versions=True)
        other = store.kv("other")
        await other.delete(items[0].key)
        assert (
            await other.append("log", 1)
        ).number == 2  # the number of an item that is gone is not given again

    async def test_a_log_refuses_items_after_the_last_number(self, kv: KV, store: Store) -> None:
        """A log whose numbers are used up refuses items, and says so."""
        last = await kv.set(f"log/{10**12 - 1}", 1)
        await store.load("kv/copy", [last], keep_versions=True)
        copy = store.kv("copy")
        with refusal(ValidationError, field="name", says="log 'log' has no number left"):
            await copy.append("log", 1)
        assert await numbers(copy) == [10**12 - 1]
