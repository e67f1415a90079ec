"""The addresses of services: NATS URLs with login options, and HTTP URLs with tokens.

A URL holds every option of a client, so that there is one place to look. This module never reads the
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
from holdfast.bus.login import Login
from holdfast.errors import ValidationError

NATS_OPTIONS: Final = {
    "prefix": "the first tokens of the service's subjects",
    "inbox": "where replies come: _INBOX.<plugin> under a server with permissions",
    "timeout": "after how many seconds a call gives up",
    "creds": "a file with a JWT and its seed",
    "nkey": "a file with an nkey's seed",
    "tls_ca": "a file with the certificates to trust",
    "tls_cert": "a file with this client's certificate",
    "tls_key": "a file with the key of that certificate",
    "tls_first": "true for a server that begins with TLS (handshake_first)",
}
"""The query options of a `nats://` URL."""


HTTP_OPTIONS: Final = {
    "token": "the token that lets this client in",
    "token_file": "a file with that token",
    "timeout": "after how many seconds a call gives up",
    "tls_ca": "a file with the certificates to trust",
}
"""The query options of an `http://` or `https://` URL."""
_PLACE: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(?::([0-9]{1,5}))?/?")
_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,500}")
_TOKENS: Final = re.compile(r"[^\s.*>]+(\.[^\s.*>]+)*")
"""A legal start of subjects. The server would take a space or a newline for the end of the subject."""
_FILES: Final = ("creds", "nkey", "tls_ca", "tls_cert", "tls_key")


class NatsAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The servers, subjects and login of a service."""

    servers: list[str]
    prefix: str = "db"
    inbox: str = "_INBOX"
    timeout: float = 5.0
    creds: str | None = None
    nkey: str | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_first: bool = False
    login_file: str | None = None

    @property
    def shown(self) -> str:
        """The servers, without passwords."""
        return masking.hosts(",".join(self.servers))

    def login(self) -> Login:
        """Return the login for the servers. With any TLS option, the connection is encrypted or refused.

        Raises:
            ValidationError: A file that the URL names is missing or has the wrong content.
        """
        for name in _FILES:
            path = getattr(self, name)
            if path is not None and not Path(path).is_file():
                raise ValidationError(
                    f"{name} in url names no file: {masking.shown_path(path)!r}", field="url"
                )
        if self.tls_key and not self.tls_cert:
            raise ValidationError("tls_key in url needs tls_cert", field="url")
        tls = self._context() if self.tls_ca or self.tls_cert else None
        user, password = self._user()
        return Login(
            user=user,
            password=password,
            creds_file=self.creds,
            nkey_file=self.nkey,
            tls=tls,
            tls_first=self.tls_first,
        )

    def _user(self) -> tuple[str | None, str | None]:
        if self.login_file is None:
            return None, None
        try:
            user, colon, password = Path(self.login_file).read_text(encoding="utf-8").strip().partition(":")
        except (OSError, UnicodeDecodeError):
            colon = ""
        if not colon:
            raise ValidationError(
                f"login in url names no file with user:password: {masking.shown_path(self.login_file)!r}",
                field="url",
            )
        return user, password

    def _context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.tls_ca)
            if self.tls_cert:
                context.load_cert_chain(self.tls_cert, self.tls_key)
        except ssl.SSLError:
            raise ValidationError(
                "tls_ca, tls_cert or tls_key in url names no such file", field="url"
            ) from None
        return context


def nats_address(url: str) -> NatsAddress:
    """Parse a URL such as `nats://user:password@host:4222,nats://other:4222?prefix=db&…`.

    Raises:
        ValidationError: The URL has an unknown option or one with an illegal value.
    """
    masking.require_escaped(url)
    where, _, query = url.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name not in NATS_OPTIONS:
            what = masking.MASK if masking.MASK in masking.hosts(where) else name
            raise ValidationError(
                f"url has the unknown option {what!r}; known are {', '.join(NATS_OPTIONS)}", field="url"
            )
    fields: dict[str, Any] = dict(options)
    if "timeout" in fields:
        fields["timeout"] = _seconds(fields["timeout"])
    if "tls_first" in fields:
        fields["tls_first"] = _choice("tls_first", fields["tls_first"])
    for name in ("prefix", "inbox"):
        if name in fields and not _TOKENS.fullmatch(fields[name]):
            raise ValidationError(f"{name} in url must be tokens with dots between them", field="url")
    return NatsAddress(servers=[server.strip() for server in where.split(",")], **fields)


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
        if name not in HTTP_OPTIONS:
            raise ValidationError(
                f"url has the unknown option {name!r}; known are {', '.join(HTTP_OPTIONS)}", field="url"
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


def _choice(name: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise ValidationError(f"{name} in url must be true or false", field="url")
    return text == "true"


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 3600:
        raise ValidationError("timeout in url must be a number of seconds, at most 3600", field="url")
    return seconds
