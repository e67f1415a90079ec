"""Cursors: where a listing goes on.

Law: a cursor is the last key that was seen, spelled so that nobody is tempted to take it apart. It stays
right while keys come and go.
"""

from __future__ import annotations

import base64

from holdfast import rules
from holdfast.errors import ValidationError


def cursor_after(key: str) -> str:
    """The cursor of a listing that has seen this key last."""
    return base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


def last_seen(cursor: object, prefix: str) -> str:
    """The last key that a listing has seen."""
    try:
        if not isinstance(cursor, str):
            raise TypeError
        padded = cursor + "=" * (-len(cursor) % 4)
        key = rules.key(base64.b64decode(padded, altchars=b"-_", validate=True).decode())
    except (TypeError, ValueError, ValidationError):
        raise ValidationError("cursor is not one that a page of this store gave", field="cursor") from None
    if not key.startswith(prefix):
        raise ValidationError("cursor belongs to a listing with another prefix", field="cursor")
    return key
