"""What may be shown of an address: where it leads, and never what lets one in.

Law: every message, log line and greeting that names an address takes it from here. An address is cut up as
text, since one with a secret that is not escaped is no legal URL. Where it is not certain which part of it is
the secret, nothing is shown.
"""

from __future__ import annotations

import re
from typing import Final

from holdfast.errors import ValidationError

MASK: Final = "***"
OPTIONS: Final = frozenset(
    {
        "application_name",
        "dbname",
        "host",
        "inbox",
        "port",
        "prefix",
        "sslmode",
        "timeout",
        "tls_first",
        "user",
    }
)
"""The options of a URL whose values are shown."""
KEPT: Final = frozenset(
    {"creds", "nkey", "passfile", "password", "sslcert", "sslkey", "sslpassword", "sslrootcert"}
    | {"tls_ca", "tls_cert", "tls_key"}
)
"""Those whose names are shown and whose values are not. Any other may itself be a piece of a secret."""

_NATS: Final = ("nats", "tls")
_NEXT: Final = re.compile(r",\s*(?=[a-z]+://)")
_PLACE: Final = re.compile(r"[\w.,:\[\]%-]*(/[\w.%-]*)?", re.ASCII)
_PORTS: Final = re.compile(r"\[[^\]]*\]|:\d+(?=[,/]|$)")
_USER: Final = re.compile(r"[\w.%-]*", re.ASCII)
_SEED: Final = re.compile(r"[A-Z2-7]{40,}|-+BEGIN.*", re.DOTALL)


def shown(url: str) -> str:
    """An address, or several with commas between them, without passwords and tokens."""
    return ", ".join(_one(part.strip()) for part in _NEXT.split(url))


def hosts(url: str) -> str:
    """Only where an address leads, or several: host and port, nothing if there is none."""
    parts = [_one(part.strip()).rpartition("://")[2].rpartition("@")[2] for part in _NEXT.split(url)]
    return ", ".join(part.partition("?")[0].partition("/")[0] for part in parts)


def shown_path(path: str) -> str:
    """The name of a file; somebody may have given a secret where the name of its file was asked for."""
    return MASK if _SEED.fullmatch(path.strip()) else path


def require_escaped(url: str) -> None:
    """Refuse an address in which a secret has a character that would end it.

    What follows would be taken for the name of a host or a database, and be sent there.

    Raises:
        ValidationError: It is such an address.
    """
    for part in _NEXT.split(url):
        head, _, query = (part.partition("://")[2] if "://" in part else part).partition("?")
        authority = re.split("[/#]", head)[0]
        odd = [option for option in query.split("&") if "@" in option and _option(option) == MASK]
        if "@" not in authority and ("@" in head or odd):
            raise ValidationError(
                "url has a password or a token with a character that ends it: write / as %2F, ? as %3F, # as "
                "%23 and @ as %40 there",
                field="url",
            )


def _one(url: str) -> str:
    scheme, separator, rest = url.partition("://") if "://" in url else ("", "", url)
    if scheme.startswith("sqlite") and rest.startswith("/"):
        return url  # a path holds no secret, and any character
    head, _, query = rest.partition("?")
    options = [_option(option) for option in query.partition("#")[0].split("&") if option]
    if "@" in query and ("@" in head or MASK in options):
        return f"{scheme}{separator}{MASK}"
    credentials, at, place = head.rpartition("@")
    place = place.partition("#")[0]
    if not _PLACE.fullmatch(place) or (not at and ":" in _PORTS.sub("", place)):
        place = MASK
    user = _user(credentials, nats=scheme in (*_NATS, "")) if at else ""
    return f"{scheme}{separator}{user}{at}{place}{'?' if options else ''}{'&'.join(options)}"


def _user(credentials: str, *, nats: bool) -> str:
    """The user; to NATS a name without a password is a token."""
    name, colon, _ = credentials.partition(":")
    return name if (colon or not nats) and _USER.fullmatch(name) else MASK


def _option(text: str) -> str:
    name = text.partition("=")[0]
    if name in OPTIONS:
        return text
    return f"{name}={MASK}" if name in KEPT else MASK
