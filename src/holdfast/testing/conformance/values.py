"""What an entry holds: its value, its envelope, and the names of the semantic family.

Values are compared as JSON text, so that no test takes 1, 1.0 and true for the same.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import pytest

from holdfast.clock import ManualClock, moment
from holdfast.errors import ValidationError, ValueTooLarge
from holdfast.handles.kv import KV
from holdfast.model import KEEP, Semantics
from holdfast.store import Store
from holdfast.testing.conformance.fixtures import Fixtures, Reopen, on_key, writing
from holdfast.testing.exact import present, refusal, same, text_of

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


NO_IDENTITY: Final[tuple[Any, ...]] = ("", "x" * 201, "a\nb", "\x00", "a\x7f", "\x85", "\ud800", 5, b"x")
NO_SPEC_REF: Final[tuple[Any, ...]] = ("x" * 501, "a\x00", "\ud800", 5, b"x")
ILLEGAL_SEMANTICS: Final[tuple[tuple[Any, str], ...]] = (
    ("config", "semantics"),
    (5, "semantics"),
    (["purpose"], "semantics"),
    ({"purpose": ""}, "semantics.purpose"),
    ({"purpose": "Config"}, "semantics.purpose"),
    ({"purpose": "1st"}, "semantics.purpose"),
    ({"purpose": "a-b"}, "semantics.purpose"),
    ({"purpose": "a" * 33}, "semantics.purpose"),
    ({"purpose": "a\n"}, "semantics.purpose"),
    ({"purpose": 5}, "semantics.purpose"),
    ({"producer": ""}, "semantics.producer"),
    ({"producer": "x" * 201}, "semantics.producer"),
    ({"producer": "a\tb"}, "semantics.producer"),
    ({"producer": 5}, "semantics.producer"),
    ({"consumer_hints": "hint"}, "semantics.consumer_hints"),
    ({"consumer_hints": ["x"] * 17}, "semantics.consumer_hints"),
    ({"consumer_hints": ["x" * 101]}, "semantics.consumer_hints"),
    ({"consumer_hints": [5]}, "semantics.consumer_hints"),
    ({"ttl_seconds": 0}, "semantics.ttl_seconds"),
    ({"ttl_seconds": -1}, "semantics.ttl_seconds"),
    ({"ttl_seconds": 1.5}, "semantics.ttl_seconds"),
    ({"ttl_seconds": True}, "semantics.ttl_seconds"),
    ({"ttl_seconds": "60"}, "semantics.ttl_seconds"),
    ({"ttl_seconds": 2**31}, "semantics.ttl_seconds"),
)
ROOT: Final = "tenant/acme/project/web/"
FOREIGN: Final = (
    "tenant/acme/project/other/k",
    "tenant/other/project/web/k",
    "tenant/acme/project/webb/k",
    "tenant/acme/project/web",
    "tenant/acme",
    "tenant/",
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
        if again is None:
            return
        kv = again.kv("trivia")
        for number, value in enumerate(JSON):
            entry = present(await kv.get(f"{number:02}"))
            assert same(entry.value, value)
            assert entry == before[number]

    async def test_integers_of_4300_digits_are_exact(self, kv: KV) -> None:
        """Integers of up to 4,300 digits are exact, and a sign does not count as a digit."""
        for number in (10**4300 - 1, 10**4299, -(10**4299), 1 - 10**4300):
            for value in (number, [number]):
                await kv.set("n", value)
                assert present(await kv.get("n")).value == value

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

    async def test_values_that_json_cannot_represent_are_refused(self, kv: KV) -> None:
        """An object that JSON cannot represent is refused rather than converted."""
        strange: tuple[Any, ...] = (
            b"x",
            {1, 2},
            object(),
            datetime(2026, 1, 1, tzinfo=UTC),
            {1: 2},
            {None: 1},
            1j,
            [b""],
        )
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


class EnvelopeRules(Fixtures):
    """The rules of the envelope."""

    async def test_writer_request_and_document_are_shown(self, kv: KV) -> None:
        """Every verb that writes takes a writer, a request id and a spec_ref, and the entry shows them."""
        writer, request_id, spec_ref = "agent:directive", "r" * 200, "s" * 500
        entry = await kv.set("k", 1, writer=writer, request_id=request_id, spec_ref=spec_ref)
        assert (entry.last_writer, entry.request_id, entry.spec_ref) == (writer, request_id, spec_ref)
        assert await kv.get("k") == entry
        [change] = await kv.history("k")
        assert (change.last_writer, change.request_id) == (writer, request_id)

    async def test_illegal_identities(self, kv: KV) -> None:
        """A writer and a request id are 1 to 200 characters without control characters, in every verb."""
        for verb, call in writing(kv, "k").items():
            for wrong in NO_IDENTITY:
                with refusal(ValidationError, field="last_writer", about=(verb, wrong)):
                    await call(writer=wrong)
                with refusal(ValidationError, field="request_id", about=(verb, wrong)):
                    await call(request_id=wrong)

    async def test_illegal_documents(self, kv: KV) -> None:
        """A spec_ref is at most 500 characters of valid text, in every verb."""
        for verb, call in writing(kv, "k").items():
            for wrong in NO_SPEC_REF:
                with refusal(ValidationError, field="spec_ref", about=(verb, wrong)):
                    await call(spec_ref=wrong)

    async def test_the_longest_legal_texts(self, kv: KV) -> None:
        """Limits count characters, not bytes."""
        entry = await kv.set(
            "🎉" * 255,
            1,
            writer="🎉" * 200,
            request_id="ä" * 200,
            spec_ref="🎉" * 500,
            semantics={"purpose": "a" * 32, "producer": "é" * 200, "consumer_hints": ["🎉" * 100] * 16},
        )
        assert await kv.get("🎉" * 255) == entry
        assert entry.last_writer == "🎉" * 200

    async def test_semantics_are_kept(self, kv: KV, clock: ManualClock) -> None:
        """Semantics may be given as an object or as `Semantics`, and are returned as `Semantics`."""
        given = {"purpose": "checkpoint", "producer": "p:d", "consumer_hints": ["a", "b"], "ttl_seconds": 60}
        meant = Semantics(purpose="checkpoint", producer="p:d", consumer_hints=("a", "b"), ttl_seconds=60)
        for semantics in (given, meant):
            entry = await kv.set("k", 1, semantics=semantics)
            assert entry.semantics == meant
            assert entry.expires_at == moment(clock.now() + 60_000)
            assert await kv.get("k") == entry
        assert [change.purpose for change in await kv.history("k")] == ["checkpoint", "checkpoint"]

    async def test_no_semantics(self, kv: KV) -> None:
        """Empty semantics count as none; unknown fields are ignored, and null fields are absent."""
        nothings: tuple[Any, ...] = (None, {}, Semantics(), {"purpose": None}, {"unknown": 5})
        for nothing in nothings:
            assert (await kv.set("k", 1, semantics=nothing)).semantics is None
        entry = await kv.set("k", 1, semantics={"purpose": "flag", "unknown": 5, "producer": None})
        assert entry.semantics == Semantics(purpose="flag")

    async def test_illegal_semantics(self, kv: KV) -> None:
        """Every verb that takes semantics refuses invalid ones, with the field's full name."""
        for semantics, field in ILLEGAL_SEMANTICS:
            with refusal(ValidationError, field=field, about=semantics):
                await kv.set("k", 1, semantics=semantics)
            with refusal(ValidationError, field=field, about=semantics):
                await kv.batch(writes=[{"key": "k", "value": 1, "semantics": semantics}])
            [error] = await kv.set_many([{"key": "k", "value": 1, "semantics": semantics}])
            assert isinstance(error, ValidationError)
            assert error.field == field
        assert await kv.get("k") is None

    async def test_the_ttl_of_the_semantics(self, kv: KV, clock: ManualClock) -> None:
        """ttl_seconds sets the deadline as ttl does; giving both with different values is refused."""
        assert present(await kv.set("k", 1, ttl=60, semantics={"ttl_seconds": 60})).expires_at == moment(
            clock.now() + 60_000
        )
        ttls: tuple[Any, ...] = (61, 1, KEEP)
        for ttl in ttls:
            with refusal(ValidationError, field="ttl", says="60", about=ttl):
                await kv.set("k", 1, ttl=ttl, semantics={"ttl_seconds": 60})
        clock.advance(60)
        assert await kv.get("k") is None


