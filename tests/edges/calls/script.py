"""A request for every verb, with all the fields that it has, in an order in which all of them succeed.

Only requests. `{path}` stands for a file that does not exist, and `{letter}` for the number of the dead
letter that `escalate` made.
"""

from __future__ import annotations

from typing import Any, Final

PROVENANCE: Final = {"last_writer": "alice", "spec_ref": "spec/1"}
SEMANTICS: Final = {"purpose": "config", "producer": "a", "consumer_hints": ["x"], "ttl_seconds": 60}
ENTRY: Final = {
    "key": "loaded",
    "value": 1,
    "version": 1,
    "created_at": "2023-11-14T22:13:20Z",
    "updated_at": "2023-11-14T22:13:20Z",
    "expires_at": None,
    "last_writer": "bob",
    "semantics": SEMANTICS,
    "request_id": "r",
    "spec_ref": None,
    "purpose": "config",
}
GIVEN_UP: Final = {"key": "gone", "value": 1, "request_id": "lost"}

KEYS: Final[list[tuple[str, dict[str, Any]]]] = [
    ("ready", {}),
    ("set", {"key": "lock", "value": None}),
    ("batch", {"writes": [{"guard": "l"}]}),
    (
        "set",
        {
            "key": "a",
            "value": {"x": [1]},
            "ttl": 60,
            "ttl_seconds": 60,
            "keep_ttl": False,
            "expected_version": 0,
            "semantics": SEMANTICS,
            "envelope": True,
            "request_id": "r-set",
            "fence": {"lock": "l", "token": 2},
            "deadline_ms": 60_000,
            **PROVENANCE,
        },
    ),
    ("set", {"key": "b", "value": 1, "envelope": "bare"}),
    ("get", {"key": "a"}),
    ("get", {"key": "nothing"}),
    ("get_many", {"keys": ["a", "nothing", ""]}),
    ("exists", {"key": "a"}),
    ("get_ttl", {"key": "a"}),
    (
        "list",
        {
            "prefix": "",
            "limit": 1,
            "values": True,
            "purpose": "config",
            "producer": "a",
            "last_writer": "alice",
            "spec_ref": "spec/1",
            "expires_before": "2099-01-01T00:00:00Z",
        },
    ),
    ("list", {"limit": 1, "cursor": None}),
    ("changes", {"since": 0, "prefix": "", "limit": 5}),
    ("history", {"key": "a", "limit": 5}),
    ("stats", {}),
    (
        "incr",
        {
            "key": "n",
            "by": 2,
            "ttl": 5,
            "ttl_seconds": 5,
            "keep_ttl": False,
            "only_if_exists": False,
            "expected_version": 0,
            "envelope": True,
            "request_id": "r-incr",
            "fence": {"lock": "l", "token": 2},
            **PROVENANCE,
        },
    ),
    (
        "set_ttl",
        {
            "key": "a",
            "ttl": 9,
            "ttl_seconds": 9,
            "keep_ttl": False,
            "expected_version": 3,
            "envelope": True,
            "request_id": "r-ttl",
            "fence": {"lock": "l", "token": 2},
            **PROVENANCE,
        },
    ),
    (
        "touch",
        {
            "key": "a",
            "ttl": 9,
            "ttl_seconds": 9,
            "keep_ttl": False,
            "expected_version": 6,
            "envelope": True,
            "request_id": "r-touch",
            "fence": {"lock": "l", "token": 2},
            **PROVENANCE,
        },
    ),
    ("touch", {"key": "nothing", "ttl_seconds": 9}),
    (
        "remove_ttl",
        {
            "key": "a",
            "expected_version": 7,
            "envelope": True,
            "request_id": "r-endless",
            "fence": {"lock": "l", "token": 2},
            **PROVENANCE,
        },
    ),
    (
        "delete",
        {
            "key": "a",
            "expected_version": 8,
            "envelope": True,
            "request_id": "r-delete",
            "fence": {"lock": "l", "token": 2},
            **PROVENANCE,
        },
    ),
    ("delete", {"key": "nothing"}),
    (
        "restore",
        {
            "key": "a",
            "ttl": 60,
            "ttl_seconds": 60,
            "keep_ttl": False,
            "expected_version": 0,
            "envelope": True,
            "request_id": "r-restore",
            "fence": {"lock": "l", "token": 2},
            **PROVENANCE,
        },
    ),
    (
        "set_many",
        {
            "items": [{"key": "c", "value": 1, "semantics": SEMANTICS}, {"key": ""}],
            "envelope": True,
            "request_id": "r-many",
            "fence": {"lock": "l", "token": 2},
            **PROVENANCE,
        },
    ),
    (
        "delete_many",
        {
            "keys": ["c", ""],
            "envelope": True,
            "request_id": "r-none",
            "fence": {"lock": "l", "token": 2},
            **PROVENANCE,
        },
    ),
    ("set", {"key": "tmp:1", "value": 1}),
    (
        "delete_prefix",
        {
            "prefix": "tmp:",
            "limit": 5,
            "cursor": None,
            "dry_run": False,
            "fence": {"lock": "l", "token": 2},
            **PROVENANCE,
        },
    ),
    (
        "batch",
        {
            "checks": [{"key": "d", "version": 0}],
            "writes": [
                {"key": "d", "value": 1, "ttl": 5, "ttl_seconds": 5, "keep_ttl": False},
                {"key": "d", "incr": 1, "only_if_exists": True},
                {"key": "d", "delete": True},
            ],
            "envelope": True,
            "request_id": "r-batch",
            "fence": {"lock": "l", "token": 2},
            **PROVENANCE,
        },
    ),
    (
        "escalate",
        {
            "verb": "set",
            "request": GIVEN_UP,
            "error_code": "BUSY",
            "message": "full",
            "attempts": 5,
            "envelope": True,
            "request_id": "r-escalate",
            "fence": {"lock": "l", "token": 2},
            **PROVENANCE,
        },
    ),
    (
        "append",
        {
            "name": "log",
            "value": {"x": [1]},
            "ttl": 60,
            "ttl_seconds": 60,
            "keep_ttl": False,
            "semantics": SEMANTICS,
            "keep": 5,
            "envelope": True,
            "request_id": "r-append",
            "fence": {"lock": "l", "token": 2},
            **PROVENANCE,
        },
    ),
    ("append", {"name": "log", "value": None, "once": "o-append"}),
    ("batch", {"writes": [{"append": "log", "value": 1, "keep": 2}]}),
    ("list", {"prefix": "log/", "after": 1, "reverse": False}),
    ("reveal", {"key": "a", "why": "OPS-1", "last_writer": "ann"}),
    ("reveal", {"key": "nothing", "why": "OPS-1"}),
]

