"""Misspelt names in the objects that programs pass to handles.

What a program mistypes is refused before anything is written. What a request from outside mistypes is tested
with the service.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import holdfast
from holdfast.errors import ValidationError

PUT = {"item": {"id": "1"}}
KEYED = {"partition_key": "1"}

Call = Callable[[holdfast.Store], Awaitable[object]]

CALLS: list[tuple[Call, str, str]] = [
    (
        lambda store: store.kv("p").set_many(
            [{"key": "a", "value": 1}, {"key": "b", "value": 1, "ttl_second": 5}]
        ),
        "items[1].ttl_second",
        "did you mean ttl_seconds?",
    ),
    (
        lambda store: store.kv("p").batch(writes=[{"key": "a", "value": 1, "keep_tll": True}]),
        "writes[0].keep_tll",
        "did you mean keep_ttl?",
    ),
    (
        lambda store: store.kv("p").batch(
            checks=[{"key": "a", "version": 0, "zzz": 1}], writes=[{"key": "a", "value": 1}]
        ),
        "checks[0].zzz",
        "known are key, version",
    ),
    (
        lambda store: store.tables("p").batch_write_item(
            "t", [{"put": PUT | {"conditon": ["exists", "id"]}}]
        ),
        "writes[0].put.conditon",
        "did you mean condition?",
    ),
    (
        lambda store: store.tables("p").transact_write(
            [{"put": {"table": "t", **PUT}}, {"delete": {"table": "t", "expected_versoin": 3, **KEYED}}]
        ),
        "writes[1].delete.expected_versoin",
        "did you mean expected_version?",
    ),
    (
        lambda store: store.kv("p").set_many([{"key": "a", "value": 1, "é\n": 7}]),
        r"items[0].\xe9\n",
        "known are expected_version, keep_ttl, key, semantics, ttl, ttl_seconds, value",
    ),
]


@pytest.mark.parametrize(("call", "path", "advice"), CALLS, ids=[path for _, path, _ in CALLS])
async def test_a_misspelt_name_is_refused(call: Call, path: str, advice: str) -> None:
    """Nothing is written by a call with a misspelt name, and the error says which name was meant."""
    async with holdfast.open("memory://") as store:
        await store.tables("p").create_table("t", partition_key=("id", "string"))
        with pytest.raises(ValidationError) as refused:
            await call(store)
        assert refused.value.message == f"unknown field {path}; {advice}"
        assert refused.value.field == path
        assert (await store.kv("p").list()).keys == []
        assert (await store.tables("p").scan("t")).items == []


@pytest.mark.parametrize(("call", "field"), [("items", "items"), ({"key": "a"}, "items"), (None, "items")])
async def test_non_lists_are_refused_as_such(call: Any, field: str) -> None:
    """Where a list is expected and something else is given, the error is about that and not about names."""
    async with holdfast.open("memory://") as store:
        with pytest.raises(ValidationError, match="must be a list") as refused:
            await store.kv("p").set_many(call)
        assert refused.value.field == field
