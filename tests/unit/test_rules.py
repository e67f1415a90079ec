"""What is legal, rule by rule, at and beyond each limit; values have a file of their own.

A rule is tested by what it lets through, unchanged, and by what it refuses, with class, field and words.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import rules
from holdfast.errors import InvalidPluginName, ValidationError
from holdfast.model import Policy, Semantics
from holdfast.origin import Fence
from holdfast.testing.exact import refusal

ROOT = "tenant/acme/project/web/"
NO_TEXT: tuple[Any, ...] = (None, 5, 5.0, True, b"text", ["text"], object())
NO_WHOLE: tuple[Any, ...] = (None, True, False, 1.0, "1", b"1", [1], float("nan"))


@pytest.mark.parametrize("name", ["a", "0", "_", "-", "quote-db_2", "a" * 100])
def test_plugin_names(name: str) -> None:
    """A plugin's name is 1 to 100 of the characters a-z, 0-9, _ and -."""
    assert rules.plugin_name(name) == name


@pytest.mark.parametrize("name", ["", "A", "a.b", "a/b", "a b", "ä", "a\n", "\na", "a" * 101, *NO_TEXT])
def test_no_plugin_names(name: Any) -> None:
    """Any other name is refused with its own code, shown shortened."""
    with refusal(InvalidPluginName, field="plugin_name", says="100") as caught:
        rules.plugin_name(name)
    assert len(caught.value.message) < 200


@pytest.mark.parametrize("name", ["a", "0", "a_b-c", "a" * 63])
def test_tenants(name: str) -> None:
    """A tenant's or project's name is 1 to 63 characters and begins with a letter or digit."""
    assert rules.tenant_part(name, field="tenant") == name


@pytest.mark.parametrize("name", ["", "_a", "-a", "A", "a.b", "a" * 64, "a\n", *NO_TEXT])
@pytest.mark.parametrize("field", ["tenant", "project"])
def test_no_tenants(name: Any, field: str) -> None:
    """Any other name is refused with the field that it was given for."""
    with refusal(ValidationError, field=field, says="63"):
        rules.tenant_part(name, field=field)


@pytest.mark.parametrize("name", ["kv/trivia", "table/trivia", "semantic/acme/web"])
def test_namespace_accepts_family_and_owner(name: str) -> None:
    """A namespace is named by its family and its owner."""
    assert rules.namespace(name) == name


@pytest.mark.parametrize(
    ("name", "kind", "field"),
    [
        ("", ValidationError, "namespace"),
        ("kv", ValidationError, "namespace"),
        ("kv/a/b", ValidationError, "namespace"),
        ("other/a", ValidationError, "namespace"),
        ("semantic/acme", ValidationError, "namespace"),
        ("semantic/acme/web/more", ValidationError, "namespace"),
        (5, ValidationError, "namespace"),
        (None, ValidationError, "namespace"),
        ("kv/A", InvalidPluginName, "plugin_name"),
        ("table/", InvalidPluginName, "plugin_name"),
        ("semantic/A/web", ValidationError, "tenant"),
        ("semantic/acme/_", ValidationError, "project"),
    ],
)
def test_namespace_rejects_other_shapes(name: Any, kind: Any, field: str) -> None:
    """A namespace of another shape is refused as such; one with a wrong part is refused for that part."""
    with refusal(kind, field=field):
        rules.namespace(name)


def test_semantic_root_is_tenant_and_project() -> None:
    """Full keys begin with tenant and project in the semantic family, and with nothing elsewhere."""
    assert rules.semantic_root("semantic/acme/web") == ROOT
    assert rules.semantic_root("kv/acme") is None


@pytest.mark.parametrize("key", ["k", " ", "\x01", "\n", "%_*", "é", "🎉" * 255, "x" * 255, "\U0010ffff"])
def test_key_accepts_1_to_255_characters(key: str) -> None:
    """A key is any text of 1 to 255 characters without U+0000, and is not changed."""
    assert rules.key(key) == key
    assert rules.prefix(key) == key


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x" * 256, "256 characters; at most 255"),
        ("a\x00", "U+0000"),
        ("\ud800", "surrogate"),
        ("é\udfff", "surrogate"),
        *((wrong, "must be text") for wrong in NO_TEXT),
    ],
)
def test_key_and_prefix_reject_illegal_text(text: Any, words: str) -> None:
    """Text that no key may hold is refused in a key and in a prefix, each under its own name."""
    with refusal(ValidationError, field="key", says=words):
        rules.key(text)
    with refusal(ValidationError, field="prefix", says=words):
        rules.prefix(text)


