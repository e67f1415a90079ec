"""Where the audit's secrets come from: configuration, or a file beside the data.

Law: a secret is never logged, shown or stored in the database. Several secrets may be known; the last one
signs and each verifies what it signed, so that rotating is adding one more.
"""

from __future__ import annotations

import logging
import os
import secrets
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.errors import Unavailable, Unsupported, ValidationError

if TYPE_CHECKING:
    from collections.abc import Iterable

SHORTEST: Final = 16
"""How many characters a secret has at the least."""

_log = logging.getLogger("holdfast")


class Keyring:
    """Secrets that are known from the start."""

    def __init__(self, secrets: Iterable[bytes] = ()) -> None:
        self._secrets = {_name(secret): secret for secret in secrets}

    def signing(self) -> tuple[str, bytes]:
        """See `holdfast.audit.Keys`.

        Raises:
            Unsupported: There is none.
        """
        if not self._secrets:
            raise Unsupported(
                "this namespace is audited, and the audit has no key: set audit_key or audit_key_file"
            )
        return next(reversed(self._secrets.items()))

    def secret(self, name: str) -> bytes | None:
        """See `holdfast.audit.Keys`."""
        return self._secrets.get(name)


NO_KEYS: Final = Keyring()
"""Those of a store in which nothing is audited."""


class FileKeyring(Keyring):
    """Secrets in a file, one on each line, which is read when it is first needed, and made if need be."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def signing(self) -> tuple[str, bytes]:
        """See `holdfast.audit.Keys`."""
        self._read(make=True)
        return super().signing()

    def secret(self, name: str) -> bytes | None:
        """See `holdfast.audit.Keys`."""
        self._read(make=False)
        return super().secret(name)

    def _read(self, *, make: bool) -> None:
        if self._secrets:
            return
        try:
            if make and not self._path.exists():
                _make(self._path)
            self._secrets = {_name(secret): secret for secret in read_keys(self._path)}
        except FileNotFoundError:
            return
        except OSError as error:
            raise Unavailable(f"the audit's key file {self._path} can't be used: {error.strerror}") from error


def parse_keys(text: str, *, field: str = "audit_key") -> list[bytes]:
    """Secrets out of text, separated by white space or commas, the newest last."""
    found = text.replace(",", " ").split()
    for word in found:
        if len(word) < SHORTEST:
            raise ValidationError(
                f"{field} holds a secret of {len(word)} characters; at least {SHORTEST} are needed",
                field=field,
            )
    return [word.encode() for word in found]


def read_keys(path: Path) -> list[bytes]:
    """The secrets in a file."""
    if path.stat().st_mode & 0o077:
        _log.warning("the audit's key file %s can be read by others: chmod 600 it", path)
    return parse_keys(path.read_text(encoding="utf-8"), field=str(path))


def add_key(path: Path) -> None:
    """Add a new secret to a file, from which on it signs; the older ones still verify.

    Raises:
        OSError: The file can't be written.
    """
    if not path.exists():
        _make(path)
        return
    with path.open("a", encoding="utf-8") as file:
        file.write(secrets.token_hex(32) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _make(path: Path) -> None:
    """Make a file with a new secret that only its owner can read, durable before it signs anything."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(secrets.token_hex(32) + "\n")
        file.flush()
        os.fsync(file.fileno())
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _name(secret: bytes) -> str:
    """The name under which records say what signed them."""
    return sha256(b"holdfast audit key\n" + secret).hexdigest()[:16]
