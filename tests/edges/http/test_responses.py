"""Responses of the HTTP door: statuses, headers and bodies, without a server."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime

import msgspec
import pytest

from holdfast.edges.http import responses
from holdfast.edges.http.requests import WrongMethod
from holdfast.edges.http.responses import ALWAYS, NoToken, Response, Unsatisfiable, problem, spelled
from holdfast.errors import Busy, HoldfastError, KeyNotFound, RateLimited, VersionConflict
from holdfast.wire.errors import NUMBERS


@pytest.mark.parametrize("month", range(1, 13))
def test_a_date_is_the_one_of_the_entry(month: int) -> None:
    """`Last-Modified` is the time of the last change in the form of HTTP, whatever the locale."""
    at = datetime(2026, month, 3, 4, 5, 6, 789_000, tzinfo=UTC)
    headers = dict(responses.about({"version": 7, "updated_at": at, "expires_at": None}))
    assert headers == {
        b"etag": b'"7"',
        b"last-modified": format_datetime(at.replace(microsecond=0), usegmt=True).encode(),
    }
    headers = dict(responses.about({"version": 7, "updated_at": at, "expires_at": at}))
    assert datetime.fromisoformat(headers[b"holdfast-expires-at"].decode()) == at


def shown(
    error: HoldfastError, *, conditional: bool = False
) -> tuple[int, dict[bytes, bytes], dict[str, object]]:
    """The status, the headers and the fields of a problem document."""
    status, headers, body = problem(error, conditional=conditional)
    assert dict(headers)[b"content-type"] == b"application/problem+json"
    return status, dict(headers), msgspec.json.decode(body)


def test_every_error_is_a_problem_document() -> None:
    """It has the status of its code, and says the code, the message and the field."""
    status, _, fields = shown(KeyNotFound("there is no such key", field="key"))
    assert (status, fields["status"], fields["code"]) == (NUMBERS["KEY_NOT_FOUND"],) * 2 + ("KEY_NOT_FOUND",)
    assert (fields["title"], fields["detail"]) == ("Key not found", "there is no such key")
    assert (fields["type"], fields["field"]) == ("urn:holdfast:error:key_not_found", "key")


@pytest.mark.parametrize(
    ("after", "told"), [(0.001, b"1"), (0.0, b"1"), (1.0, b"1"), (1.2, b"2"), (30, b"30")]
)
def test_a_client_is_never_told_to_come_back_too_early(after: float, told: bytes) -> None:
    """`Retry-After` has whole seconds, so it is rounded up; 0 would make clients ask again at once."""
    for error in (Busy("full", retry_after=after), RateLimited("slower", retry_after=after)):
        assert shown(error)[1][b"retry-after"] == told
    assert b"retry-after" not in shown(KeyNotFound("no"))[1]


def test_only_a_precondition_that_failed_is_412() -> None:
    """A conflict that the caller did not ask to be checked, or that has another reason, is 409."""
    conflict, other = VersionConflict("taken"), VersionConflict("taken", reason="REQUEST_ID_REUSED")
    assert shown(conflict, conditional=True)[0] == 412
    assert shown(conflict)[0] == shown(other)[0] == shown(other, conditional=True)[0] == 409


def test_refusals_that_http_has_a_word_for() -> None:
    """They say what the client may do instead."""
    method, gap = WrongMethod("no"), Unsatisfiable("the blob has 7 bytes", field="range")
    method.allowed, gap.size = "GET, PUT", 7
    status, headers, _ = shown(method)
    assert (status, headers[b"allow"]) == (405, b"GET, PUT")
    status, headers, _ = shown(gap)
    assert (status, headers[b"content-range"]) == (416, b"bytes */7")
    status, headers, _ = shown(NoToken("who are you"))
    assert (status, headers[b"www-authenticate"]) == (401, b'Bearer realm="holdfast"')


def test_a_page_links_to_the_next_one_with_the_same_question() -> None:
    """The link keeps what was asked for; the last page has none."""
    asked = {"prefix": "a b&c", "values": True, "cursor": "old"}
    response = responses.page({"keys": [], "cursor": "n/x"}, b"/v1/kv/p", asked)
    link = dict(response.headers)[b"link"]
    assert link == b'</v1/kv/p?prefix=a+b%26c&values=true&cursor=n%2Fx>; rel="next"'
    assert b"link" not in dict(responses.page({"keys": [], "cursor": None}, b"/v1/kv/p", asked).headers)


def test_a_warning_can_add_no_header() -> None:
    """A warning may hold names that a caller made up, and stays one line of ASCII."""
    assert responses.warned("a\r\nb: ü") == (b"holdfast-warning", b"a  b: \\xfc")


def test_a_response_is_spelled_as_http_wants_it() -> None:
    """Every response has a length but 304, and the headers that keep values from caches and browsers."""
    text = spelled(Response(200, [(b"a", b"1")], b"body"), [(b"b", b"2")])
    always = b"".join(b"%b: %b\r\n" % header for header in ALWAYS)
    assert text == b"HTTP/1.1 200 OK\r\n" + always + b"a: 1\r\nb: 2\r\ncontent-length: 4\r\n\r\nbody"
    assert spelled(responses.unchanged({"version": 7})).endswith(b'etag: "7"\r\n\r\n')