def test_key_rejects_empty_text_and_prefix_accepts_it() -> None:
    """No key is empty; the empty prefix stands for all keys."""
    with refusal(ValidationError, field="key", says="empty"):
        rules.key("")
    assert rules.prefix("") == ""


@pytest.mark.parametrize("key", ["a", "a/b", "0.a_b-c/1", "x" * (128 - len(ROOT))])
def test_semantic_key_completes_relative_keys(key: str) -> None:
    """A relative key is completed; a full one stays."""
    assert rules.semantic_key(key, ROOT) == ROOT + key
    if len(key) < 10:
        assert rules.semantic_key(ROOT + key, ROOT) == ROOT + key


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("", "component 1"),
        ("a//b", "component 2"),
        ("a/B", "component 2"),
        ("a/b/.c", "component 3"),
        (ROOT, "component 1"),
        ("x" * (129 - len(ROOT)), "at most 128"),
        ("x" * 1000, "at most 128"),
        ("tenant/other/project/web/k", "full keys begin with"),
        ("tenant/acme/project/web", "full keys begin with"),
        ("a\x00", "U+0000"),
        (5, "must be text"),
    ],
)
def test_semantic_key_rejects_wrong_components_and_roots(key: Any, words: str) -> None:
    """The error names a wrong component or a foreign root, and the limit is that of the full key."""
    with refusal(ValidationError, field="key", says=words):
        rules.semantic_key(key, ROOT)


def test_semantic_prefix_accepts_relative_full_and_partial_roots() -> None:
    """A prefix may be relative, full, or a beginning of the root itself."""
    for prefix in ("", ROOT, "tenant/", "tenant/ac", ROOT[:-1]):
        assert rules.semantic_prefix(prefix, ROOT) == ROOT
    assert rules.semantic_prefix("a/", ROOT) == ROOT + "a/"
    assert rules.semantic_prefix("tenant", ROOT) == ROOT + "tenant"
    assert rules.semantic_prefix(ROOT + "a", ROOT) == ROOT + "a"
    for foreign in ("tenant/other/", "tenant/acme/project/webb"):
        with refusal(ValidationError, field="prefix"):
            rules.semantic_prefix(foreign, ROOT)


@pytest.mark.parametrize("ttl", [1, 60, 2_147_483_647])
def test_ttl_accepts_1_to_2147483647_seconds(ttl: int) -> None:
    """A ttl is whole seconds from 1 to 2,147,483,647."""
    assert rules.ttl(ttl) == rules.required_ttl(ttl) == ttl


@pytest.mark.parametrize("ttl", [0, -1, 2**31, 10**30, *NO_WHOLE[1:]])
def test_ttl_rejects_zero_negative_and_text(ttl: Any) -> None:
    """Anything but a whole number of seconds from 1 is refused."""
    with refusal(ValidationError, field="ttl", says="1 to 2147483647"):
        rules.ttl(ttl)
    with refusal(ValidationError, field="ttl_seconds"):
        rules.required_ttl(ttl, field="ttl_seconds")


def test_ttl_none_means_no_expiry() -> None:
    """None means that an entry does not expire, where the rule allows it."""
    assert rules.ttl(None) is None
    with refusal(ValidationError, field="ttl"):
        rules.required_ttl(None)


def test_limit_accepts_1_to_10000_and_defaults_to_1000() -> None:
    """A limit is 1 to 10,000, and 1,000 if none is given."""
    assert [rules.limit(number) for number in (1, 10_000, None)] == [1, 10_000, 1_000]


@pytest.mark.parametrize("number", [0, -1, 10_001, *NO_WHOLE[1:]])
def test_limit_rejects_everything_else(number: Any) -> None:
    """Anything but a whole number in that range is refused."""
    with refusal(ValidationError, field="limit", says="1 to 10000"):
        rules.limit(number)


