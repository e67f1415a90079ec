"""No request of 64 KB takes much memory or holds the event loop for long, whatever is stored.

The list of attacks runs in the suite over NATS, and a few of it over HTTP. `./dev soak attacks` runs all of
it at both doors. `./dev soak cost` also holds it to a bound of loop time, and searches for requests that are
worse: see `test_cost_search`.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any, Final

import pytest

from tests.robustness.cost_ground import ITEMS, KEYS, Scales, scales

# Storing what is attacked takes a minute under coverage, and several on a busy machine. If the alarm of a
# timeout goes off within one of the store's own tasks, it ends that task, and the test waits for ever.
pytestmark = pytest.mark.timeout(1_200)

ROUNDS: Final = int(os.environ.get("HOLDFAST_COST_ROUNDS", "0"))
MOST_MEMORY: Final = 64_000_000
"""How many bytes a request may take beside what the service has."""
MOST_MS: Final = 100.0
"""For how many milliseconds of processor time a request may hold the loop in one piece."""

NEVER: Final = ("INTERNAL_ERROR", "DATABASE_ERROR", "VALIDATION_ERROR", "INVALID_SUBJECT")
"""The codes that no attack leads to: it would not be one."""

CONTAINS: Final = {"or": [{"l": {"contains": -number}} for number in range(1, 61)]}
PATHS: Final = [f"l[{number}]" for number in range(1_000)]
DEEP: Final = ["l" + "[0]" * 63] * 300
CONFLICT: Final = {"put": {"item": {"p": "lists"}, "expected_version": 9_999_999}}
ALL_KEYS: Final = [f"k{number}" for number in range(KEYS)]
ALL_ITEMS: Final = [{"partition_key": f"i{number}"} for number in range(ITEMS)]

ATTACKS: Final[dict[str, tuple[str, str, dict[str, Any]]]] = {
    "sixty contains in a filter": ("table", "scan", {"table": "t", "filter": CONTAINS}),
    "sixty contains in a condition": (
        "table",
        "put_item",
        {"table": "t", "item": {"p": "ints"}, "condition": CONTAINS},
    ),
    "a thousand comparisons": (
        "table",
        "scan",
        {"table": "t", "filter": {"or": [{"l": {"contains": [-number]}} for number in range(1_000)]}},
    ),
    "a thousand texts in a text": (
        "table",
        "query",
        {
            "table": "t",
            "partition_key": "page",
            "filter": {"or": [{"l": {"contains": "a" * 25 + "b" + "a" * 25}} for _ in range(600)]},
        },
    ),
    "a thousand paths": ("table", "scan", {"table": "t", "projection": PATHS}),
    "paths of sixty-four steps": (
        "table",
        "get_item",
        {"table": "t", "partition_key": "deep", "projection": DEEP},
    ),
    "a thousand failing checks of one key": (
        "kv",
        "batch",
        {"checks": [{"key": "k0", "version": 9}] * 1_000, "writes": [{"key": "z", "value": 1}]},
    ),
    "failing checks of all keys": (
        "kv",
        "batch",
        {
            "checks": [{"key": key, "version": 9_999} for key in ALL_KEYS],
            "writes": [{"key": "z", "value": 1}],
        },
    ),
    "three hundred conflicts with one item": (
        "table",
        "batch_write_item",
        {"table": "t", "writes": [CONFLICT] * 300},
    ),
    "a get of all keys": ("kv", "get_many", {"keys": ALL_KEYS}),
    "a delete of all keys": ("kv", "delete_many", {"keys": ALL_KEYS}),
    "a get of all items": ("table", "batch_get_item", {"table": "large", "keys": ALL_ITEMS}),
    "a delete of all items": (
        "table",
        "batch_write_item",
        {"table": "large", "writes": [{"delete": key} for key in ALL_ITEMS]},
    ),
    "checks of all items": (
        "table",
        "transact_write",
        {
            "writes": [
                {"check": {"table": "large", "condition": {"l": {"contains": 7}}} | key}
                for key in ALL_ITEMS[:20]
            ]
        },
    ),
    "an index with large items": (
        "table",
        "query_index",
        {"table": "large", "index": "by", "key_value": "x", "filter": {"l": {"contains": [7]}}},
    ),
    "a check of an index": ("table", "check_index", {"table": "large", "index": "by"}),
    "all changes with images": ("table", "changes", {"table": "large", "view": "both", "limit": 10_000}),
    "a thousand removes from a list": (
        "table",
        "update_item",
        {"table": "t", "partition_key": "ints", "remove": PATHS},
    ),
    "an update of an item of lists": (
        "table",
        "update_item",
        {"table": "t", "partition_key": "deep", "set": {"x": 1}},
    ),
    "a value of lists": ("kv", "set", {"key": "z", "value": [[[]] * 100] * 200}),
    "a thousand writes": (
        "kv",
        "set_many",
        {"items": [{"key": f"z{number}", "value": 1} for number in range(1_000)]},
    ),
    "a deletion by prefix": ("kv", "delete_prefix", {"prefix": "z", "limit": 10_000}),
    "a deletion of large values by prefix": ("kv", "delete_prefix", {"prefix": "k", "limit": 10_000}),
}
"""Requests that were expensive once, or look as if they could be."""
OVER_HTTP: Final = (
    *("failing checks of all keys", "a get of all keys", "an index with large items"),
    *("all changes with images", "a value of lists", "a thousand writes"),
)
"""Those that the suite also makes over HTTP: with large requests, large answers and large refusals."""
BOTH: Final = bool(ROUNDS or os.environ.get("HOLDFAST_ATTACK_ROUNDS"))
CASES: Final = [("nats", name) for name in ATTACKS] + [
    ("http", name) for name in (ATTACKS if BOTH else OVER_HTTP)
]


@pytest.fixture(scope="module")
def loop_runner() -> Any:
    """One loop for the service that all attacks are made on."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def attacked(loop_runner: asyncio.Runner) -> Any:
    """The scales that all attacks are put on."""
    opened = scales(tables=("t", "large"))
    yield loop_runner.run(opened.__aenter__())
    loop_runner.run(opened.__aexit__(None, None, None))


@pytest.mark.parametrize(("door", "name"), CASES)
def test_an_attack_takes_little_memory(
    loop_runner: asyncio.Runner, attacked: Scales, door: str, name: str
) -> None:
    """Every request of the list stays below 64 MB; in the campaign also below 100 ms of loop time."""
    attacked.door = door
    weight = loop_runner.run(attacked.weigh(*ATTACKS[name], timed=BOTH))
    print(f"{name} over {door}: {weight}")
    assert weight.answer.get("error_code") not in NEVER
    assert weight.memory < MOST_MEMORY, str(weight)
    if ROUNDS:
        assert weight.piece < MOST_MS, str(weight)
