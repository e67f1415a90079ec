"""The errors of a connection.

    BusError
    ├── ProtocolError      the server violated the protocol
    ├── LoginRefused       the server refused this user's login
    ├── Untrusted          the server's certificate is not trusted
    ├── ServerComplaint    an error that the server reported, in its words
    ├── NoResponders       no one listens to the subject of a request
    └── Lost               the connection is gone

Users of the bus translate these into Holdfast's errors; none of them reaches a caller.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_REFUSALS: Final = re.compile(r"authorization violation|authentication (expired|revoked)", re.IGNORECASE)
_VIOLATION: Final = re.compile(
    r'permissions violation for (publish|subscription) to "([^"]*)"', re.IGNORECASE
)


class BusError(Exception):
    """The root of these errors."""


class ProtocolError(BusError):
    """The server violated the protocol."""


class LoginRefused(BusError):
    """The server refused this user's login."""


class Untrusted(BusError):
    """The server's certificate is not trusted."""


class ServerComplaint(BusError):
    """An error that the server reported, in its words."""


class NoResponders(BusError):
    """No one listens to the subject of a request."""


class Lost(BusError):
    """The connection is gone."""


def refusal(words: str) -> BusError:
    """Return the error for a server's message that ends a login. The protocol has no codes, only messages."""
    return LoginRefused(words) if _REFUSALS.search(words) else ServerComplaint(words)


class Violation(NamedTuple):
    """A server's refusal to let this user publish or subscribe: `kind` is `publish` or `subscription`."""

    kind: str
    subject: str


def violation(error: Exception) -> Violation | None:
    """Return the refusal that an error reports, or None. The protocol has no codes, only messages."""
    match = _VIOLATION.search(str(error))
    return None if match is None else Violation(match[1].lower(), match[2])
