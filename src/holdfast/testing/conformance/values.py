"""Values: which are valid, and that each is returned exactly.

Law: values are compared as JSON text, so that no test takes 1, 1.0 and true for the same.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import ValidationError, ValueTooLarge
from holdfast.testing.conformance.fixtures import Fixtures, Reopen, assert_empty
from holdfast.testing.exact import present, refusal, same, text_of

if TYPE_CHECKING:
    from holdfast.handles.kv import KV

JSON: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, 1, -1, 1.0, 0.0, -0.0, 0.1, 1e16, 1e22, 1e308, -1.7976931348623157e308, 5e-324),
    *(2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**40, -(10**40)),
    *(
        "",
        "plain",
        "é 你好 🎉",
        "e\u0301",
        '"quoted" \\ / \b\f\n\r\t',
        "\x00",
        "\x1f\x7f\x80",
        "\u2028\u2029",
    ),
    *(
        "\ue000\uffff\U00010000\U0010ffff",
        "null",
        "1",
        "<script>",
        "%s %(a)s ? $1 {}",
        "'; DROP TABLE kv; --",
    ),
    *([], {}, [[]], [{}], {"": ""}, {"a": {"b": {"c": [1, 1.0, True, None, "x"]}}}, [1, [2, [3, [4]]]]),
    *({"é": 1, "🎉": 2, "\x00": 3, "A": 4, "a": 5}, [None] * 100, {str(n): n for n in range(100)}),
)


def nested(depth: int) -> Any:
    """Return lists nested to this depth."""
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


def nested_objects(depth: int) -> Any:
    """Return objects nested to this depth."""
    value: Any = {}
    for _ in range(depth - 1):
        value = {"in": value}
    return value


class ValueRules(Fixtures):
    """The rules of values."""

    async def test_any_json_comes_back_exactly(self, kv: KV) -> None:
        """Any JSON value is returned exactly: its type, its sign and every digit."""
        for number, value in enumerate(JSON):
            entry = await kv.set(f"{number:02}", value)
            assert same(entry.value, value)
            assert same(present(await kv.get(f"{number:02}")).value, value)

    async def test_every_way_of_reading_shows_the_same_value(self, kv: KV) -> None:
        """Get, get_many and list with values return the same value."""
        keys = [f"{number:02}" for number in range(len(JSON))]
        await kv.set_many([{"key": key, "value": value} for key, value in zip(keys, JSON, strict=True)])
        listed = (await kv.list(values=True)).entries
        assert listed == await kv.get_many(keys)
        assert [text_of(entry.value) for entry in listed or ()] == [text_of(value) for value in JSON]

    async def test_values_survive_opening_again(self, kv: KV, reopen: Reopen) -> None:
        """Acknowledged values are there, exactly, when the storage is reopened."""
        for number, value in enumerate(JSON):
            await kv.set(f"{number:02}", value)
        before = await kv.get_many([f"{number:02}" for number in range(len(JSON))])
        again = await reopen()
        if not again.capabilities.durable:
            await assert_empty(again)
            return
        kv = again.kv("trivia")
        for number, value in enumerate(JSON):
            entry = present(await kv.get(f"{number:02}"))
            assert same(entry.value, value)
            assert entry == before[number]

    async def test_integers_of_4300_digits_are_exact(self, kv: KV) -> None:
        """Integers of up to 4,300 digits are exact, whatever their sign."""
        for number in (10**4300 - 1, 10**4299, -(10**4299)):
            await kv.set("n", [number])
            assert present(await kv.get("n")).value == [number]

    async def test_negative_integers_of_4300_digits_are_exact(self, kv: KV) -> None:
        """The sign does not count as a digit: the least integer of 4,300 digits is valid and can be read."""
        await kv.set("n", 1 - 10**4300)
        assert present(await kv.get("n")).value == 1 - 10**4300

    async def test_longer_integers_are_refused(self, kv: KV) -> None:
        """An integer of more than 4,300 digits is a validation error and is not stored."""
        for value in (10**4300, -(10**4300), {"deep": [10**5000]}):
            with refusal(ValidationError, field="value"):
                await kv.set("n", value)
        assert await kv.get("n") is None

    async def test_what_json_has_no_number_for_is_refused(self, kv: KV) -> None:
        """NaN and infinities are refused at any depth."""
        for number in (float("nan"), float("inf"), float("-inf")):
            for value in (number, [number], {"a": [{"b": number}]}):
                with refusal(ValidationError, field="value", says="NaN or Infinity", about=value):
                    await kv.set("n", value)

    async def test_nesting_ends_at_64(self, kv: KV) -> None:
        """64 levels of lists or objects are valid, 65 are not."""
        for legal in (nested(64), nested_objects(64), [1, nested(63)]):
            await kv.set("deep", legal)
            assert same(present(await kv.get("deep")).value, legal)
        for illegal in (nested(65), nested_objects(65), [1, nested(64)], nested(5000)):
            with refusal(ValidationError, field="value", says="64"):
                await kv.set("deep", illegal)

    async def test_lone_surrogates_are_refused(self, kv: KV) -> None:
        """Text that is not valid UTF-8 is refused in values and in names."""
        illegal: tuple[Any, ...] = ("\ud800", ["a\udfffb"], {"a": {"b": "\udc00"}}, {"\ud83d": 1})
        for value in illegal:
            with refusal(ValidationError, field="value", says="surrogate", about=value):
                await kv.set("k", value)

    async def test_what_is_no_json_is_refused(self, kv: KV) -> None:
        """An object that JSON cannot represent is refused rather than converted."""
        strange: tuple[Any, ...] = (b"x", {1, 2}, object(), datetime.now(UTC), {1: 2}, {None: 1}, 1j, [b""])
        for value in strange:
            with refusal(ValidationError, field="value", says="JSON", about=value):
                await kv.set("k", value)
        assert await kv.get("k") is None

    async def test_tuples_are_lists(self, kv: KV) -> None:
        """A tuple is an array in JSON and is returned as a list."""
        assert (await kv.set("k", (1, (2, 3)))).value == [1, [2, 3]]

    async def test_null_is_a_value(self, kv: KV) -> None:
        """An entry whose value is null exists; a missing one does not."""
        await kv.set("k", None)
        assert present(await kv.get("k")).value is None
        assert await kv.get("other") is None
        assert (await kv.list()).keys == ["k"]

    async def test_the_size_limit_is_exact(self, kv: KV) -> None:
        """65,536 bytes of compact UTF-8 are valid; one more is refused, with the size and the limit."""
        for legal in ("x" * 65_534, "é" * 32_767, "🎉" * 16_383 + "xx", [1] * 32_767, "\x00" * 10_922):
            await kv.set("big", legal)
            assert same(present(await kv.get("big")).value, legal)
        for illegal, size in (("x" * 65_535, 65_537), ("é" * 32_768, 65_538), ([1] * 32_768, 65_537)):
            words = f"Value size ({size} bytes) exceeds 64KB limit (65536 bytes)"
            with refusal(ValueTooLarge, field="value", says=words):
                await kv.set("big", illegal)

    async def test_a_refused_value_leaves_the_old_one(self, kv: KV) -> None:
        """A refusal writes nothing."""
        entry = await kv.set("k", "old")
        with refusal(ValueTooLarge, field="value"):
            await kv.set("k", "x" * 70_000)
        assert await kv.get("k") == entry
        assert (await kv.changes(since=entry.version)).changes == []

    async def test_what_is_stored_is_a_copy(self, kv: KV) -> None:
        """Changing an object after it was set or read changes nothing in the store."""
        value = {"list": [1]}
        await kv.set("k", value)
        value["list"].append(2)
        read = present(await kv.get("k")).value
        read["list"].append(3)
        assert present(await kv.get("k")).value == {"list": [1]}
