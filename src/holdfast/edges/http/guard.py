"""The check of who is asking over HTTP.

Law: without a token only a process of this machine may ask, and only in open mode, where NATS does not tell
callers apart either. A request that a proxy passed on comes from elsewhere, whatever its connection says.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final

from holdfast.edges.http.responses import NoToken

if TYPE_CHECKING:
    from starlette.types import Scope

    from holdfast.edges.http.routes import Found

_PASSED_ON: Final = frozenset({b"forwarded", b"via", b"x-forwarded-for", b"x-real-ip"})
"""Headers that a proxy adds."""


class Guard:
    """The check of who is asking.

    Args:
        open_mode: Whether processes of this machine need no token.
    """

    def __init__(self, *, open_mode: bool) -> None:
        self._open = open_mode

    def admit(self, scope: Scope, asked: Found) -> str:
        """Return the suffix of the caller's principal.

        Raises:
            NoToken: The caller needs a token.
        """
        if self._open and _near(scope):
            return ""
        raise NoToken("this needs a token: send it as Authorization: Bearer <token>")


def _near(scope: Scope) -> bool:
    """Return whether a request comes from this machine and from no proxy."""
    client = scope.get("client")
    if client is None or not is_loopback(client[0]):
        return False
    return _PASSED_ON.isdisjoint(name for name, _ in scope["headers"])


def is_loopback(address: str) -> bool:
    """Return whether an address is one of this machine only."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address == "localhost"
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback
