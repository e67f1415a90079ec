"""Whose connection a request came from, where the NATS server tells.

A server that imports a service with `share: true` puts who asks into a header, in place of any that the
caller has sent. Without `share` the header is the caller's own: so it is read only where the settings say so.

Law: what the server says is taken as it is, but for its length and for characters that would change a line.
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
    """The user as it stands behind the name of a principal, such as `:alice`; nothing if it is not told."""
    said = message.header(HEADER) if message.head else None
    try:
        user = _INFO.decode(said).user if said else ""
    except (msgspec.DecodeError, RecursionError):
        return ""
    plain = "".join(one for one in user[:LONGEST] if one.isprintable())
    return f":{plain}" if plain else ""
