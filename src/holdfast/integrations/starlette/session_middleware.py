"""The middleware that gives every request its session, and every response its cookie.

Law: the cookie holds a random id and nothing else. A session is saved before its response starts, so that a
visitor never sees the success of a change that was not stored.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Literal

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection

from holdfast.errors import OutcomeUnknown, Transient, ValidationError
from holdfast.integrations.lifetimes import whole_seconds
from holdfast.integrations.starlette.problems import refuse, refuse_while_away
from holdfast.integrations.starlette.session import SessionConflict, StoredSession

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from holdfast.handles.kv import KV

_TWO_WEEKS: Final = 14 * 24 * 60 * 60
_RESPONSE: Final = "http.response.start"
_STARTS: Final = {_RESPONSE, "websocket.accept", "websocket.http.response.start"}
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_ATTRIBUTE: Final = re.compile(r"[^;\x00-\x1f\x7f]+")
_TRY_AGAIN_LATER: Final = 1013
"""The code with which a websocket is closed while the storage is away."""


class SessionMiddleware:
    """Keeps the sessions of visitors in a namespace of Holdfast, and gives each visitor a cookie with an id.

    Put it where Starlette's own `SessionMiddleware` would go; handlers use `request.session` as before. The
    cookie can't be read by scripts (HttpOnly).

    Args:
        app: The application.
        kv: The handle of the namespace, from `Store.kv`. The application opens the store and closes it.
        cookie: Name of the cookie.
        ttl: Seconds that a session lives after its last use. Fractions are rounded up.
        path: Path below which the cookie is sent.
        domain: Domain whose hosts get the cookie; only the host that set it if None.
        same_site: When the browser sends the cookie with requests from other sites.
        secure: Whether the cookie is sent over HTTPS alone.

    Raises:
        ValidationError: The settings of the cookie contradict each other, or can't be written in a header.

    Example:
        `Middleware(SessionMiddleware, kv=store.kv("web"))`
    """

    def __init__(
        self,
        app: ASGIApp,
        kv: KV,
        *,
        cookie: str = "session",
        ttl: float = _TWO_WEEKS,
        path: str = "/",
        domain: str | None = None,
        same_site: Literal["lax", "strict", "none"] = "lax",
        secure: bool = True,
    ) -> None:
        self.app = app
        self._kv = kv
        self._cookie = cookie
        self._ttl = whole_seconds(ttl)
        self._attributes = f"; Path={path}; HttpOnly; SameSite={same_site.capitalize()}"
        self._attributes += "" if domain is None else f"; Domain={domain}"
        self._attributes += "; Secure" if secure else ""
        if not _TOKEN.fullmatch(cookie):
            raise ValidationError(f"a cookie can't be named {cookie!r}", field="cookie")
        for field, text in (("path", path), ("domain", domain)):
            if text is not None and not _ATTRIBUTE.fullmatch(text):
                raise ValidationError(f"a cookie can't have the {field} {text!r}", field=field)
        if same_site not in ("lax", "strict", "none"):
            raise ValidationError("same_site is lax, strict or none", field="same_site")
        if same_site == "none" and not secure:
            raise ValidationError("browsers take a cookie with same_site none only if secure", field="secure")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request with its session."""
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        try:
            cookie = HTTPConnection(scope).cookies.get(self._cookie)
            session = await StoredSession.load(self._kv, self._ttl, cookie)
        except (Transient, OutcomeUnknown):
            if scope["type"] == "http":
                return await refuse_while_away(send)
            return await send({"type": "websocket.close", "code": _TRY_AGAIN_LATER})
        scope["session"] = session
        sending = _Sending(self, session, send)
        try:
            await self.app(scope, receive, sending)
        except SessionConflict as conflict:
            if sending.started or scope["type"] != "http":
                raise
            return await _refuse_conflict(send, conflict)
        if sending.started:
            await _save_late(session)
        return None

    def finished(self, message: Message, session: StoredSession) -> Message:
        """Return the start of a response with the headers that the session needs."""
        headers = MutableHeaders(raw=list(message.get("headers", ())))
        if session.accessed:
            headers.add_vary_header("Cookie")
        if session.cookie is not None:
            age = self._ttl if session.cookie else 0
            headers.append("Set-Cookie", f"{self._cookie}={session.cookie}; Max-Age={age}{self._attributes}")
            headers.setdefault("Cache-Control", 'no-cache="Set-Cookie"')
        return {**message, "headers": headers.raw}


class _Sending:
    """The way back: saves the session before the response starts, and refuses the request if it can't."""

    def __init__(self, middleware: SessionMiddleware, session: StoredSession, send: Send) -> None:
        self._middleware = middleware
        self._session = session
        self._send = send
        self.started = False
        self.refused = False

    async def __call__(self, message: Message) -> None:
        if self.refused:
            return
        if not self.started and message["type"] in _STARTS:
            self.refused = not await self._is_saved(message["type"])
            if self.refused:
                return
            self.started = True
            message = self._middleware.finished(message, self._session)
        await self._send(message)

    async def _is_saved(self, start: str) -> bool:
        """Save the session; if that is not possible, send the response that says so.

        On a websocket, whose client could not be told, the error is raised in the handler.
        """
        try:
            await self._session.save()
            if self._session.cookie is None:
                await self._session.renew()
        except SessionConflict as conflict:
            if start != _RESPONSE:
                raise
            await _refuse_conflict(self._send, conflict)
            return False
        except (Transient, OutcomeUnknown):
            if start != _RESPONSE:
                raise
            await refuse_while_away(self._send)
            return False
        return True


async def _refuse_conflict(send: Send, conflict: SessionConflict) -> None:
    detail = f"The session was not saved: {conflict}. Load the page again, then repeat the request."
    await refuse(send, HTTPStatus.CONFLICT, detail)


async def _save_late(session: StoredSession) -> None:
    """Save what a handler has changed after its response started.

    Raises:
        SessionConflict: Another request has changed the same names, or has ended the session.
        RuntimeError: The visitor would need another cookie, for which it is too late.
    """
    if session.needs_cookie:
        raise RuntimeError("a session can't begin or get a new id after the response has started")
    await session.save()
