"""Names: valid keys, prefixes and namespaces, and how keys are compared and ordered.

Law: these tests depend only on characters and bytes, never on the stored values.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import InvalidPluginName, ValidationError
from holdfast.testing.conformance.calls import on_key
from holdfast.testing.conformance.fixtures import Fixtures
from holdfast.testing.exact import present, refusal

if TYPE_CHECKING:
    from holdfast.handles.kv import KV
    from holdfast.store import Store

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
