"""The console as an ASGI application: pages, their JSON, files, and logging in and out.

    /                    the overview; with `Accept: application/json` as JSON, like every page
    /ui/...              the other pages
    /ui/static/...       scripts and styles
    /ui/login, /ui/logout    begin and end a session

The door decides who is asking, which view answers, and how the answer is sent. A view takes a visit and
returns one JSON object; it renders nothing and knows no transport. HTML holds no data, and data is never
HTML.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

import msgspec
from starlette.types import Receive, Scope, Send

import holdfast
from holdfast.edges.console.blobs import blob, blobs
from holdfast.edges.console.cluster import cluster
from holdfast.edges.console.files import STATIC, File, site
from holdfast.edges.console.keys import entry, keys, live, namespaces
from holdfast.edges.console.operators import audit, inbox, policies, policy, settings, tokens
from holdfast.edges.console.overview import overview
from holdfast.edges.console.search import search
from holdfast.edges.console.tables import item, table, tables
from holdfast.edges.console.visits import Instruments, Visit
from holdfast.edges.http import responses
from holdfast.edges.http.api import starting_or_stopping
from holdfast.edges.http.guard import TokenGuard, cookie_name, cookie_of, source_of
from holdfast.edges.http.requests import WrongMethod
from holdfast.edges.http.responses import Header, NoToken, Response
from holdfast.edges.intake.service import RequestService
from holdfast.errors import HoldfastError, InvalidSubject, ValidationError, ValueTooLarge
from holdfast.operators.tokens import OF_LINK, Token

if TYPE_CHECKING:
    from holdfast.edges.console.sessions import BrowserSessions

LOGIN: Final = "/ui/login"
LOGOUT: Final = "/ui/logout"
MOST_BODY: Final = 4_096
"""Maximum number of bytes of a request to log in."""
MOST_PARAMETERS: Final = 50
HEADERS: Final[tuple[Header, ...]] = (
    (
        b"content-security-policy",
        b"default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; object-src 'none'",
    ),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"vary", b"accept, accept-encoding"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)
"""The headers of every response of the console."""
_NO_STORE: Final = (b"cache-control", b"no-store")
_FOR_EVER: Final = (b"cache-control", b"public, max-age=31536000, immutable")
_ASK_AGAIN: Final = (b"cache-control", b"no-cache")

View = Callable[[Visit], Awaitable[dict[str, Any]]]


class ConsolePage(NamedTuple):
    """A page: its name, the pattern of its path, and its view."""

    name: str
    pattern: re.Pattern[str]
    view: View


def _page(name: str, path: str, view: View) -> ConsolePage:
    """Declare a page. In its path `{key*}` stands for the rest, any other `{name}` for one part."""
    pattern = re.sub(r"\{(\w+)\*\}", r"(?P<\1>.+)", path)
    pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", pattern)
    return ConsolePage(name, re.compile(pattern), view)


PAGES: Final = (
    _page("overview", "/(?:ui/?)?", overview),
    _page("namespaces", "/ui/kv", namespaces),
    _page("browse", "/ui/kv/{plugin}", keys),
    _page("entry", "/ui/kv/{plugin}/{key*}", entry),
    _page("browse", "/ui/semantic/{tenant}/{project}", keys),
    _page("entry", "/ui/semantic/{tenant}/{project}/{key*}", entry),
    _page("live", "/ui/live", live),
    _page("cluster", "/ui/cluster", cluster),
    _page("search", "/ui/search", search),
    _page("inbox", "/ui/inbox", inbox),
    _page("audit", "/ui/audit", audit),
    _page("tables", "/ui/tables", lambda visit: visit.plugins("table")),
    _page("tables", "/ui/tables/{plugin}", tables),
    _page("table", "/ui/tables/{plugin}/{table}", table),
    _page("item", "/ui/tables/{plugin}/{table}/item", item),
    _page("blobs", "/ui/blobs", lambda visit: visit.plugins("blob")),
    _page("blobs", "/ui/blobs/{plugin}", blobs),
    _page("blob", "/ui/blobs/{plugin}/{name*}", blob),
    _page("policies", "/ui/policies", policies),
    _page("policy", "/ui/policies/{family}/{owner*}", policy),
    _page("tokens", "/ui/tokens", tokens),
    _page("settings", "/ui/settings", settings),
)
"""All pages. The first whose pattern fits answers."""

_log = logging.getLogger("holdfast.console")


class ConsoleDoor:
    """The console. `service` is None until there is one, and again while it stops.

    Args:
        guard: The check of who is asking.
        sessions: The sessions of browsers.
        parts: The parts of the process that pages show.
    """

    def __init__(self, guard: TokenGuard, sessions: BrowserSessions, parts: Instruments) -> None:
        self.service: RequestService | None = None
        self._guard = guard
        self._sessions = sessions
        self._parts = parts
        guard.sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        try:
            response = await self._answer(scope, receive)
        except HoldfastError as error:
            if self.service is not None:
                self.service.refused(scope["path"], error)
            response = _data(responses.problem(error))
        await _respond(scope, send, response)

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        path, method = scope["path"], scope["method"]
        if path in (LOGIN, LOGOUT) and method == "POST":
            change = self._log_in if path == LOGIN else self._log_out
            return await change(scope, receive)
        if method not in ("GET", "HEAD"):
            refusal = WrongMethod("pages of the console answer GET and HEAD")
            refusal.allowed = "GET, HEAD"
            raise refusal
        if path.startswith(STATIC):
            return _static(scope)
        if path == LOGIN or not _wants_json(scope):
            return _shell(scope)
        return await self._page(scope)

    async def _page(self, scope: Scope) -> Response:
        """Answer the JSON of a page. A refusal also says who asks, so that a browser keeps the frame."""
        service = self.service
        if service is None:
            raise starting_or_stopping()
        token = await self._guard.token_of(scope)
        about = {
            "now": service.now(),
            "version": holdfast.__version__,
            "caller": caller(token),
            "cluster_shown": self._parts.cluster is not None or self._parts.instances.several,
        }
        visit = None
        try:
            located = page_at(scope["raw_path"])
            if located is None:
                raise InvalidSubject("the console has no such page")
            page, path = located
            visit = Visit(service, self._parts, token=token, path=path, query=_query(scope))
            view = await page.view(visit)
        except HoldfastError as error:
            if visit is None or not visit.has_called:  # else the service has recorded it
                service.refused(scope["path"], error)
            refusal = responses.problem(error)
            body = msgspec.json.encode(msgspec.json.decode(refusal.body) | about)
            return _data(refusal._replace(body=body))
        return _data(responses.plain({"page": page.name} | about | view))

    async def _log_in(self, scope: Scope, receive: Receive) -> Response:
        """Open a session for a token or for the secret of a link."""
        fields = await _fields(receive)
        once, token = fields.get("once"), fields.get("token")
        if isinstance(once, str):
            cookie = self._sessions.redeem(once)
            if cookie is None:
                raise NoToken("this link was used before or is older than ten minutes")
            _log.info("a link opened a session for an operator")
        elif isinstance(token, str):
            known = await self._guard.valid(token.strip(), source=source_of(scope))
            cookie = self._sessions.open(token.strip(), operator=known.operator)
            _log.info("the token %s for %s opened a session", known.id, known.owner)
        else:
            raise ValidationError("send a token, or the secret of a link as once", field="token")
        return _with_cookie(scope, cookie, responses.plain({"success": True}))

    async def _log_out(self, scope: Scope, receive: Receive) -> Response:
        """End the session of a browser."""
        cookies = dict(scope["headers"]).get(b"cookie", b"")
        cookie = cookie_of(cookies, cookie_name(scope))
        if cookie is not None:
            self._sessions.end(cookie)
        return _with_cookie(scope, "", responses.plain({"success": True}))


def caller(token: Token | None) -> dict[str, Any]:
    """Return who is visiting, as pages show it."""
    if token is None:
        return {"kind": "open", "owner": "operator", "operator": True, "verbs": None, "id": None}
    kind = "link" if token.id.startswith(OF_LINK) else "token"
    return {
        "kind": kind,
        "owner": token.owner,
        "operator": token.operator,
        "verbs": token.verbs,
        "id": token.id,
        "expires_at": token.expires_at,
    }


def page_at(path: bytes) -> tuple[ConsolePage, dict[str, str]] | None:
    """Return the page of a path as sent, and the parameters in it; None if there is no such page.

    Raises:
        ValidationError: The path is not UTF-8.
    """
    text = path.decode("ascii", "replace")
    for page in PAGES:
        match = page.pattern.fullmatch(text)
        if match is not None:
            return page, {name: _unquoted(part) for name, part in match.groupdict().items()}
    return None


def _unquoted(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise ValidationError("the path is not UTF-8", field="path") from None


def _shell(scope: Scope) -> Response:
    """Return the page that loads the console, whatever the address."""
    page = page_at(scope["raw_path"])
    name = "login" if page is None else page[0].name
    tag = f'"{site().tag}-{name}"'.encode()
    headers = [(b"etag", tag), _ASK_AGAIN]
    known = page is not None or scope["path"] == LOGIN
    if known and dict(scope["headers"]).get(b"if-none-match") == tag:
        return responses.Response(304, headers, b"")
    return _file(scope, site().page(name), 200 if known else 404, *headers)


def _static(scope: Scope) -> Response:
    file = site().find(scope["path"])
    if file is None:
        raise InvalidSubject("there is no such file; it may be of another version of the console")
    return _file(scope, file, 200, _FOR_EVER)


def _file(scope: Scope, file: File, status: int, *headers: Header) -> Response:
    """Return a file, compressed if the client takes that."""
    kind = (b"content-type", file.kind)
    if b"gzip" in dict(scope["headers"]).get(b"accept-encoding", b""):
        return responses.Response(status, [kind, (b"content-encoding", b"gzip"), *headers], file.zipped)
    return responses.Response(status, [kind, *headers], file.plain)


def _data(response: Response) -> Response:
    return response._replace(headers=[*response.headers, _NO_STORE])


def _with_cookie(scope: Scope, cookie: str, response: Response) -> Response:
    """Return a response that sets the session's cookie, or removes it."""
    secure = "; Secure" if scope["scheme"] == "https" else ""
    life = "" if cookie else "; Max-Age=0"
    header = f"{cookie_name(scope)}={cookie}; Path=/; HttpOnly; SameSite=Strict{secure}{life}"
    return _data(response._replace(headers=[*response.headers, (b"set-cookie", header.encode())]))


