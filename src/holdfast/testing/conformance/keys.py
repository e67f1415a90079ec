"""Keys: valid names, versions and conflicts, deletion, and adding to numbers."""

from __future__ import annotations

import asyncio
import unicodedata
from typing import Any, Final

import pytest

from holdfast.clock import ManualClock, moment
from holdfast.errors import InvalidPluginName, KeyNotFound, ValidationError, VersionConflict
from holdfast.handles.kv import KV
from holdfast.model import KEEP, Entry
from holdfast.store import Store
from holdfast.testing.conformance.fixtures import Fixtures, Reopen, conditional, on_key
from holdfast.testing.exact import present, refusal, same

LEGAL: Final = (
    *("k", " ", "  k ", "\n", "\t", "\x01", "\x7f", "\x80", "%", "_", "*", "?", "[a]", "\\", "'", '"', "$1"),
    *("a/b/c", "..", "a:b:c", "tenant/acme/project/web/k", "null", "é", "ß", "你好", "🎉", "\u202e"),
    *("👩\u200d👧", "\ud7ff", "\ue000", "\uf8ff", "\ufffd", "\uffff", "\U00010000", "\U0010ffff"),
    *("x" * 255, "🎉" * 255),
)
ILLEGAL: Final[tuple[tuple[Any, str], ...]] = (
    ("", "empty"),
    ("x" * 256, "256 characters; at most 255"),
    ("🎉" * 256, "256 characters; at most 255"),
    ("\x00", "U+0000"),
    ("a\x00b", "U+0000"),
    ("\ud800", "surrogate"),
    ("a\udfff", "surrogate"),
    (None, "text"),
    (5, "text"),
    (b"bytes", "text"),
)


NO_VERSION: Final[tuple[Any, ...]] = (-1, 2**63, True, 1.0, "1", b"1", [1])