class SemanticsRules(Fixtures):
    """The rules of semantic keys."""

    @pytest.fixture
    def project(self, store: Store) -> KV:
        """The keys of a tenant's project."""
        return store.semantic("acme", "web")

    async def test_relative_and_full_keys_are_the_same(self, project: KV) -> None:
        """A relative key is completed; every reply shows the full key."""
        entry = await project.set("flags/dark", 1)
        assert entry.key == ROOT + "flags/dark"
        assert await project.get("flags/dark") == entry
        assert await project.get(ROOT + "flags/dark") == entry
        await project.incr(ROOT + "flags/dark")
        assert [change.key for change in await project.history("flags/dark")] == [entry.key] * 2
        assert (await project.list()).keys == [entry.key]
        assert present((await project.get_many(["flags/dark"]))[0]).value == 2
        assert await project.delete("flags/dark") is True
        assert (await project.restore("flags/dark")).key == entry.key
        done = await project.batch(
            checks=[{"key": ROOT + "new", "version": 0}], writes=[{"key": "new", "value": 1}]
        )
        assert len(done.versions) == 1
        assert (await project.list()).keys == [ROOT + "flags/dark", ROOT + "new"]

    async def test_legal_components(self, project: KV) -> None:
        """Components begin with a letter or digit and hold a-z, 0-9, dot, underscore and hyphen."""
        for key in ("a", "0", "a.b_c-d", "a/b/c", "v1.2", "a/0/z-", "x" * (128 - len(ROOT))):
            assert (await project.set(key, key)).key == ROOT + key
            assert present(await project.get(ROOT + key)).value == key

    async def test_wrong_components_are_named(self, project: KV) -> None:
        """Every verb refuses a key with an invalid component, and the message says which one it is."""
        wrong = (
            ("", "component 1"),
            ("A", "component 1"),
            ("_a", "component 1"),
            ("a//b", "component 2"),
            ("a/", "component 2"),
            ("/a", "component 1"),
            ("a/b/-c", "component 3"),
            ("a/.b", "component 2"),
            ("a/b c", "component 2"),
            ("ä", "component 1"),
            ("a%", "component 1"),
            ("a/b\n", "component 2"),
            (ROOT, "component 1"),
            (ROOT + "a/B", "component 2"),
        )
        for verb, call in on_key(project).items():
            for key, words in wrong:
                with refusal(ValidationError, field="key", says=words, about=(verb, key)):
                    await call(key)

    async def test_at_most_128_characters(self, project: KV) -> None:
        """The limit applies to the full key, however it was given."""
        longest = "x" * (128 - len(ROOT))
        assert len((await project.set(longest, 1)).key) == 128
        for key in (longest + "x", ROOT + longest + "x", "x" * 300):
            with refusal(ValidationError, field="key", says="at most 128", about=key):
                await project.set(key, 1)

    async def test_keys_that_are_not_text_are_refused(self, project: KV) -> None:
        """A key is text here too."""
        wrongs: tuple[Any, ...] = (None, 5, b"a", "a\x00", "\ud800")
        for wrong in wrongs:
            with refusal(ValidationError, field="key", about=wrong):
                await project.get(wrong)

    async def test_keys_of_others_are_refused(self, project: KV, store: Store) -> None:
        """Every verb refuses a full key of another tenant or project, always with the same message."""
        await store.semantic("other", "web").set("k", "secret")
        texts = set()
        for verb, call in on_key(project).items():
            for key in FOREIGN:
                with refusal(ValidationError, field="key", about=(verb, key)) as caught:
                    await call(key)
                texts.add(caught.value.message)
        assert len(texts) == 1

    async def test_prefixes(self, project: KV) -> None:
        """A prefix may be relative, full, or the beginning of all full keys; a foreign one is refused."""
        for key in ("a/1", "a/2", "ab", "b"):
            await project.set(key, 0)
        for prefix in ("a/", ROOT + "a/"):
            assert (await project.list(prefix)).keys == [ROOT + "a/1", ROOT + "a/2"]
            assert len((await project.changes(prefix=prefix)).changes) == 2
        for prefix in ("", ROOT, ROOT[:-1], "tenant/acme/", "tenant/"):
            assert len((await project.list(prefix)).keys) == 4
        for prefix in ("tenant/other/", "tenant/acme/project/other/", "tenant/acme/project/webb"):
            with refusal(ValidationError, field="prefix"):
                await project.list(prefix)
        pages = [await project.list("a", limit=2)]
        pages.append(await project.list("a", limit=2, cursor=pages[0].cursor))
        assert [key for page in pages for key in page.keys] == [ROOT + key for key in ("a/1", "a/2", "ab")]

    async def test_projects_are_isolated(self, store: Store) -> None:
        """Each project has its own keys and versions."""
        web, app = store.semantic("acme", "web"), store.semantic("acme", "app")
        other = store.semantic("other", "web")
        for number, kv in enumerate((web, app, other)):
            assert (await kv.set("k", number)).version == 1
        assert [present(await kv.get("k")).value for kv in (web, app, other)] == [0, 1, 2]
        await app.delete("k")
        assert len((await web.list()).keys) == len((await other.list()).keys) == 1
