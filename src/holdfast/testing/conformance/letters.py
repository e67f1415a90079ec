"""Retries and dead letters: a request that is given up is stored in full, reported, and can be retried once.

No test waits: a retry sleeps on the test's clock.
"""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.clock import ManualClock
from holdfast.errors import Escalated, KeyNotFound, Unavailable, ValidationError, VersionConflict
from holdfast.handles.kv import KV
from holdfast.handles.recipes.retry import Retry
from holdfast.store import Store
from holdfast.testing.conformance.fixtures import Fixtures, Reopen
from holdfast.testing.exact import present, refusal, same


def retrying(kv: KV, clock: ManualClock) -> Retry:
    """Return a retry whose sleep moves the clock."""

    async def sleep(seconds: float) -> None:
        clock.advance(seconds)

    return Retry(kv, sleep=sleep, random=lambda: 0.5)


async def given_up(kv: KV, clock: ManualClock, key: str, value: Any, **more: Any) -> int:
    """Give up a set of a key that others hold. Returns the number of its letter."""
    with pytest.raises(Escalated) as caught:
        await retrying(kv, clock).set(key, value, expected_version=0, **more)
    assert caught.value.code == VersionConflict.code
    assert caught.value.letter is not None
    return caught.value.letter


class LetterRules(Fixtures):
    """The rules of retries and dead letters."""

    async def test_a_retry_waits_for_its_turn(self, kv: KV, clock: ManualClock) -> None:
        """A conflict that passes in time is not an error: the write takes effect once."""
        await kv.set("k", "theirs", ttl=6)
        entry = await retrying(kv, clock).set("k", "mine", expected_version=0)
        assert entry == present(await kv.get("k"))
        assert entry.value == "mine"

    async def test_a_letter_is_whole(self, store: Store, clock: ManualClock) -> None:
        """A letter has everything that the request said, and the reason it was given up, in both families."""
        value = {"turn": "alice", "snake_case": [1.5, -0.0, 2**70, None], "é": {"camelCase": True}}
        meaning = {"purpose": "checkpoint", "consumer_hints": ["a b"]}
        for kv in (store.kv("trivia"), store.semantic("acme", "web")):
            await store.set_policy(kv.namespace, {"reveal": "open"})
            await kv.set("k", 1)
            before = clock.now()
            number = await given_up(
                kv, clock, "k", value, ttl=60, semantics=meaning, request_id="r", writer="a:b", spec_ref="s"
            )
            [letter] = (await store.letters(kv.namespace).list()).letters
            assert letter == present(await store.letters(kv.namespace).get(number))
            full = kv.verbs.key("k")
            assert (letter.number, letter.key, letter.verb, letter.attempts) == (number, full, "set", 7)
            assert (letter.writer, letter.request_id) == ("a:b", "r")
            assert letter.error_code == "VERSION_CONFLICT"
            assert repr(full) in letter.message
            assert letter.at.timestamp() * 1000 == before + 63_000
            expected = {
                "key": full,
                "value": value,
                "ttl": 60,
                "expected_version": 0,
                "semantics": meaning,
                "request_id": "r",
                "last_writer": "a:b",
                "spec_ref": "s",
            }
            assert same(letter.request, expected)

    async def test_giving_up_is_a_change(self, store: Store, clock: ManualClock) -> None:
        """The journal records the letter under its number as the version, without the value."""
        for kv in (store.kv("trivia"), store.semantic("acme", "web")):
            await kv.set("k", 1)
            one = await given_up(kv, clock, "k", "the same", request_id="r1", writer="a:b")
            two = await given_up(kv, clock, "k", "the same", request_id="r2")
            three = await given_up(kv, clock, "k", "another")
            changes = (await kv.changes()).changes[1:]
            assert [change.version for change in changes] == [one, two, three]
            assert {change.op for change in changes} == {"escalated"}
            first = changes[0]
            assert (first.key, first.request_id, first.last_writer) == (kv.verbs.key("k"), "r1", "a:b")
            assert (first.error_code, first.attempts) == ("VERSION_CONFLICT", 7)
            hashes = [change.value_hash for change in changes]
            assert hashes[0] == hashes[1]
            assert hashes[2] is None or hashes[2] != hashes[0]
            assert "the same" not in repr(changes)
            assert await kv.history("k") == [*reversed(changes), (await kv.changes(limit=1)).changes[0]]
            assert present(await kv.get("k")).value == 1

    async def test_a_letter_is_done_again(self, store: Store, kv: KV, clock: ManualClock) -> None:
        """Once nothing prevents it, the request is executed as it was made, and the letter is removed."""
        await kv.set("k", "theirs")
        letters = store.letters(kv.namespace)
        number = await given_up(kv, clock, "k", "mine", request_id="r", writer="a:b")
        with pytest.raises(VersionConflict):
            await letters.retry(number)
        assert present(await letters.get(number)).attempts == 7
        await kv.delete("k")
        reply = await letters.retry(number)
        entry = present(await kv.get("k"))
        assert reply == {"version": entry.version, "expires_at": None}
        assert (entry.value, entry.request_id, entry.last_writer) == ("mine", "r", "a:b")
        assert (await letters.list()).letters == []
        with refusal(KeyNotFound, field="number"):
            await letters.retry(number)

    async def test_what_was_done_after_all_is_not_done_twice(
        self, store: Store, kv: KV, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A write whose replies were all lost is given up; retrying its letter has no second effect."""
        call = store.caller.call

        async def deaf(command: Any) -> Any:
            result = await call(command)
            if type(command).__name__ == "Incr":
                raise Unavailable("the answer is lost")
            return result

        with monkeypatch.context() as patch:
            patch.setattr(store.caller, "call", deaf)
            with pytest.raises(Escalated) as caught:
                await retrying(kv, clock).incr("n", 5)
        assert caught.value.letter is not None
        reply = await store.letters(kv.namespace).retry(caught.value.letter)
        assert (reply["value"], present(await kv.get("n")).value) == (5, 5)
        assert (await store.letters(kv.namespace).list()).letters == []

    async def test_every_verb_has_letters(self, store: Store, kv: KV, clock: ManualClock) -> None:
        """Every conditional write can be given up, stored and retried."""
        retry, letters = retrying(kv, clock), store.letters(kv.namespace)
        await store.set_policy(kv.namespace, {"reveal": "open"})
        await kv.set("s", 1, semantics={"purpose": "config"})
        await kv.delete("s")
        await kv.set("s", 2)
        calls: list[Any] = [
            lambda: retry.set("k", 1, expected_version=9_999),
            lambda: retry.delete("k", expected_version=9_999),
            lambda: retry.incr("k", 2, ttl=5, expected_version=9_999),
            lambda: retry.set_ttl("k", 5, expected_version=9_999),
            lambda: retry.touch("k", 5, expected_version=9_999),
            lambda: retry.remove_ttl("k", expected_version=9_999),
            lambda: retry.restore("s"),
            lambda: retry.batch(
                checks=[{"key": "a", "version": 7}],
                writes=[{"key": "b", "value": "x"}, {"key": "c", "incr": 2}, {"guard": "l"}],
            ),
        ]
        for call in calls:
            with pytest.raises(Escalated):
                await call()
        kept = (await letters.list()).letters
        verbs = ["set", "delete", "incr", "set_ttl", "touch", "remove_ttl", "restore", "batch"]
        assert [letter.verb for letter in kept] == verbs
        assert [letter.key for letter in kept] == ["k", "k", "k", "k", "k", "k", "s", "b"]
        assert kept[-1].request["writes"] == [
            {"key": "b", "value": "x"},
            {"key": "c", "incr": 2},
            {"guard": "l"},
        ]
        await kv.delete("s")
        assert (await letters.retry(kept[6].number))["version"] == present(await kv.get("s")).version
        for letter in kept[:6]:
            with pytest.raises(VersionConflict):
                await letters.retry(letter.number)
        assert len((await letters.list()).letters) == 7

    async def test_pages_of_letters(self, store: Store, kv: KV, clock: ManualClock) -> None:
        """Letters are listed in the order in which they were stored, each once; each can be dropped."""
        await kv.set("k", 1)
        letters = store.letters(kv.namespace)
        numbers = [await given_up(kv, clock, "k", number) for number in range(5)]
        page = await letters.list(limit=2)
        assert [letter.number for letter in page.letters] == numbers[:2]
        assert page.next == numbers[1]
        assert await letters.drop(numbers[2]) is True
        assert await letters.drop(numbers[2]) is False
        rest = await letters.list(after=page.next)
        assert ([letter.number for letter in rest.letters], rest.next) == (numbers[3:], None)
        assert await letters.get(numbers[2]) is None
        assert (await store.letters("kv/nobody").list()).letters == []
        for wrong in (0, -1, True, "1"):
            with refusal(ValidationError, field="number", about=wrong):
                await letters.drop(wrong)  # type: ignore[arg-type]

    async def test_large_letters(self, store: Store, kv: KV, clock: ManualClock) -> None:
        """A batch at its size limit can be stored, and a page holds only one such letter."""
        await store.set_policy(kv.namespace, {"reveal": "open"})
        await kv.set("k", 1)
        writes = [{"key": f"{number:03}", "value": "x" * 65_000} for number in range(8)]
        letters = store.letters(kv.namespace)
        for _ in range(2):
            with pytest.raises(Escalated) as caught:
                await retrying(kv, clock).batch(checks=[{"key": "k", "version": 0}], writes=writes)
            assert caught.value.letter is not None
        page = await letters.list()
        assert len(page.letters) == 1
        assert page.letters[0].request["writes"] == writes
        assert (await letters.list(after=page.next or 0)).next is None

    async def test_letters_stay(self, store: Store, kv: KV, clock: ManualClock, reopen: Reopen) -> None:
        """Upkeep never drops a letter, and letters survive reopening the store."""
        await kv.set("k", 1)
        number = await given_up(kv, clock, "k", "mine")
        clock.advance(100 * 86_400)
        await store.upkeep()
        letter = present(await store.letters(kv.namespace).get(number))
        again = await reopen()
        if again is None:
            return
        assert await again.letters("kv/trivia").get(number) == letter
        await again.kv("trivia").delete("k")
        await again.letters("kv/trivia").retry(number)
        assert present(await again.kv("trivia").get("k")).value == "mine"
