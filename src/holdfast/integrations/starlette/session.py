"""The session of one visitor, and the middleware that gives every request its session.

A change is saved only over values that the request has seen. Requests that change different names of one
session at once all succeed; of those that change the same name, the first one to save does, and the others
get a `SessionConflict`. No change is dropped without an error. A session is saved before its response starts,
so that a visitor never sees the success of a change that was not stored. The cookie holds a random id and
nothing else.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Literal

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection

from holdfast import seams
from holdfast.errors import OutcomeUnknown, Transient, ValidationError, VersionConflict
from holdfast.integrations.entries import checked, pause_after, whole_seconds
from holdfast.integrations.starlette.problems import refuse, refuse_while_away

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from holdfast.handles.kv import KV
    from holdfast.model import Entry

_ID_BYTES: Final = 32
_ID: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_RENEWED_AFTER: Final = 0.1
"""Part of its lifetime after which a session that is only read gets a new deadline."""


_TWO_WEEKS: Final = 14 * 24 * 60 * 60
_RESPONSE: Final = "http.response.start"
_STARTS: Final = {_RESPONSE, "websocket.accept", "websocket.http.response.start"}
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_ATTRIBUTE: Final = re.compile(r"[^;\x00-\x1f\x7f]+")
_TRY_AGAIN_LATER: Final = 1013
"""The code with which a websocket is closed while the storage is away."""


class SessionConflict(Exception):
    """The session can't be saved: another request has changed the same part of it, or has ended it.

    Attributes:
        names: The names that both requests have changed; empty if the session has ended.
    """

    def __init__(self, names: list[str]) -> None:
        self.names = names
        super().__init__(
            f"another request has changed {', '.join(map(repr, names))} of this session at the same time"
            if names
            else "another request has ended this session, or has given it a new id, or it has expired"
        )


class StoredSession(dict[str, Any]):
    """What is kept for a visitor: JSON values by name. `request.session` is one.

    It is saved when the response starts, if it has changed. Values inside others are noticed too, such as
    what is appended to a list.
    """

    def __init__(self, kv: KV, ttl: int) -> None:
        super().__init__()
        self.accessed: bool = False
        """Whether the request has looked at the session."""
        self.cookie: str | None = None
        """What the visitor's cookie has to become: an id, or empty for no cookie; None to leave it as is."""
        self._kv = kv
        self._ttl = ttl
        self._forget()
        self._ended_key: str | None = None

    def _forget(self) -> None:
        """Become a session that is not stored yet."""
        self._id: str | None = None
        self._version = 0
        self._expires_at: datetime | None = None
        self._rotating = False
        self._seen: dict[str, str] = {}
        self._stored: dict[str, str] = {}

    @classmethod
    async def load(cls, kv: KV, ttl: int, cookie: str | None) -> StoredSession:
        """Return the session of a cookie; an empty one if there is no cookie, or none that is known."""
        session = cls(kv, ttl)
        if cookie is not None and _ID.fullmatch(cookie):
            entry = await kv.get(_key(cookie))
            if entry is not None:
                session._id = cookie
                session._found(entry)
                session._show()
        return session

    @property
    def needs_cookie(self) -> bool:
        """Whether the visitor will need another cookie once the session is saved."""
        return bool(self) and (self._id is None or self._rotating)

    def mark_accessed(self) -> None:
        """Note that the request looks at the session. Starlette calls this."""
        self.accessed = True

    def clear(self) -> None:
        """End the session, as at a logout: it is removed whatever other requests do with it meanwhile.

        What is put in afterwards begins a new session with a new id.
        """
        super().clear()
        if self._id is not None:
            self._ended_key = _key(self._id)
        self._forget()

    def rotate(self) -> None:
        """Give the session a new id when it is saved. Call this when a visitor logs in or gains rights.

        An id that an attacker learned or planted before the login is then worthless.
        """
        self._rotating = self._id is not None

    async def save(self) -> None:
        """Save the session now, instead of when the response starts.

        Call this before anything that must not happen without the change.

        Raises:
            SessionConflict: Another request has changed the same names, or has ended the session.
        """
        lost, mine = 0, _texts(self)
        if mine == self._seen and not self._rotating and self._ended_key is None:
            return
        while True:
            merged = self._merged(mine)
            try:
                await self._write(merged)
            except VersionConflict:
                await self._read_again(lost := lost + 1)
            else:
                break
        self._show()

    async def change(self, name: str, change: Callable[[Any], Any], default: Any = None) -> Any:
        """Change one value in the store at once, computing it again if another request is faster.

        Use this for counters and lists that several requests of a visitor add to. Other changes of this
        request stay unsaved.

        Args:
            name: The name of the value.
            change: Takes the stored value and returns the new one. It may be called several times.
            default: The value to begin with if there is none.

        Returns:
            The new value.

        Raises:
            SessionConflict: Another request has ended the session.
        """
        lost = 0
        while True:
            stored = self._stored
            old = json.loads(stored[name]) if name in stored else default
            text = _text(name, change(old))
            try:
                await self._write({**stored, name: text})
            except VersionConflict:
                await self._read_again(lost := lost + 1)
            else:
                self._seen[name] = text
                self[name] = json.loads(text)
                return self[name]

    async def renew(self) -> None:
        """Move the deadline of a session that is only read, unless that was done a short time ago."""
        if self._id is None or self._expires_at is None:
            return
        left = self._expires_at - _now()
        if left > timedelta(seconds=self._ttl) * (1 - _RENEWED_AFTER):
            return
        try:
            entry = await self._kv.touch(_key(self._id), self._ttl, expected_version=self._version)
        except VersionConflict:
            return  # another request has saved it, and so renewed it, or has ended it
        if entry is not None:
            self._version, self._expires_at = entry.version, entry.expires_at
            self.cookie = self._id

    def _merged(self, mine: dict[str, str]) -> dict[str, str]:
        """Return what is stored, with the changes of this request in it."""
        seen, stored = self._seen, self._stored
        changed = [name for name in seen | mine if seen.get(name) != mine.get(name)]
        clashing = [name for name in changed if stored.get(name) not in (seen.get(name), mine.get(name))]
        if clashing:
            raise SessionConflict(sorted(clashing))
        merged = {name: text for name, text in stored.items() if name not in changed}
        return merged | {name: mine[name] for name in changed if name in mine}

    async def _write(self, merged: dict[str, str]) -> None:
        """Store the session over the version that is known, under a new id if it needs one."""
        old, value = self._id, {name: json.loads(text) for name, text in merged.items()}
        made = seams.secret(_ID_BYTES) if value and (old is None or self._rotating) else old
        writes: list[dict[str, Any]] = []
        if self._ended_key is not None:
            writes.append({"key": self._ended_key, "delete": True})
        if old is not None and (made != old or not value):
            writes.append({"key": _key(old), "delete": True})
        if made is not None and value:
            writes.append({"key": _key(made), "value": value, "ttl": self._ttl})
        version = 0
        if writes:
            checks = [] if old is None else [{"key": _key(old), "version": self._version}]
            version = (await self._kv.batch(checks=checks, writes=writes)).versions[-1] or 0
        self._ended_key, self._rotating = None, False
        self._id, self._version, self._stored = (made, version, merged) if value else (None, 0, {})
        self._expires_at = _now() + timedelta(seconds=self._ttl)
        self.cookie = self._id or ""

    async def _read_again(self, lost: int) -> None:
        """Read what another request has stored.

        Raises:
            SessionConflict: It has ended the session.
        """
        await pause_after(lost)
        assert self._id is not None, "a session with a new id can't conflict"
        entry = await self._kv.get(_key(self._id))
        if entry is None:
            raise SessionConflict([])
        self._found(entry)

    def _found(self, entry: Entry) -> None:
        self._version, self._expires_at = entry.version, entry.expires_at
        self._stored = _texts(checked(entry.value, dict[str, Any], f"a session, in the entry {entry.key!r}"))

    def _show(self) -> None:
        """Take over what is stored. Values that have not changed stay the same objects."""
        mine, self._seen = _texts(self), dict(self._stored)
        for name in mine.keys() - self._stored.keys():
            del self[name]
        for name, text in self._stored.items():
            if mine.get(name) != text:
                self[name] = json.loads(text)


def _now() -> datetime:
    """Return the time by the machine's clock, which only says when to renew; the store knows the deadline."""
    return datetime.fromtimestamp(seams.wall(), UTC)


def _key(identifier: str) -> str:
    """Return the key of a session. Who lists the keys of the namespace can't take a session over."""
    return f"session/{sha256(identifier.encode()).hexdigest()}"


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: _text(name, value) for name, value in values.items()}


def _text(name: str, value: Any) -> str:
    """Return a value as JSON that is the same for equal values.

    Raises:
        ValidationError: It is not JSON, or its name is not text.
    """
    try:
        if isinstance(name, str):
            return json.dumps(value, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError):
        pass
    raise ValidationError(f"a session keeps JSON under names of text; {name!r} is not", field=str(name))


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
