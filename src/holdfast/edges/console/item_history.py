"""The history of an item: its latest changes, and what each changed if the item is revealed.

Law: as in `holdfast.edges.console.pages`. Images of items are values: they leave this module only after a
reveal. The journal has no index by item, so a bounded part of it is looked through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.edges.console.owners import permitted

if TYPE_CHECKING:
    from holdfast.edges.console.visits import Visit

SPAN: Final = 2_000
"""Number of changes of all tables of the plugin, up to the item's last one, that are looked through."""
MOST_CALLS: Final = 8
"""Number of pages of changes that are read for that."""
MOST_CHANGES: Final = 20
"""Number of changes that are shown."""
WITH_IMAGES: Final = 10
"""Number of them that are shown with what they changed."""
_SHOWN: Final = ("op", "version", "at", "last_writer", "request_id")


async def item_history(
    visit: Visit, plugin: str, about: dict[str, Any], key: dict[str, Any], *, version: int, values: bool
) -> list[dict[str, Any]] | None:
    """Return the latest changes of an item, newest first; None if the visitor may not see them.

    Args:
        visit: The visit.
        plugin: The plugin.
        about: The description of the table.
        key: The item's key.
        version: The item's version.
        values: Whether the item is revealed.
    """
    found = await _changes(visit, plugin, about["table"], key, version)
    if found is None:
        return None
    newest = found[::-1][:MOST_CHANGES]
    shown: list[dict[str, Any]] = [{name: one.get(name) for name in _SHOWN} for one in newest]
    if values and about["stream"] != "keys":
        for one in shown[:WITH_IMAGES]:
            one.update(await _images(visit, plugin, about, one["version"]))
    return shown


async def _changes(
    visit: Visit, plugin: str, table: str, key: dict[str, Any], version: int
) -> list[dict[str, Any]] | None:
    """Return the changes of an item among the last ones of its table, oldest first."""
    found: list[dict[str, Any]] = []
    since = max(0, version - SPAN)
    for _ in range(MOST_CALLS):
        page = await permitted(visit.call("table", plugin, "changes", table=table, since=since, limit=SPAN))
        if page is None:
            return None
        found += [one for one in page["changes"] if all(one.get(name) == part for name, part in key.items())]
        if not page["changes"] or page["next"] >= version:
            break
        since = page["next"]
    return found


async def _images(visit: Visit, plugin: str, about: dict[str, Any], version: int) -> dict[str, Any]:
    """Return the item before and after a change, as text, as far as the journal keeps them."""
    page = await visit.call(
        "table",
        plugin,
        "changes",
        table=about["table"],
        since=version - 1,
        limit=1,
        view=about["stream"],
    )
    change: dict[str, Any] = next((one for one in page["changes"] if one["version"] == version), {})
    return {name: _text(change[name]) for name in ("old", "new") if name in change}


def _text(item: dict[str, Any] | None) -> str | None:
    """Return an item on several lines. A script that decoded it would round long numbers."""
    return None if item is None else msgspec.json.format(msgspec.json.encode(item), indent=2).decode()
