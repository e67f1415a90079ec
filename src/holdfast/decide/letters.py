"""Dead letters: requests that were given up, kept whole until an operator handles them.

A letter is a row whose key is the version at which it was kept. The row with the empty key holds their total
size, which is limited. The journal and the events contain only the hash of its value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from holdfast import rules
from holdfast.audit.chain import hash_of
from holdfast.commands import Deleted, LetterStored
from holdfast.decide.draft import Draft, Needs
from holdfast.errors import HoldfastError, QuotaExceeded
from holdfast.letter_commands import DropLetter, Escalate
from holdfast.rows import LETTER, Address, Record, Row
from holdfast.stored import Escalation

_OVERHEAD: Final = 256


class Held(msgspec.Struct, frozen=True):
    """The number and total size of a namespace's letters."""

    count: int = 0
    bytes: int = 0


def letter_address(namespace: str, number: int) -> Address:
    """Return the address of a letter; 0 stands for the totals."""
    return Address(namespace, LETTER, number.to_bytes(8, "big") if number else b"")


def _escalate(draft: Draft, command: Escalate) -> LetterStored:
    version, origin = draft.version(), command.origin
    row = Row(
        value=command.letter,
        size=len(command.letter.encode()),
        version=version,
        created_at=draft.now,
        updated_at=draft.now,
        last_writer=origin.writer,
        request_id=command.request,
        spec_ref=origin.spec_ref,
    )
    _hold(draft, letters=1, size=row.size)
    draft.put(letter_address(draft.name, version), row)
    escalation = Escalation(
        error_code=command.code, attempts=command.attempts, value_hash=_hash(draft, command.value)
    )
    draft.record(
        Record(
            namespace=draft.name,
            version=version,
            op="escalated",
            key=command.key,
            at=draft.now,
            last_writer=origin.writer,
            request_id=command.request,
            detail=msgspec.json.encode(escalation).decode(),
        )
    )
    return LetterStored(version)


def _hold(draft: Draft, *, letters: int, size: int) -> None:
    """Count a letter that is added or removed.

    Raises:
        QuotaExceeded: There is no room for a new letter.
    """
    address = letter_address(draft.name, 0)
    row = draft.row(address)
    held = Held() if row is None else msgspec.json.decode(row.value or "", type=Held)
    now = Held(held.count + letters, held.bytes + letters * (size + _OVERHEAD))
    if letters > 0 and now.bytes > rules.MAX_LETTERS_BYTES:
        raise QuotaExceeded(
            f"{draft.name} has {held.count} dead letters with {held.bytes} bytes; at most "
            f"{rules.MAX_LETTERS_BYTES} bytes are allowed: retry or drop some of them"
        )
    value = msgspec.json.encode(now).decode()
    draft.put(
        address,
        Row(
            value=value,
            size=len(value),
            version=draft.namespace.revision,
            created_at=draft.now if row is None else row.created_at,
            updated_at=draft.now,
        ),
    )


def _hash(draft: Draft, value: str | None) -> str | None:
    """Return the hash of a value; None if the store's key is not available. The letter is kept anyway."""
    try:
        return hash_of(draft.keys, value)
    except HoldfastError:
        return None


def _drop(draft: Draft, command: DropLetter) -> Deleted:
    address = letter_address(draft.name, command.number)
    row = draft.row(address)
    if row is None:
        return Deleted(None)
    version = draft.version()
    draft.put(address, None)
    _hold(draft, letters=-1, size=row.size)
    return Deleted(version)


def _needs_sum(needs: Needs, command: Escalate) -> None:
    needs.row(letter_address(command.namespace, 0), value=True)


def _needs_letter(needs: Needs, command: DropLetter) -> None:
    needs.row(letter_address(command.namespace, 0), value=True)
    needs.row(letter_address(command.namespace, command.number))


NEEDS: Final[dict[type, Callable[[Needs, Any], None]]] = {
    Escalate: _needs_sum,
    DropLetter: _needs_letter,
}
APPLY: Final[dict[type, Callable[[Draft, Any], Any]]] = {Escalate: _escalate, DropLetter: _drop}
