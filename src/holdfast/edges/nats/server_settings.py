"""The settings of a nats-server that do not depend on its users: address, TLS and limits, as text.

Law: values go in, text comes out, the same text for the same values; nothing here reads, writes or connects.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

LISTEN: Final = "127.0.0.1:4222"
CONNECTIONS: Final = 16
"""How many connections a user of a plugin or project may have at a time."""
PENDING: Final = 33_554_432
"""How many bytes the server keeps for a connection that does not read them, before it ends that.

That is twice what the service lets wait for one plugin, so that a burst which it would take is not cut off.
"""
PENDING_UNCOUNTED: Final = 16_777_216
"""The same where the server can't count the connections of a user, and one user may have many."""
WRITE_DEADLINE: Final = "10s"
"""For how long a connection may take nothing of what is being written to it."""

_WIDTH: Final = 110


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    """How the server encrypts connections.

    Args:
        cert: The file with its certificate, and those between that and the authority's.
        key: The file with the key of its certificate.
        ca: The file with the authority's certificate, which clients trust.
        verify: Whether clients have to show a certificate of that authority.
        first: Whether connections begin with TLS, before the server has said anything.
    """

    cert: str
    key: str
    ca: str | None = None
    verify: bool = False
    first: bool = False

    def block(self) -> dict[str, Any]:
        """The block of the server's configuration."""
        block: dict[str, Any] = {"cert_file": self.cert, "key_file": self.key}
        if self.ca is not None:
            block["ca_file"] = self.ca
        if self.verify:
            block["verify"] = True
        if self.first:
            block["handshake_first"] = True
        return block


def limits(connections: int | None) -> dict[str, Any]:
    """What one connection may cost the server, and how many there are where it can't count a user's."""
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
    """The text of settings, one after the other."""
    return "".join(f"{name}: {_shown(value)}\n" for name, value in settings.items())


def _shown(value: Any, indent: str = "") -> str:
    """A value as a configuration has it: on one line where that is short enough."""
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
