"""A way around ASGI for requests that are answered with one short response, which is nearly all of them.

Such a request needs no task, no events and no messages between a server and an application: it is queued as
soon as it has arrived, and its response is written as soon as there is one.

Law: a request is answered here exactly as the application would answer it, and with the application's code.
One that needs more than that takes the usual way: a stream, a look into the store, or a refusal before it is
queued.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from holdfast.edges.http.api import HttpCall, starting_or_stopping, told
from holdfast.edges.http.guard import PASSED_ON
from holdfast.edges.http.responses import problem, spelled
from holdfast.edges.http.routes import ROOT, found
from holdfast.edges.http.spoken import HEADERS
from holdfast.errors import HoldfastError, InternalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.edges.http.api import Api
    from holdfast.edges.http.connections import BoundedConnection
    from holdfast.edges.intake.requests import Request
    from holdfast.edges.intake.service import RequestService

MOST_QUICK: Final = 16_384
"""Maximum number of bytes of a body that takes the shortcut."""
OF_PAGES: Final = frozenset({b"origin", b"sec-fetch-site"})
"""Headers that tell which page caused a browser to send a request."""
_USUAL: Final = OF_PAGES | PASSED_ON | {b"cookie", b"expect", b"transfer-encoding", b"upgrade"}
"""Headers with which a request takes the usual way."""

_ROOT: Final = ROOT.encode()

_log = logging.getLogger("holdfast.service")


class Quick:
    """A request that takes the shortcut. `reply` is its response, once there is one.

    Args:
        api: The door.
        service: The service at the time of its arrival.
        connection: Where the response is sent.
        call: The request.
    """

    __slots__ = ("_api", "_call", "_connection", "_service", "body", "reply")

    def __init__(
        self, api: Api, service: RequestService, connection: BoundedConnection, call: HttpCall
    ) -> None:
        self._api = api
        self._service = service
        self._connection = connection
        self._call = call
        self.body = b""
        self.reply: bytes | None = None

    def begin(self) -> None:
        """Queue the request, which has arrived."""
        body, self.body = self.body, b""  # the queue counts it; here it would outlive the answer
        if self._api.service is self._service:
            self._api.begin(self._service, self._call, body, back=self._answer)
        else:
            self._respond({}, starting_or_stopping())

    def _answer(
        self, request: Request, fields: dict[str, Any], error: HoldfastError | None
    ) -> HoldfastError | None:
        """Take the answer of the request."""
        request.back = None  # it leads here, and an error leads to the request: nothing is left in a circle
        self._respond(fields, error)
        return error

    def _respond(self, fields: dict[str, Any], error: HoldfastError | None) -> None:
        connection, call = self._connection, self._call
        if connection.transport.is_closing():
            call.request = None
            return
        try:
            response = call.shown(fields, error)
        except Exception:
            _log.exception("a response could not be made")
            response = problem(InternalError("the response could not be made"))
        self.reply = spelled(response, connection.server_state.default_headers, told(self._service, call))
        call.request = None
        connection.go_on()


class Shortcut:
    """The choice of requests that take the shortcut.

    Args:
        api: The door.
        known: Returns whether a `Host` names this service.
    """

    def __init__(self, api: Api, known: Callable[[bytes], bool]) -> None:
        self._api = api
        self._known = known
        self._most = min(MOST_QUICK, api.limits.body_bytes)

    def take(self, connection: BoundedConnection) -> Quick | None:
        """Return the request whose head a connection has received, if it takes the shortcut."""
        service, path = self._api.service, connection.url
        parser, headers = connection.parser, connection.headers
        if service is None or not path.startswith(_ROOT) or b"?" in path or b"#" in path:
            return None
        method = parser.get_method().decode()
        if method == "HEAD" or not parser.should_keep_alive() or parser.get_http_version() != "1.1":
            return None
        said, host, fielded = None, None, False
        for name, value in headers:
            if name == b"host":
                if host is not None or not self._known(value):
                    return None
                host = value
            elif name == b"content-length":
                if int(value) > self._most:
                    return None
            elif name == b"authorization":
                if said is not None:
                    return None
                said = value
            elif name in HEADERS:
                fielded = True
            elif name in _USUAL:
                return None
        if host is None:
            return None
        try:
            asked = found(method, path)
            if asked.place.family == "blob":
                return None
            user = self._api.guard.admit_at_once(
                connection.client, said, asked, host=host, server=connection.server
            )
            if user is None:
                return None
            scope = {"method": method, "raw_path": path, "query_string": b"", "headers": headers}
            call = HttpCall(scope, asked, user, None if fielded else {})
        except HoldfastError:
            return None  # the application refuses it
        return Quick(self._api, service, connection, call)
