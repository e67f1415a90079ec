"""Who may ask over HTTP: requests that only read, and that were meant for this service.

Law: a request is refused here before anything else looks at it. A web page in a browser of this machine must
not read metrics by a name that its owner has pointed at 127.0.0.1, so a name in `Host` must be known. An
address in `Host` needs no such check: no name was looked up.
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
    """An application that is asked only what it may be asked.

    Args:
        app: The application behind the door.
        names: The names by which it may be asked for, beside `localhost`; any case.
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
        if all(map(self._known, hosts)):  # none at all is what no browser sends
            return None
        return PlainTextResponse(
            "this service does not answer to the name in Host; if it is its own, add it to http_hosts",
            status_code=421,
        )

    def _known(self, host: str) -> bool:
        name = _name(host)
        return name in self._names or _is_address(name)


def _name(host: str) -> str:
    """A host without its port, in the one form in which names are compared."""
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
