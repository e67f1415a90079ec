"""Addresses without their secrets, for display.

Every message, log line and greeting that names an address takes it from here. Addresses are split as text,
because one with an unescaped secret is not a legal URL. If it is unclear which part is the secret, nothing is
shown.
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
        "target_session_attrs",
        "timeout",
        "tls_first",
        "user",
    }
)
"""The URL options whose values are shown."""
KEPT: Final = frozenset(
    {"creds", "nkey", "passfile", "password", "sslcert", "sslkey", "sslpassword", "sslrootcert"}
    | {"tls_ca", "tls_cert", "tls_key", "token", "token_file"}
)
"""The URL options whose names are shown, but not their values. Any other name may be part of a secret."""

_NATS: Final = ("nats", "tls")
_NEXT: Final = re.compile(r",\s*(?=[a-z]+://)")
_PLACE: Final = re.compile(r"[\w.,:\[\]%-]*(/[\w.%-]*)?", re.ASCII)
_PORTS: Final = re.compile(r"\[[^\]]*\]|:\d+(?=[,/]|$)")
_USER: Final = re.compile(r"[\w.%-]*", re.ASCII)
_SEED: Final = re.compile(r"[A-Z2-7]{40,}|-+BEGIN.*", re.DOTALL)


def shown(url: str) -> str:
    """Return an address, or several separated by commas, without passwords and tokens."""
    return ", ".join(_one(part.strip()) for part in _NEXT.split(url))


def hosts(url: str) -> str:
    """Return only the host and port of an address, or of several; empty if there is none."""
    parts = [_one(part.strip()).rpartition("://")[2].rpartition("@")[2] for part in _NEXT.split(url)]
    return ", ".join(part.partition("?")[0].partition("/")[0] for part in parts)


def shown_path(path: str) -> str:
    """Return the name of a file, masked if it looks like a secret given in place of a file name."""
    return MASK if _SEED.fullmatch(path.strip()) else path


def require_escaped(url: str) -> None:
    """Refuse an address with a secret that contains an unescaped delimiter.

    The rest of the secret would be taken for the name of a host or a database, and be sent there.

    Raises:
        ValidationError: The address contains such a secret.
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
        return url  # a path holds no secret, and may hold any character
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
    """Return the user. For NATS, a name without a password is a token and is masked."""
    name, colon, _ = credentials.partition(":")
    return name if (colon or not nats) and _USER.fullmatch(name) else MASK


def _option(text: str) -> str:
    name = text.partition("=")[0]
    if name in OPTIONS:
        return text
    return f"{name}={MASK}" if name in KEPT else MASK
