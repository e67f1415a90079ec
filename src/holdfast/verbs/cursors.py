"""Cursors, which continue a listing.

Law: a cursor is the last key seen, encoded so that callers treat it as opaque. It stays valid while keys are
added and removed.
"""

from __future__ import annotations

import base64

from holdfast import rules
from holdfast.errors import ValidationError


def cursor_after(key: str) -> str:
    """Return the cursor of a listing whose last key was this one."""
    return base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


def last_seen(cursor: object, prefix: str) -> str:
    """Return the last key that a listing has returned."""
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
