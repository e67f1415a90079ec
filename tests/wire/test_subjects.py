"""A subject says who speaks, in which dialect, and what is asked; anything else is refused."""

from __future__ import annotations

import itertools

import pytest

from holdfast.errors import HoldfastError, InvalidPluginName, InvalidSubject, MissingField, ValidationError
from holdfast.testing.exact import refusal
from holdfast.wire.dialects import ADMIN, PAYLOAD, PLUGIN, SEMANTIC
from holdfast.wire.subjects import (
    GRANTED,
    HEARD,
    OPERATOR,
    UNKNOWN,
    Route,
    dialect_of,
    event_pattern,
    event_subject,
    identified,
    presumed,
    route,
)

STRANGE_NAMES = [
    "Trivia",
    "tri via",
    "tri/via",
    "..",
    "../other",
    "*",
    ">",
    "%",
    "é",
    "a\x00b",
    "a\x0bb",
    "a\nb",
    "trivia\n",
    "\u202etrivia",
    "'; DROP TABLE plugin_kv_storage; --",
    "a" * 101,
    "",
    "_INBOX$",
    "OPERATOR",
]
"""No plugin is called like this."""


@pytest.mark.parametrize("prefix", ["db", "rosey.db", "a.b.c"])
def test_every_shape_under_every_prefix(prefix: str) -> None:
    """Each family's subject leads to its dialect, namespace, owner and verb, whatever the prefix."""
    assert route(f"{prefix}.kv.trivia.set", prefix) == Route(PLUGIN, "set", "kv/trivia", "trivia")
    table = Route(PLUGIN, "query", "table/trivia", "trivia", family="table")
    assert route(f"{prefix}.table.trivia.query", prefix) == table
    assert route(f"{prefix}.kv.set", prefix) == Route(PAYLOAD, "set", "", "", family="payload")
    for subject, verb in (("admin.sweep", "sweep"), ("ready", "ready")):
        assert route(f"{prefix}.{subject}", prefix) == Route(ADMIN, verb, "", OPERATOR, family="admin")
    semantic = Route(SEMANTIC, "get", "semantic/acme/web", "acme/web", "tenant/acme/project/web/", "semantic")
    assert route(f"{prefix}.semantic.acme.web.get", prefix) == semantic


def test_put_is_what_the_semantic_dialect_calls_set() -> None:
    """`put` of the semantic dialect is set; in other dialects it is a verb that does not exist."""
    assert route("db.semantic.acme.web.put", "db").verb == "set"
    assert route("db.kv.trivia.put", "db").verb == "put"


def test_more_tokens_make_a_verb_that_nobody_has() -> None:
    """What follows the verb is part of it, so that a longer subject is never taken for a shorter one."""
    assert route("db.kv.trivia.set.extra", "db").verb == "set.extra"
    assert route("db.semantic.acme.web.put.extra", "db").verb == "put.extra"
    assert route("db.admin.a.b", "db") == Route(ADMIN, "a.b", "", OPERATOR, family="admin")


@pytest.mark.parametrize(
    "subject",
    [
        "db",
        "db.",
        "db.kv",
        "db.table",
        "db.semantic.acme.web",
        "db.semantic.acme",
        "db.semantic",
        "db.admin",
        "db.nonsense",
        "db.nonsense.x",
        "db.table.trivia",
        "db.ready.x",
        "db.event.kv.trivia.set",
        "db.KV.trivia.set",
        "db..kv.trivia.set",
        "",
        "$SRV.PING",
        "other.kv.trivia.set",
        "dbx.kv.trivia.set",
        "rosey.db.kv.trivia.set",
    ],
)
def test_other_shapes_are_invalid_subjects(subject: str) -> None:
    """A subject of the wrong shape, or not under the prefix at all, is INVALID_SUBJECT."""
    with refusal(InvalidSubject, says="known form", about=subject):
        route(subject, "db")


def test_a_subject_is_never_cut_where_the_prefix_is_not() -> None:
    """A message that reached the subscription of another prefix does not become another plugin's."""
    with refusal(InvalidSubject):
        route("db.kv.ab.kv.other.set", "rosey.db")


@pytest.mark.parametrize("name", STRANGE_NAMES)
def test_a_bad_plugin_name_is_refused_by_its_own_code(name: str) -> None:
    """Wildcards, paths, SQL and control characters are no plugin: INVALID_PLUGIN_NAME, or no such subject."""
    if "." not in name:
        with refusal(InvalidPluginName, field="plugin_name", about=name):
            route(f"db.kv.{name}.get", "db")
    with refusal(InvalidPluginName, field="plugin_name", about=name):
        identified(route("db.kv.get", "db"), {"plugin_name": name})


def test_a_traversal_in_a_subject_stays_with_its_first_name() -> None:
    """Dots separate tokens: what looks like a way up is at most a verb that does not exist."""
    assert route("db.kv.trivia.../other/set", "db").namespace == "kv/trivia"
    with refusal(InvalidPluginName, field="plugin_name"):
        route("db.kv.../other.set", "db")


