"""Login to NATS with a password, a token, an nkey or a JWT, and the parsing of servers' addresses.

Whatever fails here raises an error of the bus. Secrets in files are read at every attempt, so that new
ones are used. `nkeys` is imported only when an nkey is used.
"""

from __future__ import annotations

import base64
import contextlib
import re
import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import msgspec

from holdfast import extras
from holdfast.bus.errors import BusError

if TYPE_CHECKING:
    from holdfast.bus.protocol import Info

PORT: Final = 4222
_SCHEMES: Final = ("nats", "tls")
_SECRETS: Final = frozenset({"pass", "auth_token"})
"""The fields that an eavesdropper could reuse to log in. Signatures can be used only once."""
_PART: Final = r"-+BEGIN {}-+\s*([A-Za-z0-9_.=-]+)\s*-+END"
_JWT: Final = re.compile(_PART.format("NATS USER JWT"))
_SEED: Final = re.compile(_PART.format("USER NKEY SEED"))


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """The address of a server.

    Args:
        host: Its hostname or IP address.
        port: Its port.
        name: The name that its certificate must have.
        secure: Whether TLS is required.
        announced: Whether another server announced it; otherwise the user named it.
        user: The user, or the token.
        password: The user's password.
    """

    host: str
    port: int = PORT
    name: str = ""
    secure: bool = False
    announced: bool = False
    user: str | None = None
    password: str | None = None


def server_at(url: str) -> Server:
    """Parse `nats://user:password@host:port`, `tls://token@host` or plain `host:port`.

    Raises:
        BusError: The text is not such an address.
    """
    try:
        parts = urlsplit(url.strip() if "://" in url else f"nats://{url.strip()}")
        host, port = parts.hostname or "", parts.port
        host.encode("idna")  # as the resolver will
    except ValueError:
        host = ""
    if not host or parts.scheme not in _SCHEMES:
        raise BusError("the address is not that of a NATS server")
    if parts.query:
        raise BusError("the address of a NATS server has no options after '?' here")
    return Server(
        host=host,
        port=port or PORT,
        name=host,
        secure=parts.scheme == "tls",
        user=None if parts.username is None else unquote(parts.username),
        password=None if parts.password is None else unquote(parts.password),
    )


def servers_beside(server: Server, announced: Iterable[str], *, encrypted: bool) -> list[Server]:
    """Return the other servers of the cluster that a server announces. They accept the same users.

    If the connection is encrypted, theirs must be too. If it is not, the announcement may be forged: then the
    certificates of the others must have the name of the server that the user named.
    """
    beside = []
    for where in announced:
        with contextlib.suppress(BusError):
            other = server_at(where)
            name = other.host if encrypted and re.search("[a-z]", other.host) else server.name
            secure = server.secure or encrypted
            beside.append(
                msgspec.structs.replace(
                    server, host=other.host, port=other.port, name=name, secure=secure, announced=True
                )
            )
    return beside


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """The credentials for a login. Without a user or a token, those of the server's address are used.

    `nkey` is the text of a seed, `nkey_file` a file that holds one, and `creds_file` a file with a JWT and a
    seed. With `tls` every connection is encrypted, and with `tls_first` before the server sends anything.
    """

    user: str | None = None
    password: str | None = None
    token: str | None = None
    nkey: str | None = None
    nkey_file: str | None = None
    creds_file: str | None = None
    tls: ssl.SSLContext | None = None
    tls_first: bool = False

    def shown(self, server: Server, info: Info, *, encrypted: bool) -> dict[str, str]:
        """Return the credentials to send in `CONNECT`, in answer to the server's `INFO`.

        Raises:
            BusError: A file has the wrong content, or a secret would go in plain text to a server that the
                user has not named.
            OSError: A file can't be read.
            Unsupported: The package that signs is not installed.
        """
        shown = self._shown(server, info.nonce)
        if server.announced and not encrypted and not _SECRETS.isdisjoint(shown):
            raise BusError(
                "refusing to send a password in plain text to a server that only another server named: "
                "name it in the URL, or use TLS"
            )
        return shown

    def _shown(self, server: Server, nonce: str) -> dict[str, str]:
        if self.creds_file is not None:
            text = Path(self.creds_file).read_text(encoding="ascii", errors="replace")
            jwt, seed = _JWT.search(text), _SEED.search(text)
            if jwt is None or seed is None:
                raise BusError("the credentials file does not contain a JWT and its seed")
            return {"jwt": jwt[1], "sig": _signed(seed[1], nonce)[1]} | self._named(server, only_token=True)
        seed_text = self.nkey
        if self.nkey_file is not None:
            seed_text = Path(self.nkey_file).read_text(encoding="ascii", errors="replace").strip()
        if seed_text is not None:
            public, signature = _signed(seed_text, nonce)
            return {"nkey": public, "sig": signature} | self._named(server, only_token=True)
        return self._named(server)

    def _named(self, server: Server, *, only_token: bool = False) -> dict[str, str]:
        if self.user is not None and self.password is not None and not only_token:
            return {"user": self.user, "pass": self.password}
        if self.token is not None:
            return {"auth_token": self.token}
        if server.user is None or only_token:
            return {}
        if server.password is None:
            return {"auth_token": server.user}
        return {"user": server.user, "pass": server.password}

    def context(self, server: Server, info: Info) -> ssl.SSLContext | None:
        """Return the TLS context for a server with this `INFO`, or None for an unencrypted connection.

        Raises:
            BusError: The user requires TLS, and the server does not offer it.
        """
        required = server.secure or self.tls is not None or self.tls_first
        if required and not (info.tls_required or info.tls_available):
            raise BusError("it does not offer TLS, which the URL or a tls setting requires")
        return self.trust() if required or info.tls_required else None

    def trust(self) -> ssl.SSLContext:
        """Return the TLS context with the trusted certificates and this client's own."""
        return self.tls or ssl.create_default_context()


def _signed(seed: str, nonce: str) -> tuple[str, str]:
    """Return the public key of an nkey, and its signature of the nonce."""
    with extras.needed("nats", "an nkey or a creds file"):
        # late: optional driver
        import nkeys  # type: ignore[import-untyped]
    try:
        pair = nkeys.from_seed(seed.encode())
        public, signature = pair.public_key.decode(), pair.sign(nonce.encode())
    except (nkeys.NkeysError, ValueError):
        raise BusError("the seed is not that of an nkey") from None
    return public, base64.urlsafe_b64encode(signature).decode().rstrip("=")
