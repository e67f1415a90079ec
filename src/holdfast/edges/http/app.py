"""The HTTP application: a check of every request, and `/livez`, `/readyz`, `/metrics` and `/openapi.json`.

Health and metrics change nothing, and none of their responses contains keys or values. Each comes within
seconds, even when the storage hangs.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast import seams
from holdfast.bounded import Bounded
from holdfast.edges.http.api import OF_PAGES, Api, FastPath
from holdfast.edges.http.openapi import PATH, document_bytes
from holdfast.edges.http.requests import ROOT
from holdfast.edges.monitoring.counters import CONTENT_TYPE
from holdfast.errors import HoldfastError
from holdfast.store import Store

if TYPE_CHECKING:
    from holdfast.edges.monitoring.metrics import Metrics

PATIENCE: Final = 2.0
"""Seconds that the storage may take to answer whether it is ready."""
FRESH: Final = 2.0
"""Seconds for which the result of checking the audit's key is cached."""
OK: Final = "ok"
UNKNOWN: Final = "not known"


class Connected(Protocol):
    """A connection to NATS, as far as the readiness of a service depends on it."""

    @property
    def is_connected(self) -> bool:
        """Whether it is up."""
        ...


class Health:
    """The readiness of the service.

    Args:
        store: The store, which is asked whether it would accept a write.
        nats: Whether NATS is served too, and must be connected.
    """

    def __init__(self, store: Store, *, nats: bool = True) -> None:
        self._store = store
        self._serves_nats = nats
        self.links: Sequence[Connected] = ()
        """The connections to NATS: the common one, and those of plugins."""
        self.stopping = False
        self._signs, self._looked = OK, -FRESH

    async def report(self) -> dict[str, Any]:
        """Return `ok` or the problem of each part, and whether the service is ready and degraded.

        Lost connections of some plugins are reported separately. Without the audit's key the service is ready
        for writes that are not audited, and is degraded.
        """
        parts = {"service": self._service(), "store": await self._storage()}
        if self._serves_nats:
            parts["nats"] = self._nats()
        audit = await self._audit() if parts["store"] == OK else UNKNOWN
        ready = all(state == OK for state in parts.values())
        degraded = audit not in (OK, UNKNOWN)
        return {"ready": ready, "degraded": degraded, **parts, "audit": audit, **self._plugins()}

    def _service(self) -> str:
        return "it is stopping" if self.stopping else OK

    async def _storage(self) -> str:
        try:
            async with asyncio.timeout(PATIENCE):
                await self._store.ready()
        except HoldfastError as error:
            return f"{error.code}: {error.message}"
        except TimeoutError:
            return f"it did not answer within {PATIENCE:g} s"
        return OK

    async def _audit(self) -> str:
        """Return `ok` if audited writes can be signed, else the problem. The result is cached briefly."""
        if seams.monotonic() < self._looked + FRESH:
            return self._signs
        try:
            async with asyncio.timeout(PATIENCE):
                trouble = await self._store.key_trouble()
        except (HoldfastError, TimeoutError):
            return UNKNOWN
        self._signs = OK if trouble is None else f"{trouble.code}: {trouble.message}"
        self._looked = seams.monotonic()
        return self._signs

    def _nats(self) -> str:
        """Return `ok` if the common connection is up and, if plugins have any, at least one of theirs."""
        common, own = self.links[:1], self.links[1:]
        connected = any(one.is_connected for one in common) and (
            not own or any(one.is_connected for one in own)
        )
        return OK if connected else "it is not connected"

    def _plugins(self) -> dict[str, str]:
        """Report lost connections of plugins. They affect only those plugins."""
        own = self.links[1:]
        gone = sum(not one.is_connected for one in own)
        return {"plugins": f"{gone} of {len(own)} connections of plugins are gone"} if gone else {}


def application(health: Health, metrics: Metrics) -> Starlette:
    """Return the application with its routes."""

    async def livez(request: Request) -> Response:
        return JSONResponse({"alive": True})

    async def readyz(request: Request) -> Response:
        report = await health.report()
        return JSONResponse(report, status_code=200 if report["ready"] else 503)

    async def measured(request: Request) -> Response:
        return Response(await metrics.exposition(), headers={"Content-Type": CONTENT_TYPE})

    async def described(request: Request) -> Response:
        return Response(document_bytes(), media_type="application/json")

    return Starlette(
        routes=[
            Route("/livez", livez),
            Route("/readyz", readyz),
            Route("/metrics", measured),
            Route(PATH, described),
        ]
    )


METHODS: Final = ("GET", "HEAD")
"""The methods outside the paths of verbs."""
MCP: Final = "/mcp"
"""The path of the MCP server. Paths below it name a plugin or a project."""
CONSOLE: Final = "/ui"
"""The path below which the console has its pages; its first page is `/`."""
LOOPBACK: Final = "localhost"
KNOWN_HOSTS: Final = 64
"""Number of values of `Host` that are remembered."""
_MISDIRECTED: Final = (
    "this service does not answer to the name in Host; if it is its own, add it to http_hosts"
)
VERSIONS: Final = ("1.0", "1.1")
_ONCE: Final = frozenset({b"authorization", b"host"})
"""Headers that must not occur twice."""
_OWN_SITE: Final = frozenset({b"same-origin", b"none"})
"""What a browser says of requests that no other site has caused."""


