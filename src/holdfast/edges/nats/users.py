"""The NATS user behind a request, as reported by the server.

A server that imports a service with `share: true` writes the user into a header and overwrites any header
that the caller sent. Without `share` the caller controls the header. So the service reads it only where the
settings allow it.

Law: the server's value is kept as it is, except that it is truncated and unprintable characters are removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from holdfast.bus.protocol import Message

HEADER: Final = "Nats-Request-Info"
LONGEST: Final = 100


class _Info(msgspec.Struct):
    user: str = ""


_INFO: Final = msgspec.json.Decoder(_Info)


def user_of(message: Message) -> str:
    """Return the user as a suffix for a principal, such as `:alice`; an empty string if it is unknown."""
    said = message.header(HEADER) if message.head else None
    try:
        user = _INFO.decode(said).user if said else ""
    except (msgspec.DecodeError, RecursionError):
        return ""
    plain = "".join(one for one in user[:LONGEST] if one.isprintable())
    return f":{plain}" if plain else ""
