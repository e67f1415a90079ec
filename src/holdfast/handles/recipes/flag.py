"""A value that controls a program: typed, with a default, and cheap to read.

Law: reading a flag returns a value of its type, whatever is stored. A stored value of another type counts as
absent and is logged. A cache never serves an expired value, and raises an error once it no longer follows
changes.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, Unpack, cast

from holdfast.errors import Unavailable, ValidationError
from holdfast.handles.recipes.mirror import Mirror
from holdfast.handles.recipes.names import entry_key
from holdfast.rules import kind_of

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from holdfast.handles.keys import Keys
    from holdfast.model import Entry
    from holdfast.verbs.fields import Provenance

T = TypeVar("T")

_TYPED: Final[dict[type, tuple[type, ...]]] = {bool: (bool,), int: (int,), float: (float, int), str: (str,)}
"""Types that a stored value may have, by the type of the default. An int is a valid float; a bool is not."""

_log = logging.getLogger("holdfast.flag")


class Flag(Generic[T]):
    """A flag of a namespace. Get one from `KV.flag`.

    It has the type of its default: bool, int, float or str. With any other default it may be any JSON value.
    """

    def __init__(self, kv: Keys, name: str, default: T, *, owner: str | None = None) -> None:
        self.name = name
        self.default = default
        self.key = entry_key(kv, "flag", name)
        self._kv = kv
        self._semantics = {"purpose": "feature_flag", "producer": owner}
        self._owner: Provenance = {} if owner is None else {"writer": owner}

    async def get(self) -> T:
        """Get the value.

        Returns:
            The value; the default if none is set, if it has expired, or if it has another type.
        """
        return self.value_in(await self._kv.get(self.key))

    async def set(self, value: T, *, ttl: int | None = None, **provenance: Unpack[Provenance]) -> Entry:
        """Set the value.

        Args:
            value: A value of the flag's type.
            ttl: Seconds until the flag goes back to its default; None for never.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

        Returns:
            The flag's entry.

        Raises:
            ValidationError: The value does not have the flag's type.

        Example:
            `await kv.flag("dark-mode", default=False).set(True, ttl=3600)`
        """
        if not self._fits(value):
            raise ValidationError(
                f"flag {self.name!r} must be {kind_of(self.default)}, not {kind_of(value)}",
                field="value",
            )
        return await self._kv.set(
            self.key, value, ttl=ttl, semantics=self._semantics, **(self._owner | provenance)
        )

    async def clear(self, **provenance: Unpack[Provenance]) -> bool:
        """Go back to the default.

        Args:
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

        Returns:
            True if a value was set.
        """
        return await self._kv.delete(self.key, **(self._owner | provenance))

    def cached(self) -> CachedFlag[T]:
        """Get the flag with its value at hand for the length of an `async with` block.

        Returns:
            A context manager whose `value` is read without waiting.
        """
        return CachedFlag(self._kv, self)

    def value_in(self, entry: Entry | None) -> T:
        """Get the value that an entry gives this flag.

        Args:
            entry: The flag's entry, if there is one.

        Returns:
            The value; the default if there is no entry, or if it has another type.
        """
        if entry is None:
            return self.default
        if not self._fits(entry.value):
            _log.warning(
                "flag %r of %s holds %s; using its default",
                self.name,
                self._kv.namespace,
                kind_of(entry.value),
            )
            return self.default
        return cast("T", float(entry.value) if isinstance(self.default, float) else entry.value)

    def _fits(self, value: Any) -> bool:
        kinds = _TYPED.get(type(self.default))
        return kinds is None or type(value) in kinds


class CachedFlag(Generic[T]):
    """A flag whose value is read without waiting and follows what others set. Get one from `Flag.cached`."""

    def __init__(self, kv: Keys, flag: Flag[T]) -> None:
        self._flag = flag
        self._mirror = Mirror(kv, key=flag.key)
        self._entry: Entry | None = None
        self._value = flag.default

    @property
    def value(self) -> T:
        """The value after the last known change; the default as soon as it has expired.

        Raises:
            Unavailable: The flag is no longer followed, because the block has ended or the store was closed.
        """
        try:
            entry = self._mirror.entry(self._flag.key)
        except Unavailable:
            raise Unavailable(f"flag {self._flag.name!r} is not being followed") from None
        if entry is not self._entry:
            self._entry, self._value = entry, self._flag.value_in(entry)
        return self._value

    @property
    def stale_for(self) -> float:
        """The seconds since the value was last known to be the current one; see `Mirror.stale_for`."""
        return self._mirror.stale_for

    async def __aenter__(self) -> Self:
        await self._mirror.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._mirror.__aexit__(kind, error, trace)
