"""A value that controls a program: typed, with a default, and cheap to read.

Reading a flag returns a value of its type, whatever is stored. A stored value of another type counts as
absent and is logged; `state` tells the two apart. A cache never serves an expired value, and raises an error
once it no longer follows changes.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Generic, Literal, Self, TypeVar, Unpack, cast

from holdfast.errors import KeyNotFound, Unavailable, ValidationError
from holdfast.handles.kv import KV
from holdfast.handles.recipes.mirror import Mirror
from holdfast.handles.recipes.names import flag_key
from holdfast.model import KEEP, Entry
from holdfast.rules import kind_of
from holdfast.verbs.fields import Provenance

T = TypeVar("T")

_TYPED: Final[dict[type, tuple[type, ...]]] = {bool: (bool,), int: (int,), float: (float, int), str: (str,)}
"""Types that a stored value may have, by the type of the default. An int is a valid float; a bool is not."""

_log = logging.getLogger("holdfast.flag")


_WRAPPED: Final = "$flag"
"""The only name of the object in which a value is stored that has a variant or metadata."""


@dataclass(frozen=True, slots=True)
class FlagState(Generic[T]):
    """A flag at an instant.

    Attributes:
        value: The value, or the default.
        reason: `set` if the value is the stored one; `missing` if none is stored; `wrong_type` if the stored
            one does not have the flag's type.
        variant: The name of the value, if it has one.
        variants: The values that the flag can be switched between, by name.
        metadata: What else is known about the flag.
        entry: The flag's entry, if there is one.
    """

    value: T
    reason: Literal["set", "missing", "wrong_type"]
    variant: str | None = None
    variants: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    entry: Entry | None = None


class Flag(Generic[T]):
    """A flag of a namespace. Get one from `KV.flag`.

    It has the type of its default: bool, int, float or str. With any other default it may be any JSON value.
    A value may have a name, its variant, and a flag may have several variants to be switched between.
    """

    def __init__(self, kv: KV, name: str, default: T, *, owner: str | None = None) -> None:
        self.name = name
        self.default = default
        self.key: str = flag_key(kv, name)
        self._kv = kv
        self._semantics = {"purpose": "feature_flag", "producer": owner}
        self._owner: Provenance = {} if owner is None else {"writer": owner}

    async def get(self) -> T:
        """Get the value.

        Returns:
            The value; the default if none is set, if it has expired, or if it has another type.
        """
        return self.value_in(await self._kv.get(self.key))

    async def state(self) -> FlagState[T]:
        """Get the value, with the reason for it, its variant and the flag's metadata.

        Returns:
            The state, which tells a flag that is not set from one that holds another type.
        """
        return self.state_in(await self._kv.get(self.key))

    async def set(
        self,
        value: T,
        *,
        variant: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        ttl: int | None = None,
        **provenance: Unpack[Provenance],
    ) -> Entry:
        """Set the value. It replaces the variants and the metadata that the flag had.

        Args:
            value: A value of the flag's type.
            variant: A name for this value.
            metadata: JSON about the flag, such as its team or a link.
            ttl: Seconds until the flag goes back to its default; None for never.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

        Returns:
            The flag's entry.

        Raises:
            ValidationError: The value does not have the flag's type.

        Example:
            `await kv.flag("dark-mode", default=False).set(True, ttl=3600)`
        """
        content = self._content(self._checked(value), variant, None, metadata)
        return await self._put(content, ttl, provenance)

    async def define(
        self,
        variants: Mapping[str, T],
        use: str,
        *,
        metadata: Mapping[str, Any] | None = None,
        ttl: int | None = None,
        **provenance: Unpack[Provenance],
    ) -> Entry:
        """Give the flag variants, which are values with names, and use one of them.

        Args:
            variants: Values of the flag's type, by name.
            use: The name of the value that the flag has from now on.
            metadata: JSON about the flag, such as its team or a link.
            ttl: Seconds until the flag goes back to its default; None for never.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

        Returns:
            The flag's entry.

        Raises:
            ValidationError: A value does not have the flag's type, or `use` names none of them.

        Example:
            `await kv.flag("theme", default="light").define({"day": "light", "night": "dark"}, use="night")`
        """
        checked = {name: self._checked(value) for name, value in variants.items()}
        content = self._content(self._among(checked, use), use, checked, metadata)
        return await self._put(content, ttl, provenance)

    async def use(self, variant: str, **provenance: Unpack[Provenance]) -> Entry:
        """Switch the flag to another of its variants. Its deadline and metadata stay.

        Args:
            variant: The name of the variant.
            **provenance: `request_id`, `writer`, `spec_ref`, `fence` and `timeout`; see `KV`.

        Returns:
            The flag's entry.

        Raises:
            KeyNotFound: The flag is not set.
            ValidationError: The flag has no such variant, or it does not have the flag's type.
            VersionConflict: Another writer has changed the flag at the same time.
        """
        state = await self.state()
        if state.entry is None:
            raise KeyNotFound(f"flag {self.name!r} is not set", field="name")
        value = self._checked(self._among(state.variants, variant))
        content = self._content(value, variant, state.variants, state.metadata)
        origin: Provenance = self._owner | provenance
        version = state.entry.version
        return await self._kv.set(
            self.key, content, ttl=KEEP, expected_version=version, semantics=self._semantics, **origin
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
        return self.state_in(entry).value

    def state_in(self, entry: Entry | None) -> FlagState[T]:
        """Get the state that an entry gives this flag.

        Args:
            entry: The flag's entry, if there is one.

        Returns:
            The state.
        """
        if entry is None:
            return FlagState(self.default, "missing")
        content = _unwrapped(entry.value)
        # Any writer may have stored something else beside the value, which then counts as absent.
        stored, variant = content["value"], content.get("variant")
        variant = variant if isinstance(variant, str) else None
        variants, metadata = _object(content.get("variants")), _object(content.get("metadata"))
        if not self._fits(stored):
            kind = kind_of(stored)
            _log.warning("flag %r of %s holds %s; using its default", self.name, self._kv.namespace, kind)
            return FlagState(self.default, "wrong_type", None, variants, metadata, entry)
        value = cast("T", float(stored) if isinstance(self.default, float) else stored)
        return FlagState(value, "set", variant, variants, metadata, entry)

    def _content(
        self,
        value: T,
        variant: str | None,
        variants: Mapping[str, Any] | None,
        metadata: Mapping[str, Any] | None,
    ) -> Any:
        """Return what is stored: the bare value, or an object around it if there is more to say."""
        more = {"variant": variant, "variants": variants, "metadata": metadata}
        fields = {name: part for name, part in more.items() if part}
        if not fields and not _is_wrapped(value):
            return value
        return {_WRAPPED: {"value": value, **fields}}

    async def _put(self, content: Any, ttl: int | None, provenance: Provenance) -> Entry:
        origin: Provenance = self._owner | provenance
        return await self._kv.set(self.key, content, ttl=ttl, semantics=self._semantics, **origin)

    def _among(self, variants: Mapping[str, Any], name: str) -> Any:
        if name not in variants:
            known = ", ".join(sorted(variants)) or "none"
            raise ValidationError(
                f"flag {self.name!r} has no variant {name!r}; it has {known}", field="variant"
            )
        return variants[name]

    def _checked(self, value: Any) -> T:
        if not self._fits(value):
            raise ValidationError(
                f"flag {self.name!r} must be {kind_of(self.default)}, not {kind_of(value)}",
                field="value",
            )
        return cast("T", value)

    def _fits(self, value: Any) -> bool:
        kinds = _TYPED.get(type(self.default))
        return kinds is None or type(value) in kinds


class CachedFlag(Generic[T]):
    """A flag whose value is read without waiting and follows what others set. Get one from `Flag.cached`."""

    def __init__(self, kv: KV, flag: Flag[T]) -> None:
        self._flag = flag
        self._mirror = Mirror(kv, key=flag.key)
        self._state: FlagState[T] = flag.state_in(None)

    @property
    def value(self) -> T:
        """The value after the last known change; the default as soon as it has expired.

        Raises:
            Unavailable: The flag is no longer followed, because the block has ended or the store was closed.
        """
        return self.state.value

    @property
    def state(self) -> FlagState[T]:
        """The value with the reason for it, its variant and metadata, as `Flag.state` returns them.

        Raises:
            Unavailable: The flag is no longer followed, because the block has ended or the store was closed.
        """
        try:
            entry = self._mirror.entry(self._flag.key)
        except Unavailable:
            raise Unavailable(f"flag {self._flag.name!r} is not being followed") from None
        state = self._state
        if entry is not state.entry:
            state = self._state = self._flag.state_in(entry)
        return state

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


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_wrapped(value: object) -> bool:
    return isinstance(value, dict) and value.keys() == {_WRAPPED} and isinstance(value[_WRAPPED], dict)


def _unwrapped(value: Any) -> dict[str, Any]:
    """Return what a flag's entry says, as an object with at least `value`."""
    if _is_wrapped(value) and "value" in value[_WRAPPED]:
        inner: dict[str, Any] = value[_WRAPPED]
        return inner
    return {"value": value}