class KeyRules(Fixtures):
    """The rules of keys, prefixes and names."""

    async def test_legal_keys(self, kv: KV) -> None:
        """Any text of 1 to 255 characters without U+0000 is a valid key, and all are distinct."""
        for number, key in enumerate(LEGAL):
            await kv.set(key, number)
        for number, key in enumerate(LEGAL):
            entry = present(await kv.get(key))
            assert (entry.key, entry.value) == (key, number)
        for key in LEGAL:
            assert await kv.delete(key) is True
        assert (await kv.list()).keys == []

    async def test_illegal_keys(self, kv: KV) -> None:
        """Every verb refuses an invalid key, with the field, the size and the limit."""
        for verb, call in on_key(kv).items():
            for key, words in ILLEGAL:
                with refusal(ValidationError, field="key", says=words, about=(verb, key)):
                    await call(key)

    async def test_keys_are_compared_as_they_are(self, kv: KV) -> None:
        """Keys are case-sensitive and not normalised."""
        composed, decomposed = unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é")
        keys = ["key", "KEY", "Key", composed, decomposed, "\u00df", "ss", "\u017f", "s", "K", "\u212a", "K "]
        assert len(set(keys)) == len(keys)
        for key in keys:
            await kv.set(key, key)
        assert sorted(keys) == (await kv.list()).keys
        for key in keys:
            assert present(await kv.get(key)).value == key

    async def test_keys_are_ordered_by_their_bytes(self, kv: KV) -> None:
        """Keys are ordered by their UTF-8 bytes, also where UTF-16 would order them differently."""
        ordered = sorted(LEGAL, key=str.encode)
        assert ordered.index("\uffff") < ordered.index("\U00010000")
        await kv.set_many([{"key": key, "value": 0} for key in LEGAL])
        assert (await kv.list()).keys == ordered

    async def test_wildcards_are_literal_in_prefixes(self, kv: KV) -> None:
        """`%`, `_`, `*` and the backslash stand for themselves."""
        keys = ["%a", "*a", "_a", "a", "a%", "a*", "a_", "aa", "a\\", "a\\%", "[a]", "ab%"]
        await kv.set_many([{"key": key, "value": 0} for key in keys])
        for prefix in ("%", "*", "_", "a%", "a*", "a_", "a\\", "a\\%", "[", "[a]", "ab", "a", "b", ""):
            expected = sorted(key for key in keys if key.startswith(prefix))
            assert (await kv.list(prefix)).keys == expected, prefix

    async def test_prefixes_at_the_edges_of_the_characters(self, kv: KV) -> None:
        """A prefix matches exactly the keys that begin with it, up to the last Unicode character."""
        last = "\U0010ffff"
        edges = ["\x01", "\x7f", "\x80", "\ud7ff", "\ue000", "\uffff", "\U00010000", last]
        keys = [first + rest for first in (*edges, "", "a" + last) for rest in ("", "a", "é", last)][:-1]
        keys = sorted({key for key in keys if key}, key=str.encode)
        await kv.set_many([{"key": key, "value": 0} for key in keys])
        for prefix in (*edges, *(edge + last for edge in edges), "a", "a" + last, last * 2):
            expected = [key for key in keys if key.startswith(prefix)]
            assert (await kv.list(prefix)).keys == expected, prefix
            assert [change.key for change in (await kv.changes(prefix=prefix)).changes] == expected, prefix

    async def test_illegal_prefixes(self, kv: KV) -> None:
        """A prefix is text of at most 255 characters, in valid UTF-8."""
        for prefix, words in ILLEGAL[1:]:
            with refusal(ValidationError, field="prefix", says=words, about=prefix):
                await kv.list(prefix)
            with refusal(ValidationError, field="prefix", says=words, about=prefix):
                await kv.changes(prefix=prefix)
            with refusal(ValidationError, field="prefix", says=words, about=prefix):
                kv.watch(prefix)
        assert (await kv.list("x" * 255)).keys == []

    async def test_plugins_are_isolated(self, store: Store) -> None:
        """Each plugin has its own keys, versions and journal."""
        one, other = store.kv("one"), store.kv("other")
        assert (one.namespace, other.namespace) == ("kv/one", "kv/other")
        first, second = await one.set("k", 1), await other.set("k", 2)
        assert (first.version, second.version) == (1, 1)
        assert await one.delete("k") is True
        assert present(await other.get("k")) == second
        assert [change.op for change in (await other.changes()).changes] == ["set"]
        assert [change.op for change in await one.history("k")] == ["deleted", "set"]

    async def test_names_of_plugins(self, store: Store) -> None:
        """A plugin's name is 1 to 100 of the characters a-z, 0-9, _ and -."""
        for name in ("a", "0", "_", "-", "quote-db", "a" * 100):
            await store.kv(name).set("k", name)
            assert present(await store.kv(name).get("k")).value == name
        illegal: tuple[Any, ...] = ("", "A", "a b", "a.b", "a/b", "ä", "a\n", "a" * 101, None, 5, b"a")
        for name in illegal:
            with refusal(InvalidPluginName, field="plugin_name", says="100", about=name):
                store.kv(name)

    async def test_names_of_tenants_and_projects(self, store: Store) -> None:
        """A tenant's and a project's name is 1 to 63 such characters and begins with a letter or digit."""
        for name in ("a", "0", "a_b-c", "a" * 63):
            assert store.semantic(name, name).namespace == f"semantic/{name}/{name}"
        illegal: tuple[Any, ...] = ("", "_a", "-a", "A", "a.b", "a/b", "ä", "a\n", "a" * 64, None, 5)
        for name in illegal:
            with refusal(ValidationError, field="tenant", says="63", about=name):
                store.semantic(name, "web")
            with refusal(ValidationError, field="project", says="63", about=name):
                store.semantic("acme", name)


