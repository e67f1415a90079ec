"""Requests that nobody in their right mind would send, made from requests that somebody would.

Everything follows from a seed. What a payload must be answered with is judged by the standard library's
JSON decoder, never by Holdfast's own code.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any, Final, NamedTuple

SEMANTICS: Final = {"purpose": "lock", "producer": "p", "consumer_hints": ["a"], "ttl_seconds": 60}
VALID: Final[dict[str, dict[str, Any]]] = {
    "set": {"key": "k", "value": {"a": [1, 2.5, None]}, "ttl": 60, "last_writer": "bot:1", "spec_ref": "s"},
    "get": {"key": "k"},
    "delete": {"key": "k", "expected_version": 3},
    "list": {"prefix": "k", "limit": 10, "values": True},
    "incr": {"key": "n", "by": 2, "ttl": 60, "only_if_exists": False},
    "exists": {"key": "k"},
    "get_ttl": {"key": "k"},
    "set_ttl": {"key": "k", "ttl_seconds": 60},
    "touch": {"key": "k", "ttl_seconds": 60},
    "remove_ttl": {"key": "k"},
    "get_many": {"keys": ["k", "n"]},
    "set_many": {"items": [{"key": "k", "value": 1, "semantics": SEMANTICS}, {"key": "n", "value": 2}]},
    "delete_many": {"keys": ["k", "n"]},
    "delete_prefix": {"prefix": "k", "limit": 10, "dry_run": False},
    "batch": {
        "checks": [{"key": "k", "version": 0}],
        "writes": [{"key": "k", "value": 1}, {"key": "n", "incr": 1}, {"guard": "l"}],
        "fence": {"lock": "l", "token": 1},
    },
    "changes": {"since": 0, "prefix": "k", "limit": 10},
    "history": {"key": "k", "limit": 10},
    "restore": {"key": "k", "ttl": 60},
    "stats": {},
}
"""A request of every verb that any dialect would accept."""
_KEY: Final = {"table": "t", "partition_key": "a", "sort_key": 7}
_ITEM: Final = {"id": "a", "at": 7, "n": 1, "expires": 0}
_WALK: Final = {
    "filter": {"n": {"gt": 0, "exists": True}},
    "projection": ["n", ["id"]],
    "limit": 5,
    "reverse": True,
}
TABLES: Final[dict[str, dict[str, Any]]] = {
    "create_table": {
        "table": "t",
        "partition_key": {"name": "id", "type": "string"},
        "sort_key": {"name": "at", "type": "number"},
        "ttl_attribute": "expires",
        "stream": "both",
    },
    "describe_table": {"table": "t"},
    "list_tables": {},
    "put_item": {"table": "t", "item": _ITEM, "return_values": "new", "last_writer": "bot:1"},
    "get_item": {**_KEY, "projection": ["n"]},
    "update_item": {**_KEY, "set": {"x.y": 1}, "add": {"n": 1}, "remove": ["z[0]"], "return_values": "old"},
    "delete_item": {**_KEY, "expected_version": 3, "condition": {"or": [{"n": {"in": [1, 2]}}]}},
    "query": {"table": "t", "partition_key": "a", "sort_key_condition": {"between": [1, 9]}, **_WALK},
    "scan": {"table": "t", **_WALK},
    "create_index": {"table": "t", "index": "i", "index_key": {"name": "n", "type": "number"}},
    "query_index": {"table": "t", "index": "i", "key_value": 1, **_WALK},
    "check_index": {"table": "t", "index": "i"},
    "batch_get_item": {"table": "t", "keys": [{"partition_key": "a", "sort_key": 7}]},
    "batch_write_item": {"table": "t", "writes": [{"put": {"item": _ITEM}}, {"delete": _KEY}]},
    "transact_write": {"writes": [{"put": {"table": "t", "item": _ITEM}}]},
    "set_ttl": {**_KEY, "ttl_seconds": 60},
    "remove_ttl": _KEY,
    "get_ttl": _KEY,
    "sweep_expired_ttl": {"table": "t"},
    "changes": {"table": "t", "since": 0, "limit": 10, "view": "both"},
    "stats": {},
}
"""A request of every verb of tables but those that drop something."""
OPERATORS: Final[dict[str, dict[str, Any]]] = {
    "namespaces": {"limit": 10, "cursor": "aw"},
    "stats": {"namespace": "kv/fuzz1"},
    "policy": {"namespace": "kv/fuzz1"},
    "set_policy": {"namespace": "kv/spare", "policy": {"quota_keys": 1_000}},
    "audit": {"namespace": "kv/spare", "after": 0, "limit": 10, "op": "set", "since": "2031-05-01T12:30:00Z"},
    "rescue": {"path": "no/such/folder/copy.db"},
    "audits": {},
    "audit_verify": {"namespace": "kv/spare", "after": 0, "anchor": ""},
    "ready": {},
    "sweep": {},
    "load": {"namespace": "kv/spare", "entries": [], "keep_versions": False},
}
CODES: Final = frozenset(
    {
        *("MISSING_FIELD", "INVALID_SUBJECT", "INVALID_PLUGIN_NAME", "VALIDATION_ERROR", "VALUE_TOO_LARGE"),
        *("KEY_NOT_FOUND", "FENCED", "VERSION_CONFLICT", "QUOTA_EXCEEDED", "UNSUPPORTED"),
        *("TABLE_NOT_FOUND", "TABLE_EXISTS", "ITEM_NOT_FOUND", "INDEX_NOT_FOUND", "CONDITION_FAILED"),
        *("TTL_NOT_CONFIGURED", "TOO_EXPENSIVE"),
    }
)
"""What a request that is JSON may be refused with."""
LATE: Final = frozenset({"TIMEOUT", "BUSY"})
"""What any request may be refused with by a machine that is too busy."""

NASTY: Final = (
    *("null", "true", "false", "0", "-1", "1.5", "-0.0", "1e400", "-1e999", "1e-999", "9" * 30, "9" * 4_301),
    *(
        '""',
        '"x"',
        '"\\u0000"',
        '"\\ud800"',
        '"\\udfff\\ud800"',
        '"\\u202e"',
        '"' + "x" * 300 + '"',
        '"\\r\\n"',
    ),
    *(
        '"../../../etc/passwd"',
        '"\' OR 1=1; DROP TABLE plugin_kv_storage; --"',
        '"*"',
        '">"',
        '"%"',
        '"$SRV.PING"',
    ),
    *(
        '"tenant/other/project/web/k"',
        '"kv/other"',
        '"__proto__"',
        "[]",
        "{}",
        "[[]]",
        "[null]",
        '[""]',
        "[{}]",
    ),
    *(
        '{"key":{}}',
        '{"lock":1}',
        '{"lock":"l","token":"x"}',
        '{"purpose":"X"}',
        "[1,2,3]",
        '{"a":{"b":{"c":1}}}',
    ),
    *("[" * 70 + "]" * 70, "[" * 500 + "]" * 500, '{"a":' * 990 + "1" + "}" * 990, "[" * 3_000 + "]" * 3_000),
    *("NaN", "Infinity", "1" + "0" * 300, "2147483648", "9223372036854775808", "1E2", '"\\x41"', "'a'", "01"),
)
"""What is put in the place of a field, as JSON or nearly so."""
SPARE: Final[tuple[Any, ...]] = (
    None,
    True,
    0,
    -1,
    1.5,
    10**30,
    "",
    "x",
    "\x00",
    "a.b[0]",
    "and",
    [],
    {},
    [[]],
    {"path": []},
    {"a": {}},
)
"""What is put in the place of a member deeper within."""
NAMES: Final = (
    *(
        "key",
        "value",
        "ttl",
        "ttl_seconds",
        "keep_ttl",
        "expected_version",
        "semantics",
        "request_id",
        "fence",
    ),
    *(
        "last_writer",
        "spec_ref",
        "by",
        "prefix",
        "limit",
        "cursor",
        "values",
        "keys",
        "items",
        "checks",
        "writes",
    ),
    *(
        "since",
        "deadline",
        "deadline_ms",
        "plugin_name",
        "envelope",
        "namespace",
        "policy",
        "entries",
        "unknown",
    ),
    *("expectedVersion", "lastWriter", "consumerHints", "", "__class__", "\\u0000", "é"),
)


class Malformed(NamedTuple):
    """A message, and whether it is JSON at all."""

    subject: str
    payload: bytes


class Mill:
    """Makes malformed messages without end, the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._verbs = [*VALID.items()]
        self._tables = [*TABLES.items()]
        self._operators = [*OPERATORS.items()]
        self._ways: list[Callable[[dict[str, str]], bytes]] = [
            self._noise,
            self._truncated,
            self._flipped,
            *[self._swapped] * 4,
            *[self._added] * 3,
            self._doubled,
            self._missing,
            self._no_object,
        ]

    def next(self) -> Malformed:
        """Another message."""
        chance = self._random.random()
        if chance < 0.05:
            verb, fields = self._random.choice(self._operators)
            subject = f"db.admin.{verb}"
        elif chance < 0.3:
            verb, fields = self._random.choice(self._tables)
            subject = f"db.table.fuzz1.{verb}"
            if fields and self._random.random() < 0.5:
                name = self._random.choice([*fields])
                fields = fields | {name: self._spoilt(fields[name])}
        else:
            verb, fields = self._random.choice(self._verbs)
            subject = self._subject(verb, chance)
            if chance > 0.85:
                fields = fields | {"plugin_name": "fuzz1"}
        texts = {json.dumps(name): json.dumps(field) for name, field in fields.items()}
        return Malformed(subject, self._random.choice(self._ways)(texts))

    def _spoilt(self, field: Any) -> Any:
        """A field with something else in the place of one of its members."""
        nasty = self._random.choice(SPARE)
        if isinstance(field, dict) and field:
            name = self._random.choice([*field])
            return field | {name: self._spoilt(field[name]), **({nasty: 1} if isinstance(nasty, str) else {})}
        if isinstance(field, list) and field:
            return [self._spoilt(field[0]), *field[1:]]
        return nasty

    def _subject(self, verb: str, chance: float) -> str:
        if chance > 0.85:
            return f"db.kv.{verb}"
        if chance > 0.65:
            return f"rosey.db.semantic.acme.fuzz.{'put' if verb == 'set' else verb}"
        return f"db.kv.fuzz{self._random.randint(1, 4)}.{verb}"

    def _joined(self, texts: dict[str, str], *more: str) -> bytes:
        return ("{" + ",".join([*(f"{name}:{text}" for name, text in texts.items()), *more]) + "}").encode()

    def _noise(self, texts: dict[str, str]) -> bytes:
        return self._random.randbytes(self._random.randint(1, 120))

    def _truncated(self, texts: dict[str, str]) -> bytes:
        whole = self._joined(texts)
        return whole[: self._random.randint(1, len(whole))]

    def _flipped(self, texts: dict[str, str]) -> bytes:
        whole = bytearray(self._joined(texts))
        for _ in range(self._random.randint(1, 3)):
            whole[self._random.randrange(len(whole))] = self._random.randrange(256)
        return bytes(whole)

    def _swapped(self, texts: dict[str, str]) -> bytes:
        if texts:
            texts = texts | {self._random.choice([*texts]): self._random.choice(NASTY)}
        return self._joined(texts)

    def _added(self, texts: dict[str, str]) -> bytes:
        return self._joined(texts, f'"{self._random.choice(NAMES)}":{self._random.choice(NASTY)}')

    def _doubled(self, texts: dict[str, str]) -> bytes:
        return self._joined(texts, *(f"{name}:{self._random.choice(NASTY)}" for name in texts))

    def _missing(self, texts: dict[str, str]) -> bytes:
        kept = {name: text for name, text in texts.items() if self._random.random() < 0.5}
        return self._joined(kept)

    def _no_object(self, texts: dict[str, str]) -> bytes:
        return self._random.choice(NASTY).encode()


def verdict(payload: bytes) -> frozenset[str]:
    """With which codes a payload may be refused; one that may also succeed is any JSON object."""
    try:
        decoded = json.loads(payload.decode())
    except (UnicodeDecodeError, json.JSONDecodeError):
        return frozenset({"INVALID_JSON"})
    except (RecursionError, ValueError):  # too deep, or too many digits: JSON, but nothing that could be kept
        return CODES
    return CODES if isinstance(decoded, dict) else frozenset({"VALIDATION_ERROR"})
