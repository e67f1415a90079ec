"""What can happen to a connection.

    BusError
    ├── ProtocolError      the server says something that is not of the protocol
    ├── LoginRefused       the server does not let this user in
    ├── Untrusted          the server's certificate is not one that this user trusts
    ├── ServerComplaint    what a server says is wrong, in its words
    └── Lost               the connection is gone

Law: whoever uses the bus turns these into errors of Holdfast; none of them reaches a caller.
"""

from __future__ import annotations

import re
from typing import Final

_REFUSALS: Final = re.compile(r"authorization violation|authentication (expired|revoked)", re.IGNORECASE)


class BusError(Exception):
    """The root."""


class ProtocolError(BusError):
    """The server says something that is not of the protocol."""


class LoginRefused(BusError):
    """The server does not let this user in."""


class Untrusted(BusError):
    """The server's certificate is not one that this user trusts."""


class ServerComplaint(BusError):
    """What a server says is wrong, in its words."""


class Lost(BusError):
    """The connection is gone."""


def refusal(words: str) -> BusError:
    """The error in which a server's words end an attempt to log in; the protocol has no sign but words."""
    return LoginRefused(words) if _REFUSALS.search(words) else ServerComplaint(words)