class Door:
    """Applications behind a check of their requests: only those addressed to this service pass, and none that
    a web page sends.

    One whose head may be read in two ways is refused, since a proxy in front of the service may have read it
    in the other way. A web page in a browser on this machine must not read metrics or data through a name
    that its owner has pointed at 127.0.0.1, so a name in `Host` must be known. An address in `Host` needs no
    such check, because no name was resolved. A page must not write either, so a request that a browser sends
    for a page of another origin is refused: there is no CORS. Only a link to a page of the console may be
    followed from anywhere, because that page itself has no data.

    Args:
        app: The application for health and metrics.
        names: The names allowed in `Host` besides `localhost`; case is ignored.
        api: The application for the paths of verbs, if they are served.
        mcp: The application for `/mcp` and the paths below it, if it is served.
        console: The application for `/` and the paths below `/ui`, if it is served.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        names: Iterable[str] = (),
        api: Api | None = None,
        mcp: ASGIApp | None = None,
        console: ASGIApp | None = None,
    ) -> None:
        self._app = app
        self._api = api
        self._mcp = mcp
        self._console = console
        self._names = frozenset(_name(name) for name in (LOOPBACK, *names))
        self._hosts: Bounded[bytes, bool] = Bounded(KNOWN_HOSTS)
        self.fast_path = None if api is None else FastPath(api, self.known).take

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on."""
        path: str = scope["path"]
        app = self._of(path)
        refusal = _unclear(scope) or self._refusal(
            scope,
            methods=METHODS if app is None else None,
            linked=app is self._console and app is not None and _followed(scope),
        )
        await (app or self._app if refusal is None else refusal)(scope, receive, send)

    def _of(self, path: str) -> ASGIApp | None:
        """Return the application of a path; None for health and metrics."""
        if path.startswith(ROOT):
            return self._api
        if _is_mcp(path):
            return self._mcp
        return self._console if _is_console(path) else None

    def _refusal(
        self, scope: Scope, *, methods: tuple[str, ...] | None, linked: bool
    ) -> PlainTextResponse | None:
        if methods is not None and scope["method"] not in methods:
            allowed = {"Allow": ", ".join(methods)}
            return PlainTextResponse("only GET and HEAD are answered", status_code=405, headers=allowed)
        for name, said in scope["headers"]:
            if name == b"host" and not self.known(said):
                return PlainTextResponse(_MISDIRECTED, status_code=421)
            if name in OF_PAGES and not linked and not _own(scope, name, said):
                return PlainTextResponse("requests of web pages of other sites are refused", status_code=403)
        return None

    def known(self, host: bytes) -> bool:
        """Return whether a `Host` names this service."""
        known = self._hosts.get(host)
        if known is None:
            name = _name(host.decode("latin-1"))
            known = self._hosts.keep(host, name in self._names or _is_address(name))
        return known


def _unclear(scope: Scope) -> PlainTextResponse | None:
    """Return the refusal of a request whose head may be read in two ways."""
    version, names = scope.get("http_version", "1.1"), set()
    if version not in VERSIONS:
        return _bad("only HTTP/1.1 and HTTP/1.0 are answered")
    for name, _ in scope["headers"]:
        if name in _ONCE and name in names:
            return _bad(f"the header {name.decode()} must not occur twice")
        names.add(name)
    if version == "1.1" and b"host" not in names:
        return _bad("the header host is missing")
    if version == "1.0" and b"transfer-encoding" in names:
        return _bad("a request in HTTP/1.0 has no transfer-encoding")
    return None


def _bad(text: str) -> PlainTextResponse:
    return PlainTextResponse(text, status_code=400)


def _is_mcp(path: str) -> bool:
    if path.startswith("//"):  # of a client that joins an address and a path, both with a slash
        path = f"/{path.lstrip('/')}"
    return path == MCP or path.startswith(f"{MCP}/")


def _is_console(path: str) -> bool:
    return path in ("/", CONSOLE) or path.startswith(f"{CONSOLE}/")


def _followed(scope: Scope) -> bool:
    """Return whether a browser follows a link in a window of its own."""
    said = dict(scope["headers"])
    return (
        scope["method"] in METHODS
        and said.get(b"sec-fetch-mode") == b"navigate"
        and said.get(b"sec-fetch-dest") == b"document"
        and b"origin" not in said
    )


def _name(host: str) -> str:
    """Return a host without its port, normalized for comparison."""
    name, colon, port = host.strip().lower().rpartition(":")
    if not colon or not port.isdecimal() or (":" in name and not name.endswith("]")):
        name = host.strip().lower()
    return name.removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _own(scope: Scope, name: bytes, said: bytes) -> bool:
    """Return whether a request comes from a page of this service or from no page."""
    if name == b"sec-fetch-site":
        return said in _OWN_SITE
    host = next((value for header, value in scope["headers"] if header == b"host"), b"")
    return said == f"{scope['scheme']}://".encode() + host
