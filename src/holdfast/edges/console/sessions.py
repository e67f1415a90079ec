"""Sessions of browsers, and links that open one.

A session lives in this process and stands for a token, whose rights it has. A link opens one session for an
operator of this machine, who needs no token.

The process keeps only hashes of cookies and links. Both are bounded in number and time, and a link works
once. A caller who opens many sessions ends own ones, and only an operator ends the session of an operator.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import msgspec

from holdfast import seams
from holdfast.errors import Busy
from holdfast.operators.tokens import OF_LINK, Token

MOST_SESSIONS: Final = 256
"""Maximum number of sessions. One more ends a session of the token that has the most."""
MOST_OF_ONE: Final = 16
"""Maximum number of sessions of one token. One more ends the one that was not used for longest."""
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
    operator: bool
    opened: float
    used: float

    def is_over(self, now: float) -> bool:
        """Return whether its time has passed."""
        return now > self.used + IDLE_SECONDS or now > self.opened + LIFE_SECONDS


class BrowserSessions:
    """The sessions and links of a service.

    Args:
        ticks: Returns a monotonic time in seconds.
    """

    def __init__(self, *, ticks: Callable[[], float] | None = None) -> None:
        self._ticks = seams.monotonic if ticks is None else ticks
        self._sessions: dict[str, BrowserSession] = {}
        self._links: dict[str, float] = {}

    def __len__(self) -> int:
        """Return the number of sessions."""
        return len(self._sessions)

    def open(self, token: str, *, operator: bool = False) -> str:
        """Open a session for a token, which may be one for operators, and return its cookie.

        Raises:
            Busy: Operators have all the sessions that there may be, and this token is not for operators.
        """
        return self._opened(token, operator=operator)

    def find(self, cookie: str) -> str | Token | None:
        """Return what a session stands for; None if there is none or it has ended."""
        name, now = _hashed(cookie), self._ticks()
        session = self._sessions.pop(name, None)
        if session is None or session.is_over(now):
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
        secret = seams.secret(32)
        self._links[_hashed(secret)] = self._ticks()
        return secret

    def redeem(self, secret: str) -> str | None:
        """Open the session of a link and return its cookie; None if the link was used or is too old."""
        made = self._links.pop(_hashed(secret), None)
        if made is None or self._ticks() > made + LINK_SECONDS:
            return None
        operator = Token(
            id=f"{OF_LINK}{seams.token(4)}",
            operator=True,
            created_at=datetime.fromtimestamp(seams.wall(), UTC),
        )
        return self._opened(operator, operator=True)

    def _opened(self, stands_for: str | Token, *, operator: bool) -> str:
        cookie, now = seams.secret(32), self._ticks()
        self._sessions = {name: one for name, one in self._sessions.items() if not one.is_over(now)}
        self._make_room(stands_for, operator=operator)
        self._sessions[_hashed(cookie)] = BrowserSession(stands_for, operator, now, now)
        return cookie

    def _make_room(self, stands_for: str | Token, *, operator: bool) -> None:
        """End a session if there are too many; of several, the one that was not used for longest."""
        own = [name for name, one in self._sessions.items() if one.stands_for == stands_for]
        if len(own) >= MOST_OF_ONE:
            del self._sessions[own[0]]
        if len(self._sessions) < MOST_SESSIONS:
            return
        ending = [one for one in self._sessions.items() if not one[1].operator]
        if not ending and operator:
            ending = list(self._sessions.items())
        if not ending:
            raise Busy("all sessions are in use by operators", retry_after=60.0)
        held = Counter(one.stands_for for _, one in ending)
        del self._sessions[max(ending, key=lambda one: held[one[1].stands_for])[0]]


def _hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
