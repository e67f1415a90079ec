"""Bugs of the MCP edge.

Law: data; see `tests.mutate.plant`.
"""

from __future__ import annotations

from typing import Final

from tests.mutate.plant import Plant

_TOOLS: Final = ("tests/edges/mcp/test_tools.py",)
_LOCKS: Final = ("tests/edges/mcp/test_locks.py",)
_LEASES: Final = ("tests/edges/mcp/test_leases.py", "-k", "file")
_RESOURCES: Final = ("tests/edges/mcp/test_resources.py",)
_HTTP: Final = ("tests/edges/mcp/test_http.py",)

PLANTS: Final = (
    Plant(
        "an agent renews and releases a lock that it has lost",
        "edges/mcp/recipes.py",
        'return {"fence": fence} | (',
        "return {} | (",
        _LOCKS,
    ),
    Plant(
        "two agents take a lock at the same time",
        "edges/mcp/recipes.py",
        '"checks": [{"key": key, "version": 0}],',
        '"checks": [],',
        _LEASES,
    ),
    Plant(
        "an agent overtakes programs that wait for a lock",
        "edges/mcp/recipes.py",
        '{"prefix": f"{key}/{WAITING}/", "limit": 1}',
        '{"prefix": f"{key}//", "limit": 1}',
        _LOCKS,
    ),
    Plant(
        "an argument with a slip in its name is ignored",
        "edges/mcp/tools.py",
        "self.refuse_unknown(given)",
        "self.refuse_unknown({})",
        _TOOLS,
    ),
    Plant(
        "an agent that may only read writes",
        "edges/mcp/callers.py",
        "return not (self._read_only and _writes(verb))",
        "return not (self._read_only and verb in FAMILIES)",
        _TOOLS,
    ),
    Plant(
        "a lost race looks like a failed tool",
        "edges/mcp/results.py",
        "error=error.code not in LOST_RACES",
        "error=error.code in NEXT",
        _TOOLS,
    ),
    Plant(
        "a number that JSON does not have is stored as null",
        "edges/mcp/apart.py",
        "return json.dumps(given).encode()",
        "return msgspec.json.encode(given)",
        _TOOLS,
    ),
    Plant(
        "arguments of any size are taken",
        "edges/mcp/tools.py",
        "if len(payload) > most:",
        "if len(payload) < 0:",
        _TOOLS,
    ),
    Plant(
        "a URI leads out of the plugin",
        "edges/mcp/resources.py",
        "if not uri.startswith(self.root):",
        "if not uri.startswith(SCHEME):",
        _RESOURCES,
    ),
    Plant(
        "the journal is followed when no subscriber is left",
        "edges/mcp/subscriptions.py",
        "if not self.users:\n                task",
        "if self.users < 0:\n                task",
        _RESOURCES,
    ),
    Plant(
        "a token opens another plugin at /mcp",
        "edges/mcp/door.py",
        "token.operator or token.owner == place.owner",
        "token.operator or token.owner",
        _HTTP,
    ),
    Plant(
        "a token with few verbs has all tools",
        "edges/mcp/served.py",
        "token is None or token.allows(self._place.family, self.owner, verb)",
        "token is None or self.owner in token.owner",
        _HTTP,
    ),
    Plant(
        "a session serves every token",
        "edges/mcp/sessions.py",
        'client_id=caller.user or "local"',
        'client_id="local"',
        _HTTP,
    ),
    Plant(
        "a stream outlives its token",
        "edges/mcp/door.py",
        "return await self._tokens.find(token) is not None",
        "return await self._tokens.find(token) != token",
        _HTTP,
    ),
    Plant(
        "a session of an agent outlives its token",
        "edges/mcp/sessions.py",
        'if owner["client_id"] == user and transport is not None:',
        'if owner["client_id"] == session and transport is not None:',
        _HTTP,
    ),
    Plant(
        "plugins that once asked keep others out for ever",
        "edges/mcp/door.py",
        "idle = [name for name, one in self._sessions.items() if one.idle]",
        "idle = [name for name, one in self._sessions.items() if one.idle and one.in_use]",
        _HTTP,
    ),
    Plant(
        "all large requests of a plugin are received at once",
        "edges/mcp/sessions.py",
        "LARGE_AT_ONCE: Final = 2",
        "LARGE_AT_ONCE: Final = 2_000",
        _HTTP,
    ),
    Plant(
        "a space after a header makes it differ from the body",
        "edges/mcp/door.py",
        "trimmed = _trimmed(scope)",
        "trimmed = scope",
        _HTTP,
    ),
    Plant(
        "agents are told an address that needs another package",
        "edges/greeting.py",
        'if find_spec("mcp") is not None:',
        "if find_spec is not None:",
        ("tests/edges/test_greeting.py",),
    ),
)
