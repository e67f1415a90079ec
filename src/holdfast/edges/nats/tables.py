"""What a service answers about tables.

Law: as in `holdfast.edges.nats.calls`. What a verb means is known to `holdfast.table_calls` alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from holdfast import table_calls
from holdfast.edges.nats.calls import stats_and_policy
from holdfast.errors import HoldfastError
from holdfast.tables.verbs import WRITES
from holdfast.wire.refusals import error_fields

if TYPE_CHECKING:
    from holdfast.store import Store

__all__ = ["FIELDS", "READS", "VERBS", "WRITES", "TableCall", "answer"]

TableCall: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]

VERBS: Final = frozenset({*table_calls.VERBS, "stats"})
"""Every verb of the family."""
_SWEEPS: Final = frozenset({"sweep_expired_ttl"})
"""Verbs whose callers name nothing that is changed, and which write all the same."""
READS: Final = VERBS - WRITES - _SWEEPS
"""The verbs that write nothing."""
FIELDS: Final = frozenset(
    {
        *("add", "binary", "condition", "cursor", "deadline", "deadline_ms", "expected_version", "fence"),
        "filter",
        *("index", "index_key", "item", "key_value", "keys", "last_writer", "limit", "partition_key"),
        *("projection", "remove", "request_id", "return_values", "reverse", "set", "since", "sort_key"),
        *("sort_key_condition", "spec_ref", "stream", "table", "ttl_attribute", "ttl_seconds", "view"),
        "writes",
    }
)
"""Every field that a request may have, whatever its verb; others are ignored and counted."""


async def answer(
    store: Store, namespace: str, call: TableCall, *, verb: str, fields: Mapping[str, Any]
) -> dict[str, Any]:
    """The answer to a call; of several writes each has its own, a success or an error."""
    if verb == "stats":
        return await stats_and_policy(store, namespace)
    answer = await call(verb, fields)
    if "results" in answer:
        return {"results": [_result(result) for result in answer["results"]]}
    return answer


def _result(result: dict[str, Any] | HoldfastError) -> dict[str, Any]:
    if isinstance(result, HoldfastError):
        return {"success": False, **error_fields(result)}
    return {"success": True, **result}
