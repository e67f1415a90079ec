"""Who is asking over HTTP: sessions of browsers, without a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast.edges.http.guard import TokenGuard, cookie_name, cookie_of
from holdfast.edges.http.responses import NoToken
from holdfast.errors import PermissionDenied

if TYPE_CHECKING:
    from starlette.types import Scope

VALID, REVOKED = (f"hf_{number:016x}_{'s' * 43}" for number in (1, 2))
"""A token that the store knows, and one that it does not know any more."""
OPERATOR: Any = object()
"""Stands for an operator of this machine, who has no token."""


class Book:
    """The sessions of browsers: one of an operator, one of a token."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    def find(self, cookie: str) -> Any:
        """Return what a session stands for."""
        return {"operator": OPERATOR, "token": VALID, "revoked": REVOKED}.get(cookie)

    def end(self, cookie: str) -> None:
        """End a session."""
        self.ended.append(cookie)


class Tokens:
    """The tokens of a store: one that is valid."""

    async def find_all(self, texts: list[str]) -> dict[str, Any]:
        """Return those of some tokens that are valid."""
        return {text: text for text in texts if text == VALID}


@pytest.fixture
def guard() -> TokenGuard:
    """A guard that knows sessions."""
    tokens: Any = Tokens()
    guard = TokenGuard(tokens, open_mode=False)
    guard.sessions = Book()
    return guard


def request(cookie: str, *, client: str = "127.0.0.1", method: str = "GET", **headers: str) -> Scope:
    """A request with the cookie of a session."""
    named = [(name.replace("_", "-").encode(), said.encode()) for name, said in headers.items()]
    return {
        "type": "http",
        "method": method,
        "scheme": "http",
        "server": ("127.0.0.1", 8080),
        "client": (client, 50_000),
        "headers": [(b"cookie", f"a=b; holdfast-8080={cookie}".encode()), *named],
    }


async def test_the_session_of_an_operator_without_a_token_is_for_this_machine(guard: TokenGuard) -> None:
    """From another machine, or passed on by a proxy, its cookie opens nothing."""
    assert await guard.token_of(request("operator")) is OPERATOR
    for scope in (
        request("operator", client="10.0.0.9"),
        request("operator", x_forwarded_for="127.0.0.1"),
        request("operator", via="1.1 proxy"),
    ):
        with pytest.raises(NoToken):
            await guard.token_of(scope)


async def test_the_session_of_a_token_is_the_token(guard: TokenGuard) -> None:
    """It holds from anywhere, as the token does, and ends with the token."""
    found: Any = await guard.token_of(request("token", client="10.0.0.9"))
    assert found == VALID
    with pytest.raises(NoToken, match="the session has ended"):
        await guard.token_of(request("revoked"))
    assert isinstance(guard.sessions, Book)
    assert guard.sessions.ended == ["revoked"]
    for cookie in ("", "unknown"):
        with pytest.raises(NoToken, match="this needs a token"):
            await guard.token_of(request(cookie))


async def test_only_a_page_of_this_service_changes_anything_with_a_session(guard: TokenGuard) -> None:
    """A browser sends the cookie for every page's requests, so those of other pages are refused."""
    for headers in ({"sec_fetch_site": "same-origin"}, {"origin": "http://127.0.0.1:8080"}):
        assert await guard.token_of(request("operator", method="POST", **headers)) is OPERATOR
    for headers in ({"sec_fetch_site": "same-site"}, {"sec_fetch_site": "none", "origin": "null"}, {}):
        with pytest.raises(PermissionDenied, match="only a page of this service"):
            await guard.token_of(request("operator", method="POST", **headers))
        assert await guard.token_of(request("operator", **headers)) is OPERATOR


def test_a_cookie_is_found_by_its_whole_name() -> None:
    """Services on several ports of a host share cookies, so each has a name of its own."""
    assert cookie_name(request("x")) == "holdfast-8080"
    assert cookie_of(b"xholdfast-8080=1; holdfast-80=2;holdfast-8080=3", "holdfast-8080") == "3"
    assert cookie_of(b"holdfast-8080", "holdfast-80") is None
