"""The trash: removed entries, and restoring them.

The tests find out what is in the trash by restoring it, which is a caller's only way, or by listing it, as
operators do.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from holdfast.clock import ManualClock, moment
from holdfast.errors import KeyNotFound, ValidationError, VersionConflict
from holdfast.handles.kv import KV
from holdfast.store import Store
from holdfast.testing.conformance.fixtures import DAY, Fixtures, Reopen
from holdfast.testing.exact import refusal, same


class TrashRules(Fixtures):
    """The rules of soft deletion and restore."""

    async def test_restore_after_delete(self, kv: KV, clock: ManualClock) -> None:
        """A deleted entry with semantics is restored with a new version and without its deadline."""
        value = {"a": [1, 1.0, -0.0, True, None, 10**40], "ü": "\x00🎉"}
        first = await kv.set(
            "k", value, ttl=60, semantics={"purpose": "config", "producer": "p"}, spec_ref="doc", writer="a"
        )
        clock.advance(1)
        await kv.delete("k")
        clock.advance(1)
        entry = await kv.restore("k", writer="b", request_id="r")
        assert same(entry.value, value)
        assert (entry.version, entry.expires_at) == (first.version + 2, None)
        assert (entry.semantics, entry.spec_ref) == (first.semantics, "doc")
        assert (entry.last_writer, entry.request_id) == ("b", "r")
        assert (entry.created_at, entry.updated_at) == (first.created_at, moment(clock.now()))
        assert await kv.get("k") == entry
        change = (await kv.history("k"))[0]
        assert (change.op, change.version, change.purpose) == ("restored", entry.version, "config")

    async def test_restore_after_expiry(self, kv: KV, store: Store, clock: ManualClock) -> None:
        """An expired entry with semantics is restored too, whether its expiry had been noticed or not."""
        for sweep in (True, False):
            await kv.set("k", "kept", ttl=1, semantics={"purpose": "config"})
            clock.advance(1)
            if sweep:
                assert await store.sweep() == 1
            entry = await kv.restore("k")
            assert (entry.value, entry.expires_at) == ("kept", None)
            assert [change.op for change in await kv.history("k", limit=3)] == ["restored", "expired", "set"]
            await kv.delete("k")

    async def test_restore_with_a_deadline(self, kv: KV, clock: ManualClock) -> None:
        """A restored entry has a deadline if the caller gives one."""
        await kv.set("k", 1, ttl=5, semantics={"purpose": "config", "ttl_seconds": 5})
        await kv.delete("k")
        entry = await kv.restore("k", ttl=60)
        assert entry.expires_at == moment(clock.now() + 60_000)

    async def test_nothing_to_restore(self, kv: KV) -> None:
        """A key that never existed, or was already restored, is KeyNotFound."""
        with refusal(KeyNotFound, field="key", says="'k'"):
            await kv.restore("k")
        await kv.set("k", 1, semantics={"purpose": "config"})
        await kv.delete("k")
        await kv.restore("k")
        await kv.set("k", 2)
        await kv.delete("k")
        with refusal(KeyNotFound, field="key"):
            await kv.restore("k")

    async def test_a_live_key_is_not_overwritten(self, kv: KV) -> None:
        """Restoring over an existing entry is a conflict that carries it."""
        await kv.set("k", 1, semantics={"purpose": "config"})
        await kv.delete("k")
        live = await kv.set("k", 2)
        with refusal(VersionConflict) as caught:
            await kv.restore("k")
        assert caught.value.current == live
        with refusal(VersionConflict) as caught:
            await kv.restore("k", expected_version=live.version)
        assert caught.value.current == live
        assert await kv.get("k") == live

    async def test_restore_may_expect_nothing(self, kv: KV) -> None:
        """The expected version 0 is allowed, and restore requires it anyway."""
        await kv.set("k", 1, semantics={"purpose": "config"})
        await kv.delete("k")
        assert (await kv.restore("k", expected_version=0)).value == 1

    async def test_plain_entries_are_removed_outright(self, kv: KV, store: Store, clock: ManualClock) -> None:
        """An entry without semantics in a plugin's namespace leaves nothing to restore."""
        await kv.set("deleted", 1)
        await kv.set("expired", 1, ttl=1)
        await kv.delete("deleted")
        clock.advance(1)
        await store.sweep()
        for key in ("deleted", "expired"):
            with refusal(KeyNotFound, field="key"):
                await kv.restore(key)

    async def test_the_whole_semantic_family_is_kept(self, store: Store, clock: ManualClock) -> None:
        """In a tenant's project, entries without semantics go to the trash too."""
        kv = store.semantic("acme", "web")
        await kv.set("deleted", 1)
        await kv.set("expired", 2, ttl=1)
        await kv.delete("deleted")
        clock.advance(1)
        await store.sweep()
        assert (await kv.restore("deleted")).value == 1
        assert (await kv.restore("tenant/acme/project/web/expired")).value == 2

    async def test_purposes_that_skip_the_trash(self, store: Store, clock: ManualClock) -> None:
        """Locks, caches and sessions never go to the trash, in any family."""
        for kv in (store.kv("trivia"), store.semantic("acme", "web")):
            for purpose in ("lock", "cache", "session"):
                await kv.set(f"deleted-{purpose}", 1, semantics={"purpose": purpose})
                await kv.set(f"expired-{purpose}", 1, ttl=1, semantics={"purpose": purpose})
                await kv.delete(f"deleted-{purpose}")
            clock.advance(1)
            await store.sweep()
            for purpose in ("lock", "cache", "session"):
                for key in (f"deleted-{purpose}", f"expired-{purpose}"):
                    with refusal(KeyNotFound, field="key", about=key):
                        await kv.restore(key)

    async def test_every_other_meaning_is_kept(self, kv: KV) -> None:
        """Entries with any other semantics go to the trash, even without a purpose."""
        kept: tuple[dict[str, Any], ...] = (
            {"purpose": "locks"},
            {"purpose": "checkpoint"},
            {"producer": "lock"},
            {"consumer_hints": ["cache"]},
            {"ttl_seconds": 60},
        )
        for semantics in kept:
            await kv.set("k", "kept", semantics=semantics)
            await kv.delete("k")
            assert (await kv.restore("k")).value == "kept"
            await kv.set("k", "plain")
            await kv.delete("k")

    async def test_the_newest_entry_is_kept(self, kv: KV) -> None:
        """The trash holds one entry per key: the newest."""
        for value in ("old", "new"):
            await kv.set("k", value, semantics={"purpose": "config"})
            await kv.delete("k")
        assert (await kv.restore("k")).value == "new"

    async def test_deletion_in_batches_and_lists(self, kv: KV) -> None:
        """Every way of deleting moves entries to the trash if they belong there."""
        for key in ("a", "b"):
            await kv.set(key, key, semantics={"purpose": "config"})
        await kv.batch(writes=[{"key": "a", "delete": True}])
        await kv.delete_many(["b"])
        assert [(await kv.restore(key)).value for key in ("a", "b")] == ["a", "b"]

    async def test_after_seven_days_it_is_gone(self, kv: KV, store: Store, clock: ManualClock) -> None:
        """The trash is kept for 7 days to the millisecond, whether upkeep has run or not."""
        for upkeep in (False, True):
            await kv.set("k", 1, semantics={"purpose": "config"})
            await kv.delete("k")
            clock.advance(7 * DAY - 0.001)
            await store.upkeep()
            await kv.restore("k")
            await kv.delete("k")
            clock.advance(7 * DAY)
            if upkeep:
                await store.upkeep()
            with refusal(KeyNotFound, field="key"):
                await kv.restore("k")

    async def test_trash_is_kept_seven_days_from_the_removal(
        self, kv: KV, store: Store, clock: ManualClock
    ) -> None:
        """The seven days begin when an entry is removed, whatever its deadline was."""
        meant = {"purpose": "config"}
        await kv.set("late", 1, ttl=1, semantics=meant)
        clock.advance(DAY)
        await store.sweep()
        await kv.set("early", 1, ttl=30 * DAY, semantics=meant)
        await kv.delete("early")
        kept = {entry.key: entry.purged_at for entry in (await store.trash(kv.namespace)).entries}
        assert kept == dict.fromkeys(["early", "late"], moment(clock.now() + 7 * DAY * 1000))

    async def test_the_largest_value(self, kv: KV) -> None:
        """A value of the largest size survives the trash."""
        value = "é" * 32_767
        await kv.set("k", value, semantics={"purpose": "config"})
        await kv.delete("k")
        assert (await kv.restore("k")).value == value

    async def test_trash_survives_opening_again(self, kv: KV, reopen: Reopen) -> None:
        """An entry deleted before the storage was reopened can be restored after."""
        first = await kv.set("k", {"a": 1.0}, semantics={"purpose": "config"})
        await kv.delete("k")
        again = await reopen()
        if again is None:
            return
        entry = await again.kv("trivia").restore("k")
        assert same(entry.value, {"a": 1.0})
        assert (entry.semantics, entry.version) == (first.semantics, first.version + 2)

    async def test_looking_through_the_trash(self, kv: KV, store: Store, clock: ManualClock) -> None:
        """The trash shows how, when and by whom an entry was removed, its purpose and its retention."""
        first = await kv.set("b", {"n": 1.0}, ttl=5, semantics={"purpose": "config"}, writer="w")
        last = await kv.set("a", None, semantics={"producer": "p"})
        clock.advance(1)
        await kv.delete("a", writer="ops")
        clock.advance(5)
        await store.sweep()
        page = await store.trash("kv/trivia")
        assert (page.truncated, page.cursor) == (False, None)
        deleted, expired = page.entries
        assert (deleted.key, deleted.op, deleted.by, deleted.version) == ("a", "deleted", "ops", last.version)
        assert (deleted.purpose, deleted.expires_at) == (None, None)
        assert deleted.at == moment(clock.now() - 5_000)
        assert deleted.purged_at == moment(clock.now() - 5_000 + 7 * DAY * 1000)
        assert (expired.key, expired.op, expired.by, expired.version) == ("b", "expired", "w", first.version)
        assert (expired.purpose, expired.expires_at) == ("config", first.expires_at)
        assert (deleted.value, expired.value) == (UNSET, UNSET)
        shown = (await store.trash("kv/trivia", values=True)).entries
        assert [entry.key for entry in shown] == ["a", "b"]
        assert same([entry.value for entry in shown], [None, {"n": 1.0}])

    async def test_the_trash_shows_what_can_be_restored(
        self, kv: KV, store: Store, clock: ManualClock
    ) -> None:
        """Entries that were restored, are no longer kept, or belong to another namespace are not listed."""
        assert (await store.trash("kv/trivia")).entries == []
        for key in ("a", "b"):
            await kv.set(key, 1, semantics={"purpose": "config"})
            await kv.delete(key)
        await kv.restore("a")
        assert [entry.key for entry in (await store.trash("kv/trivia")).entries] == ["b"]
        assert (await store.trash("kv/other")).entries == []
        clock.advance(7 * DAY - 0.001)
        assert len((await store.trash("kv/trivia")).entries) == 1
        clock.advance(0.001)
        assert (await store.trash("kv/trivia")).entries == []

    async def test_pages_of_the_trash(self, store: Store) -> None:
        """The trash is listed in the order of keys, by prefix, page by page; a full page may be the last."""
        project = store.semantic("acme", "web")
        for number in range(6):
            await project.set(f"{'ab'[number % 2]}/{number}", "x" * 65_000)
        await project.delete_many([f"{'ab'[number % 2]}/{number}" for number in range(6)])
        for prefix, keys in (
            ("", "a/0 a/2 a/4 b/1 b/3 b/5"),
            ("b/", "b/1 b/3 b/5"),
            ("tenant/acme/project/web/b/5", "b/5"),
        ):
            for limit in (1, 2, 3, 6):
                seen: list[str] = []
                cursor = None
                for _ in range(10):
                    page = await store.trash("semantic/acme/web", prefix, limit=limit, cursor=cursor)
                    seen += [entry.key for entry in page.entries]
                    assert page.truncated == (page.cursor is not None)
                    if (cursor := page.cursor) is None:
                        break
                assert seen == [f"tenant/acme/project/web/{key}" for key in keys.split()]

    async def test_a_page_of_the_trash_is_bounded(self, store: Store) -> None:
        """A page of the trash holds at most 512 KB, and the next page continues after it."""
        kv = store.kv("trivia")
        for number in range(10):
            await kv.set(f"{number}", "x" * 65_000, semantics={"purpose": "config"})
        await kv.delete_many([f"{number}" for number in range(10)])
        page = await store.trash("kv/trivia", values=True)
        assert 0 < len(page.entries) < 9
        rest = await store.trash("kv/trivia", values=True, cursor=page.cursor)
        assert [entry.key for entry in page.entries + rest.entries] == [f"{number}" for number in range(10)]

    async def test_wrong_questions_about_the_trash(self, store: Store) -> None:
        """An invalid namespace, prefix, limit or cursor is refused with its field."""
        wrong: tuple[tuple[str, str, dict[str, Any]], ...] = (
            ("namespace", "trivia", {}),
            ("prefix", "kv/trivia", {"prefix": 5}),
            ("prefix", "semantic/acme/web", {"prefix": "tenant/other/project/web/"}),
            ("limit", "kv/trivia", {"limit": 0}),
            ("cursor", "kv/trivia", {"cursor": "?"}),
        )
        for field, namespace, given in wrong:
            with refusal(ValidationError, field=field, about=(namespace, given)):
                await store.trash(namespace, **given)
