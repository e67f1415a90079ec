"""Django's tests of caches and sessions, with ours in place of those in memory."""

from __future__ import annotations

import sys
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import django
import pytest
from django.conf import settings
from django.contrib.sessions.backends import cache as cached_sessions
from django.core.cache.backends import locmem
from django.test.runner import DiscoverRunner
from django.test.utils import setup_test_environment, teardown_test_environment

from holdfast.integrations.django.cache import _NAMES, HoldfastCache
from holdfast.integrations.django.stores import ByteValues

_CULLED: Final = (
    "a cache in memory removes old entries when it is full; Holdfast keeps them until their timeout"
)
_INSIDE: Final = "looks at the lock of the cache in memory; ours has none"
_CACHED: Final = "looks for the session in a cache or table of Django; ours are in the store"
LEFT_OUT: Final = {
    "test_cull": _CULLED,
    "test_zero_cull": _CULLED,
    "test_cull_delete_when_store_empty": _CULLED,
    "test_lru_get": _CULLED,
    "test_lru_incr": _CULLED,
    "test_lru_set": _CULLED,
    "test_locking_on_pickle": _INSIDE,
    "test_default_cache": _CACHED,
    "test_non_default_cache": _CACHED,
    "test_create_and_save": _CACHED,
    "test_create_and_save_async": _CACHED,
    "test_empty_session_saved": _CACHED,
}


class Cache(HoldfastCache):
    """Our cache, made as theirs is: from a name, which is a namespace here."""

    def __init__(self, name: str, params: dict[str, Any]) -> None:
        plugin = f"cache-{sha256(str(name).encode()).hexdigest()[:16]}"
        # Their tests put objects of all classes into a cache.
        options = {**params.get("OPTIONS", {}), "plugin": plugin, "serializer": "pickle"}
        super().__init__("sqlite://", {**params, "OPTIONS": options})
        self._expire_info = self

    @property
    def _cache(self) -> ByteValues:
        """The rows, which their tests have several caches share."""
        return self._bytes

    @_cache.setter
    def _cache(self, shared: ByteValues) -> None:
        self._bytes = shared

    def __getitem__(self, key: str) -> datetime | None:
        """Return a deadline, which their tests look up in `_expire_info`."""
        entry = self._bytes.kv.get(_NAMES.key(key))
        assert entry is not None
        return entry.expires_at


TESTS: Final = Path.cwd() / "tests"
sys.path.insert(0, str(TESTS))
settings.configure(
    ALLOWED_HOSTS=["testserver"],
    DATABASES={name: {"ENGINE": "django.db.backends.sqlite3"} for name in ("default", "other")},
    DEFAULT_AUTO_FIELD="django.db.models.AutoField",
    HOLDFAST_SESSION_URL="sqlite://",
    INSTALLED_APPS=[
        *("django.contrib.contenttypes", "django.contrib.auth", "django.contrib.sites"),
        *("django.contrib.sessions", "django.contrib.messages", "django.contrib.staticfiles"),
        *("cache", "sessions_tests"),
    ],
    LANGUAGE_CODE="en",
    MIGRATION_MODULES={"auth": None, "contenttypes": None, "sessions": None},
    ROOT_URLCONF="urls",
    SESSION_ENGINE="holdfast.integrations.django.sessions",
    SECRET_KEY="for these tests alone",
    SITE_ID=1,
    STATIC_URL="static/",
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "DIRS": [TESTS / "templates"]}],
    USE_TZ=False,
)
django.setup()
from holdfast.integrations.django.sessions import SessionStore  # noqa: E402 - needs the settings

locmem.LocMemCache = Cache  # type: ignore[misc, assignment]
cached_sessions.SessionStore = SessionStore  # type: ignore[misc, assignment]
_runner: Final = DiscoverRunner(verbosity=0, interactive=False)
_databases: list[Any] = []


def pytest_sessionstart() -> None:
    """Make the databases that Django's tests expect."""
    setup_test_environment()
    _databases.append(_runner.setup_databases())


def pytest_sessionfinish() -> None:
    """Remove the databases."""
    _runner.teardown_databases(_databases.pop())
    teardown_test_environment()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is left out, with the reason."""
    for item in items:
        reason = LEFT_OUT.get(getattr(item, "originalname", ""))
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))