@pytest.mark.parametrize("given", [{"plugin_name": None}, {"plugin_name": 5}, {"plugin_name": ["trivia"]}])
def test_the_payload_dialect_needs_a_name(given: dict[str, object]) -> None:
    """In the payload dialect identity comes from `plugin_name`, and there is none without it."""
    with refusal(MissingField, field="plugin_name"):
        identified(route("db.kv.get", "db"), {})
    with refusal(InvalidPluginName, field="plugin_name", about=given):
        identified(route("db.kv.get", "db"), given)


def test_the_payload_dialect_speaks_for_the_plugin_it_names() -> None:
    """The plugin that the payload names is the namespace and the owner."""
    found = identified(route("db.kv.get", "db"), {"plugin_name": "quote-db"})
    assert found == Route(PAYLOAD, "get", "kv/quote-db", "quote-db", family="payload")


@pytest.mark.parametrize(
    "payload",
    [b"", b"{", b"\xff", b"[]", b"{}", b'{"plugin_name":5}', b'{"plugin_name":"A b"}', b"[" * 5_000]
    + [f'{{"plugin_name":"{name}"}}'.encode() for name in (OPERATOR, UNKNOWN)],
)
def test_a_payload_without_plugin_has_no_owner(payload: bytes) -> None:
    """Before a payload is looked at whole, who speaks in it is the plugin it names or nobody, never empty."""
    presumption = presumed(route("db.kv.get", "db"), payload)
    assert presumption == Route(PAYLOAD, "get", "", UNKNOWN, family="payload")


def test_a_legal_plugin_name_is_the_owner() -> None:
    """A legal name is known at the door already, to whoever logs and counts what is refused there."""
    found = presumed(route("db.kv.get", "db"), b'{"key":"k","plugin_name":"quote-db"}')
    assert found == identified(route("db.kv.get", "db"), {"plugin_name": "quote-db"})


@pytest.mark.parametrize(
    "name", ["Acme", "-acme", "_acme", "a b", "*", ">", "é", "a" * 64, "a\x0bb", "a/b", ""]
)
def test_tenants_and_projects_have_rules_of_their_own(name: str) -> None:
    """A bad tenant or project is a validation error that names which of them."""
    with refusal(ValidationError, field="tenant", about=name):
        route(f"db.semantic.{name}.web.get", "db")
    with refusal(ValidationError, field="project", about=name):
        route(f"db.semantic.acme.{name}.get", "db")


def test_a_refusal_speaks_the_dialect_of_its_family() -> None:
    """Whoever asks in the semantic family is refused in its dialect, even when the subject leads nowhere."""
    assert dialect_of("db.semantic.Acme.web.get", "db") is SEMANTIC
    assert dialect_of("db.semantic", "db") is dialect_of("db.semantic.acme", "db") is SEMANTIC
    assert dialect_of("db.kv.Trivia.get", "db") is dialect_of("db.semantics", "db") is PLUGIN
    assert dialect_of("rosey.db.semantic.Acme.web.get", "rosey.db") is SEMANTIC


def test_names_in_messages_are_short_and_printable() -> None:
    """What a caller sent is shown shortened and escaped."""
    with pytest.raises(HoldfastError) as caught:
        route(f"db.kv.{'X' * 5_000}\x1b.get", "db")
    assert len(caught.value.message) < 200
    assert caught.value.message.isprintable()


@pytest.mark.parametrize(
    ("namespace", "subject"),
    [
        ("kv/trivia", "db.event.kv.trivia.set"),
        ("table/trivia", "db.event.table.trivia.set"),
        ("semantic/acme/web", "db.event.semantic.acme.web.set"),
    ],
)
def test_events_are_told_under_the_namespace(namespace: str, subject: str) -> None:
    """An event's subject is the namespace's, and the pattern of a namespace covers it and no other."""
    assert event_subject("db", namespace, "set") == subject
    assert event_pattern("db", namespace) == subject.removesuffix("set") + "*"


def hears(pattern: str, subject: str) -> bool:
    """Whether a subscription hears a subject, as NATS matches them."""
    wanted, tokens = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        return len(tokens) >= len(wanted) and hears(
            ".".join(wanted[:-1]), ".".join(tokens[: len(wanted) - 1])
        )
    return len(wanted) == len(tokens) and all(
        one in ("*", token) for one, token in zip(wanted, tokens, strict=True)
    )


def test_a_service_hears_every_subject_of_its_families_once_and_no_event() -> None:
    """Right shapes and wrong ones are heard by one subscription each, so that order holds; events by none."""
    words = ("kv", "table", "blob", "semantic", "admin", "nonsense", "event", "ready", "service", "trivia")
    rest = ("kv", "event")  # no subscription names a token after the second
    shapes = [(words, words, rest, rest, rest, rest)[:length] for length in range(1, 7)]
    for subject in (".".join(tokens) for shape in shapes for tokens in itertools.product(*shape)):
        times = sum(hears(pattern, subject) for pattern in HEARD)
        assert times == _is_heard(subject.split(".")), subject
        assert sum(hears(pattern, subject) for pattern in GRANTED) <= times


def _is_heard(tokens: list[str]) -> bool:
    """Whether a subject below a prefix is ours and not an event's."""
    match tokens:
        case ["kv" | "table" | "blob" | "semantic" | "admin", _, *_] | ["ready"] | ["event", _]:
            return True
        case ["event", "kv" | "table" | "blob" | "semantic", _] | ["event", "semantic", _, _]:
            return True  # one token short of an event
        case _:
            return False
