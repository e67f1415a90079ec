"""Making callers' commands on keys from the fields of a call.

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
from holdfast.clock import milliseconds
from holdfast.commands import (
    CHECKS,
    ITEMS,
    WRITES,
    Append,
    BatchPart,
    Check,
    Delete,
    Guard,
    Incr,
    Load,
    Set,
    SetPolicy,
)
from holdfast.declare import DECLARED, PARTS
from holdfast.errors import ValidationError, ValueTooLarge
from holdfast.model import Entry, Policy
from holdfast.origin import Origin
from holdfast.rows import Row
from holdfast.verbs.fields import Several, several
from holdfast.verbs.letters import LetterVerbs

_SET: Final = DECLARED["set"]
_TELLING: Final = tuple(name for name in PARTS if name != "value")
"""The fields that tell the writes of a batch apart, besides `value`, which may be null."""


class Verbs(LetterVerbs):
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

    def _loaded(self, entry: object) -> tuple[str, Row]:
        if not isinstance(entry, Entry):
            raise ValidationError("each of entries must be an entry", field="entries")
        value, size = rules.encode_value(entry.value)
        meaning = rules.semantics(entry.semantics)
        row = Row(
            value=value,
            size=size,
            version=rules.loaded_version(entry.version),
            created_at=milliseconds(entry.created_at),
            updated_at=milliseconds(entry.updated_at),
            expires_at=None if entry.expires_at is None else milliseconds(entry.expires_at),
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