def test_version_accepts_whole_numbers_of_63_bits() -> None:
    """A version is a whole number from 0 of at most 63 bits."""
    assert [rules.version(number) for number in (0, 1, 2**63 - 1)] == [0, 1, 2**63 - 1]
    assert rules.version(0, field="since") == 0


@pytest.mark.parametrize("number", [-1, 2**63, *NO_WHOLE])
def test_version_rejects_everything_else(number: Any) -> None:
    """Anything but a whole number from 0 of at most 63 bits is refused."""
    with refusal(ValidationError, field="expected_version", says="from 0"):
        rules.version(number)


def test_anchor_accepts_text() -> None:
    """The signature of a record is text, and empty in a store that has no record before."""
    assert [rules.anchor(text) for text in ("", "feed")] == ["", "feed"]
    for wrong in (None, 5, "a\ud800", "x" * 201):
        with refusal(ValidationError, field="anchor"):
            rules.anchor(wrong)


@pytest.mark.parametrize(
    ("name", "field"),
    [("nothing", "policy.nothing"), ("a\ud800", "policy.a\\ud800"), ("x" * 90, "policy." + "x" * 40)],
)
def test_policy_names_an_unknown_field_briefly(name: str, field: str) -> None:
    """Whatever name a caller sent, the error that names it can be sent back and is short."""
    with refusal(ValidationError, field=field, says="a policy has no field"):
        rules.policy({name: 1})


def test_loaded_version_leaves_room_for_later_writes() -> None:
    """A version from another store leaves as many again for later writes."""
    assert [rules.loaded_version(number) for number in (0, 1, 2**62)] == [0, 1, 2**62]


@pytest.mark.parametrize("number", [-1, 2**62 + 1, 2**63 - 1, 2**63, *NO_WHOLE])
def test_loaded_version_rejects_everything_else(number: Any) -> None:
    """Anything else is refused."""
    with refusal(ValidationError, field="version", says=f"from 0 to {2**62}"):
        rules.loaded_version(number)


@pytest.mark.parametrize("by", [0, 1, -1, 0.5, -0.0])
def test_increment_accepts_every_json_number(by: Any) -> None:
    """Any number that JSON can hold can be added."""
    assert rules.increment(by) == by
    assert type(rules.increment(by)) is type(by)


@pytest.mark.parametrize("by", [True, "1", None, [1], float("nan"), float("inf")])
def test_increment_rejects_everything_else(by: Any) -> None:
    """Anything else is refused."""
    with refusal(ValidationError, field="by"):
        rules.increment(by)


@pytest.mark.parametrize("text", ["a", "agent:directive", "é ü", "🎉" * 200])
def test_identity_accepts_1_to_200_characters(text: str) -> None:
    """Writers, requests and locks have names of 1 to 200 characters."""
    assert rules.identity(text, field="request_id") == text
    assert rules.lock_name(text, field="guard") == text


@pytest.mark.parametrize("text", ["", "x" * 201, "a\tb", "\x00", "\x7f", "\x85", "\x9f", "\ud800", *NO_TEXT])
def test_identity_rejects_control_characters_and_other_types(text: Any) -> None:
    """Control characters, and values that are no text, are refused."""
    with refusal(ValidationError, field="request_id"):
        rules.identity(text, field="request_id")


def test_spec_ref_accepts_at_most_500_characters() -> None:
    """A spec_ref is at most 500 characters, and may be absent or empty."""
    assert [rules.spec_ref(text) for text in (None, "", "🎉" * 500)] == [None, "", "🎉" * 500]
    for wrong in ("x" * 501, "\x00", "\ud800", 5):
        with refusal(ValidationError, field="spec_ref"):
            rules.spec_ref(wrong)


def test_fence_takes_a_lock_and_a_token() -> None:
    """A fence names a lock and a token, and nothing more."""
    assert rules.fence(None) is None
    made = rules.fence({"lock": "a", "token": 3})
    assert made == Fence(lock="a", token=3)
    assert rules.fence(made) is made
    wrongs: tuple[Any, ...] = (5, "a", {}, {"lock": "a"}, {"token": 1}, {"lock": "a", "token": 1, "x": 1})
    for wrong in wrongs:
        with refusal(ValidationError, field="fence", about=wrong):
            rules.fence(wrong)
    with refusal(ValidationError, field="fence.lock"):
        rules.fence({"lock": "", "token": 1})
    with refusal(ValidationError, field="fence.token"):
        rules.fence({"lock": "a", "token": -1})


