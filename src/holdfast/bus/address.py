"""The address of a service on NATS: a URL with the servers, the subjects and the login.

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
        fields["timeout"] = seconds_in(fields["timeout"])
    if "tls_first" in fields:
        fields["tls_first"] = _choice("tls_first", fields["tls_first"])
    for name in ("prefix", "inbox"):
        if name in fields and not _TOKENS.fullmatch(fields[name]):
            raise ValidationError(f"{name} in url must be tokens with dots between them", field="url")
    return NatsAddress(servers=[server.strip() for server in where.split(",")], **fields)


def _choice(name: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise ValidationError(f"{name} in url must be true or false", field="url")
    return text == "true"


def seconds_in(text: str) -> float:
    """Return the timeout that a URL gives.

    Raises:
        ValidationError: It is not a number of seconds, or too large.
    """
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 3600:
        raise ValidationError("timeout in url must be a number of seconds, at most 3600", field="url")
    return seconds
