"""The check of who is asking over HTTP.

Without a token only a process of this machine may ask, and only in open mode, where NATS does not tell
callers apart either. Its connection must come from this machine, and its `Host` must name this machine, not a
name or a port that others use: a proxy on this machine passes on requests from elsewhere. A revoked token is
refused within a second, and a stream that it opened ends within a second. The cookie of a session stands for
a token and allows no more than the token does; with it, only a page of this service may change anything.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from holdfast import seams
from holdfast.bounded import Bounded
from holdfast.edges.http.requests import Target
from holdfast.edges.http.responses import NoToken
from holdfast.edges.intake.service import TOKEN_SIGN
from holdfast.edges.settings.addresses import is_loopback
from holdfast.errors import Busy, HoldfastError, PermissionDenied
from holdfast.operators.tokens import Token, Tokens, has_form

if TYPE_CHECKING:
    from starlette.types import Scope


Client = tuple[str, int] | None
"""The address of a client, if it has one."""
Server = tuple[str, int | None] | None
"""The address that a client has reached."""

FRESH: Final = 1.0
"""Seconds for which a token is known without another look into the store."""
LOOK_SECONDS: Final = 0.3
"""Seconds between two looks whether the tokens of open streams are still valid."""
LOOKS: Final = 256
"""Maximum number of unknown tokens of one address that wait to be looked up."""
AT_ONCE: Final = 100
"""Number of unknown tokens that are looked up with one read."""
KNOWN: Final = 4_096
"""Number of tokens, and of addresses of clients, that are remembered."""
USE_EVERY: Final = 600.0
"""Seconds between two notes that a token is used, by one instance."""
_NEEDED: Final = "this needs a token: send it as Authorization: Bearer <token>"
_OPEN: Final = (
    "; only a process on the service's machine needs none, if it calls the service by localhost or a "
    "loopback address and its port, and no proxy passes the request on"
)
_BEARER: Final = b"bearer "
PASSED_ON: Final = frozenset({b"forwarded", b"via", b"x-forwarded-for", b"x-real-ip"})
"""Headers that a proxy adds."""


SAFE: Final = frozenset({"GET", "HEAD"})
"""The methods that change nothing."""


def source_of(scope: Scope) -> str:
    """Return the address that a request comes from."""
    client = scope["client"]
    return "" if client is None else str(client[0])


def cookie_name(scope: Scope) -> str:
    """Return the name of the session's cookie. It has the port, because ports of a host share cookies."""
    server = scope.get("server")
    return f"holdfast-{server[1] if server else 0}"


class SessionBook(Protocol):
    """The sessions of browsers that have logged in."""

    def find(self, cookie: str) -> str | Token | None:
        """Return what a session stands for: a token with its secret, or an operator of this machine."""
        ...

    def end(self, cookie: str) -> None:
        """End a session."""
        ...


class _Pass(NamedTuple):
    """What lets a stream in: a token of the store, the cookie of a session, or a session for a token."""

    token: Token | None
    cookie: str | None


class UnknownTokens:
    """The tokens that were not seen lately and are being looked up, many with one read.

    Addresses take turns, and one that tries many tokens waits only for itself. So made-up tokens keep
    nobody out, and they cost the store no more than a read for each hundred.

    Args:
        tokens: The tokens of the store.
    """

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._waiting: dict[str, dict[str, asyncio.Future[Token | None]]] = {}
        self._reading: asyncio.Task[None] | None = None

    async def find(self, text: str, source: str) -> Token | None:
        """Look a token up for an address.

        Raises:
            Busy: Too many unknown tokens of this address wait.
        """
        waiting = self._waiting.get(source, {})
        answer = waiting.get(text)
        if answer is None:
            if len(waiting) >= LOOKS:
                raise Busy("too many unknown tokens are being tried from this address", retry_after=1.0)
            answer = waiting[text] = asyncio.get_running_loop().create_future()
            self._waiting[source] = waiting
        if self._reading is None:
            self._reading = asyncio.create_task(self._read(), name="holdfast unknown tokens")
        return await asyncio.shield(answer)

    async def _read(self) -> None:
        try:
            while self._waiting:
                batch = self._next()
                try:
                    known = await self._tokens.find_all([text for text, _ in batch])
                except Exception as error:
                    for _, answer in batch:
                        answer.set_exception(error)
                        answer.exception()  # nobody may be waiting any more
                else:
                    for text, answer in batch:
                        answer.set_result(known.get(text))
        finally:
            self._reading = None

    def _next(self) -> list[tuple[str, asyncio.Future[Token | None]]]:
        """Take tokens to look up, one of each address in turn."""
        batch: list[tuple[str, asyncio.Future[Token | None]]] = []
        while self._waiting and len(batch) < AT_ONCE:
            source = next(iter(self._waiting))
            waiting = self._waiting.pop(source)
            text = next(iter(waiting))
            batch.append((text, waiting.pop(text)))
            if waiting:
                self._waiting[source] = waiting  # at the end: the others come first
        return batch


