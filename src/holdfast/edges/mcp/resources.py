"""Entries as resources: their URIs, lists and contents.

    holdfast://trivia/                 the keys of the plugin trivia
    holdfast://trivia/game:42          its entry game:42
    holdfast://acme/web/docs/cursor    the entry docs/cursor of the tenant acme's project web

Law: a URI leads only into the caller's own plugin or project; any other names nothing, whether it exists or
not. A key has exactly one URI.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

import msgspec

from holdfast import rules
from holdfast.edges.mcp.tools import PAGE

if TYPE_CHECKING:
    from holdfast.edges.mcp.callers import ToolCaller
    from holdfast.handles.kv import KV

SCHEME: Final = "holdfast"
MIME: Final = "application/json"
_PLAIN: Final = "/:@!$&'()*+,;=-._~"
"""Characters of a key that stand for themselves in a URI."""


class ResourceUris:
    """The URIs of one plugin or project.

    Args:
        kv: The handle on its keys.
    """

    def __init__(self, kv: KV) -> None:
        self._key_root = rules.semantic_root(kv.namespace) or ""
        self.root = f"{SCHEME}://{kv.namespace.partition('/')[2]}/"
        self.template = self.root + "{+key}"

    def uri(self, key: str) -> str:
        """Return the URI of a key."""
        return self.root + quote(key.removeprefix(self._key_root), safe=_PLAIN)

    def key(self, uri: str) -> str | None:
        """Return the key of a URI; empty for the list of keys, None if it is no URI of this namespace."""
        if not uri.startswith(self.root):
            return None
        try:
            return unquote(uri[len(self.root) :], errors="strict")
        except UnicodeDecodeError:
            return None

    def canonical(self, uri: str) -> str | None:
        """Return the one URI of what a URI names; None if it is no URI of this namespace."""
        key = self.key(uri)
        if key is None:
            return None
        return self.uri(key) if key else self.root


async def page_of(caller: ToolCaller, cursor: str | None) -> tuple[list[str], str | None]:
    """Return a page of keys, and the cursor of the next page."""
    fields: dict[str, Any] = {"limit": PAGE} | ({} if cursor is None else {"cursor": cursor})
    page = await caller.call("list", fields)
    return page["keys"], page["cursor"]


async def content_of(caller: ToolCaller, uri: str) -> str | None:
    """Return a resource as JSON: an entry, or the first page of keys; None if it is not there."""
    key = ResourceUris(caller.kv).key(uri)
    if key is None:
        return None
    if not key:
        return _json(await caller.ask("list", b'{"limit": %d}' % PAGE))
    entry = await caller.ask("get", json.dumps({"key": key}).encode())
    if not entry.pop("exists"):
        return None
    return _json({"key": key, **entry})


def _json(fields: dict[str, Any]) -> str:
    return msgspec.json.encode(fields).decode()