class VersionRules(Fixtures):
    """The rules of versions and of conditional writes."""

    async def test_get_of_nothing(self, kv: KV) -> None:
        """A missing entry is None."""
        assert await kv.get("k") is None
        assert await kv.get_ttl("k") == 0

    async def test_every_change_has_a_greater_version(self, kv: KV) -> None:
        """Versions grow within the namespace with every change, whatever its verb and key."""
        versions = [(await kv.set("a", 1)).version, (await kv.set("b", 1)).version]
        versions.append((await kv.incr("a")).version)
        versions.append((await kv.set_ttl("a", 60)).version)
        versions.append((await kv.remove_ttl("a")).version)
        assert await kv.delete("a") is True
        versions.append((await kv.history("a"))[0].version)
        done = await kv.batch(writes=[{"key": "c", "value": 1}, {"key": "b", "incr": 1}])
        versions += [version for version in done.versions if version is not None]
        assert versions == [1, 2, 3, 4, 5, 6, 7, 8]
        assert (await kv.changes()).next == 8

    async def test_a_conflict_in_company(self, kv: KV, reopen: Reopen) -> None:
        """A conflict shows the whole entry, even if concurrent writers of it never read it."""
        await kv.set("other", 1)
        entry = await kv.set("k", {"a": [1, 2]})
        again = await reopen()
        if again is None:
            return
        kv = again.kv("trivia")
        calls = [kv.set("k", 0, expected_version=9), *(kv.set(key, 1) for key in ("k", "other", "k"))]
        conflict, *written = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(conflict, VersionConflict)
        assert conflict.current == entry
        assert [one.version for one in written if isinstance(one, Entry)] == [3, 4, 5]

    async def test_overwriting(self, kv: KV, clock: ManualClock) -> None:
        """A set replaces value, ttl, semantics and spec_ref; created_at stays."""
        began = clock.now()
        first = await kv.set(
            "k",
            1,
            ttl=60,
            semantics={"purpose": "config"},
            writer="agent:one",
            spec_ref="doc",
            request_id="r1",
        )
        assert (first.created_at, first.updated_at) == (moment(began), moment(began))
        assert first.expires_at == moment(began + 60_000)
        assert (first.last_writer, first.spec_ref, first.request_id) == ("agent:one", "doc", "r1")
        clock.advance(1)
        second = await kv.set("k", 2)
        assert second.value == 2
        assert second.version > first.version
        assert second.created_at == first.created_at
        assert second.updated_at == moment(began + 1000)
        assert (second.expires_at, second.semantics, second.spec_ref) == (None, None, None)
        assert second.last_writer == "embedded"
        assert second.request_id not in (None, "r1")
        assert await kv.get("k") == second

    async def test_each_write_without_an_id_gets_one(self, kv: KV) -> None:
        """A write without a request id gets one, which is always different."""
        made = [(await kv.set("k", number)).request_id for number in range(20)]
        assert None not in made
        assert len(set(made)) == 20

    async def test_keep_keeps_the_running_deadline(self, kv: KV, clock: ManualClock) -> None:
        """KEEP as ttl keeps the deadline; an entry without one gets none."""
        first = await kv.set("k", 1, ttl=60)
        clock.advance(10)
        second = await kv.set("k", 2, ttl=KEEP)
        assert second.expires_at == first.expires_at
        assert (await kv.set("forever", 1, ttl=KEEP)).expires_at is None
        assert (await kv.set("forever", 2, ttl=KEEP)).expires_at is None
        clock.advance(50)
        assert await kv.get("k") is None
        assert (await kv.set("k", 3, ttl=KEEP)).expires_at is None

    async def test_unconditional_writes(self, kv: KV) -> None:
        """Without an expected version, a write takes effect whatever is there."""
        assert (await kv.set("k", 1)).version == 1
        assert (await kv.set("k", 2, expected_version=None)).version == 2
        assert await kv.delete("k") is True

    async def test_zero_expects_nothing(self, kv: KV) -> None:
        """The expected version 0 means that the key must not exist."""
        entry = await kv.set("k", 1, expected_version=0)
        with refusal(VersionConflict, says="version 1") as caught:
            await kv.set("k", 2, expected_version=0)
        assert caught.value.current == entry
        assert await kv.delete("k") is True
        assert (await kv.set("k", 3, expected_version=0)).value == 3

    async def test_a_version_expects_exactly_itself(self, kv: KV) -> None:
        """With the expected version n, a write succeeds if and only if the entry has that version."""
        first = await kv.set("k", 1)
        second = await kv.set("k", 2, expected_version=first.version)
        for wrong in (first.version, second.version + 1, 2**63 - 1):
            with refusal(VersionConflict, says=str(wrong)) as caught:
                await kv.set("k", 3, expected_version=wrong)
            assert caught.value.current == second
            assert caught.value.reason is None
        assert await kv.get("k") == second

    async def test_every_verb_checks_the_version(self, kv: KV) -> None:
        """A conflict carries the whole current entry, whatever the verb."""
        await kv.set("k", 1)
        entry = await kv.set(
            "k", 5, ttl=60, semantics={"purpose": "cursor"}, writer="w", spec_ref="s", request_id="r"
        )
        for verb, call in conditional(kv, "k").items():
            for wrong in (0, entry.version - 1, entry.version + 1):
                with refusal(VersionConflict, about=verb) as caught:
                    await call(expected_version=wrong)
                assert caught.value.current == entry, verb
        assert await kv.get("k") == entry
        assert (await kv.changes(since=entry.version)).changes == []

    async def test_every_verb_expects_a_missing_key_in_vain(self, kv: KV) -> None:
        """An expected version of a missing key is a conflict whose `current` is None."""
        for verb, call in conditional(kv, "k").items():
            with refusal(VersionConflict, about=verb) as caught:
                await call(expected_version=3)
            assert caught.value.current is None, verb
        assert await kv.get("k") is None

    async def test_expected_version_rejects_negative_and_text(self, kv: KV) -> None:
        """An expected version is a whole number from 0 that fits 63 bits; no other value is converted."""
        for verb, call in conditional(kv, "k").items():
            for wrong in NO_VERSION:
                with refusal(ValidationError, field="expected_version", about=(verb, wrong)):
                    await call(expected_version=wrong)

    async def test_a_failed_check_writes_nothing(self, store: Store) -> None:
        """A refused write leaves nothing: no entry, no change, and no new namespace."""
        kv = store.kv("untouched")
        with pytest.raises(VersionConflict):
            await kv.set("k", 1, expected_version=7)
        with pytest.raises(KeyNotFound):
            await kv.set_ttl("k", 60)
        assert await store.namespaces() == []
        assert (await kv.changes()).next == 0
        assert (await kv.set("k", 1)).version == 1

    async def test_delete(self, kv: KV) -> None:
        """Delete is idempotent and returns whether there was an entry."""
        await kv.set("k", 1)
        assert await kv.delete("k") is True
        assert await kv.get("k") is None
        assert await kv.delete("k") is False
        assert await kv.delete("never") is False
        assert await kv.delete("never", expected_version=0) is False
        assert [change.op for change in (await kv.changes()).changes] == ["set", "deleted"]

    async def test_delete_of_a_version(self, kv: KV) -> None:
        """Delete with an expected version removes exactly that version."""
        first = await kv.set("k", 1)
        second = await kv.set("k", 2)
        with refusal(VersionConflict) as caught:
            await kv.delete("k", expected_version=first.version)
        assert caught.value.current == second
        assert await kv.delete("k", expected_version=second.version) is True
        with refusal(VersionConflict) as caught:
            await kv.delete("k", expected_version=second.version)
        assert caught.value.current is None

    async def test_a_key_that_comes_back_is_a_new_entry(self, kv: KV, clock: ManualClock) -> None:
        """After a deletion created_at starts again, and the old version matches nothing."""
        first = await kv.set("k", 1)
        await kv.delete("k")
        clock.advance(5)
        second = await kv.set("k", 1)
        assert second.version > first.version + 1
        assert second.created_at == moment(clock.now())
        with refusal(VersionConflict):
            await kv.set("k", 2, expected_version=first.version)

    async def test_versions_are_never_reused(self, kv: KV, clock: ManualClock, reopen: Reopen) -> None:
        """No version is used twice: not after deletion, not after expiry, not after reopening."""
        seen = [(await kv.set("a", 1)).version]
        await kv.delete("a")
        seen.append((await kv.set("a", 1, ttl=1)).version)
        clock.advance(2)
        seen.append((await kv.set("a", 1)).version)
        assert seen == [1, 3, 5]
        await kv.delete("a")
        again = await reopen()
        if again is None:
            return
        kv = again.kv("trivia")
        assert (await kv.set("a", 1)).version == 7
        with refusal(VersionConflict):
            await kv.set("a", 2, expected_version=seen[0])

    async def test_an_entry_is_the_same_after_opening_again(self, kv: KV, reopen: Reopen) -> None:
        """Every field of an entry is stored exactly."""
        entry = await kv.set(
            "k",
            {"a": [1, 1.0, True]},
            ttl=60,
            semantics={"purpose": "config", "producer": "p", "consumer_hints": ["é", "b"]},
            writer="agent:directive",
            spec_ref="docs/é.md#1",
            request_id="r-é",
        )
        await kv.set("plain", 1)
        plain = await kv.get("plain")
        again = await reopen()
        if again is None:
            return
        assert await again.kv("trivia").get("k") == entry
        assert await again.kv("trivia").get("plain") == plain


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

    async def test_incr_refuses_values_that_are_not_numbers(self, kv: KV) -> None:
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
