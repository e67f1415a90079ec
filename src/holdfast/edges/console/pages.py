"""The pages of the console: which view answers which path.

Law: a view takes a visit and returns one JSON object. It renders nothing and knows no transport.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from holdfast.edges.console.audits import audit
from holdfast.edges.console.blobs import blob, blob_plugins, blobs
from holdfast.edges.console.browse import browse, namespaces
from holdfast.edges.console.entry import entry
from holdfast.edges.console.inbox import inbox
from holdfast.edges.console.live import live
from holdfast.edges.console.overview import overview
from holdfast.edges.console.policies import policies, policy
from holdfast.edges.console.settings import settings
from holdfast.edges.console.tables import item, table, table_plugins, tables
from holdfast.edges.console.tokens import tokens
from holdfast.edges.console.visits import Visit
from holdfast.errors import ValidationError

View = Callable[[Visit], Awaitable[dict[str, Any]]]


class ConsolePage(NamedTuple):
    """A page: its name, the pattern of its path, and its view."""

    name: str
    pattern: re.Pattern[str]
    view: View


def _page(name: str, path: str, view: View) -> ConsolePage:
    """Declare a page. In its path `{key*}` stands for the rest, any other `{name}` for one part."""
    pattern = re.sub(r"\{(\w+)\*\}", r"(?P<\1>.+)", path)
    pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", pattern)
    return ConsolePage(name, re.compile(pattern), view)


async def _keys(visit: Visit) -> dict[str, Any]:
    """Answer for a namespace, or for the entry that `key` names if a path can't hold its key."""
    return await (entry if "key" in visit.query else browse)(visit)


PAGES: Final = (
    _page("overview", "/(?:ui/?)?", overview),
    _page("namespaces", "/ui/kv", namespaces),
    _page("browse", "/ui/kv/{plugin}", _keys),
    _page("entry", "/ui/kv/{plugin}/{key*}", entry),
    _page("browse", "/ui/semantic/{tenant}/{project}", _keys),
    _page("entry", "/ui/semantic/{tenant}/{project}/{key*}", entry),
    _page("live", "/ui/live", live),
    _page("inbox", "/ui/inbox", inbox),
    _page("audit", "/ui/audit", audit),
    _page("tables", "/ui/tables", table_plugins),
    _page("tables", "/ui/tables/{plugin}", tables),
    _page("table", "/ui/tables/{plugin}/{table}", table),
    _page("item", "/ui/tables/{plugin}/{table}/item", item),
    _page("blobs", "/ui/blobs", blob_plugins),
    _page("blobs", "/ui/blobs/{plugin}", blobs),
    _page("blob", "/ui/blobs/{plugin}/{name*}", blob),
    _page("policies", "/ui/policies", policies),
    _page("policy", "/ui/policies/{family}/{owner*}", policy),
    _page("tokens", "/ui/tokens", tokens),
    _page("settings", "/ui/settings", settings),
)
"""All pages. The first whose pattern fits answers."""
LOGIN: Final = "/ui/login"
LOGOUT: Final = "/ui/logout"


def found(path: bytes) -> tuple[ConsolePage, dict[str, str]] | None:
    """Return the page of a path as sent, and the parameters in it; None if there is no such page.

    Raises:
        ValidationError: The path is not UTF-8.
    """
    text = path.decode("ascii", "replace")
    for page in PAGES:
        fits = page.pattern.fullmatch(text)
        if fits is not None:
            return page, {name: _plain(said) for name, said in fits.groupdict().items()}
    return None


def _plain(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise ValidationError("the path is not UTF-8", field="path") from None