_EXPECTING: Final = {
    "table": "t",
    "partition_key": "alice",
    "sort_key": 7,
    "condition": {"user": {"eq": "alice"}},
    "return_values": "old",
    **PROVENANCE,
}
_WALK: Final = {
    "table": "t",
    "filter": {"at": {"gt": 0}},
    "projection": ["user"],
    "limit": 5,
    "reverse": True,
}

TABLES: Final[list[tuple[str, dict[str, Any]]]] = [
    (
        "create_table",
        {
            "table": "t",
            "partition_key": {"name": "user", "type": "string"},
            "sort_key": {"name": "at", "type": "number"},
            "ttl_attribute": "gone",
            "stream": "both",
            "request_id": "r-create",
            **PROVENANCE,
        },
    ),
    ("list_tables", {}),
    ("describe_table", {"table": "t"}),
    (
        "put_item",
        {
            "table": "t",
            "item": {"user": "alice", "at": 7, "tag": "x"},
            "binary": [],
            "expected_version": 0,
            "condition": {"user": {"not_exists": True}},
            "return_values": "new",
            "request_id": "r-put",
            **PROVENANCE,
        },
    ),
    ("get_item", {"table": "t", "partition_key": "alice", "sort_key": 7, "projection": ["tag"]}),
    ("get_item", {"table": "t", "partition_key": "bob", "sort_key": 7}),
    (
        "reveal_item",
        {"table": "t", "partition_key": "alice", "sort_key": 7, "why": "OPS-1", "last_writer": "ann"},
    ),
    ("reveal_item", {"table": "t", "partition_key": "bob", "sort_key": 7, "why": "OPS-1"}),
    (
        "update_item",
        {
            "set": {"tag": "y"},
            "remove": ["more"],
            "add": {"score": 1},
            "expected_version": 2,
            "request_id": "r-update",
            **_EXPECTING,
        },
    ),
    ("set_ttl", {"ttl_seconds": 60, "expected_version": 3, "request_id": "r-ttl", **_EXPECTING}),
    ("get_ttl", {"table": "t", "partition_key": "alice", "sort_key": 7}),
    ("remove_ttl", {"expected_version": 4, "request_id": "r-endless", **_EXPECTING}),
    (
        "create_index",
        {
            "table": "t",
            "index": "i",
            "index_key": {"name": "tag", "type": "string"},
            "request_id": "r-index",
            **PROVENANCE,
        },
    ),
    ("query", {"partition_key": "alice", "sort_key_condition": {"gte": 1}, "cursor": None, **_WALK}),
    ("scan", {"cursor": None, **_WALK}),
    ("query_index", {"index": "i", "key_value": "y", "cursor": None, **_WALK}),
    ("check_index", {"table": "t", "index": "i"}),
    ("batch_get_item", {"table": "t", "keys": [{"partition_key": "alice", "sort_key": 7}]}),
    ("changes", {"table": "t", "since": 0, "limit": 5, "view": "both"}),
    (
        "batch_write_item",
        {
            "table": "t",
            "writes": [
                {"put": {"item": {"user": "bob", "at": 1}}},
                {"delete": {"partition_key": "bob", "sort_key": 2}},
                {"put": {"item": {"user": "bob"}}},
            ],
            "request_id": "r-batch",
            **PROVENANCE,
        },
    ),
    (
        "transact_write",
        {
            "table": "t",
            "writes": [
                {"put": {"item": {"user": "carl", "at": 1}}},
                {"update": {"partition_key": "bob", "sort_key": 1, "set": {"x": 1}}},
                {"check": {"partition_key": "alice", "sort_key": 7, "expected_version": 5}},
            ],
            "request_id": "r-transact",
            **PROVENANCE,
        },
    ),
    ("delete_item", {"expected_version": 5, "request_id": "r-delete", **_EXPECTING}),
    ("sweep_expired_ttl", {"table": "t"}),
    ("stats", {}),
    ("drop_index", {"table": "t", "index": "i", "request_id": "r-drop", **PROVENANCE}),
    ("drop_table", {"table": "t", "request_id": "r-gone", **PROVENANCE}),
]

