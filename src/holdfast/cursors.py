"""Cursors, which continue a listing.

A cursor is the last key seen, encoded so that callers treat it as opaque. It stays valid while keys are added
and removed.
"""

from __future__ import annotations

import base64

from holdfast import rules
from holdfast.errors import ValidationError


def cursor_of(seen: bytes) -> str:
    """Return the cursor that stands for some bytes."""
    return base64.urlsafe_b64encode(seen).decode().rstrip("=")


def cursor_bytes(cursor: object) -> bytes | None:
    """Return the bytes that a cursor stands for, or None if it is not a cursor."""
    if not isinstance(cursor, str):
        return None
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return None


def cursor_after(key: str) -> str:
    """Return the cursor of a listing whose last key was this one."""
    return cursor_of(key.encode())


def last_seen(cursor: object, prefix: str) -> str:
    """Return the last key that a listing has returned."""
    try:
        key = rules.key((cursor_bytes(cursor) or b"").decode())
    except (ValueError, ValidationError):
        raise ValidationError("cursor is not from a page of this store", field="cursor") from None
    if not key.startswith(prefix):
        raise ValidationError("cursor belongs to a listing with another prefix", field="cursor")
    return key
