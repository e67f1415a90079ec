"""The check of HTTP requests: only reads, and only requests addressed to this service.

Law: a request is checked here before anything else sees it. A web page in a browser on this machine must not
read metrics through a name that its owner has pointed at 127.0.0.1, so a name in `Host` must be known. An
address in `Host` needs no such check, because no name was resolved.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import ASGIApp, Receive, Scope, Send

METHODS: Final = ("GET", "HEAD")
LOOPBACK: Final = "localhost"


class Door:
    """An application behind a check of its requests.

    Args:
        app: The application behind the door.
        names: The names allowed in `Host` besides `localhost`; case is ignored.
    """

    def __init__(self, app: ASGIApp, *, names: Iterable[str] = ()) -> None:
        self._app = app
        self._names = frozenset(_name(name) for name in (LOOPBACK, *names))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on."""
        refusal = self._refusal(scope)
        await (self._app if refusal is None else refusal)(scope, receive, send)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        if scope["method"] not in METHODS:
            allowed = {"Allow": ", ".join(METHODS)}
            return PlainTextResponse("only GET and HEAD are answered", status_code=405, headers=allowed)
        hosts = Headers(scope=scope).getlist("host")
        if all(map(self._known, hosts)):  # browsers always send a Host
            return None
        return PlainTextResponse(
            "this service does not answer to the name in Host; if it is its own, add it to http_hosts",
            status_code=421,
        )

    def _known(self, host: str) -> bool:
        name = _name(host)
        return name in self._names or _is_address(name)


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
