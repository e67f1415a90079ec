"""The blobs of a plugin, and one blob.

Pages describe blobs. Their bytes come from `/v1`. The page asks for them after a reveal, or at once where the
policy of the namespace is `open`.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from holdfast import families
from holdfast.edges.console.overview import head_of
from holdfast.edges.console.visits import Visit
from holdfast.errors import KeyNotFound

MOST_BLOBS: Final = 100
MOST_PREVIEW: Final = 8_000_000
"""Largest number of bytes of an image that is shown."""
IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp"})
"""The types of images that are shown. An SVG image is shown as text."""
TEXTS: Final = frozenset({"application/json", "application/xml", "image/svg+xml", "application/toml"})
_SHOWN: Final = ("version", "created_at", "updated_at", "expires_at", "last_writer")


async def blobs(visit: Visit) -> dict[str, Any]:
    """Return a page of the blobs of a plugin.

    With `key` in the query, return that blob: a path can't hold every name.
    """
    if "key" in visit.query:
        return await blob(visit)
    plugin, prefix = visit.path["plugin"], visit.query.get("prefix", "")
    page = await visit.call(
        "blob",
        plugin,
        "list",
        prefix=prefix,
        values=True,
        limit=visit.number("limit", default=MOST_BLOBS, most=MOST_BLOBS),
        cursor=visit.query.get("cursor") or None,
    )
    described = [_described(plugin, entry["key"], entry) for entry in page["entries"]]
    return {
        "plugin": plugin,
        "prefix": prefix,
        "blobs": described,
        "cursor": page["cursor"],
        "head": await head_of(visit, "blob", plugin),
        "may": visit.allowed_verbs("blob", plugin),
    }


async def blob(visit: Visit) -> dict[str, Any]:
    """Return one blob; if its content may be shown, also how."""
    plugin, name = visit.path["plugin"], visit.path.get("name") or visit.query["key"]
    reveals = visit.query.get("reveal") == "1"
    why = visit.query.get("why") or None
    reveal = await visit.reveal_of(families.blobs(plugin))
    entry = await visit.call("blob", plugin, "reveal" if reveals else "head", key=name, why=why)
    if not entry["exists"]:
        raise KeyNotFound("there is no such blob", field="name")
    described = _described(plugin, name, entry)
    revealed = reveals or visit.shows(reveal, "blob", plugin, "reveal", "get")
    view = {
        "page": "blob",
        "plugin": plugin,
        "blob": described,
        "may": visit.allowed_verbs("blob", plugin),
        **reveal,
        "revealed": revealed,
    }
    return view | {"preview": _preview(described)} if revealed else view


def _described(plugin: str, name: str, entry: dict[str, Any]) -> dict[str, Any]:
    manifest = entry["value"]
    return {
        "name": name,
        "size": manifest["size"],
        "content_type": manifest["content_type"],
        "metadata": manifest.get("metadata") or {},
        "checksum": manifest["checksum"],
        **{one: entry.get(one) for one in _SHOWN},
        "href": None if _has_dots(name) else f"/v1/blob/{plugin}/{quote(name)}",
    }


def _has_dots(name: str) -> bool:
    """Return whether a name has a part `.` or `..`. Browsers shorten an address that has one."""
    return not {".", ".."}.isdisjoint(name.split("/"))


def _preview(described: dict[str, Any]) -> str | None:
    """Return how the content can be shown: as an image, as text, or not at all."""
    if described["href"] is None:
        return None
    kind = described["content_type"].partition(";")[0].strip().lower()
    if kind in IMAGES and described["size"] <= MOST_PREVIEW:
        return "image"
    return "text" if kind in TEXTS or kind.startswith("text/") else None
