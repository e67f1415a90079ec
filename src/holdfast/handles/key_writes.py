"""The verbs on keys that write one command, as Python calls; a handle says how commands are executed.

`KV` and `KV.retry` have the same verbs because both have them from here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Unpack

from holdfast.commands import CHECKS, WRITES, Deleted, Missed, Stored, Versions
from holdfast.model import BatchResult, Entry, Keep
from holdfast.stored import entry_of
from holdfast.verbs.unknown import refuse_unknown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from holdfast.commands import Result
    from holdfast.model import Semantics
    from holdfast.verbs.fields import Provenance
    from holdfast.verbs.keys import Verbs


class KeyWrites(ABC):
    """The verbs that write to the keys of one namespace."""

    verbs: Verbs

    async def set(
        self,
        key: str,
        value: Any,
        *,
        ttl: int | Keep | None = None,
        expected_version: int | None = None,
        semantics: Semantics | Mapping[str, Any] | None = None,
        **provenance: Unpack[Provenance],
    ) -> Entry:
        """Set a key to a JSON value, replacing its value, ttl and semantics.

        Args:
            key: Key of 1 to 255 characters.
            value: Any JSON value of at most 65,536 bytes in its compact form.
            ttl: Seconds until the entry expires; None for never; `holdfast.KEEP` keeps the deadline it has.
            expected_version: Version that the entry must have; 0 if there must be no entry, None for any.
            semantics: Why the entry exists and for whom.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

        Returns:
            The new entry.

        Raises:
            ValueTooLarge: The value has more than 65,536 bytes.
            VersionConflict: The entry does not have the expected version; `current` is what is there.

        Example:
            `await kv.set("game:42", {"turn": "alice"}, ttl=1800)`
        """
        made = self._perform(
            "set",
            key=key,
            value=value,
            ttl=ttl,
            expected_version=expected_version,
            semantics=semantics,
            **provenance,
        )
        return entry_in(await made)

    async def delete(
        self, key: str, *, expected_version: int | None = None, **provenance: Unpack[Provenance]
    ) -> bool:
        """Remove a key.

        Args:
            key: The key.
            expected_version: Version that the entry must have; 0 if there must be no entry, None for any.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

        Returns:
            True if the key was there.

        Raises:
            VersionConflict: The entry does not have the expected version; `current` is what is there.
        """
        result = await self._perform("delete", key=key, expected_version=expected_version, **provenance)
        return removed_in(result)

    async def incr(
        self,
        key: str,
        by: int | float = 1,
        *,
        ttl: int | None = None,
        only_if_exists: bool = False,
        expected_version: int | None = None,
        **provenance: Unpack[Provenance],
    ) -> Entry:
        """Add to a number.

        Args:
            key: The number's key. A missing key starts from 0.
            by: What to add, which may be negative.
            ttl: Seconds until the entry expires if this call creates it. An existing entry keeps its
                deadline.
            only_if_exists: Whether to refuse a missing key instead of creating it.
            expected_version: Version that the entry must have; 0 if there must be no entry, None for any.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

        Returns:
            The entry with its new value.

        Raises:
            ValidationError: The stored value is not a number, or the sum is too large.
            KeyNotFound: There is no entry, and `only_if_exists` is given.
            VersionConflict: The entry does not have the expected version; `current` is what is there.
        """
        made = self._perform(
            "incr",
            key=key,
            by=by,
            ttl=ttl,
            only_if_exists=only_if_exists,
            expected_version=expected_version,
            **provenance,
        )
        return entry_in(await made)

    async def set_ttl(
        self,
        key: str,
        ttl_seconds: int,
        *,
        expected_version: int | None = None,
        **provenance: Unpack[Provenance],
    ) -> Entry:
        """Expire an entry a number of seconds from now.

        Args:
            key: The entry's key.
            ttl_seconds: Whole seconds, from 1.
            expected_version: Version that the entry must have; 0 if there must be no entry, None for any.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

        Returns:
            The entry with its new version.

        Raises:
            KeyNotFound: There is no entry.
            VersionConflict: The entry does not have the expected version; `current` is what is there.
        """
        made = self._perform(
            "set_ttl", key=key, ttl_seconds=ttl_seconds, expected_version=expected_version, **provenance
        )
        return entry_in(await made)

    async def remove_ttl(
        self, key: str, *, expected_version: int | None = None, **provenance: Unpack[Provenance]
    ) -> Entry:
        """Remove an entry's deadline, so that it never expires.

        Args:
            key: The entry's key.
            expected_version: Version that the entry must have; 0 if there must be no entry, None for any.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

        Returns:
            The entry with its new version.

        Raises:
            KeyNotFound: There is no entry.
            VersionConflict: The entry does not have the expected version; `current` is what is there.
        """
        made = self._perform("remove_ttl", key=key, expected_version=expected_version, **provenance)
        return entry_in(await made)

    async def touch(
        self,
        key: str,
        ttl_seconds: int,
        *,
        expected_version: int | None = None,
        **provenance: Unpack[Provenance],
    ) -> Entry | None:
        """Expire an entry a number of seconds from now, if there is one.

        This is `set_ttl` for a caller to whom a missing entry is no error.

        Args:
            key: The entry's key.
            ttl_seconds: Whole seconds, from 1.
            expected_version: Version that the entry must have; 0 if there must be no entry, None for any.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

        Returns:
            The entry with its new version, or None if there is none.

        Raises:
            VersionConflict: The entry does not have the expected version; `current` is what is there.

        Example:
            `alive = await kv.touch("session:ada", 1800) is not None`
        """
        result = await self._perform(
            "touch", key=key, ttl_seconds=ttl_seconds, expected_version=expected_version, **provenance
        )
        return None if isinstance(result, Missed) else entry_in(result)

    async def restore(
        self,
        key: str,
        *,
        ttl: int | None = None,
        expected_version: int | None = None,
        **provenance: Unpack[Provenance],
    ) -> Entry:
        """Bring a key back from the trash, with a new version.

        Args:
            key: The key.
            ttl: Seconds until the entry expires; None for never.
            expected_version: Version that the entry must have; 0 if there must be no entry, None for any.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

        Returns:
            The restored entry.

        Raises:
            VersionConflict: The key exists.
            KeyNotFound: The key is not in the trash.
        """
        made = self._perform("restore", key=key, ttl=ttl, expected_version=expected_version, **provenance)
        return entry_in(await made)

    async def batch(
        self,
        *,
        checks: Sequence[Mapping[str, Any]] = (),
        writes: Sequence[Mapping[str, Any]],
        **provenance: Unpack[Provenance],
    ) -> BatchResult:
        """Perform all of at most 1,000 writes, or none of them.

        Args:
            checks: Objects with a `key` and the `version` that its entry must have, 0 for no entry.
            writes: Objects with a `key` and a `value` and the fields of `set`; or a `key` and `"delete":
                True`; or a `key` and a number as `incr`; or the name of a lock as `guard`, which gives it a
                new token.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

        Returns:
            The version of each write, by position.

        Raises:
            VersionConflict: A check failed; `conflicts` lists every one that did.
            ValueTooLarge: Keys, values and semantics have more than 524,288 bytes together.
            MissingField: A check or a write lacks a field.
            ValidationError: A check or a write has an unknown field.

        Example:
            `await kv.batch(checks=[{"key": "a", "version": 0}], writes=[{"key": "a", "value": 1}])`
        """
        refuse_unknown(checks, CHECKS.names, field="checks")
        refuse_unknown(writes, WRITES.names, field="writes")
        result = await self._perform("batch", checks=checks, writes=writes, **provenance)
        assert isinstance(result, Versions)
        return BatchResult(versions=list(result.versions))

    @abstractmethod
    def _perform(self, verb: str, **fields: Any) -> Awaitable[Result]:
        """Make the command of a verb and execute it."""


def entry_in(result: object) -> Entry:
    """Return the entry that a write has left."""
    assert isinstance(result, Stored)
    return entry_of(result.key, result.row)


def removed_in(result: object) -> bool:
    """Return whether a deletion has found its key."""
    assert isinstance(result, Deleted)
    return result.version is not None
