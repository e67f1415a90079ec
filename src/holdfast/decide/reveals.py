"""Reveals: a person looks at a value.

The policy decides whether a person may, and whether they have to say why. A reveal changes no data and leaves
nothing in the journal. In a namespace with an audit it leaves a record, whose `spec_ref` is the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from holdfast import rules
from holdfast.audit.chain import REVEALED
from holdfast.commands import Got, Reveal
from holdfast.decide.audit import add_record
from holdfast.decide.draft import Draft, Loaded, Needs
from holdfast.decide.entries import live
from holdfast.decide.items import ItemSlot, need_item, needs_table
from holdfast.decide.letters import letter_address
from holdfast.decide.policies import audited, reveals
from holdfast.errors import MissingField, PermissionDenied
from holdfast.letter_commands import RevealLetter
from holdfast.rows import KV, Address, Record, Row
from holdfast.stored import purpose_of
from holdfast.tables.commands import RevealItem
from holdfast.tables.items import item_name

Revealing: TypeAlias = Reveal | RevealItem | RevealLetter


class _About(msgspec.Struct, frozen=True):
    """The part of a dead letter that names what it is about."""

    key: str


def _reveal(draft: Draft, command: Reveal) -> Got:
    _permit(draft, command)
    row = live(draft, command.key)
    if row is not None:
        _tell(draft, command, row, key=command.key)
    return Got(row)


def _reveal_item(draft: Draft, command: RevealItem) -> Got:
    _permit(draft, command)
    place = ItemSlot(draft, command)
    if place.row is not None:
        _tell(draft, command, place.row, key=item_name(place.schema, place.named))
    return Got(place.row)


def _reveal_letter(draft: Draft, command: RevealLetter) -> Got:
    _permit(draft, command)
    row = draft.row(letter_address(draft.name, command.number))
    if row is not None:
        _tell(draft, command, row, key=msgspec.json.decode(row.value or "", type=_About).key)
    return Got(row)


def _permit(draft: Draft, command: Revealing) -> None:
    """Refuse a reveal that the policy forbids, or one without a reason that the policy wants."""
    how = reveals(draft.namespace)
    if how == "never":
        raise PermissionDenied(f"the policy of {draft.name} says that values are never revealed")
    if how == "audited" and command.why is None:
        raise MissingField("say why you look at this value", field="why")
    if how == "audited" and command.why is not None:
        rules.require_reason(command.why)


def _tell(draft: Draft, command: Revealing, row: Row, *, key: str) -> None:
    """Record who looked at a row and why, if the policy wants it and the namespace has an audit."""
    if reveals(draft.namespace) != "audited" or not audited(draft.namespace):
        return
    record = Record(
        namespace=draft.name,
        version=draft.version(),
        op=REVEALED,
        key=key,
        at=draft.now,
        last_writer=command.origin.writer,
        request_id=command.origin.request_id,
        purpose=purpose_of(row.semantics),
    )
    add_record(draft, record, row, row, spec_ref=command.why)


def _needs_key(needs: Needs, command: Reveal) -> None:
    needs.row(Address(command.namespace, KV, command.key), value=True)


def _needs_letter(needs: Needs, command: RevealLetter) -> None:
    needs.row(letter_address(command.namespace, command.number), value=True)


NEEDS: Final[dict[type, Callable[[Needs, Any], None]]] = {
    Reveal: _needs_key,
    RevealItem: needs_table,
    RevealLetter: _needs_letter,
}
FURTHER: Final[dict[type, Callable[[Needs, Any, Loaded], None]]] = {RevealItem: need_item}
"""Functions that request more rows, once the tables are known."""
APPLY: Final[dict[type, Callable[[Draft, Any], Any]]] = {
    Reveal: _reveal,
    RevealItem: _reveal_item,
    RevealLetter: _reveal_letter,
}
