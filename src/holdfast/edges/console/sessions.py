"""Sessions of browsers, and links that open one.

A session lives in this process and stands for a token, whose rights it has. A link opens one session for an
operator of this machine, who needs no token.

Law: the process keeps only hashes of cookies and links. Both are bounded in number and time, and a link works
once.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.operators.tokens import OF_LINK, Token

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_SESSIONS: Final = 256
"""Maximum number of sessions. One more ends the one that was not used for longest."""
IDLE_SECONDS: Final = 7_200.0
"""Seconds without a request after which a session ends."""
LIFE_SECONDS: Final = 43_200.0
"""Seconds after which a session ends in any case."""
LINK_SECONDS: Final = 600.0
"""Seconds for which a link works."""
MOST_LINKS: Final = 16
"""Maximum number of links that wait to be used. One more replaces the oldest."""


class BrowserSession(msgspec.Struct):
    """A session. `stands_for` is a token with its secret, or an operator of this machine."""

    stands_for: str | Token
    opened: float
    used: float


class BrowserSessions:
    """The sessions and links of a service.

    Args:
        ticks: Returns a monotonic time in seconds.
    """

    def __init__(self, *, ticks: Callable[[], float] = time.monotonic) -> None:
        self._ticks = ticks
        self._sessions: dict[str, BrowserSession] = {}
        self._links: dict[str, float] = {}

    def open(self, token: str) -> str:
        """Open a session for a token, and return its cookie."""
        return self._opened(token)

    def find(self, cookie: str) -> str | Token | None:
        """Return what a session stands for; None if there is none or it has ended."""
        name, now = _hashed(cookie), self._ticks()
        session = self._sessions.pop(name, None)
        if session is None or now > session.used + IDLE_SECONDS or now > session.opened + LIFE_SECONDS:
            return None
        session.used = now
        self._sessions[name] = session  # at the end: the first is the one that was not used for longest
        return session.stands_for

    def end(self, cookie: str) -> None:
        """End a session, if there is one."""
        self._sessions.pop(_hashed(cookie), None)

    def link(self) -> str:
        """Make a link's secret, which opens one session for an operator of this machine."""
        if len(self._links) >= MOST_LINKS:
            del self._links[next(iter(self._links))]
        secret = secrets.token_urlsafe(32)
        self._links[_hashed(secret)] = self._ticks()
        return secret

    def redeem(self, secret: str) -> str | None:
        """Open the session of a link and return its cookie; None if the link was used or is too old."""
        made = self._links.pop(_hashed(secret), None)
        if made is None or self._ticks() > made + LINK_SECONDS:
            return None
        operator = Token(id=f"{OF_LINK}{secrets.token_hex(4)}", operator=True, created_at=datetime.now(UTC))
        return self._opened(operator)

    def _opened(self, stands_for: str | Token) -> str:
        while len(self._sessions) >= MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        cookie, now = secrets.token_urlsafe(32), self._ticks()
        self._sessions[_hashed(cookie)] = BrowserSession(stands_for, now, now)
        return cookie


def _hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
