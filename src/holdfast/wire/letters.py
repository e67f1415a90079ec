"""Reading dead letters: a write in the plugin dialect, and why it was given up."""

from __future__ import annotations

import msgspec

from holdfast.clock import moment
from holdfast.errors import DatabaseError, HoldfastError
from holdfast.letter_commands import LetterContent
from holdfast.model import Letter
from holdfast.rows import Row
from holdfast.wire.payload import decode


def letter_of(row: Row) -> Letter:
    """Read the letter in a row.

    Raises:
        DatabaseError: The letter can't be read: a program has written it without Holdfast.
    """
    try:
        content = msgspec.convert(decode((row.value or "").encode()), LetterContent)
    except (HoldfastError, msgspec.ValidationError):
        raise DatabaseError(f"dead letter {row.version} can't be read", field="number") from None
    return Letter(
        number=row.version,
        at=moment(row.created_at),
        writer=row.last_writer,
        request_id=row.request_id or "",
        **msgspec.structs.asdict(content),
    )
