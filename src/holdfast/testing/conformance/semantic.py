"""Keys of the semantic family, which belong to tenants and projects.

Law: the rules that a semantic namespace shares with a plugin's are tested there. This file tests its own
naming rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from holdfast.errors import ValidationError
from holdfast.testing.conformance.calls import on_key
from holdfast.testing.conformance.fixtures import Fixtures
from holdfast.testing.exact import present, refusal

if TYPE_CHECKING:
    from holdfast.handles.kv import KV
    from holdfast.store import Store

ROOT: Final = "tenant/acme/project/web/"
FOREIGN: Final = (
    "tenant/acme/project/other/k",
    "tenant/other/project/web/k",
    "tenant/acme/project/webb/k",
    "tenant/acme/project/web",
    "tenant/acme",
    "tenant/",
)


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

    async def test_what_is_no_text(self, project: KV) -> None:
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
