"""The settings of a nats-server that do not depend on its users, as text: address, TLS and limits.

Law: pure functions from values to text; the same values give the same text. Nothing here reads files, writes
files or connects.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

LISTEN: Final = "127.0.0.1:4222"
CONNECTIONS: Final = 16
"""Maximum number of simultaneous connections per user of a plugin or project."""
PENDING: Final = 33_554_432
"""Maximum number of unread bytes that the server buffers for a connection before it closes it.

This is twice what the service queues for one plugin, so a burst that the service would accept is not cut off.
"""
PENDING_UNCOUNTED: Final = 16_777_216
"""The same limit where the server cannot count connections per user, so that one user may have many."""
WRITE_DEADLINE: Final = "10s"
"""Time after which the server closes a connection that accepts no data."""

_WIDTH: Final = 110


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    """The TLS settings of the server.

    Args:
        cert: The file with its certificate and any intermediate certificates.
        key: The file with the key of its certificate.
        ca: The file with the certificate of the authority, which clients trust.
        verify: Whether clients must present a certificate from that authority.
        first: Whether connections start with TLS, before the server sends anything.
    """

    cert: str
    key: str
    ca: str | None = None
    verify: bool = False
    first: bool = False

    def block(self) -> dict[str, Any]:
        """Return the `tls` block of the server's configuration."""
        block: dict[str, Any] = {"cert_file": self.cert, "key_file": self.key}
        if self.ca is not None:
            block["ca_file"] = self.ca
        if self.verify:
            block["verify"] = True
        if self.first:
            block["handshake_first"] = True
        return block


def limits(connections: int | None) -> dict[str, Any]:
    """Return the limits of a connection, and the total number of connections if one is given."""
    total = {} if connections is None else {"max_connections": connections}
    return {
        **total,
        "max_payload": 1_048_576,
        "max_pending": PENDING if connections is None else PENDING_UNCOUNTED,
        "write_deadline": WRITE_DEADLINE,
        "max_control_line": 4_096,
        "max_subscriptions": 1_000,
    }


def written(settings: Mapping[str, Any]) -> str:
    """Return settings as text, one after the other."""
    return "".join(f"{name}: {_shown(value)}\n" for name, value in settings.items())


def _shown(value: Any, indent: str = "") -> str:
    """Return a value in the configuration's syntax, on one line if that is short enough."""
    if isinstance(value, str | int):
        return json.dumps(value)
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    deeper = f"{indent}  "
    members = (
        [f"{name}: {_shown(member, deeper)}" for name, member in value.items()]
        if isinstance(value, dict)
        else [_shown(member, deeper) for member in value]
    )
    line = f"{opening} {', '.join(members)} {closing}"
    if "\n" not in line and len(indent) + len(line) < _WIDTH:
        return line
    return "\n".join([opening, *(f"{deeper}{member}" for member in members), f"{indent}{closing}"])
