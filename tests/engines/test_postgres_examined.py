"""What a deep check finds out about a PostgreSQL database."""

from __future__ import annotations

import asyncpg
import pytest

import holdfast

_READY = "UPDATE pg_index SET indisready = $1 WHERE indexrelid = 'idx_kv_expires_at'::regclass"


async def test_a_row_missing_from_an_index_is_found(pg_store_url: str) -> None:
    """An index that lacks a row is found by counting; a sound database has nothing to complain about."""
    connection = await asyncpg.connect(pg_store_url)
    try:
        async with holdfast.open(pg_store_url, reap=False) as store:
            await store.kv("p").set("k", 1, ttl=60)
            before = await store.examine()
            assert before is not None
            assert (before.troubles, before.complete) == ([], True)
            assert "amcheck" in before.checked
            await connection.execute(_READY, False)
            await store.kv("p").set("unseen", 1, ttl=60)
            await connection.execute(_READY, True)
            after = await store.examine()
            assert after is not None
            assert after.troubles == [
                "plugin_kv_storage has 2 rows where expires_at is not null, and its index 1"
            ]
            assert await store.examine(seconds=1) == holdfast.engine.Checkup(checked="nothing")
    finally:
        await connection.close()


async def test_rows_of_a_namespace_without_its_own_row_are_reported(pg_store_url: str) -> None:
    """Rows that nobody who goes by namespaces would find are told."""
    connection = await asyncpg.connect(pg_store_url)
    try:
        async with holdfast.open(pg_store_url, reap=False) as store:
            await store.kv("p").set("k", 1)
            await connection.execute("DELETE FROM holdfast_namespaces")
            found = await store.examine()
            assert found is not None
            assert found.troubles == ["kv/p has rows, but none of its own"]
    finally:
        await connection.close()


@pytest.mark.parametrize("installed", [True, False])
async def test_amcheck_runs_where_installed_and_the_report_says_so(
    pg_store_url: str, *, installed: bool
) -> None:
    """What was looked at is said, so that nobody takes it for more."""
    connection = await asyncpg.connect(pg_store_url)
    try:
        there = await connection.fetchval("SELECT 1 FROM pg_available_extensions WHERE name = 'amcheck'")
        if installed and there:
            await connection.execute("CREATE EXTENSION amcheck")
        async with holdfast.open(pg_store_url, reap=False) as store:
            await store.kv("p").set("k", 1)
            found = await store.examine()
            assert found is not None
            assert found.troubles == []
            assert ("not installed" in found.checked) is not bool(installed and there)
    finally:
        await connection.close()