def _wants_json(scope: Scope) -> bool:
    """Return whether a client asks for JSON. A browser that follows a link never gets data."""
    headers = dict(scope["headers"])
    accepts = b"application/json" in headers.get(b"accept", b"")
    return accepts and headers.get(b"sec-fetch-mode") != b"navigate"


def _query(scope: Scope) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            scope["query_string"].decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=MOST_PARAMETERS,
        )
    except ValueError:
        raise ValidationError(
            f"the query must be UTF-8 with at most {MOST_PARAMETERS} parameters", field="query"
        ) from None
    return dict(pairs)


async def _fields(receive: Receive) -> dict[str, Any]:
    """Return the fields of a request to log in.

    Raises:
        ValueTooLarge: It is too long.
        ValidationError: It is not an object.
    """
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > MOST_BODY:
            raise ValueTooLarge(f"the body has more than {MOST_BODY} bytes")
        if not message.get("more_body"):
            break
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ValidationError("the body must be a JSON object", field="body") from None


async def _respond(scope: Scope, send: Send, response: Response) -> None:
    headers = [*response.headers, *HEADERS]
    if response.status != 304:
        headers.append((b"content-length", str(len(response.body)).encode()))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    body = b"" if scope["method"] == "HEAD" else response.body
    await send({"type": "http.response.body", "body": body})
