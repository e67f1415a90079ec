"""A session engine of Django: `SESSION_ENGINE = "holdfast.integrations.django.sessions"`.

A session that was ended is never brought back by a request that was under way. Sessions expire in the store
by themselves.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final

from django.conf import settings
from django.contrib.sessions.backends.base import CreateError, SessionBase, UpdateError
from django.core.exceptions import ImproperlyConfigured

from holdfast.errors import VersionConflict
from holdfast.integrations.django.stores import ByteValues
from holdfast.integrations.entries import whole_seconds

_ROOT: Final = "session"


class SessionStore(SessionBase):
    """The session of a visitor.

    Settings: `HOLDFAST_SESSION_URL` is the URL of the store, `HOLDFAST_SESSION_PLUGIN` the namespace
    (`sessions`). Django's own settings of sessions apply.

    Args:
        session_key: The visitor's key, if there is one.

    Raises:
        ImproperlyConfigured: The URL is missing.
    """

    def __init__(self, session_key: str | None = None) -> None:
        super().__init__(session_key)
        url = getattr(settings, "HOLDFAST_SESSION_URL", None)
        if not url:
            raise ImproperlyConfigured("set HOLDFAST_SESSION_URL to the URL of a store")
        self._bytes = ByteValues(url, getattr(settings, "HOLDFAST_SESSION_PLUGIN", "sessions"), _ROOT)

    def load(self) -> dict[str, Any]:
        """Return what the session holds. A session that is not there gets a new key."""
        entry = None if self.session_key is None else self._bytes.kv.get(_key(self.session_key))
        data = self._bytes.data_of(entry)
        if not isinstance(data, bytes):
            self._session_key = None
            return {}
        return self.decode(data.decode("latin-1"))  # which the signature answers for

    def exists(self, session_key: str) -> bool:
        """Return whether there is a session with this key."""
        return bool(session_key) and self._bytes.kv.exists(_key(session_key))

    def create(self) -> None:
        """Begin a session with a new key."""
        while True:
            self._session_key = self._get_new_session_key()  # type: ignore[attr-defined]
            try:
                self.save(must_create=True)
            except CreateError:
                continue
            self.modified = True
            return

    def save(self, must_create: bool = False) -> None:
        """Save the session.

        Raises:
            CreateError: It must be created, and there is one with its key.
            UpdateError: It must not be created, and there is none with its key: another request has ended it.
        """
        if self.session_key is None:
            return self.create()
        data = self.encode(self._get_session(no_load=must_create)).encode()  # type: ignore[attr-defined]
        key, age = _key(self.session_key), self.get_expiry_age()
        while True:
            entry = None if must_create else self._bytes.kv.get(key)
            if entry is None and not must_create:
                raise UpdateError
            if age <= 0:
                self._bytes.remove([key])
                return None
            try:
                version = 0 if entry is None else entry.version
                return self._bytes.put(key, data, whole_seconds(age), expected_version=version)
            except VersionConflict:
                if must_create:
                    raise CreateError from None

    def delete(self, session_key: str | None = None) -> None:
        """Remove a session: this one, or the one with the given key."""
        session_key = session_key or self.session_key
        if session_key is not None:
            self._bytes.remove([_key(session_key)])

    @classmethod
    def clear_expired(cls) -> None:
        """Do nothing: sessions that have expired are gone, and the store removes them."""


def _key(session_key: str) -> str:
    """Return the key of a session. Who lists the keys of the namespace can't take a session over."""
    return f"{_ROOT}/{sha256(session_key.encode('utf-8', 'surrogatepass')).hexdigest()}"
