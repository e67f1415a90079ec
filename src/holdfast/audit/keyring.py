"""The audit's secrets, from configuration or from a file next to the data.

A secret is never logged, shown or stored in the database. Several secrets may be known. The last one signs
and each verifies what it signed, so rotation means adding one. A secret marked as retired verifies what it
signed before and is trusted for nothing else.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from holdfast import private, seams
from holdfast.errors import HoldfastError, Unavailable, Unsupported, ValidationError

SHORTEST: Final = 16
"""Minimum length of a secret in characters."""
RETIRED: Final = b"retired:"
"""Prefix of a secret that no longer signs."""
ABSENT: Final = (
    "this namespace is audited, and the audit has no key: set audit_key or audit_key_file, "
    "or pass audit_key to holdfast.open"
)

_log = logging.getLogger("holdfast")


class Unsettled(Exception):
    """Raised when the current key must be settled with the store before anything is signed."""


class Keyring:
    """Secrets that are known from the start.

    Args:
        secrets: The secrets, the newest last. Retired ones have the prefix.
    """

    place = "audit_key"
    """The place where a missing key should have been found."""

    def __init__(self, secrets: Iterable[bytes] = ()) -> None:
        self._secrets: dict[str, bytes] = {}
        self._retired: frozenset[str] = frozenset()
        self._use(secrets)
        self.kept = False
        """True if a store records which key is current, and must be asked."""
        self._settled = False
        self._confirmed = 0
        self._refusals: list[HoldfastError] = []

    def signing(self) -> tuple[str, bytes]:
        """See `holdfast.audit.chain.SigningKeys`.

        Raises:
            Unsettled: The store has not been asked yet which key is current.
            Unsupported: There is no key.
        """
        if self.kept and not self._settled:
            self._ask()
        return self.newest()

    def newest(self) -> tuple[str, bytes]:
        """Return the name of the secret that would sign, and the secret.

        Raises:
            Unsupported: There is no key.
        """
        for name in reversed(self._secrets):
            if name not in self._retired:
                return name, self._secrets[name]
        raise Unsupported(ABSENT)

    def confirm(self) -> None:
        """See `holdfast.audit.chain.SigningKeys`."""
        if self.kept and not self._confirmed:
            self._ask()

    def secret(self, name: str) -> bytes | None:
        """See `holdfast.audit.chain.SigningKeys`."""
        return self._secrets.get(name)

    def retired(self, name: str) -> bool:
        """See `holdfast.audit.chain.SigningKeys`."""
        return name in self._retired

    def unknown(self, name: str) -> Unsupported:
        """See `holdfast.audit.chain.SigningKeys`."""
        return Unsupported(
            f"the audit of this store is signed with the key {name}, but {self.place} has no key with that "
            f"fingerprint: {self._cure(name)}"
        )

    def choose(self, kept: Sequence[str]) -> str:
        """Return the name of the key to sign with in a store that keeps these names, the current one last.

        Raises:
            Unsupported: The current key is not known here, or there is no key at all.
            Unavailable: The key file can't be used.
        """
        if kept and self.secret(kept[-1]) is None:
            raise self.unknown(kept[-1])
        return self.newest()[0]

    def refresh(self) -> None:
        """Load keys that were added at their source."""

    def lines(self) -> list[bytes]:
        """Return all secrets as a key file holds them, for a backup whose owner asks for them."""
        self.refresh()
        return [(RETIRED if name in self._retired else b"") + one for name, one in self._secrets.items()]

    def adopt(self, lines: Sequence[bytes]) -> bool:
        """Keep the secrets of another keyring, the newest last. Returns whether there is a file for them."""
        return False

    def retire(self, names: Iterable[str]) -> list[str]:
        """Mark keys as retired for good, if they are stored in a file. Returns the newly retired ones."""
        return []

    @contextmanager
    def settling(self, refusal: HoldfastError | None) -> Iterator[None]:
        """Within this block, sign as just settled with the store, or refuse to sign."""
        if refusal is None:
            self._settled = True
            self._confirmed += 1
        else:
            self._refusals.append(refusal)
        try:
            yield
        finally:
            if refusal is None:
                self._confirmed -= 1
            else:
                self._refusals.remove(refusal)

    def _ask(self) -> None:
        if self._refusals:
            raise self._refusals[-1]
        raise Unsettled

    def _cure(self, name: str) -> str:
        return (
            f"add the secret of {name} to audit_key, before the last one, or name its file in audit_key_file"
        )

    def _use(self, secrets: Iterable[bytes]) -> None:
        named = [(_name(one.removeprefix(RETIRED)), one) for one in secrets]
        self._secrets = {name: one.removeprefix(RETIRED) for name, one in named}
        self._retired = frozenset(name for name, one in named if one.startswith(RETIRED))


NO_KEYS: Final = Keyring()
"""The keys of a store without an audit."""


class FileKeyring(Keyring):
    """Secrets in a file, one per line, which is read on first use.

    The file is read again when an unknown key is found, so that a key copied there is picked up.

    Args:
        path: The file.
        make: Whether to create it when the first secret is needed, as next to a store in a file.
    """

    def __init__(self, path: Path, *, make: bool = False) -> None:
        super().__init__()
        self.path = path
        self.makes = make
        self.tell: Callable[[str], None] = _log.warning
        """Called with a message when a key was created, which says what to do with it."""
        self._seen: tuple[int, int] | None = None

    @property
    def place(self) -> str:  # type: ignore[override]
        """The path of the file."""
        return str(self.path.absolute())

    def newest(self) -> tuple[str, bytes]:
        """See `Keyring.newest`."""
        self._read(signing=True)
        return super().newest()

    def secret(self, name: str) -> bytes | None:
        """See `holdfast.audit.chain.SigningKeys`."""
        secret = super().secret(name)
        if secret is None:
            self._read(signing=False, again=True)
            secret = super().secret(name)
        return secret

    def retired(self, name: str) -> bool:
        """See `holdfast.audit.chain.SigningKeys`."""
        self._read(signing=False)
        return super().retired(name)

    def choose(self, kept: Sequence[str]) -> str:
        """See `Keyring.choose`. A key is created only for a store that was never signed with another."""
        if not kept and self.makes and not self.path.exists():
            self._make()
        return super().choose(kept)

    def refresh(self) -> None:
        """See `Keyring.refresh`."""
        self._read(signing=False, again=True)

    def retire(self, names: Iterable[str]) -> list[str]:
        """See `Keyring.retire`."""
        self.refresh()
        fresh = [name for name in names if name in self._secrets and name not in self._retired]
        if fresh:
            with _usable(self.path):
                marked = [_marked(one, fresh) for one in read_keys(self.path)]
                _write(self.path, marked)
                self._use(marked)
        return fresh

    def adopt(self, lines: Sequence[bytes]) -> bool:
        """See `Keyring.adopt`."""
        with _usable(self.path):
            own = read_keys(self.path) if self.path.exists() else []
            private.make_folder(self.path.parent)
            _write(self.path, [*(one for one in own if one not in lines), *lines])
            self.refresh()
        return True

    def _cure(self, name: str) -> str:
        command = f"install -m 600 COPY_OF_THE_KEY {self.place}"
        return f"copy it there from where the store was served before ({command}); no restart is needed"

    def _read(self, *, signing: bool, again: bool = False) -> None:
        if self._secrets and not again:
            return
        with _usable(self.path):
            if not self.path.exists() and (not signing or self.makes):
                return
            status = self.path.stat()
            seen = status.st_mtime_ns, status.st_ino
            if seen != self._seen:
                self._use(read_keys(self.path))
                self._seen = seen

    def _make(self) -> None:
        with _usable(self.path):
            private.make_folder(self.path.parent)
            try:
                _write(self.path, [_new_secret()], new=True)
            except FileExistsError:  # another process that shares the store was first
                return
        self.tell(
            f"Key   {self.place} was made and signs the audit: copy it to every other machine that serves "
            "this store, and keep a copy apart from the database"
        )


@contextmanager
def _usable(path: Path) -> Iterator[None]:
    """Log and raise an error if the file can't be used.

    Only the log has its path: the caller may be remote.
    """
    try:
        yield
    except (OSError, ValueError, ValidationError) as error:
        reason = _reason(error)
        _log.error("the audit's key file %s can't be used: %s", path, reason)
        raise Unavailable(f"the audit's key file can't be used: {reason}") from error


def _marked(secret: bytes, names: Sequence[str]) -> bytes:
    return RETIRED + secret if _name(secret) in names else secret


def parse_keys(text: str, *, field: str = "audit_key") -> list[bytes]:
    """Parse secrets from text, separated by white space or commas, the newest last."""
    words = text.replace(",", " ").split()
    for word in words:
        width = len(word.removeprefix(RETIRED.decode()))
        if width < SHORTEST:
            raise ValidationError(
                f"{field} holds a secret of {width} characters; at least {SHORTEST} are needed",
                field=field,
            )
    return [word.encode() for word in words]


def read_keys(path: Path) -> list[bytes]:
    """Return the secrets in a file.

    Raises:
        OSError: It can't be read.
        ValueError: It is not text.
        ValidationError: One of them is too short.
    """
    if path.stat().st_mode & 0o077:
        _log.warning("the audit's key file %s is readable by others; run chmod 600 on it", path)
    return parse_keys(path.read_text(encoding="utf-8"), field="audit_key_file")


def add_key(path: Path) -> str:
    """Add a new secret to a file, which signs from then on; older ones still verify. Returns its name.

    Raises:
        OSError: The file can't be read or written.
        ValidationError: It contains something other than secrets.
    """
    secret = _new_secret()
    _write(path, [*(read_keys(path) if path.exists() else ()), secret])
    return _name(secret)


def _new_secret() -> bytes:
    return seams.entropy(32).hex().encode()


def _write(path: Path, content: Iterable[bytes], *, new: bool = False) -> None:
    """Write secrets to a file that only its owner can read, atomically, and durable on return.

    Raises:
        FileExistsError: The file exists, and it was to be a new one.
    """
    unfinished = path.with_name(f".{path.name}.{seams.pid()}")
    unfinished.unlink(missing_ok=True)
    with os.fdopen(private.create(unfinished), "wb") as file:
        file.writelines(secret + b"\n" for secret in content)
        file.flush()
        os.fsync(file.fileno())
    if not new or not _linked(unfinished, path):
        unfinished.replace(path)
    private.sync(path.parent)


def _linked(unfinished: Path, path: Path) -> bool:
    """Give a file its name, unless there is one of that name. Return False if the file system has no links.

    Raises:
        FileExistsError: There is one.
    """
    try:
        os.link(unfinished, path)
    except FileExistsError:
        unfinished.unlink()
        raise
    except OSError:
        return False
    unfinished.unlink()
    return True


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return (error.strerror or "it can't be read").lower()
    if isinstance(error, ValidationError):
        return error.message
    return "it is no text"


def _name(secret: bytes) -> str:
    """Return the name by which records refer to a secret."""
    # late: it takes 2 ms with OpenSSL, and most stores sign nothing
    from hashlib import sha256

    return sha256(b"holdfast audit key\n" + secret).hexdigest()[:16]
