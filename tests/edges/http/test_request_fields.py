"""Requests over HTTP as fields: headers, preconditions and queries, without a server."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.edges.calls import FAMILIES
from holdfast.edges.http.requests import (
    HEADERS,
    MOST_PARAMETERS,
    HttpDialect,
    expected_version,
    header_fields,
    query_fields,
    tagged,
)
from holdfast.errors import ValidationError


def test_headers_are_fields() -> None:
    """Numbers are numbers, a number that is none stays text for the rules to refuse, others are passed by."""
    found = header_fields(
        [
            (b"holdfast-ttl", b"60"),
            (b"holdfast-deadline-ms", b"soon"),
            (b"holdfast-writer", "zoë".encode()),
            (b"user-agent", b"curl"),
        ]
    )
    assert found == {"ttl": 60, "deadline_ms": "soon", "last_writer": "zoë"}
    assert header_fields([(b"holdfast-ttl", b"keep")]) == {"keep_ttl": True}
    assert header_fields([(b"holdfast-ttl", b"9" * 21)]) == {"ttl": "9" * 21}
    assert header_fields([(b"holdfast-ttl", "\u0663".encode())]) == {"ttl": "\u0663"}


@pytest.mark.parametrize("header", HEADERS)
def test_a_header_that_occurs_twice_is_refused(header: bytes) -> None:
    """Of two that differ nobody can tell which one was meant, and a proxy may have picked the other."""
    with pytest.raises(ValidationError, match=f"{header.decode()} occurs twice"):
        header_fields([(header, b"1"), (b"x", b"y"), (header, b"1")])
    with pytest.raises(ValidationError, match="is not UTF-8"):
        header_fields([(header, b"\xff")])


@pytest.mark.parametrize(
    ("given", "version"),
    [
        ({}, None),
        ({"if_none_match": "*"}, 0),
        ({"if_match": '"7"'}, 7),
        ({"if_match": '"0"'}, 0),
        ({"if_match": f'"{10**18}"'}, 10**18),
    ],
)
def test_preconditions_are_versions(given: dict[str, Any], version: int | None) -> None:
    """`If-Match` names the version to replace, `If-None-Match: *` wants none; both leave the fields."""
    fields = {**given, "ttl": 1}
    assert expected_version(fields) == version
    assert fields == {"ttl": 1}
    assert version is None or given.get("if_match", tagged(version)) == tagged(version)


@pytest.mark.parametrize(
    "given",
    [
        {"if_match": "7"},
        {"if_match": '"07"'},
        {"if_match": 'W/"7"'},
        {"if_match": '"7", "8"'},
        {"if_match": "*"},
        {"if_match": '"7"\n'},
        {"if_none_match": '"7"'},
        {"if_none_match": "*", "if_match": '"7"'},
    ],
)
def test_a_precondition_that_is_not_one_version_is_refused(given: dict[str, str]) -> None:
    """A write is never done with a precondition that was not understood."""
    with pytest.raises(ValidationError) as refused:
        expected_version(dict(given))
    assert refused.value.field in given


def test_a_field_in_two_places_must_be_the_same() -> None:
    """The body and what stands outside of it may repeat each other, and not contradict."""
    dialect = HttpDialect(name="http", outside={"key": "k", "ttl": 5})
    assert dialect.fields(b'{"ttl": 5, "value": 1}') == {"key": "k", "ttl": 5, "value": 1}
    with pytest.raises(ValidationError, match="ttl in the body and outside of it differ"):
        dialect.fields(b'{"ttl": 6, "value": 1}')
    with pytest.raises(ValidationError, match="key in the body"):
        dialect.fields(b'{"key": "other"}')


def test_parameters_have_the_kinds_of_their_fields() -> None:
    """A whole number is one, a flag may stand alone, and what does not fit stays text."""
    verb = FAMILIES["kv"]["list"]
    found = query_fields(verb, b"limit=5&prefix=5&cursor=%C3%A9&unknown=5")
    assert found == {"limit": 5, "prefix": "5", "cursor": "é", "unknown": "5"}
    assert query_fields(verb, b"") == {}
    assert query_fields(verb, b"limit=-1&prefix=") == {"limit": "-1", "prefix": ""}
    for query in (b"prefix=%ff", b"\xff", b"&".join([b"a=1"] * (MOST_PARAMETERS + 1))):
        with pytest.raises(ValidationError, match="the query must be UTF-8"):
            query_fields(verb, query)
