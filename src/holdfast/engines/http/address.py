"""The address of a service over HTTP: a URL with its options.

Law: the URL holds every option of a client, so that there is one place to look. This module never reads the
environment.
"""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from holdfast import masking
from holdfast.errors import ValidationError

OPTIONS: Final = {
    "token": "the token that lets this client in",
    "token_file": "a file with that token",
    "timeout": "after how many seconds a call gives up",
    "tls_ca": "a file with the certificates to trust",
}
"""The query options of an `http://` or `https://` URL."""
_PLACE: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(?::([0-9]{1,5}))?/?")
_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,500}")


class HttpAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a service, and the token for it."""

    scheme: str
    host: str
    port: int
    token: str | None = None
    timeout: float = 5.0
    tls_ca: str | None = None

    @property
    def shown(self) -> str:
        """The address without its token."""
        return f"{self.scheme}://{self.netloc}"

    @property
    def netloc(self) -> str:
        """The host and the port, as in a `Host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def context(self) -> ssl.SSLContext | None:
        """Return the context for TLS; None without TLS.

        Raises:
            ValidationError: The file with certificates is missing or has the wrong content.
        """
        if self.scheme != "https":
            return None
        try:
            return ssl.create_default_context(cafile=self.tls_ca)
        except (OSError, ssl.SSLError):
            raise ValidationError("tls_ca in url names no file with certificates", field="url") from None


def http_address(url: str) -> HttpAddress:
    """Parse a URL such as `https://host:8420?token_file=token`.

    Raises:
        ValidationError: The URL names no host, or has an unknown option or one with an illegal value.
    """
    where, _, query = url.partition("?")
    scheme, _, place = where.partition("://")
    found = _PLACE.fullmatch(place)
    if found is None or not 0 < int(found[2] or 1) < 65_536:
        raise ValidationError(
            f"url must be {scheme}://host:port, with a token as ?token=… or ?token_file=…", field="url"
        )
    fields: dict[str, Any] = dict(parse_qsl(query, keep_blank_values=True))
    for name in fields:
        if name not in OPTIONS:
            raise ValidationError(
                f"url has the unknown option {name!r}; known are {', '.join(OPTIONS)}", field="url"
            )
    if "timeout" in fields:
        fields["timeout"] = _seconds(fields["timeout"])
    if "token_file" in fields:
        fields["token"] = _read(fields.pop("token_file"))
    if "token" in fields and not _TOKEN.fullmatch(fields["token"]):
        raise ValidationError("token in url is not a token", field="url")
    usual = 443 if scheme == "https" else 80
    return HttpAddress(scheme=scheme, host=found[1].strip("[]"), port=int(found[2] or usual), **fields)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        raise ValidationError(
            f"token_file in url names no file with a token: {masking.shown_path(path)!r}", field="url"
        ) from None


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 3600:
        raise ValidationError("timeout in url must be a number of seconds, at most 3600", field="url")
    return seconds