class TokenUses:
    """Notes when tokens are used, so that people see which are not.

    A use costs a token one write in ten minutes, which no caller waits for. A note that can't be written is
    left out: the next use makes another.

    Args:
        tokens: The tokens of the store.
        ticks: Returns a monotonic time in seconds.
    """

    def __init__(self, tokens: Tokens, *, ticks: Callable[[], float] | None = None) -> None:
        self._tokens = tokens
        self._ticks = seams.monotonic if ticks is None else ticks
        self._noted: Bounded[str, float] = Bounded(KNOWN)
        self._waiting: asyncio.Queue[str] = asyncio.Queue()

    def note(self, id: str) -> None:
        """Note that a token is used, unless that was noted a while ago."""
        now = self._ticks()
        if id not in self._noted or now >= self._noted[id] + USE_EVERY:
            self._noted.keep(id, now)
            self._waiting.put_nowait(id)

    async def run(self) -> None:
        """Write what is noted, until cancelled."""
        while True:
            id = await self._waiting.get()
            with contextlib.suppress(HoldfastError):
                await self._tokens.note_use(id)


class TokenGuard:
    """The check of who is asking.

    Args:
        tokens: The tokens of the store.
        open_mode: Whether processes of this machine need no token.
        ticks: Returns a monotonic time in seconds.
    """

    def __init__(self, tokens: Tokens, *, open_mode: bool, ticks: Callable[[], float] | None = None) -> None:
        self._tokens = tokens
        self._open = open_mode
        self._ticks = seams.monotonic if ticks is None else ticks
        self.sessions: SessionBook | None = None
        """The sessions whose cookies are accepted, if there are any."""
        self.uses: TokenUses | None = None
        """Takes note of the tokens that are used, if they are noted."""
        self._known: Bounded[str, tuple[float, Token]] = Bounded(KNOWN)
        self._looking: dict[str, asyncio.Future[Token | None]] = {}
        self._unknown = UnknownTokens(tokens)
        self._lasting: dict[asyncio.Future[None], _Pass] = {}
        self._looking_after: asyncio.Task[None] | None = None

    async def admit(self, scope: Scope, target: Target) -> str:
        """Return the suffix of the caller's principal.

        Raises:
            NoToken: The caller needs a token, or its token is not valid.
            PermissionDenied: The token is not for this.
            Busy: Too many unknown tokens are being tried from this address.
        """
        token = await self.token_of(scope)
        return "" if token is None else _allowed(token, target)

    def admit_at_once(
        self,
        client: Client,
        said: bytes | None,
        target: Target,
        *,
        host: bytes | None = None,
        server: Server = None,
    ) -> str | None:
        """Return the suffix of the principal of a caller, as `admit` would.

        It is for requests in HTTP/1.1 that have no header of a proxy. `host` is what `Host` says, and
        `server` the address that the client reached. Returns None if the suffix is not known without a look
        into the store, or if the caller is refused.
        """
        if said is None:
            return "" if self._open and _near(client) and _named_here(host, server) else None
        if said[: len(_BEARER)].lower() != _BEARER:
            return None
        token = self._remembered(_text(said), self._ticks())
        return None if token is None else _allowed(token, target)

    async def token_of(self, scope: Scope) -> Token | None:
        """Return the caller's token; None for a process of this machine that needs none.

        Raises:
            NoToken: The caller needs a token, or its token is not valid.
            PermissionDenied: Another page than one of this service uses a session's cookie.
            Busy: Too many unknown tokens are being tried from this address.
        """
        said, cookies = _credentials(scope)
        if said is None and cookies and self.sessions is not None:
            token = await self._of_session(scope, cookies, far=not _here(scope))
            if token is not None:
                return token
        if said is None:
            if self._open and _here(scope):
                return None
            raise NoToken(_NEEDED + _OPEN if self._open else _NEEDED)
        if said[: len(_BEARER)].lower() != _BEARER:
            raise NoToken("send the token as Authorization: Bearer <token>")
        return await self.valid(_text(said), source=source_of(scope))

    async def ended(self, scope: Scope) -> None:
        """Wait until what let a request in no longer does. A stream that it opened is over then.

        That is so when its token was revoked or has expired, or when its session has ended. A request that
        needed no token is let in for ever. All streams share one read of the store in each interval.
        """
        try:
            held = await self._pass(scope)
        except HoldfastError:
            return
        end = asyncio.get_running_loop().create_future()
        if held is None:
            await end
            return
        self._lasting[end] = held
        if self._looking_after is None:
            self._looking_after = asyncio.create_task(self._look_after(), name="holdfast tokens of streams")
        try:
            await end
        finally:
            del self._lasting[end]
            if not self._lasting:
                self._looking_after.cancel()
                self._looking_after = None

    async def still_admits(self, scopes: Mapping[str, Scope]) -> set[str]:
        """Return which of several requests, by any names, would still be let in.

        The tokens are looked up in the store, by one read, and not among those that the guard remembers.

        Raises:
            HoldfastError: The store can't be asked now.
        """
        free: set[str] = set()
        passes: dict[str, _Pass] = {}
        for name, scope in scopes.items():
            try:
                held = await self._pass(scope)
            except NoToken:
                continue
            if held is None:
                free.add(name)
            else:
                passes[name] = held
        valid = await self._tokens.get({held.token.id for held in passes.values() if held.token is not None})
        for held in passes.values():
            if not self._holds(held, valid):
                self._forget(held)
        return free | {name for name, held in passes.items() if self._holds(held, valid)}

    async def _pass(self, scope: Scope) -> _Pass | None:
        """Return what lets a request in; None if it needs nothing."""
        token = await self.token_of(scope)
        if token is None:
            return None
        said, cookies = _credentials(scope)
        cookie = cookie_of(cookies, cookie_name(scope)) if said is None else None
        of_link = cookie is not None and self.sessions is not None and self.sessions.find(cookie) == token
        return _Pass(None if of_link else token, cookie)

    async def _look_after(self) -> None:
        """End the streams that nothing lets in any longer. If looking fails for good, all streams end."""
        try:
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                ids = {held.token.id for held in self._lasting.values() if held.token is not None}
                try:
                    valid = await self._tokens.get(ids)
                except HoldfastError:
                    continue  # the store can't be asked now
                for end, held in self._lasting.items():
                    if not (end.done() or self._holds(held, valid)):
                        self._forget(held)
                        end.set_result(None)
        finally:
            for end in self._lasting:
                if not end.done():
                    end.set_result(None)

    def _forget(self, held: _Pass) -> None:
        """Look a token up again at its next request, so that a client that comes back at once is refused."""
        for text in [text for text, (_, token) in self._known.items() if token == held.token]:
            del self._known[text]

    def _holds(self, held: _Pass, valid: Mapping[str, Token]) -> bool:
        token, cookie = held
        if token is not None and valid.get(token.id) != token:
            return False
        return cookie is None or (self.sessions is not None and self.sessions.find(cookie) is not None)

    async def _of_session(self, scope: Scope, cookies: bytes, *, far: bool) -> Token | None:
        """Return the token that a session stands for; None if the cookies name no session.

        The session of an operator who has no token holds only for connections from this machine.
        """
        assert self.sessions is not None
        cookie = cookie_of(cookies, cookie_name(scope))
        stands_for = None if cookie is None else self.sessions.find(cookie)
        if cookie is None or stands_for is None:
            return None
        if scope["method"] not in SAFE and not _own_page(scope):
            raise PermissionDenied("with a session, only a page of this service may change anything")
        if not isinstance(stands_for, str):
            return None if far else stands_for
        try:
            return await self.valid(stands_for, source=source_of(scope))
        except NoToken:
            self.sessions.end(cookie)
            raise NoToken("the session has ended, because its token has expired or been revoked") from None

    async def valid(self, text: str, *, source: str = "") -> Token:
        """Return a valid token, as the store had it at most a second ago.

        Args:
            text: The token.
            source: The address that it comes from.

        Raises:
            NoToken: There is no such token.
            Busy: Too many unknown tokens are being tried from this address.
        """
        now = self._ticks()
        token = self._remembered(text, now)
        if token is not None:
            return token
        if text in self._known:
            token = await self._again(text)
        elif has_form(text):
            token = await self._unknown.find(text, source)
        if token is None:
            self._known.pop(text, None)
            raise NoToken("the token is not valid: it may have expired or been revoked")
        self._known.keep(text, (now, token))
        if self.uses is not None:
            self.uses.note(token.id)
        return token

    def _remembered(self, text: str, now: float) -> Token | None:
        since, token = self._known.get(text, (0.0, None))
        return token if now < since + FRESH else None

    async def _again(self, text: str) -> Token | None:
        """Look up a token that was valid a while ago. It does not wait for unknown ones."""
        looking = self._looking.get(text)
        if looking is None:
            looking = self._looking[text] = asyncio.ensure_future(self._tokens.find(text))
            looking.add_done_callback(lambda _: self._looking.pop(text, None))
        # Requests that wait for the same look go on in their order.
        return await asyncio.shield(looking)


