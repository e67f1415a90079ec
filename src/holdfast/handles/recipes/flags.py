"""All flags of a namespace at once.

A set of flags is two mirrors, one for each way in which flags' keys are spelled. `Flag` says what a stored
value means.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Mapping, ValuesView
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self, TypeVar

from holdfast.handles.kv import KV
from holdfast.handles.recipes.flag import Flag, FlagState
from holdfast.handles.recipes.mirror import Mirror
from holdfast.handles.recipes.names import CASED, FLAG, flag_key, flag_name
from holdfast.model import Entry

T = TypeVar("T")


class Flags:
    """The flags of a namespace. Get them from `KV.flags`."""

    def __init__(self, kv: KV) -> None:
        self._kv = kv

    async def list(self) -> dict[str, Any]:
        """Read all flags that are set, once.

        Returns:
            Their values, by name.
        """
        async with self.all() as flags:
            return dict(flags.items())

    def all(self, *, on_change: Callable[[str, Entry | None], None] | None = None) -> FollowedFlags:
        """Get all flags with their values at hand for the length of an `async with` block.

        Args:
            on_change: Called after each change, with the name of the flag and its new entry, or None if it is
                not set any more. It runs on the thread of the event loop, so it must not block.

        Returns:
            A context manager that is a mapping of the flags that are set, by name.

        Example:
            `flags = kv.flags().all()`
        """
        return FollowedFlags(self._kv, on_change)


class FollowedFlags(Mapping[str, Any]):
    """All flags of a namespace, read without waiting. Get one from `Flags.all`.

    As a mapping it has the stored value of each flag that is set. With `value` and `state`, a flag has a type
    and a default, as from `KV.flag`. Reading raises `Unavailable` when the flags are no longer followed.
    """

    def __init__(self, kv: KV, on_change: Callable[[str, Entry | None], None] | None) -> None:
        self._kv = kv
        self._on_change = on_change
        callback = None if on_change is None else self._tell
        self._mirrors = [Mirror(kv, f"{kind}/", on_change=callback) for kind in (FLAG, CASED)]
        self._blocks = AsyncExitStack()
        self._known: dict[str, tuple[Any, FlagState[Any]]] = {}

    def items(self) -> ItemsView[str, Any]:
        """Get the flags that are set, with their values at this instant. Later changes do not show in them.

        Returns:
            Pairs of a name and the stored value.

        Raises:
            Unavailable: The flags are not followed now.
        """
        return self._values().items()

    def values(self) -> ValuesView[Any]:
        """Get the values of the flags that are set at this instant. Later changes do not show in them.

        Returns:
            The stored values.

        Raises:
            Unavailable: The flags are not followed now.
        """
        return self._values().values()

    def value(self, name: str, default: T) -> T:
        """Get the value of a flag.

        Args:
            name: The flag's name.
            default: Value of a flag that is not set, or holds another type.

        Returns:
            The value.

        Raises:
            ValidationError: The name breaks its rule.
            Unavailable: The flags are not followed now.
        """
        return self.state(name, default).value

    def state(self, name: str, default: T) -> FlagState[T]:
        """Get the value of a flag with the reason for it, its variant and metadata.

        Args:
            name: The flag's name.
            default: Value of a flag that is not set, or holds another type.

        Returns:
            The state, as `Flag.state` returns it.

        Raises:
            ValidationError: The name breaks its rule.
            Unavailable: The flags are not followed now.
        """
        entry = self._entry(flag_key(self._kv, name))
        seen, state = self._known.get(name, (None, None))
        if state is None or state.entry is not entry or seen is not default:
            state = Flag(self._kv, name, default).state_in(entry)
            self._known[name] = (default, state)
        return state

    @property
    def stale_for(self) -> float:
        """The seconds since all flags were last known to be current; see `Mirror.stale_for`."""
        return max(mirror.stale_for for mirror in self._mirrors)

    def __getitem__(self, name: str) -> Any:
        entry = self._entry(flag_key(self._kv, name))
        if entry is None:
            raise KeyError(name)
        return Flag[Any](self._kv, name, None).value_in(entry)

    def __iter__(self) -> Iterator[str]:
        names = [flag_name(self._kv, key) for mirror in self._mirrors for key in mirror]
        return iter([name for name in names if name is not None])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as blocks:
            for mirror in self._mirrors:
                await blocks.enter_async_context(mirror)
            self._blocks = blocks.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._blocks.aclose()

    def _values(self) -> dict[str, Any]:
        states = {name: self.state(name, None) for name in self}
        return {name: state.value for name, state in states.items() if state.entry is not None}

    def _entry(self, key: str) -> Entry | None:
        plain, cased = (mirror.entry(key) for mirror in self._mirrors)
        return cased if plain is None else plain

    def _tell(self, key: str, entry: Entry | None) -> None:
        name = flag_name(self._kv, key)
        if name is not None and self._on_change is not None:
            self._on_change(name, entry)
