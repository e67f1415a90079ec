"""Bugs of the HTTP door and of its client.

Law: data; see `tests.mutate.plant`.
"""

from __future__ import annotations

from typing import Final

from tests.mutate.plant import Plant

_KEYS: Final = ("tests/edges/http/test_keys.py",)
_TOKENS: Final = ("tests/edges/http/test_tokens.py",)
_WATCH: Final = ("tests/edges/http/test_watch.py",)
_DOOR: Final = ("tests/edges/http/test_door.py",)
_SHORTCUT: Final = ("tests/edges/http/test_shortcut.py",)
_BODIES: Final = ("tests/edges/http/test_bodies.py",)

PLANTS: Final = (
    Plant(
        "a key that must not exist is overwritten over HTTP",
        "edges/http/api.py",
        "if expected is not None:",
        "if expected:",
        _KEYS,
    ),
    Plant(
        "the id of a token is enough",
        "operators/tokens.py",
        "return hmac.compare_digest(msgspec.convert(entry.value, _Kept).hash, _hashed(secret))",
        "return bool(msgspec.convert(entry.value, _Kept).hash)",
        _TOKENS,
    ),
    Plant(
        "a token opens the tables of others",
        "operators/tokens.py",
        'family != "admin" and owner == self.owner',
        'family == "table" or owner == self.owner',
        _TOKENS,
    ),
    Plant(
        "open mode lets other machines in over HTTP",
        "edges/http/guard.py",
        'if not _near(scope["client"]) or scope.get("http_version", "1.1") != "1.1":',
        'if scope.get("http_version", "1.1") != "1.1":',
        _TOKENS,
    ),
    Plant(
        "a proxy without headers lets everybody in",
        "edges/http/guard.py",
        '    return _named_here(host, scope.get("server"))',
        "    return True",
        _TOKENS,
    ),
    Plant(
        "a watch outlives its token",
        "edges/http/guard.py",
        "if token is not None and valid.get(token.id) != token:",
        "if token is not None and token.id not in valid and cookie:",
        _WATCH,
    ),
    Plant(
        "a token grants verbs that it lacks",
        "operators/tokens.py",
        "not (other.verbs and set(other.verbs) <= set(self.verbs))",
        "not other.verbs",
        _TOKENS,
    ),
    Plant(
        "an address that tries many tokens keeps others waiting",
        "edges/http/guard.py",
        "waiting = self._waiting.get(source, {})",
        'source = ""\n        waiting = self._waiting.get(source, {})',
        _TOKENS,
    ),
    Plant(
        "a revoked token is known for ever",
        "edges/http/guard.py",
        "now < since + FRESH",
        "now > since",
        _TOKENS,
    ),
    Plant(
        "a web page of another site can write",
        "edges/http/door.py",
        "return said in _OWN_SITE",
        "return bool(said)",
        _DOOR,
    ),
    Plant(
        "a resumed watch misses a change",
        "edges/http/watching.py",
        "return int(said)",
        "return int(said) + 1",
        _WATCH,
    ),
    Plant(
        "a client that does not read is never cut off",
        "edges/http/watching.py",
        "async with asyncio.timeout(READ_SECONDS):",
        "async with asyncio.timeout(READ_SECONDS * 1000):",
        _WATCH,
    ),
    Plant(
        "answers overtake each other on a connection",
        "edges/http/turns.py",
        "                if not come.done():\n                    await come\n",
        "",
        ("tests/security/test_http.py", "-k", "together"),
    ),
    Plant(
        "a quick answer overtakes a slow one",
        "edges/http/connections.py",
        "if self._asked and isinstance(self._asked[-1], InTurn):",
        "if self._asked and isinstance(self._asked[-1], str):",
        _SHORTCUT,
    ),
    Plant(
        "a client that asks and does not read fills the memory",
        "edges/http/connections.py",
        "room = len(self._asked) < MOST_AHEAD and not self.flow.write_paused",
        "room = True",
        _SHORTCUT,
    ),
    Plant(
        "bodies that arrive together fill the memory",
        "edges/http/connections.py",
        "room = room and not self._bodies.crowd_out(self)",
        "room = room and True",
        _BODIES,
    ),
    Plant(
        "bodies of which each has arrived in part wait for each other",
        "edges/http/bodies.py",
        "if not held or (held < self._largest and next(iter(self._holders)) is holder):",
        "if not held:",
        _BODIES,
    ),
    Plant(
        "a refused request stays in memory",
        "edges/nats/replies.py",
        "back, request.back = request.back, None",
        "back = request.back",
        _BODIES,
    ),
    Plant(
        "the shortcut lets other machines in",
        "edges/http/guard.py",
        'return "" if self._open and _near(client) and _named_here(host, server) else None',
        'return "" if self._open else None',
        _TOKENS,
    ),
    Plant(
        "the shortcut leads past the check of proxies",
        "edges/http/shortcut.py",
        "OF_PAGES | PASSED_ON |",
        "OF_PAGES |",
        _TOKENS,
    ),
    Plant(
        "a write is sent again after a lost connection",
        "engines/http/courier.py",
        "if not repeat:\n                    raise OutcomeUnknown(",
        "if not repeat and lost is None:\n                    raise OutcomeUnknown(",
        ("tests/engines/test_http.py",),
    ),
)