def _credentials(scope: Scope) -> tuple[bytes | None, bytes]:
    """Return the `Authorization` and the cookies of a request."""
    said, cookies = None, b""
    for name, value in scope["headers"]:
        if name == b"authorization":
            said = value
        elif name == b"cookie":
            cookies = value
    return said, cookies


def _here(scope: Scope) -> bool:
    """Return whether a process of this machine sent a request, as far as that can be told.

    A proxy on this machine that adds no header is told by the name or the port in `Host`, which are those
    that its clients use, or by HTTP/1.0, which few others speak.
    """
    if not _near(scope["client"]) or scope.get("http_version", "1.1") != "1.1":
        return False
    host = None
    for name, value in scope["headers"]:
        if name in PASSED_ON:
            return False
        if name == b"host":
            host = value
    return _named_here(host, scope.get("server"))


def cookie_of(cookies: bytes, name: str) -> str | None:
    """Return the value of a cookie, if it is among those of a request."""
    for one in cookies.decode("latin-1").split(";"):
        cookie, _, said = one.strip().partition("=")
        if cookie == name:
            return said
    return None


def _own_page(scope: Scope) -> bool:
    """Return whether a browser says that a page of this service caused a request.

    The door has refused an `Origin` that is not this service. Browsers that know `Sec-Fetch-Site` send it
    with every request over TLS or to this machine.
    """
    said = dict(scope["headers"])
    site = said.get(b"sec-fetch-site")
    return b"origin" in said if site is None else site == b"same-origin"


