"""A dialect changes how names are spelled, never what is meant, and never a user's own value."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.errors import KeyNotFound
from holdfast.wire.dialects import ADMIN, DEEPEST, PAYLOAD, PLUGIN, SEMANTIC
from holdfast.wire.errors import error_fields

EXAMPLES = settings(
    deadline=None, derandomize=True, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
USERS_OWN = {
    "snake_name": {"inner_name": [{"deep_name": 1}]},
    "camelName": {"InnerName": 2},
    "error_code": "X",
}
"""A value whose names look like ours in every spelling."""

LETTERS = st.characters(exclude_categories=["Cs"])
"""All that UTF-8 has. Asked for no letters in particular, hypothesis works that out anew, for two seconds."""
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(LETTERS),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(LETTERS), children, max_size=3),
    max_leaves=10,
)


def camel(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a request of the semantic dialect under our own names."""
    return SEMANTIC.fields(json.dumps(fields).encode())


def test_the_semantic_dialect_is_camel_case() -> None:
    """Every field of a write has its camelCase name in the semantic dialect."""
    assert camel(
        {
            "key": "k",
            "value": 1,
            "ttlSeconds": 5,
            "keepTtl": True,
            "expectedVersion": 3,
            "lastWriter": "bot:7",
            "requestId": "r1",
            "specRef": "s",
            "deadlineMs": 100,
        }
    ) == {
        "key": "k",
        "value": 1,
        "ttl_seconds": 5,
        "keep_ttl": True,
        "expected_version": 3,
        "last_writer": "bot:7",
        "request_id": "r1",
        "spec_ref": "s",
        "deadline_ms": 100,
    }


def test_nested_fields_are_camel_case_too() -> None:
    """Semantics, checks, writes, items and fences are renamed all the way down."""
    semantics = {"purpose": "lock", "consumerHints": ["a_b", "cD"], "ttlSeconds": 9}
    found = camel(
        {
            "checks": [{"key": "a", "version": 1}],
            "writes": [{"key": "a", "value": 1, "ttlSeconds": 3, "semantics": semantics}, {"guard": "l"}],
            "items": [{"key": "a", "value": 2, "expectedVersion": 0}],
            "fence": {"lock": "lockName", "token": 4},
            "semantics": semantics,
        }
    )
    plain = {"purpose": "lock", "consumer_hints": ["a_b", "cD"], "ttl_seconds": 9}
    assert found["semantics"] == plain
    assert found["writes"] == [{"key": "a", "value": 1, "ttl_seconds": 3, "semantics": plain}, {"guard": "l"}]
    assert found["items"] == [{"key": "a", "value": 2, "expected_version": 0}]
    assert found["fence"] == {"lock": "lockName", "token": 4}
    assert found["checks"] == [{"key": "a", "version": 1}]


def test_values_are_untouched_wherever_they_stand() -> None:
    """Names within a value are the user's own, at the top and in writes, items and replies."""
    found = camel({"value": USERS_OWN, "writes": [{"key": "a", "value": USERS_OWN}]})
    assert found == {"value": USERS_OWN, "writes": [{"key": "a", "value": USERS_OWN}]}
    sent = json.loads(
        SEMANTIC.reply({"value": USERS_OWN, "entries": [{"value": USERS_OWN, "last_writer": "w"}]})
    )
    assert sent["value"] == USERS_OWN
    assert sent["entries"] == [{"value": USERS_OWN, "lastWriter": "w"}]


@EXAMPLES
@given(JSON_VALUES)
def test_any_value_passes_any_dialect_unchanged(value: Any) -> None:
    """Whatever a value is, no dialect changes it on its way in or out."""
    for dialect in (PLUGIN, PAYLOAD, SEMANTIC, ADMIN):
        request = dialect.request({"key": "k", "value": value, "expected_version": 1})
        assert dialect.fields(request) == {"key": "k", "value": value, "expected_version": 1}
        for reply in (dialect.reply({"value": value, "last_writer": "w"}),):
            shown = json.loads(reply)
            assert (shown["data"] if dialect is PAYLOAD else shown)["value"] == value


