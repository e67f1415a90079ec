"""The check of who is asking over HTTP.

Law: without a token only a process of this machine may ask, and only in open mode, where NATS does not tell
callers apart either. A request that a proxy passed on comes from elsewhere, whatever its connection says. A
revoked token is refused within a second.
"""

from __future__ import annotations

import asyncio
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from holdfast.bounded import Bounded
from holdfast.edges.http.responses import NoToken
from holdfast.edges.nats.callers import TOKEN_SIGN
from holdfast.edges.settings.addresses import is_loopback
from holdfast.errors import Busy, PermissionDenied

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Scope

    from holdfast.edges.http.routes import Found
    from holdfast.operators.tokens import Token, Tokens

Client = tuple[str, int] | None
"""The address of a client, if it has one."""

FRESH: Final = 1.0
"""Seconds for which a token is known without another look into the store."""
LOOKS: Final = 200
"""Maximum number of unknown tokens looked up in a second: guessing tokens must not load the store."""
KNOWN: Final = 4_096
"""Number of tokens, and of addresses of clients, that are remembered."""
_BEARER: Final = b"bearer "
PASSED_ON: Final = frozenset({b"forwarded", b"via", b"x-forwarded-for", b"x-real-ip"})
"""Headers that a proxy adds."""


class TokenGuard:
    """The check of who is asking.

    Args:
        tokens: The tokens of the store.
        open_mode: Whether processes of this machine need no token.
        ticks: Returns a monotonic time in seconds.
    """

    def __init__(
        self, tokens: Tokens, *, open_mode: bool, ticks: Callable[[], float] = time.monotonic
    ) -> None:
        self._tokens = tokens
        self._open = open_mode
        self._ticks = ticks
        self._known: Bounded[str, tuple[float, Token]] = Bounded(KNOWN)
        self._looking: dict[str, asyncio.Future[Token | None]] = {}
        self._second = 0
        self._looks = 0

    async def admit(self, scope: Scope, asked: Found) -> str:
        """Return the suffix of the caller's principal.

        Raises:
            NoToken: The caller needs a token, or its token is not valid.
            PermissionDenied: The token is not for this.
            Busy: Too many unknown tokens are being tried.
        """
        token = await self.token_of(scope)
        return "" if token is None else _allowed(token, asked)

    def admit_at_once(self, client: Client, said: bytes | None, asked: Found) -> str | None:
        """Return the suffix of the principal of a caller whom no proxy passed on, as `admit` would.

        Returns None if that is not known without a look into the store, or if the caller is refused.
        """
        if said is None:
            return "" if self._open and _near(client) else None
        if said[: len(_BEARER)].lower() != _BEARER:
            return None
        token = self._remembered(_text(said), self._ticks())
        return None if token is None else _allowed(token, asked)

    async def token_of(self, scope: Scope) -> Token | None:
        """Return the caller's token; None for a process of this machine that needs none.

        Raises:
            NoToken: The caller needs a token, or its token is not valid.
            Busy: Too many unknown tokens are being tried.
        """
        said, passed_on = _credentials(scope)
        if said is None:
            if self._open and not passed_on and _near(scope["client"]):
                return None
            raise NoToken("this needs a token: send it as Authorization: Bearer <token>")
        if said[: len(_BEARER)].lower() != _BEARER:
            raise NoToken("send the token as Authorization: Bearer <token>")
        return await self._token(_text(said))

    async def _token(self, text: str) -> Token:
        """Return a valid token, as the store had it at most a second ago."""
        now = self._ticks()
        token = self._remembered(text, now)
        if token is not None:
            return token
        if text not in self._known:
            self._require_room(int(now))
        looking = self._looking.get(text)
        if looking is None:
            looking = self._looking[text] = asyncio.ensure_future(self._tokens.find(text))
            looking.add_done_callback(lambda _: self._looking.pop(text, None))
        # Requests that wait for the same look go on in their order.
        token = await asyncio.shield(looking)
        if token is None:
            self._known.pop(text, None)
            raise NoToken("the token is not valid: it may have expired or been revoked")
        self._known.keep(text, (now, token))
        return token

    def _remembered(self, text: str, now: float) -> Token | None:
        since, token = self._known.get(text, (0.0, None))
        return token if now < since + FRESH else None

    def _require_room(self, second: int) -> None:
        if second != self._second:
            self._second, self._looks = second, 0
        self._looks += 1
        if self._looks > LOOKS:
            raise Busy("too many unknown tokens are being tried", retry_after=1.0)


def _credentials(scope: Scope) -> tuple[bytes | None, bool]:
    """Return what a request shows to be let in, and whether a proxy passed it on."""
    said, passed_on = None, False
    for name, value in scope["headers"]:
        if name == b"authorization":
            said = value
        elif name in PASSED_ON:
            passed_on = True
    return said, passed_on


def _text(said: bytes) -> str:
    """Return the token in a header."""
    return said[len(_BEARER) :].strip().decode("latin-1")


def _allowed(token: Token, asked: Found) -> str:
    place = asked.place
    if not token.allows(place.family, place.owner, asked.name):
        verbs = "every verb" if token.verbs is None else ", ".join(token.verbs)
        raise PermissionDenied(f"this token is for {token.owner} and allows {verbs}")
    return f"{TOKEN_SIGN}{token.id}"


def _near(client: Client) -> bool:
    """Return whether a connection comes from this machine."""
    return client is not None and _is_near(client[0])


_is_near: Final = lru_cache(maxsize=KNOWN)(is_loopback)