def _text(said: bytes) -> str:
    """Return the token in a header."""
    return said[len(_BEARER) :].strip().decode("latin-1")


def _allowed(token: Token, target: Target) -> str:
    place = target.place
    if not token.allows(place.family, place.owner, target.name):
        verbs = "every verb" if token.verbs is None else ", ".join(token.verbs)
        raise PermissionDenied(f"this token is for {token.owner} and allows {verbs}")
    return f"{TOKEN_SIGN}{token.id}"


def _near(client: Client) -> bool:
    """Return whether a connection comes from this machine."""
    return client is not None and _is_near(client[0])


_is_near: Final = lru_cache(maxsize=KNOWN)(is_loopback)


def _named_here(host: bytes | None, server: Server) -> bool:
    """Return whether a `Host` names this machine, and the port that the client reached if it names one."""
    return host is None or _names_port(host, None if server is None else server[1])


@lru_cache(maxsize=KNOWN)
def _names_port(host: bytes, port: int | None) -> bool:
    text = host.decode("latin-1").strip().lower()
    name, colon, said = text.rpartition(":")
    if not colon or name.count("[") != name.count("]"):
        name, said = text, ""
    if said and said != str(port):
        return False
    return is_loopback(name.removesuffix(".").removeprefix("[").removesuffix("]"))
