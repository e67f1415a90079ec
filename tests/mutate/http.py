"""Bugs of the HTTP door: who is let in, watches, preconditions, bodies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.edges.http import api, app, blobs, guard, requests, responses
from holdfast.edges.http.api import Api
from holdfast.edges.http.guard import TokenGuard, UnknownTokens
from holdfast.operators import tokens
from holdfast.operators.tokens import Token
from tests.mutate.planting import bug

if TYPE_CHECKING:
    from tests.mutate.planting import Patches


# Who is let in


@bug("tests/edges/http/test_tokens.py")
def the_id_of_a_token_is_enough(patch: Patches) -> None:
    """A token lets in whoever knows its secret."""
    patch.set(tokens, "_is_of", lambda secret, entry: True)


@bug("tests/edges/http/test_tokens.py")
def a_token_opens_the_tables_of_others(patch: Patches) -> None:
    """A token of a plugin is for that plugin alone, in every family."""
    patch.wrap(
        Token,
        "allows",
        lambda allows, token, family, owner, verb: family == "table" or allows(token, family, owner, verb),
    )


@bug("tests/edges/http/test_tokens.py")
def a_token_grants_what_it_lacks(patch: Patches) -> None:
    """A token can't make another one that allows more."""
    patch.set(Token, "require_grant", lambda token, other: None)


@bug("tests/edges/http/test_tokens.py")
def a_revoked_token_is_known_for_ever(patch: Patches) -> None:
    """A revoked token is refused within a second."""
    patch.set(guard, "FRESH", float("inf"))


@bug("tests/edges/http/test_tokens.py")
def an_address_that_tries_many_tokens_keeps_others_waiting(patch: Patches) -> None:
    """Unknown tokens of one address keep nobody else out."""
    patch.wrap(UnknownTokens, "find", lambda find, unknown, text, source: find(unknown, text, ""))


@bug("tests/edges/http/test_tokens.py")
def open_mode_lets_other_machines_in(patch: Patches) -> None:
    """Without a token only a process of this machine is let in."""
    patch.set(guard, "_near", lambda client: True)


@bug("tests/edges/http/test_tokens.py")
def a_proxy_that_adds_no_header_lets_everybody_in(patch: Patches) -> None:
    """Without a token the caller must use a name of this machine."""
    patch.set(guard, "_named_here", lambda host, server: True)


@bug("tests/edges/http/test_guard.py")
def the_session_of_an_operator_opens_a_service_to_other_machines(patch: Patches) -> None:
    """The session of an operator without a token holds for this machine alone."""
    patch.wrap(
        TokenGuard,
        "_of_session",
        lambda of_session, guard, scope, cookies, *, far: of_session(guard, scope, cookies, far=False),
    )


@bug("tests/edges/http/test_door.py")
def a_page_of_another_site_can_write(patch: Patches) -> None:
    """Only pages of this service use it from a browser."""
    patch.set(app, "_own", lambda scope, name, said: True)


# Watches


@bug("tests/edges/http/test_watch.py")
def a_watch_outlives_its_token(patch: Patches) -> None:
    """A stream ends with what let its client in."""
    patch.set(TokenGuard, "_holds", lambda guard, held, valid: True)


@bug("tests/edges/http/test_watch.py")
def where_a_watch_began_counts_more_than_what_was_seen(patch: Patches) -> None:
    """A browser that comes back goes on after the last event that it saw."""
    patch.wrap(
        api, "start_of", lambda start_of, query, headers: query.get("since") or start_of(query, headers)
    )


# Requests and responses


@bug("tests/edges/http/test_keys.py")
def a_key_that_must_not_exist_is_overwritten(patch: Patches) -> None:
    """`If-None-Match: *` writes only where nothing is."""
    patch.wrap(api, "expected_version", lambda expected_version, fields: expected_version(fields) or None)


@bug("tests/edges/http/test_request_fields.py")
def a_header_that_occurs_twice_is_accepted(patch: Patches) -> None:
    """A header that gives a field occurs once."""
    patch.wrap(requests, "header_fields", lambda header_fields, headers: header_fields(dict(headers).items()))


@bug("tests/edges/http/test_blobs.py")
def any_version_of_a_blob_is_none(patch: Patches) -> None:
    """`If-Match: *` accepts every version."""

    def wrong(precondition: Any, transfer: Any, fields: dict[str, Any]) -> Any:
        if transfer.fields.get("if_match") == "*":
            transfer.fields["if_match"] = '"none"'
        return precondition(transfer, fields)

    patch.wrap(blobs, "_precondition", wrong)


@bug("tests/edges/http/test_responses.py")
def the_month_of_a_date_is_off_by_one(patch: Patches) -> None:
    """Dates are in the form of HTTP."""
    months = responses._MONTHS
    patch.set(responses, "_MONTHS", (*months[1:], months[0]))


@bug("tests/edges/http/test_limits.py")
def a_body_of_exactly_the_limit_is_refused(patch: Patches) -> None:
    """A body may be as large as the limit says."""
    patch.wrap(api, "_length", lambda length, scope: length(scope) + 1)


@bug("tests/edges/http/test_limits.py")
def a_body_without_an_end_is_read_to_its_end(patch: Patches) -> None:
    """A body that is too large is refused before all of it was received."""

    async def wrong(body: Any, of: Api, scope: Any, receive: Any) -> Any:
        parts, message = [], await receive()
        while message["type"] == "http.request" and message.get("more_body"):
            parts.append(message.get("body", b""))
            message = await receive()
        parts.append(message.get("body", b""))

        async def received() -> Any:
            return {"type": message["type"], "body": b"".join(parts)}

        return await body(of, scope, received)

    patch.wrap(Api, "_body", wrong)
