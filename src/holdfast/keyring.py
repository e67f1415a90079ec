"""Where the audit's secrets come from: configuration, or a file beside the data.

Law: a secret is never logged, shown or stored in the database. Several secrets may be known; the last one
signs and each verifies what it signed, so that rotating is adding one more.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast import private
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
    """Secrets in a file, one on each line, which is read when it is first needed.

    Args:
        path: The file.
        make: Whether it is made when the first secret is needed, as beside a store that is a file itself.
    """

    def __init__(self, path: Path, *, make: bool = False) -> None:
        super().__init__()
        self.path = path
        self._make = make

    def signing(self) -> tuple[str, bytes]:
        """See `holdfast.audit.Keys`."""
        self._read(signing=True)
        return super().signing()

    def secret(self, name: str) -> bytes | None:
        """See `holdfast.audit.Keys`."""
        self._read(signing=False)
        return super().secret(name)

    def _read(self, *, signing: bool) -> None:
        if self._secrets:
            return
        try:
            if not self.path.exists():
                if not signing:
                    return
                if self._make:
                    _write(self.path, [_new_secret()])
            self._secrets = {_name(secret): secret for secret in read_keys(self.path)}
        except (OSError, ValueError, ValidationError) as error:
            # Who writes may be a caller from afar: where the file is tells only the log.
            reason = _reason(error)
            _log.error("the audit's key file %s can't be used: %s", self.path, reason)
            raise Unavailable(f"the audit's key file can't be used: {reason}") from error


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
    """The secrets in a file.

    Raises:
        OSError: It can't be read.
        ValueError: It is no text.
        ValidationError: One of them is too short.
    """
    if path.stat().st_mode & 0o077:
        _log.warning("the audit's key file %s can be read by others: chmod 600 it", path)
    return parse_keys(path.read_text(encoding="utf-8"), field="audit_key_file")


def add_key(path: Path) -> str:
    """Add a new secret to a file, from which on it signs; the older ones still verify. Returns its name.

    Raises:
        OSError: The file can't be read or written.
        ValidationError: It holds something else than secrets.
    """
    secret = _new_secret()
    _write(path, [*(read_keys(path) if path.exists() else ()), secret])
    return _name(secret)


def _new_secret() -> bytes:
    return os.urandom(32).hex().encode()


def _write(path: Path, content: Iterable[bytes]) -> None:
    """Write secrets to a file that only its owner can read: whole or not at all, and durable on return."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.unlink(missing_ok=True)
    with os.fdopen(private.create(unfinished), "wb") as file:
        file.writelines(secret + b"\n" for secret in content)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return (error.strerror or "it can't be read").lower()
    if isinstance(error, ValidationError):
        return error.message
    return "it is no text"


def _name(secret: bytes) -> str:
    """The name under which records say what signed them."""
    from hashlib import sha256  # brings OpenSSL along, and most stores sign nothing

    return sha256(b"holdfast audit key\n" + secret).hexdigest()[:16]
