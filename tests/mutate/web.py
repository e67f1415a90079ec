"""Bugs in the integrations of web frameworks.

Law: data; see `tests.mutate.plant`.
"""

from __future__ import annotations

from typing import Final

from tests.mutate.plant import Plant

_SESSIONS: Final = ("tests/integrations/test_starlette_sessions.py", "-k", "not postgresql and not http")
_KEYS: Final = ("tests/integrations/test_starlette_idempotency.py", "-k", "not postgresql and not http")
_DJANGO: Final = ("tests/integrations/test_django.py", "-k", "not postgresql and not http")

PLANTS: Final = (
    Plant(
        "the last of two requests wins a name of the session",
        "integrations/starlette/session.py",
        "        if clashing:\n",
        "        if clashing and not changed:\n",
        _SESSIONS,
    ),
    Plant(
        "a session is saved over what another request has saved",
        "integrations/starlette/session.py",
        'checks = [] if old is None else [{"key": _key(old), "version": self._version}]',
        "checks: list[dict[str, int]] = []",
        _SESSIONS,
    ),
    Plant(
        "a login keeps the id",
        "integrations/starlette/session.py",
        "if value and (old is None or self._rotating) else old",
        "if value and old is None else old",
        _SESSIONS,
    ),
    Plant(
        "a logout leaves the session in the store",
        "integrations/starlette/session.py",
        '            writes.append({"key": self._ended_key, "delete": True})',
        "            pass",
        _SESSIONS,
    ),
    Plant(
        "the keys of sessions are their ids",
        "integrations/starlette/session.py",
        "sha256(identifier.encode()).hexdigest()",
        "identifier",
        _SESSIONS,
    ),
    Plant(
        "reading does not renew a session",
        "integrations/starlette/session_middleware.py",
        "            if self._session.cookie is None:\n                await self._session.renew()\n",
        "",
        _SESSIONS,
    ),
    Plant(
        "a key may be used for another body",
        "integrations/starlette/idempotency.py",
        "    async for piece in body.pieces():\n        digest.update(piece)\n",
        "",
        _KEYS,
    ),
    Plant(
        "callers share their keys",
        "integrations/starlette/idempotency.py",
        "self._caller(connection).encode",
        '"".encode',
        _KEYS,
    ),
    Plant(
        "a worker stores its answer over that of its successor",
        "integrations/starlette/claims.py",
        'return entry is None or entry.value["worker"] == self.mark',
        "return True",
        _KEYS,
    ),
    Plant(
        "a claim never expires",
        "integrations/starlette/claims.py",
        "self._running, ttl=self._lease, expected_version=0",
        "self._running, ttl=None, expected_version=0",
        _KEYS,
    ),
    Plant(
        "a claim is not renewed",
        "integrations/starlette/claims.py",
        "await asyncio.sleep(self._lease / 3)",
        "await asyncio.sleep(self._lease * 300)",
        _KEYS,
    ),
    Plant(
        "cookies are sent again",
        "integrations/starlette/answers.py",
        'b"server", b"set-cookie", b"transfer-encoding"',
        'b"server", b"transfer-encoding"',
        _KEYS,
    ),
    Plant(
        "a failed request keeps its key",
        "integrations/starlette/idempotency.py",
        "        if answer.status >= 500 or answer.status in _PASSING:\n",
        "        if answer.status in _PASSING:\n",
        _KEYS,
    ),
    Plant(
        "Django's add replaces a value",
        "integrations/django/cache.py",
        "self._put(name, value, ttl, expected_version=0)",
        "self._put(name, value, ttl)",
        _DJANGO,
    ),
    Plant(
        "an enum in Django's cache comes back as a number",
        "integrations/django/cache.py",
        "if type(value) is int and",
        "if isinstance(value, int) and",
        _DJANGO,
    ),
    Plant(
        "a replaced blob of Django's cache stays",
        "integrations/django/shelf.py",
        "            raise\n        self._drop([] if before is None else [before.value])",
        "            raise",
        _DJANGO,
    ),
    Plant(
        "a blob of Django's cache is not touched",
        "integrations/django/shelf.py",
        "self._blobs.set_ttl(entry.value[_BLOB], ttl + _BLOB_LONGER)",
        "pass",
        _DJANGO,
    ),
    Plant(
        "a session of Django comes back after a logout",
        "integrations/django/sessions.py",
        "                raise UpdateError\n",
        "                must_create = True\n",
        _DJANGO,
    ),
    Plant(
        "the store shows the keys of Django's sessions",
        "integrations/django/sessions.py",
        "sha256(session_key.encode('utf-8', 'surrogatepass')).hexdigest()",
        "session_key",
        _DJANGO,
    ),
    Plant(
        "a fork uses its parent's store",
        "integrations/django/stores.py",
        "name = os.getpid(), url",
        "name = 0, url",
        _DJANGO,
    ),
)