def test_semantics_are_checked_field_by_field() -> None:
    """Semantics are checked field by field, and unknown fields are dropped."""
    full = {"purpose": "flag", "producer": "p", "consumer_hints": ["a", "b"], "ttl_seconds": 5}
    meant = Semantics(purpose="flag", producer="p", consumer_hints=("a", "b"), ttl_seconds=5)
    assert rules.semantics(full) == rules.semantics({**full, "unknown": 1}) == rules.semantics(meant) == meant
    nothings: tuple[Any, ...] = (None, {}, Semantics(), {"purpose": None}, {"consumer_hints": []})
    for nothing in nothings:
        assert rules.semantics(nothing) is None


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ("flag", "semantics"),
        ([], "semantics"),
        ({"purpose": "Flag"}, "semantics.purpose"),
        ({"purpose": "a" * 33}, "semantics.purpose"),
        ({"purpose": 5}, "semantics.purpose"),
        ({"producer": ""}, "semantics.producer"),
        ({"ttl_seconds": 0}, "semantics.ttl_seconds"),
        ({"consumer_hints": "a"}, "semantics.consumer_hints"),
        ({"consumer_hints": ["a"] * 17}, "semantics.consumer_hints"),
        ({"consumer_hints": ["a" * 101]}, "semantics.consumer_hints"),
        ({"consumer_hints": [None]}, "semantics.consumer_hints"),
    ],
)
def test_semantics_refusal_names_the_field(given: Any, field: str) -> None:
    """The refusal names the field in full."""
    with refusal(ValidationError, field=field):
        rules.semantics(given)


def test_policy_accepts_whole_numbers_or_none() -> None:
    """A policy limits by whole numbers from 0, or not at all."""
    assert rules.policy({}) == rules.policy(Policy()) == Policy()
    assert rules.policy({"quota_keys": 0, "quota_bytes": None}) == Policy(quota_keys=0)
    with refusal(ValidationError, field="policy.unknown"):
        rules.policy({"unknown": 1})
    for wrong in (-1, True, 1.0, "1"):
        with refusal(ValidationError, field="quota_bytes"):
            rules.policy({"quota_bytes": wrong})


def test_messages_show_long_names_briefly() -> None:
    """However long or strange a name is, the message about it stays short and in plain characters."""
    strange: tuple[Any, ...] = ("x" * 10_000, "\ud800", 10**5000, {"a": "b" * 10_000}, b"x" * 9999)
    for name in strange:
        with refusal(InvalidPluginName, field="plugin_name") as caught:
            rules.plugin_name(name)
        assert len(caught.value.message) < 200
        assert caught.value.message.isascii()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("1970-01-01T00:00:01Z", 1_000),
        ("1970-01-01T00:00:01.0019", 1_001),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-02", 86_400_000),
        (datetime(1970, 1, 1, 0, 0, 2), 2_000),  # noqa: DTZ001 - a naive time is UTC
        (datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC), 2_000),
    ],
)
def test_time_accepts_datetimes_and_iso_text(given: object, expected: int) -> None:
    """A time is a datetime or ISO 8601 text, is UTC without a zone, and is stored in milliseconds."""
    assert rules.time(given, field="until") == expected


@pytest.mark.parametrize(
    "given", ["", "soon", "25:00", 5, None, "0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00"]
)
def test_time_rejects_other_types_and_years_out_of_range(given: object) -> None:
    """Anything else is refused with its field, also a time that its zone moves out of the supported years."""
    with refusal(ValidationError, field="until", says="2031-05-01T12:30:00Z"):
        rules.time(given, field="until")


@pytest.mark.parametrize("given", ["", "Lock", "1st", "a" * 33, None, 5])
def test_purpose_rejects_anything_but_a_short_lowercase_word(given: object) -> None:
    """A purpose is one short word in lower case."""
    with refusal(ValidationError, field="purpose", says="1 to 32"):
        rules.purpose(given, field="purpose")
    assert rules.purpose("feature_flag", field="purpose") == "feature_flag"
