"""Making callers' commands on keys from the fields of a call.

Law: every edge makes its commands here, so that the same call is legal or refused, with the same error, at
all of them. Nothing here waits, reads or writes.
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
    Batch,
    Check,
    Delete,
    Guard,
    Incr,
    Load,
    Many,
    Origin,
    Restore,
    Reveal,
    Set,
    SetPolicy,
    SetTtl,
    Touch,
)
from holdfast.errors import ValidationError, ValueTooLarge
from holdfast.model import KEEP, Entry, Keep, Policy, Semantics
from holdfast.rows import Row
from holdfast.verbs.fields import Several, as_object, required, several, ttl_field
from holdfast.verbs.letters import LetterVerbs

_BARE: Final = {"key", "value"}
"""The names in an item or write that only puts a value."""


class Verbs(LetterVerbs):
    """The verbs of one namespace for one caller."""

    def get_many(self, keys: object) -> Several[str]:
        """Return the legal keys, in full, of a read of several keys."""
        return Several.of(self.key, several(keys, field="keys"))

    def set(
        self,
        key: object,
        value: object,
        *,
        ttl: object = None,
        expected_version: object = None,
        semantics: object = None,
        **provenance: Any,
    ) -> Set:
        """Make a command that stores a value."""
        return self.set_by(
            self.origin(**provenance),
            key,
            value,
            ttl=ttl,
            expected_version=expected_version,
            semantics=semantics,
        )

    def delete(self, key: object, *, expected_version: object = None, **provenance: Any) -> Delete:
        """Make a command that removes a key."""
        return self._delete(self.origin(**provenance), key, expected_version)

    def incr(
        self,
        key: object,
        by: object = 1,
        *,
        ttl: object = None,
        only_if_exists: object = False,
        expected_version: object = None,
        **provenance: Any,
    ) -> Incr:
        """Make a command that adds to a number."""
        origin = self.origin(**provenance)
        return self._incr(origin, key, by, ttl, only_if_exists=only_if_exists, expected=expected_version)

    def set_ttl(
        self, key: object, ttl_seconds: object, *, expected_version: object = None, **provenance: Any
    ) -> SetTtl:
        """Make a command that sets a deadline."""
        seconds = rules.required_ttl(ttl_seconds, field="ttl_seconds")
        return self._set_ttl(key, seconds, expected_version, provenance)

    def remove_ttl(self, key: object, *, expected_version: object = None, **provenance: Any) -> SetTtl:
        """Make a command that removes a deadline."""
        return self._set_ttl(key, None, expected_version, provenance)

    def touch(
        self, key: object, ttl_seconds: object, *, expected_version: object = None, **provenance: Any
    ) -> Touch:
        """Make a command that sets the deadline of a key if it exists."""
        return Touch(
            namespace=self.namespace,
            origin=self.origin(**provenance),
            key=self.key(key),
            expected=_expected(expected_version),
            ttl_seconds=rules.required_ttl(ttl_seconds, field="ttl_seconds"),
        )

    def restore(
        self, key: object, *, ttl: object = None, expected_version: object = None, **provenance: Any
    ) -> Restore:
        """Make a command that restores a key from the trash."""
        return Restore(
            namespace=self.namespace,
            origin=self.origin(**provenance),
            key=self.key(key),
            expected=_expected(expected_version),
            ttl=rules.ttl(ttl),
        )

    def reveal(
        self,
        key: object,
        *,
        why: object = None,
        writer: object = None,
        timeout: object = None,
        deadline: int | None = None,
    ) -> Reveal:
        """Make a command that reads a key for a person, who says why. Its reply is never remembered."""
        return Reveal(
            namespace=self.namespace,
            origin=self.origin(writer=writer, timeout=timeout, deadline=deadline),
            key=self.key(key),
            why=rules.why(why),
        )

    def set_many(self, items: object, **provenance: Any) -> tuple[Many, Several[Set]]:
        """Make a command that stores several values, each on its own. An item has the fields of a set."""
        origin = self.origin(**provenance)
        sets = Several.of(partial(self._set_item, origin.asked), several(items, field="items"))
        _bound(sets.legal, "set_many")
        return Many(namespace=self.namespace, origin=origin, items=tuple(sets.legal)), sets

    def delete_many(self, keys: object, **provenance: Any) -> tuple[Many, Several[Delete]]:
        """Make a command that removes several keys, each on its own."""
        origin = self.origin(**provenance)
        deletes = Several.of(partial(self._delete, origin.asked), several(keys, field="keys"))
        return Many(namespace=self.namespace, origin=origin, items=tuple(deletes.legal)), deletes

    def delete_seen(self, origin: Origin, keys: Sequence[str], versions: Sequence[int]) -> Many:
        """Make a command that removes keys, each only if it still has the version given.

        A key that was written past the triggers of the store has version 0, which is not checked.
        """
        part, seen = origin.asked, zip(keys, versions, strict=True)
        deletes = tuple(self._delete(part, key, version or None) for key, version in seen)
        return Many(namespace=self.namespace, origin=origin, items=deletes)

    def batch(self, *, checks: object = (), writes: object, **provenance: Any) -> Batch:
        """Make a command that executes all of its writes or none."""
        origin = self.origin(**provenance)
        part = origin.asked
        made = tuple(self._write(part, write) for write in several(writes, field="writes"))
        _bound(made, "batch")
        return Batch(
            namespace=self.namespace,
            origin=origin,
            checks=tuple(self._check(check) for check in several(checks, field="checks")),
            writes=made,
        )

    def load(self, entries: object, *, keep_versions: bool, **provenance: Any) -> Load:
        """Make a command that stores entries of another store with their envelopes."""
        given = several(entries, field="entries")
        made = tuple(self._loaded(entry) for entry in given)
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

    def set_by(
        self,
        origin: Origin,
        key: object,
        value: object,
        *,
        ttl: object = None,
        expected_version: object = None,
        semantics: object = None,
    ) -> Set:
        """Make a command that stores a value, for a call whose origin is known."""
        text, size = rules.encode_value(value)
        meaning = None if semantics is None else rules.semantics(semantics)
        return Set(
            namespace=self.namespace,
            origin=origin,
            key=self.key(key),
            expected=_expected(expected_version),
            value=text,
            size=size,
            ttl=None if ttl is None and meaning is None else _ttl(ttl, meaning),
            keep_ttl=isinstance(ttl, Keep),
            semantics=None if meaning is None else msgspec.json.encode(meaning).decode(),
        )

    def _delete(self, origin: Origin, key: object, expected_version: object = None) -> Delete:
        return Delete(
            namespace=self.namespace, origin=origin, key=self.key(key), expected=_expected(expected_version)
        )

    def _incr(
        self,
        origin: Origin,
        key: object,
        by: object,
        ttl: object,
        *,
        only_if_exists: object,
        expected: object = None,
    ) -> Incr:
        return Incr(
            namespace=self.namespace,
            origin=origin,
            key=self.key(key),
            expected=_expected(expected),
            by=rules.increment(by),
            ttl=rules.ttl(ttl),
            only_if_exists=rules.boolean(only_if_exists, field="only_if_exists") or UNSET,
        )

    def _set_ttl(
        self, key: object, seconds: int | None, expected_version: object, provenance: dict[str, Any]
    ) -> SetTtl:
        return SetTtl(
            namespace=self.namespace,
            origin=self.origin(**provenance),
            key=self.key(key),
            expected=_expected(expected_version),
            ttl=seconds,
        )

    def _set_item(self, origin: Origin, item: object) -> Set:
        if type(item) is dict and item.keys() == _BARE:  # the usual one of a thousand
            return self.set_by(origin, item["key"], item["value"])
        fields = as_object(item, field="items")
        return self.set_by(
            origin,
            required(fields, "key"),
            required(fields, "value"),
            ttl=ttl_field(fields),
            expected_version=fields.get("expected_version"),
            semantics=fields.get("semantics"),
        )

    def _check(self, check: object) -> Check:
        fields = as_object(check, field="checks")
        return Check(
            key=self.key(required(fields, "key")),
            version=rules.version(required(fields, "version"), field="version"),
        )

    def _write(self, origin: Origin, write: object) -> Set | Delete | Incr | Guard:
        if type(write) is dict and write.keys() == _BARE:  # the usual one of a thousand
            return self.set_by(origin, write["key"], write["value"])
        fields = as_object(write, field="writes")
        kinds = [kind for kind in ("delete", "incr", "guard") if fields.get(kind) is not None]
        if "value" in fields:
            kinds.append("value")
        if len(kinds) != 1:
            raise ValidationError("a write has exactly one of value, delete, incr and guard", field="writes")
        if kinds == ["guard"]:
            lock = rules.lock_name(fields["guard"], field="guard")
            return Guard(namespace=self.namespace, origin=origin, lock=lock)
        if fields.get("expected_version") is not None:
            raise ValidationError("a batch expects versions in its checks, not in its writes", field="writes")
        if kinds == ["value"]:
            return self._set_item(origin, fields)
        if kinds == ["incr"]:
            only_if_exists = fields.get("only_if_exists", False)
            return self._incr(
                origin,
                required(fields, "key"),
                fields["incr"],
                ttl_field(fields),
                only_if_exists=only_if_exists,
            )
        if fields["delete"] is not True:
            raise ValidationError("delete must be true", field="delete")
        return self._delete(origin, required(fields, "key"))


def _expected(version: object) -> int | None:
    return None if version is None else rules.version(version)


def _ttl(ttl: object, meaning: Semantics | None) -> int | None:
    """Return the TTL of a call, whether given directly or in its semantics."""
    declared = None if meaning is None else meaning.ttl_seconds
    seconds = None if ttl is KEEP else rules.ttl(ttl)
    if declared is None or declared == seconds:
        return seconds
    if ttl is not None:
        raise ValidationError(f"ttl and semantics.ttl_seconds ({declared}) differ", field="ttl")
    return declared


def _bound(writes: Sequence[Set | Delete | Incr | Guard], verb: str) -> None:
    if len(writes) > 1:  # a single value has a limit of its own
        _fits(sum(map(_size, writes)), verb)


def _fits(size: int, what: str, most: int = rules.MAX_TRANSFER_BYTES) -> None:
    if size > most:
        raise ValueTooLarge(f"{what} holds {size} bytes; at most {most} are allowed")


def _size(write: Set | Delete | Incr | Guard) -> int:
    """Return the size of a write in bytes: its key and the data it stores."""
    if type(write) is Set and write.semantics is None:  # the usual one of a thousand
        key = write.key
        return write.size + (len(key) if key.isascii() else len(key.encode()))
    match write:
        case Set():
            return len(write.key.encode()) + write.size + len((write.semantics or "").encode())
        case Incr():
            return len(write.key.encode()) + len(msgspec.json.encode(write.by))
        case Delete():
            return len(write.key.encode())
        case Guard():
            return len(write.lock.encode())
