"""Making callers' commands on keys and dead letters from the fields of a call.

Every edge makes its commands here, so that the same call is legal or refused, with the same error, at all of
them. Nothing here waits, reads or writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import UNSET

from holdfast import rules
from holdfast.commands import (
    CHECKS,
    ITEMS,
    WRITES,
    Append,
    Batch,
    BatchPart,
    Check,
    Delete,
    Guard,
    Incr,
    KeyChange,
    Load,
    Many,
    Set,
    SetPolicy,
    WriteCommand,
)
from holdfast.declare import DECLARED, PARTS, missing
from holdfast.errors import MissingField, ValidationError, ValueTooLarge, error_classes
from holdfast.letter_commands import DropLetter, Escalate, LetterContent, RevealLetter
from holdfast.model import Entry, Policy
from holdfast.origin import Origin, origin_fields
from holdfast.rows import Row
from holdfast.rules import as_object, several
from holdfast.verbs.caller import NamespaceCaller
from holdfast.verbs.fields import Several

_SET: Final = DECLARED["set"]
_CODES: Final = frozenset(error.code for error in error_classes())
_TELLING: Final = tuple(name for name in PARTS if name != "value")
"""The fields that tell the writes of a batch apart, besides `value`, which may be null."""


class Verbs(NamespaceCaller):
    """The verbs of one namespace for one caller."""

    def keys(self, keys: object) -> Several[str]:
        """Return the keys of `get_many` in full, each of which may be refused."""
        return Several.of(self.key, several(keys, field="keys"))

    def sets(self, items: object, origin: Origin) -> Several[Set]:
        """Return the commands of the items of `set_many`, each of which may be refused."""
        part, item_of, put = origin.asked, ITEMS.of, _SET.make_part
        sets = Several.of(
            lambda item: put(self, item_of(item, field="items"), part), several(items, field="items")
        )
        _bound(sets.legal, "set_many")
        return sets

    def deletes(self, keys: object, origin: Origin) -> Several[Delete]:
        """Return the commands of the keys of `delete_many`, each of which may be refused."""
        return Several.of(partial(self._delete, origin.asked), several(keys, field="keys"))

    def checks(self, checks: object, origin: Origin) -> tuple[Check, ...]:
        """Return the checks of a batch."""
        make = Check.declaration.make_part
        return tuple(
            make(self, CHECKS.of(check, field="checks"), origin) for check in several(checks, field="checks")
        )

    def writes(self, writes: object, origin: Origin) -> tuple[BatchPart, ...]:
        """Return the commands of the writes of a batch."""
        part, part_of, put = origin.asked, WRITES.of, _SET.make_part
        made: list[BatchPart] = []
        for member in several(writes, field="writes"):
            write = part_of(member, field="writes")
            if (
                write.value is not UNSET  # the usual one of a thousand
                and write.delete is None
                and write.incr is None
                and write.append is None
                and write.guard is None
                and write.expected_version is None
            ):
                made.append(put(self, write, part))
            else:
                made.append(self._write(write, part))
        _bound(made, "batch")
        return tuple(made)

    def load(self, entries: object, *, keep_versions: bool, **provenance: Any) -> Load:
        """Make a command that stores entries of another store with their envelopes."""
        loads = several(entries, field="entries")
        made = tuple(self._loaded(entry) for entry in loads)
        if len(made) > 1:  # a single value has a limit of its own
            _fits(sum(len(key.encode()) + row.size for key, row in made), "load")
        return Load(
            namespace=self.namespace,
            origin=self.origin(**provenance),
            entries=made,
            keep_versions=keep_versions,
        )

    def set_policy(self, policy: Policy | dict[str, Any], **provenance: Any) -> SetPolicy:
        """Make a command that sets the policy of the namespace."""
        text = msgspec.json.encode(rules.policy(policy)).decode()
        return SetPolicy(namespace=self.namespace, origin=self.origin(**provenance), policy=text)

    def escalate(
        self, given_up: WriteCommand, *, error_code: str, message: object, attempts: object, **provenance: Any
    ) -> Escalate:
        """Make a command that keeps an abandoned command as a dead letter."""
        return self._escalate(
            given_up,
            self.origin(**provenance),
            error_code=error_code,
            message=message,
            attempts=attempts,
        )

    def escalation(self, message: Any, origin: Origin) -> Escalate:
        """Make the same of a message, whose request must be legal and have a request id."""
        code = str(_required(message, "error_code")).upper()
        if code not in _CODES:
            raise ValidationError(f"there is no error code {rules.shown(code)}", field="error_code")
        return self._escalate(
            self._given_up(message),
            origin,
            error_code=code,
            message="" if message.message is None else message.message,
            attempts=_required(message, "attempts"),
        )

    def reveal_letter(
        self, number: object, *, why: object, writer: object, deadline: int | None
    ) -> RevealLetter:
        """Make a command that reads a dead letter for a person, who says why."""
        return RevealLetter(
            namespace=self.namespace,
            origin=self.origin(writer=writer, deadline=deadline),
            number=rules.positive(number, field="number"),
            why=rules.why(why),
        )

    def drop_letter(self, number: object, **provenance: Any) -> DropLetter:
        """Make a command that removes a dead letter."""
        return DropLetter(
            namespace=self.namespace,
            origin=self.origin(**provenance),
            number=rules.positive(number, field="number"),
        )

    def _loaded(self, entry: object) -> tuple[str, Row]:
        if not isinstance(entry, Entry):
            raise ValidationError("each of entries must be an entry", field="entries")
        value, size = rules.encode_value(entry.value)
        meaning = rules.semantics(entry.semantics)
        row = Row(
            value=value,
            size=size,
            version=rules.loaded_version(entry.version),
            created_at=rules.time(entry.created_at, field="created_at"),
            updated_at=rules.time(entry.updated_at, field="updated_at"),
            expires_at=None if entry.expires_at is None else rules.time(entry.expires_at, field="expires_at"),
            last_writer=rules.identity(entry.last_writer, field="last_writer"),
            semantics=None if meaning is None else msgspec.json.encode(meaning).decode(),
            request_id=None
            if entry.request_id is None
            else rules.identity(entry.request_id, field="request_id"),
            spec_ref=rules.spec_ref(entry.spec_ref),
        )
        return self.key(entry.key), row

    def _delete(self, origin: Origin, key: object) -> Delete:
        return Delete(namespace=self.namespace, origin=origin, key=self.key(key))

    def _write(self, write: Any, origin: Origin) -> BatchPart:
        kinds = [name for name in _TELLING if getattr(write, name) is not None]
        if write.value is not UNSET and kinds != ["append"]:
            kinds.append("value")
        if len(kinds) != 1:
            raise ValidationError(
                "a write has exactly one of value, delete, incr, append and guard; append has a value too",
                field="writes",
            )
        [kind] = kinds
        if kind == "append" and write.key is not UNSET:
            raise ValidationError("append names a log; the store makes the key of the item", field="writes")
        if write.expected_version is not None and kind != "guard":
            raise ValidationError("a batch expects versions in its checks, not in its writes", field="writes")
        if kind == "delete" and write.delete is not True:
            raise ValidationError("delete must be true", field="delete")
        command: BatchPart = PARTS[kind].make_part(self, write, origin)
        return command

    def _given_up(self, message: Any) -> WriteCommand:
        verb, request = (
            _required(message, "verb"),
            as_object(_required(message, "request"), field="request"),
        )
        declaration = DECLARED.get("set" if verb == "put" else verb) if isinstance(verb, str) else None
        if declaration is None or not declaration.in_order or declaration.kind is Escalate:
            raise ValidationError("verb must be one that writes", field="verb")
        kept = {name: field for name, field in request.items() if field is not None or name == "value"}
        call = declaration.of_fields(kept)
        # Without its deadline: that of a call that was given up has passed.
        made = declaration.make(self, call, self.origin_of(call, None))
        command: WriteCommand = made[0] if declaration.several else made
        if isinstance(command, Many) and not command.items:
            raise ValidationError("the request would write nothing", field="request")
        if not command.origin.repeatable:
            raise MissingField("the request has no request_id", field="request.request_id")
        return command

    def _escalate(
        self, given_up: WriteCommand, origin: Origin, *, error_code: str, message: object, attempts: object
    ) -> Escalate:
        key, value = _about(given_up)
        declaration = given_up.declared
        attempts = rules.positive(attempts, field="attempts", most=rules.MAX_LIMIT)
        content = LetterContent(
            verb=declaration.name,
            request=declaration.fields_of(given_up) | origin_fields(given_up.origin),
            key=key,
            error_code=error_code,
            message=rules.reason(message),
            attempts=attempts,
        )
        letter = msgspec.json.encode(content).decode()
        size = len(letter.encode())
        if size > rules.MAX_LETTER_BYTES:
            raise ValueTooLarge(
                f"the dead letter holds {size} bytes; at most {rules.MAX_LETTER_BYTES} are allowed"
            )
        return Escalate(
            namespace=self.namespace,
            origin=origin,
            request=given_up.origin.request_id,
            key=key,
            letter=letter,
            code=error_code,
            attempts=attempts,
            value=value,
        )


def _about(command: WriteCommand) -> tuple[str, str | None]:
    """Return the key of a command, the first of several, and the JSON text that it would store.

    An item that is appended has no key yet: the name of its log stands for it.
    """
    match command:
        case KeyChange():
            return command.key, command.value if isinstance(command, Set) else None
        case Append():
            return command.name, command.value
        case Batch(writes=members) | Many(items=members):
            keys = [
                member.name if isinstance(member, Append) else member.key
                for member in members
                if isinstance(member, KeyChange | Append)
            ]
            values = [member.value for member in members if isinstance(member, Set | Append)]
            return keys[0] if keys else "", f"[{','.join(values)}]" if values else None
        case _:
            raise TypeError(f"{type(command).__name__} is no call of a client")


def _bound(writes: Sequence[BatchPart], verb: str) -> None:
    if len(writes) > 1:  # a single value has a limit of its own
        _fits(sum(map(_size, writes)), verb)


def _fits(size: int, what: str) -> None:
    if size > rules.MAX_TRANSFER_BYTES:
        raise ValueTooLarge(f"{what} holds {size} bytes; at most {rules.MAX_TRANSFER_BYTES} are allowed")


def _size(write: BatchPart) -> int:
    """Return the size of a write in bytes: its key and the data it stores."""
    if type(write) is Set and write.semantics is None:  # the usual one of a thousand
        key = write.key
        return write.size + (len(key) if key.isascii() else len(key.encode()))
    match write:
        case Set():
            return len(write.key.encode()) + write.size + len((write.semantics or "").encode())
        case Append():
            key = rules.item_key(write.name, 0)
            return len(key.encode()) + write.size + len((write.semantics or "").encode())
        case Incr():
            return len(write.key.encode()) + len(msgspec.json.encode(write.by))
        case Delete():
            return len(write.key.encode())
        case Guard():
            return len(write.lock.encode())


def _required(message: Any, name: str) -> Any:
    value = getattr(message, name)
    if value is None:
        raise missing(name)
    return value
