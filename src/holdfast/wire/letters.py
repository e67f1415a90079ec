"""The form of dead letters in storage and replies: a write in the plugin dialect, and why it was given up.

Law: a letter is stored in its call's wire format, since that format is public and outlives every version of
the commands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.clock import moment
from holdfast.errors import DatabaseError, HoldfastError
from holdfast.model import Letter
from holdfast.wire.payload import decode

if TYPE_CHECKING:
    from holdfast.rows import Row


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a letter: the call and its failure."""

    verb: str
    request: dict[str, Any]
    key: str
    error_code: str
    message: str
    attempts: int


def content_text(content: Content) -> str:
    """Encode the content of a letter as JSON text."""
    return msgspec.json.encode(content).decode()


def content_fields(text: str) -> dict[str, Any]:
    """Convert a letter's JSON text to the fields of the call that stores the letter."""
    fields: dict[str, Any] = decode(text.encode())
    del fields["key"]
    return fields


def letter_of(row: Row) -> Letter:
    """Read the letter in a row.

    Raises:
        DatabaseError: The letter can't be read: a program has written it without Holdfast.
    """
    try:
        content = msgspec.convert(decode((row.value or "").encode()), Content)
    except (HoldfastError, msgspec.ValidationError):
        raise DatabaseError(f"dead letter {row.version} can't be read", field="number") from None
    return Letter(
        number=row.version,
        at=moment(row.created_at),
        writer=row.last_writer,
        request_id=row.request_id or "",
        **msgspec.structs.asdict(content),
    )
