"""How one logs in to NATS: a password, a token, an nkey, a JWT; and what a server's address says of it.

Law: whatever may go wrong here is an error of the bus. Secrets in files are read at every attempt, so that
new ones are used; `nkeys` is imported only by who has one.
"""

from __future__ import annotations

import base64
import contextlib
import re
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import msgspec

from holdfast import extras
from holdfast.bus.errors import BusError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.bus.protocol import Info

PORT: Final = 4222
_SCHEMES: Final = ("nats", "tls")
_SECRETS: Final = frozenset({"pass", "auth_token"})
"""What whoever reads along could log in with; signatures are of use only once."""
_PART: Final = r"-+BEGIN {}-+\s*([A-Za-z0-9_.=-]+)\s*-+END"
_JWT: Final = re.compile(_PART.format("NATS USER JWT"))
_SEED: Final = re.compile(_PART.format("USER NKEY SEED"))


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server is.

    Args:
        host: Its name or address.
        port: Its port.
        name: What its certificate has to say.
        secure: Whether TLS is required.
        told: Whether another server told of it; otherwise the user named it.
        user: Who asks, or the token.
        password: Their password.
    """

    host: str
    port: int = PORT
    name: str = ""
    secure: bool = False
    told: bool = False
    user: str | None = None
    password: str | None = None


def server_at(url: str) -> Server:
    """The server at `nats://user:password@host:port`, `tls://token@host` or plainly `host:port`.

    Raises:
        BusError: This is no such address.
    """
    try:
        found = urlsplit(url.strip() if "://" in url else f"nats://{url.strip()}")
        host, port = found.hostname or "", found.port
        host.encode("idna")  # as the resolver will
    except ValueError:
        host = ""
    if not host or found.scheme not in _SCHEMES:
        raise BusError("the address is not that of a NATS server")
    if found.query:
        raise BusError("the address of a NATS server has no options after '?' here")
    return Server(
        host=host,
        port=port or PORT,
        name=host,
        secure=found.scheme == "tls",
        user=None if found.username is None else unquote(found.username),
        password=None if found.password is None else unquote(found.password),
    )


def servers_beside(server: Server, told: Iterable[str], *, encrypted: bool) -> list[Server]:
    """The others of its cluster that a server tells of; they know the same users.

    If the connection is encrypted, theirs have to be. If it is not, anybody may have said this: then the
    certificates of the others have to name the server that this user named.
    """
    beside = []
    for where in told:
        with contextlib.suppress(BusError):
            other = server_at(where)
            name = other.host if encrypted and re.search("[a-z]", other.host) else server.name
            secure = server.secure or encrypted
            beside.append(
                msgspec.structs.replace(
                    server, host=other.host, port=other.port, name=name, secure=secure, told=True
                )
            )
    return beside


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """What one shows to be let in. Without a user and a token those of the server's address are shown.

    `nkey` is the text of a seed, `nkey_file` a file that holds it, `creds_file` one with a JWT and a seed.
    With `tls` every connection is encrypted, and with `tls_first` before the server says anything.
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
        """What goes into the introduction to a server that has introduced itself so.

        Raises:
            BusError: A file does not hold what it should, or anybody could read along and this user has not
                named the server.
            OSError: A file can't be read.
            Unsupported: The package that signs is not installed.
        """
        shown = self._shown(server, info.nonce)
        if server.told and not encrypted and not _SECRETS.isdisjoint(shown):
            raise BusError(
                "no password is sent in plain text to a server that only another server named; "
                "name it in the URL, or use TLS"
            )
        return shown

    def _shown(self, server: Server, nonce: str) -> dict[str, str]:
        if self.creds_file is not None:
            text = Path(self.creds_file).read_text(encoding="ascii", errors="replace")
            jwt, seed = _JWT.search(text), _SEED.search(text)
            if jwt is None or seed is None:
                raise BusError("the file of credentials does not hold a JWT and its seed")
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
        """What encrypts the connection to a server that has introduced itself so; None if nothing does.

        Raises:
            BusError: The user asks for it, and the server can't.
        """
        required = server.secure or self.tls is not None or self.tls_first
        if required and not (info.tls_required or info.tls_available):
            raise BusError("it does not offer TLS, which the URL or a tls setting requires")
        return self.trust() if required or info.tls_required else None

    def trust(self) -> ssl.SSLContext:
        """Which certificates are trusted, and what is shown of oneself."""
        return self.tls or ssl.create_default_context()


def _signed(seed: str, nonce: str) -> tuple[str, str]:
    """The public half of an nkey, and its signature."""
    with extras.needed("nats", "an nkey or a creds file"):
        import nkeys  # type: ignore[import-untyped]
    try:
        pair = nkeys.from_seed(seed.encode())
        public, signature = pair.public_key.decode(), pair.sign(nonce.encode())
    except (nkeys.NkeysError, ValueError):
        raise BusError("the seed is not that of an nkey") from None
    return public, base64.urlsafe_b64encode(signature).decode().rstrip("=")