def test_replies_of_each_dialect() -> None:
    """Plugin, semantic and admin replies are flat beside success; those of the payload dialect are data."""
    fields = {"version": 3, "expires_at": None}
    assert json.loads(PLUGIN.reply(fields)) == {"success": True, "version": 3, "expires_at": None}
    assert json.loads(ADMIN.reply(fields)) == {"success": True, "version": 3, "expires_at": None}
    assert json.loads(SEMANTIC.reply(fields)) == {"success": True, "version": 3, "expiresAt": None}
    assert json.loads(PAYLOAD.reply(fields)) == {"success": True, "data": fields}


def test_codes_of_members_are_lower_case_in_the_semantic_dialect() -> None:
    """A result among several has its code spelled as the reply of its single verb has it."""
    member = {"success": False, "error_code": "KEY_NOT_FOUND", "message": "m", "retryable": False}
    sent = json.loads(SEMANTIC.reply({"results": [member, {"success": True, "value": USERS_OWN}]}))
    assert sent["results"] == [
        {"success": False, "errorCode": "key_not_found", "message": "m", "retryable": False},
        {"success": True, "value": USERS_OWN},
    ]
    assert json.loads(PLUGIN.reply({"results": [member]}))["results"] == [member]


def test_members_of_the_payload_dialect_are_nested_as_the_reply_of_their_single_verb() -> None:
    """Each of several results is success and data, or success and error, as if asked for alone."""
    lost = error_fields(KeyNotFound("m", field="key"))
    flat = [{"success": True, "value": USERS_OWN}, {"success": False, **lost}]
    sent = json.loads(PAYLOAD.reply({"results": flat}))["data"]["results"]
    assert sent[0] == json.loads(PAYLOAD.reply({"value": USERS_OWN}))
    assert sent[1] == json.loads(PAYLOAD.refusal(KeyNotFound("m", field="key")))
    assert set(sent[1]) == {"success", "error"}
    assert flat == [{"success": True, "value": USERS_OWN}, {"success": False, **lost}]


def test_a_client_reads_what_a_service_sends() -> None:
    """`answer` undoes `reply`: the client sees the names that the service meant."""
    fields = {"changes": [{"op": "expired", "lag_ms": 5, "expired_version": 3}], "next": 4, "gap": False}
    for dialect in (PLUGIN, SEMANTIC):
        assert dialect.answer(dialect.reply(fields)) == {"success": True} | fields


def test_null_fields_of_the_semantic_dialect_are_absent() -> None:
    """A null optional field is absent here as well, but a null value is a value."""
    assert camel({"key": "k", "value": None, "ttlSeconds": None, "expectedVersion": None}) == {
        "key": "k",
        "value": None,
    }


@pytest.mark.parametrize("depth", [DEEPEST, 100, 900])
def test_a_deep_unknown_field_is_left_alone(depth: int) -> None:
    """What nobody knows is not walked to its end: however deep, it is ignored as elsewhere."""
    payload = b'{"key":"k","junk":' + b"[" * depth + b"]" * depth + b"}"
    fields = SEMANTIC.fields(payload)
    assert fields["key"] == "k"
    assert set(fields) == {"key", "junk"}


def test_our_deepest_name_is_reached() -> None:
    """The deepest fields that a message can have are renamed."""
    conflict = {"current": {"last_writer": "w", "semantics": {"consumer_hints": ["x"]}}}
    member = {"success": False, "error_code": "VERSION_CONFLICT", "conflicts": [conflict]}
    [sent] = json.loads(SEMANTIC.reply({"results": [member]}))["results"]
    assert sent["conflicts"] == [{"current": {"lastWriter": "w", "semantics": {"consumerHints": ["x"]}}}]


def test_an_error_names_its_field_in_the_dialect() -> None:
    """The name of the wrong field is spelled as its caller spells it, and a client reads our own again."""
    error = KeyNotFound("m", field="semantics.consumer_hints")
    for dialect, name in ((PLUGIN, "semantics.consumer_hints"), (SEMANTIC, "semantics.consumerHints")):
        sent = dialect.refusal(error)
        assert json.loads(sent)["field"] == name
        assert dialect.answer(sent)["field"] == "semantics.consumer_hints"
