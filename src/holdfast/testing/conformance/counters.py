"""Adding to numbers: incr.

Law: the rules that incr shares with every conditional write are tested there. This file tests its effect on
numbers and on the rest of an entry.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from holdfast.clock import moment
from holdfast.errors import KeyNotFound, ValidationError, VersionConflict
from holdfast.testing.conformance.fixtures import Fixtures
from holdfast.testing.exact import present, refusal, same

if TYPE_CHECKING:
    from holdfast.clock import ManualClock
    from holdfast.handles.kv import KV


class CounterRules(Fixtures):
    """The rules of incr."""

    async def test_a_missing_key_starts_from_zero(self, kv: KV) -> None:
        """The first incr creates the key with the number it adds."""
        assert same((await kv.incr("a")).value, 1)
        assert same((await kv.incr("b", -5)).value, -5)
        assert same((await kv.incr("c", 0.5)).value, 0.5)
        assert same((await kv.incr("d", 0)).value, 0)

    async def test_numbers_add_up(self, kv: KV) -> None:
        """Integers stay exact however large they grow; a float makes a float."""
        for start, by, total in (
            (1, 1, 2),
            (1, -2, -1),
            (2**63 - 1, 1, 2**63),
            (-(2**63), -1, -(2**63) - 1),
            (10**4000, 1, 10**4000 + 1),
            (1, 0.5, 1.5),
            (0.5, 0.5, 1.0),
            (1.5, 1, 2.5),
            (2**53, 1, 2**53 + 1),
        ):
            await kv.set("n", start)
            entry = await kv.incr("n", by)
            assert same(entry.value, total)
            assert await kv.get("n") == entry

    async def test_deadline_and_semantics_are_kept(self, kv: KV, clock: ManualClock) -> None:
        """On a live key incr keeps deadline, semantics, spec_ref and created_at; its ttl has no effect."""
        first = await kv.set("n", 1, ttl=60, semantics={"purpose": "cursor"}, spec_ref="doc", writer="a")
        clock.advance(1)
        entry = await kv.incr("n", 2, ttl=5, writer="b", request_id="r")
        assert (entry.value, entry.last_writer, entry.request_id) == (3, "b", "r")
        assert (entry.expires_at, entry.semantics) == (first.expires_at, first.semantics)
        assert (entry.created_at, entry.spec_ref) == (first.created_at, "doc")
        assert entry.updated_at == moment(clock.now())
        await kv.set("forever", 1)
        assert (await kv.incr("forever", ttl=5)).expires_at is None
        assert (await kv.incr("forever", spec_ref="new")).spec_ref == "new"

    async def test_ttl_applies_to_a_new_key(self, kv: KV, clock: ManualClock) -> None:
        """The ttl of an incr that creates the key is its deadline. After that, counting starts again."""
        first = await kv.incr("n", ttl=60)
        assert first.expires_at == moment(clock.now() + 60_000)
        clock.advance(59)
        assert (await kv.incr("n", ttl=60)).expires_at == first.expires_at
        clock.advance(1)
        anew = await kv.incr("n", ttl=60)
        assert (anew.value, anew.created_at) == (1, moment(clock.now()))

    async def test_only_if_it_exists(self, kv: KV) -> None:
        """With only_if_exists, incr of a missing key raises KeyNotFound and makes nothing; else it adds."""
        with refusal(KeyNotFound, field="key", says="'n'"):
            await kv.incr("n", only_if_exists=True)
        with refusal(KeyNotFound, field="key"):
            await kv.batch(
                writes=[{"key": "m", "value": 1}, {"key": "n", "incr": 1, "only_if_exists": True}],
            )
        assert (await kv.list()).keys == []
        await kv.set("n", 1)
        assert (await kv.incr("n", 2, only_if_exists=True)).value == 3
        await kv.batch(writes=[{"key": "n", "incr": 1, "only_if_exists": True}])
        assert present(await kv.get("n")).value == 4
        wrong: Any = "yes"
        with refusal(ValidationError, field="only_if_exists", says="true or false"):
            await kv.incr("n", only_if_exists=wrong)

    async def test_what_is_no_number_stays(self, kv: KV) -> None:
        """An incr of anything but a number is refused and changes nothing; a boolean is not a number."""
        others: tuple[Any, ...] = ("1", None, True, False, [], {}, [1])
        for value in others:
            entry = await kv.set("k", value)
            with refusal(ValidationError, field="value", says="not a number", about=value):
                await kv.incr("k")
            assert await kv.get("k") == entry

    async def test_what_can_not_be_added(self, kv: KV) -> None:
        """The number to add is one that JSON can hold, in incr and in a batch."""
        wrongs: tuple[Any, ...] = (True, "1", None, [1], float("nan"), float("inf"), 1j)
        for wrong in wrongs:
            with refusal(ValidationError, field="by", about=wrong):
                await kv.incr("k", wrong)
        for wrong in wrongs[:2] + wrongs[3:]:
            with refusal(ValidationError, field="by", about=wrong):
                await kv.batch(writes=[{"key": "k", "incr": wrong}])
        assert await kv.get("k") is None

    async def test_an_addend_that_is_too_long(self, kv: KV) -> None:
        """An addend of more than 4,300 digits is refused, on any key, also with a request id."""
        for by in (10**4300, -(10**4300)):
            with refusal(ValidationError, field="by"):
                await kv.incr("missing", by)
            with refusal(ValidationError, field="by"):
                await kv.incr("missing", by, request_id="r")
        assert await kv.get("missing") is None

    async def test_sums_that_no_number_holds(self, kv: KV) -> None:
        """A sum that is too large for a value is refused and changes nothing."""
        numbers: tuple[tuple[Any, Any], ...] = (
            (1e308, 1e308),
            (10**4300 - 1, 1),
            (10**4000, 0.5),
            (0.5, 10**4000),
        )
        for start, by in numbers:
            entry = await kv.set("n", start)
            with refusal(ValidationError, field="by", says="too large"):
                await kv.incr("n", by)
            assert await kv.get("n") == entry

    async def test_with_an_expected_version(self, kv: KV) -> None:
        """An incr may be conditional."""
        first = await kv.incr("n", expected_version=0)
        second = await kv.incr("n", expected_version=first.version)
        with refusal(VersionConflict) as caught:
            await kv.incr("n", expected_version=first.version)
        assert caught.value.current == second

    async def test_increments_of_many_at_once_are_not_lost(self, kv: KV) -> None:
        """Every write is atomic: concurrent increments add up, and each returns its own sum."""
        entries = await asyncio.gather(*(kv.incr("n") for _ in range(100)))
        assert [entry.value for entry in entries] == list(range(1, 101))
        assert present(await kv.get("n")).value == 100
