"""Conversion of items to fields and back, for replies and for errors that show an item.

Law: an item is passed on as its stored JSON text. It is decoded only when its attributes are needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.clock import instant
from holdfast.model import Item
from holdfast.stored import made

if TYPE_CHECKING:
    from datetime import datetime


def item_fields(item: Item) -> dict[str, Any]:
    """Convert an item to fields, without its attributes if it has none."""
    value: Any = item.value
    return ({} if value is msgspec.UNSET else {"item": value}) | {
        "version": item.version,
        "expires_at": item.expires_at,
    }


def item_of_fields(value: Any, version: int, expires_at: datetime | str | None) -> Item:
    """Rebuild an item from its fields."""
    at = None if expires_at is None else instant(expires_at)
    return Item(value=made(value), version=version, expires_at=at)