OPERATORS: Final[list[tuple[str, dict[str, Any]]]] = [
    ("ready", {}),
    ("namespaces", {"limit": 10, "cursor": None}),
    ("stats", {"namespace": "kv/trivia"}),
    (
        "set_policy",
        {"namespace": "kv/trivia", "policy": {"trash": True, "audit": True}, "request_id": "p", **PROVENANCE},
    ),
    ("policy", {"namespace": "kv/trivia"}),
    (
        "load",
        {
            "namespace": "kv/trivia",
            "entries": [ENTRY],
            "keep_versions": True,
            "request_id": "l",
            **PROVENANCE,
        },
    ),
    (
        "audit",
        {
            "namespace": "kv/trivia",
            "after": 0,
            "limit": 5,
            "reverse": True,
            "prefix": "",
            "last_writer": "bob",
            "op": "set",
            "purpose": "config",
            "request_id": "r",
            "since": "2023-01-01T00:00:00Z",
            "until": "2099-01-01T00:00:00Z",
        },
    ),
    ("audits", {}),
    ("audit_verify", {"namespace": "kv/trivia", "after": 0, "anchor": ""}),
    ("trash", {"namespace": "kv/trivia", "prefix": "", "limit": 5, "cursor": None, "values": True}),
    ("deadletters", {"namespace": "kv/trivia", "after": 0, "limit": 5}),
    (
        "deadletter_reveal",
        {"namespace": "kv/trivia", "number": "{letter}", "why": "OPS-1", "last_writer": "ann"},
    ),
    ("deadletter_reveal", {"namespace": "kv/trivia", "number": 999_999, "why": "OPS-1"}),
    ("deadletter_retry", {"namespace": "kv/trivia", "number": "{letter}"}),
    ("deadletter_drop", {"namespace": "kv/trivia", "number": "{letter}"}),
    ("recount", {"namespace": "kv/trivia"}),
    ("sweep", {}),
    ("upkeep", {}),
    ("rescue", {"path": "{path}"}),
    ("slowlog", {"limit": 5, "before": None, "instance": None}),
    ("token_create", {"plugin": "trivia", "verbs": ["get"], "ttl": 60}),
    ("token_create", {"tenant": "acme", "project": "web"}),
    ("token_create", {"operator": True}),
    ("tokens", {}),
    ("token_revoke", {"id": "00"}),
]

POLICY: Final = [name for name, _ in OPERATORS].index("set_policy")

SCRIPT: Final = [
    *(("admin", *OPERATORS[number]) for number in range(POLICY + 1)),
    *(("kv", *request) for request in KEYS),
    *(("table", *request) for request in TABLES),
    *(("admin", *request) for request in OPERATORS[POLICY + 1 :]),
]
"""All requests, with their families. The policy comes first, so that what is deleted goes to the trash."""
