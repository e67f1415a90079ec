"""What engines load for one request is bounded, and what they give of a journal with large details."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest

from holdfast import rules
from holdfast.engine import JournalQuery
from holdfast.engines.memory import MemoryEngine
from holdfast.errors import TooExpensive
from holdfast.store import Store
from holdfast.verbs.caller import id_maker
from tests.verbs import Verbs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from holdfast.engine import Engine

NAMES: Final = [f"k{number}" for number in range(130)]
"""Keys whose values are together more than one request may look at."""
LARGE: Final = "x" * 65_000


@asynccontextmanager
async def filled(make: Callable[[], Engine]) -> AsyncIterator[tuple[Store, Engine]]:
    """A store with large entries, and its engine."""
    engine = make()
    async with Store(engine, reap=False) as store:
        kv = store.kv("x")
        await asyncio.gather(*(kv.set(name, LARGE) for name in NAMES))
        yield store, engine


async def test_a_request_with_too_much_to_load_is_refused_early(make: Callable[[], Engine]) -> None:
    """An engine stops loading when a request has too much to look at; one that holds all just refuses."""
    async with filled(make) as (store, engine):
        verbs = Verbs("kv/x", writer="w", new_id=id_maker(), now=store.now)
        heavy = verbs.delete_many(NAMES)[0]
        if isinstance(engine, MemoryEngine):
            [refused] = (await engine.transact([heavy], store.now)).results
            assert isinstance(refused, TooExpensive)
        else:
            with pytest.raises(TooExpensive, match="fewer keys at a time"):
                await engine.transact([heavy], store.now)
        light = verbs.delete_many(NAMES[:100])[0]
        [done] = (await engine.transact([light], store.now)).results
        assert not isinstance(done, Exception)


async def test_only_the_heavy_request_of_a_group_is_refused(
    make: Callable[[], Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group with too much to load is done command by command: only the one that is too heavy is refused."""
    async with filled(make) as (store, _):
        monkeypatch.setattr(rules, "MAX_LOADED_BYTES", 2_000_000)
        kv = store.kv("x")
        calls: list[Any] = [kv.delete_many(NAMES, request_id=f"r{number}") for number in range(6)]
        results = await asyncio.gather(
            kv.set("small", 1), *calls, kv.incr("count"), kv.delete_many(NAMES[:3]), return_exceptions=True
        )
        assert [isinstance(result, TooExpensive) for result in results] == [False, *[True] * 6, False, False]
        assert not any(isinstance(results[at], BaseException) for at in (0, 7, 8))
        assert await kv.get("k3") is not None


async def test_checks_that_pass_load_no_values(make: Callable[[], Engine]) -> None:
    """A batch may check any number of large entries, since it looks at no value of one that passes."""
    async with filled(make) as (store, _):
        kv = store.kv("x")
        entries = [await kv.get(name) for name in NAMES]
        checks = [{"key": entry.key, "version": entry.version} for entry in entries if entry is not None]
        done = await kv.batch(checks=checks, writes=[{"key": "z", "value": 1}])
        assert len(checks) == len(NAMES)
        assert done.versions[0] is not None


async def test_a_page_of_the_journal_is_bounded_in_bytes(make: Callable[[], Engine]) -> None:
    """Details count: an answer ends before the record that goes past its bytes, and has one at the least."""
    async with Store(make(), reap=False) as store:
        tables = store.tables("x")
        await tables.create_table("t", partition_key=("p", "string"), stream="new")
        for number in range(5):
            await tables.put_item("t", {"p": f"n{number}", "text": "x" * 10_000})
        for newest_first in (False, True):
            for most, given in ((1, 1), (15_000, 1), (25_000, 2), (1_000_000, 5), (None, 5)):
                query = JournalQuery(
                    namespace="table/x", start="t:", limit=9, max_bytes=most, newest_first=newest_first
                )
                page = await store.pipeline.journal(query)
                assert (len(page.records), page.complete) == (given, given == 5)
                versions = [record.version for record in page.records]
                assert versions == sorted(versions, reverse=newest_first)
        short = await store.pipeline.journal(
            JournalQuery(namespace="table/x", start="t:", limit=2, max_bytes=1_000_000)
        )
        assert (len(short.records), short.complete) == (2, False)
