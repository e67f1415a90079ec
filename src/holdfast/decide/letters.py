"""Dead letters: requests that were given up, kept whole until somebody deals with them.

Law: a letter is a row whose key is the version at which it was kept. Of its value the journal and the events
tell only the hash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.audit import hash_of
from holdfast.commands import Deleted, DropLetter, Escalate, Stored
from holdfast.errors import Unsupported
from holdfast.rows import LETTER, Address, Record, Row

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.decide.draft import Draft, Needs


class Escalation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the record of an escalation says besides: why it was given up, and the keyed hash of the value."""

    code: str
    attempts: int
    value_hash: str | None = None


def letter_address(namespace: str, number: int) -> Address:
    """Where a letter is."""
    return Address(namespace, LETTER, number.to_bytes(8, "big"))


def _escalate(draft: Draft, command: Escalate) -> Stored:
    version, origin = draft.version(), command.origin
    row = Row(
        value=command.letter,
        size=len(command.letter.encode()),
        version=version,
        created_at=draft.now,
        updated_at=draft.now,
        last_writer=origin.writer,
        request_id=origin.request_id,
        spec_ref=origin.spec_ref,
    )
    draft.put(letter_address(draft.name, version), row)
    told = Escalation(code=command.code, attempts=command.attempts, value_hash=_hash(draft, command.value))
    draft.record(
        Record(
            namespace=draft.name,
            version=version,
            op="escalated",
            key=command.key,
            at=draft.now,
            last_writer=origin.writer,
            request_id=origin.request_id,
            detail=msgspec.json.encode(told).decode(),
        )
    )
    return Stored(command.key, row)


def _hash(draft: Draft, value: str | None) -> str | None:
    """The hash of a value; a store that has no key tells nothing of it."""
    try:
        return hash_of(draft.keys, value)
    except Unsupported:
        return None


def _drop(draft: Draft, command: DropLetter) -> Deleted:
    address = letter_address(draft.name, command.number)
    if draft.row(address) is None:
        return Deleted(None)
    draft.put(address, None)
    return Deleted(draft.version())


def _needs_nothing(wanted: Needs, command: Escalate) -> None:
    """A letter is written without looking."""


def _needs_letter(wanted: Needs, command: DropLetter) -> None:
    wanted.row(letter_address(command.namespace, command.number))


NEEDS: Final[dict[type, Callable[[Needs, Any], None]]] = {
    Escalate: _needs_nothing,
    DropLetter: _needs_letter,
}
APPLY: Final[dict[type, Callable[[Draft, Any], Any]]] = {Escalate: _escalate, DropLetter: _drop}
