"""Dead letters as they are kept and shown: a writing call in the plugin dialect, and why it was given up.

Law: a letter is kept in the form in which its call goes over the wire, since that form is public and outlives
every version of the commands.
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
    """What a letter says: the call, and what became of it."""

    verb: str
    request: dict[str, Any]
    key: str
    error_code: str
    message: str
    attempts: int


def content_text(content: Content) -> str:
    """The JSON text of a letter."""
    return msgspec.json.encode(content).decode()


def content_fields(text: str) -> dict[str, Any]:
    """What a letter says, as the fields of the call that keeps it."""
    fields: dict[str, Any] = decode(text.encode())
    del fields["key"]
    return fields


def letter_of(row: Row) -> Letter:
    """The letter in a row.

    Raises:
        DatabaseError: It can't be read; somebody has written past Holdfast.
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
