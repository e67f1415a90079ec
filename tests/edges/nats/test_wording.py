"""The words of refusals: they speak of JSON and of the caller's own fields, whatever its language."""

from __future__ import annotations

import re
from typing import Any, Final

import pytest

from holdfast.wire.errors import NUMBERS
from tests.edges.nats.ground import Caller

ODD: Final[list[Any]] = [None, True, False, -1, 1.5, "\u0000", [], [None], {}, {"lock": None, "token": None}]
"""What some field of some verb does not take."""
FIELDS: Final = (
    *("key", "keys", "prefix", "limit", "cursor", "values", "by", "ttl", "ttl_seconds", "keep_ttl", "checks"),
    *("expected_version", "semantics", "request_id", "last_writer", "spec_ref", "fence", "since", "items"),
    *(
        "writes",
        "deadline",
        "deadline_ms",
        "dry_run",
        "only_if_exists",
        "purpose",
        "producer",
        "expires_before",
        "envelope",
        "verb",
    ),
)
VERBS: Final = (
    *("set", "get", "delete", "list", "incr", "get_ttl", "set_ttl", "remove_ttl", "get_many", "set_many"),
    *("exists", "touch", "delete_many", "batch", "changes", "history", "restore", "escalate"),
)
USUAL: Final = {"key": "k", "value": 1, "ttl_seconds": 5, "keys": ["k"], "items": [], "writes": []}
PYTHON: Final = re.compile(r"\b(None|True|False|NoneType|dict|str|int|float|bool|tuple)\b")


def camel(name: str) -> str:
    """A field as the semantic dialect spells it."""
    head, *rest = name.split("_")
    return head + "".join(map(str.capitalize, rest))


def messages(reply: dict[str, Any]) -> list[str]:
    """The messages of a refusal, or of what was refused of a call about several keys."""
    members = reply.get("results", [reply])
    return [member["message"] for member in members if not member["success"]]


async def refusals(caller: Caller, verb: str, *, semantic: bool) -> list[str]:
    """What a caller is told who sends a verb with odd values for its fields.

    Each field is given every odd value, by one half of the verbs or by the other.
    """
    asked: list[tuple[str, dict[str, Any] | bytes]] = []
    spell = camel if semantic else str
    for name in FIELDS:
        for odd in ODD[VERBS.index(verb) % 2 :: 2]:
            given = {**USUAL, name: odd, "semantics": odd if name == "semantics" else {"purpose": "x"}}
            fields = {spell(each): value for each, value in given.items()}
            put = "put" if verb == "set" else verb
            asked.append((f"db.semantic.acme.web.{put}" if semantic else f"db.kv.trivia.{verb}", fields))
    asked += [
        ("db.semantic.acme.web.put", {"key": "k", "value": 1, "semantics": {camel(name): odd}})
        for name in ("ttl_seconds", "consumer_hints")
        for odd in (ODD if semantic else ())
    ]
    return [message for answer in await caller.ask_all(asked) for message in messages(answer.fields)]


@pytest.mark.parametrize("verb", VERBS)
async def test_no_message_speaks_python(caller: Caller, verb: str) -> None:
    """A caller in another language is told of null, true and objects, not of None, True and dicts."""
    told = await refusals(caller, verb, semantic=False)
    assert told
    assert [message for message in told if PYTHON.search(message)] == []


@pytest.mark.parametrize("verb", VERBS)
async def test_a_project_is_told_its_own_names(caller: Caller, verb: str) -> None:
    """In the semantic dialect every message names fields in camelCase, as they were sent."""
    told = await refusals(caller, verb, semantic=True)
    assert told
    assert [message for message in told if re.search(r"[a-z]_[a-z]", message)] == []


async def test_a_quoted_key_keeps_its_spelling(caller: Caller) -> None:
    """A key that is called like a field is quoted as it is, and the header says what the reply says."""
    [lost] = await caller.ask_all(
        [("db.semantic.acme.web.put", {"key": "request_id", "value": 1, "expectedVersion": 9})]
    )
    assert "project/web/request_id'" in lost.fields["message"]
    [lost] = await caller.ask_all([("db.semantic.acme.web.put", {"key": "k", "value": 1, "ttlSeconds": 0})])
    assert (lost.fields["field"], "ttlSeconds must" in lost.fields["message"]) == ("ttlSeconds", True)
    assert lost.headers["Nats-Service-Error"] == lost.fields["message"]


@pytest.mark.parametrize(
    ("payload", "where"),
    [
        (b'{"key": "k" "value": 1}', "line 1, column 13"),
        (b'{"key": "k",\n "value": x}', "line 2, column 11"),
        ('{"key": "é" "value": 1}'.encode(), "line 1, column 13"),
        (b'{"key": "\xff"}', "line 1, column 10"),
        (b"nonsense", "line 1, column 1"),
    ],
)
async def test_invalid_json_says_where(caller: Caller, payload: bytes, where: str) -> None:
    """INVALID_JSON names the line and the column, counted in characters from 1."""
    reply = await caller.ask("db.kv.trivia.set", payload)
    assert (reply["error_code"], reply["message"].endswith(f"see {where}")) == ("INVALID_JSON", True)


async def test_a_missing_plugin_name(caller: Caller) -> None:
    """In the payload dialect a request that names no plugin is MISSING_FIELD with that field."""
    for fields in ({"key": "k"}, {"key": "k", "plugin_name": None}):
        error = (await caller.ask("db.kv.get", fields))["error"]
        assert (error["code"], error["field"]) == ("MISSING_FIELD", "plugin_name")
        assert error["message"] == "Missing required field: plugin_name"


async def test_the_code_of_a_nats_service_is_a_number(caller: Caller) -> None:
    """Each refusal has a number in the header that clients of NATS services read, and our code beside it."""
    asked: list[tuple[str, dict[str, Any] | bytes]] = [
        ("db.kv.trivia.set", b"{"),
        ("db.kv.trivia.set", {"key": "k", "value": 1, "expected_version": 7}),
        ("db.kv.trivia.set_ttl", {"key": "k", "ttl_seconds": 5}),
        ("db.kv.trivia.set", {"key": "k", "value": "x" * 65_536}),
        ("db.table.trivia.get_item", {"table": "t", "partition_key": "k"}),
        ("db.semantic.acme.web.nonsense", {}),
    ]
    for answer in await caller.ask_all(asked):
        code = answer.headers["Holdfast-Error-Code"]
        assert code == answer.fields.get("error_code", answer.fields.get("errorCode", "")).upper()
        assert answer.headers["Nats-Service-Error-Code"] == str(NUMBERS[code])
