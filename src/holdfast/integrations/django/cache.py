"""A cache backend of Django.

Law: values, timeouts and errors are those that Django documents. Entries are not culled: what was put in is
there until its timeout, or for ever if it has none.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, Final

from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache
from django.core.exceptions import ImproperlyConfigured

from holdfast.errors import KeyNotFound, ValidationError, VersionConflict
from holdfast.integrations.django.shelf import Shelf
from holdfast.integrations.django.values import Values
from holdfast.integrations.lifetimes import whole_seconds
from holdfast.integrations.names import Names

if TYPE_CHECKING:
    from collections.abc import Iterable

_ROOT: Final = "cache"
_NAMES: Final = Names(_ROOT, parts=1)
_COUNTED_BELOW: Final = 2**63


class HoldfastCache(BaseCache):
    """A cache in a namespace of Holdfast, which all processes with the same settings share.

    Settings: `LOCATION` is the URL of the store. `OPTIONS` may have `plugin`, the namespace (`cache`), and
    `serializer`: `json`, which is the default, or `pickle`, with a `pickle_protocol`. With `pickle` a cache
    keeps objects of any class, and whoever may write to the namespace can run code in your application. The
    other settings are those of all backends.

    Args:
        location: The URL.
        params: The settings of this cache.

    Example:
        `CACHES = {"default": {"BACKEND": "holdfast.integrations.django.HoldfastCache", "LOCATION": "nats://…"}}`
    """

    def __init__(self, location: str, params: dict[str, Any]) -> None:
        super().__init__(params)
        options = params.get("OPTIONS", {})
        if not location or not isinstance(location, str):
            raise ImproperlyConfigured("HoldfastCache needs the URL of a store as LOCATION")
        self._shelf = Shelf(location, options.get("plugin", "cache"), _ROOT)
        self._values = Values(
            options.get("serializer", "json"), options.get("pickle_protocol", pickle.HIGHEST_PROTOCOL)
        )

    def add(
        self, key: Any, value: Any, timeout: float | None = DEFAULT_TIMEOUT, version: int | None = None
    ) -> bool:
        """Store a value if there is none; of callers that race for a key, one gets True."""
        name, ttl = self._name(key, version), self._ttl(timeout)
        if ttl == 0:
            return not self._shelf.kv.exists(name)
        try:
            self._put(name, value, ttl, expected_version=0)
        except VersionConflict:
            return False
        return True

    def get(self, key: Any, default: Any | None = None, version: int | None = None) -> Any:
        """Return a value, or the default."""
        return self._value(self._shelf.data_of(self._shelf.kv.get(self._name(key, version))), default)

    def set(
        self, key: Any, value: Any, timeout: float | None = DEFAULT_TIMEOUT, version: int | None = None
    ) -> None:
        """Store a value."""
        name, ttl = self._name(key, version), self._ttl(timeout)
        if ttl == 0:
            self._shelf.remove([name])
        else:
            self._put(name, value, ttl)

    def touch(self, key: Any, timeout: float | None = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        """Give a key another timeout; False if there is no such key."""
        name, ttl = self._name(key, version), self._ttl(timeout)
        if ttl == 0:
            return self._shelf.remove([name]) > 0
        return self._shelf.touch(name, ttl)

    def delete(self, key: Any, version: int | None = None) -> bool:
        """Remove a key; False if there is no such key."""
        return self._shelf.remove([self._name(key, version)]) > 0

    def has_key(self, key: Any, version: int | None = None) -> bool:
        """Return whether there is such a key."""
        return self._shelf.kv.exists(self._name(key, version))

    def incr(self, key: Any, delta: int = 1, version: int | None = None) -> int:
        """Add to a number in one step. Its timeout stays as it is.

        Raises:
            ValueError: There is no such key.
        """
        name = self._name(key, version)
        try:
            number: int = self._shelf.kv.incr(name, delta, only_if_exists=True).value
        except KeyNotFound:
            raise ValueError(f"Key {key!r} not found") from None
        except ValidationError:
            number = self._added(key, name, delta)
        return number

    def get_many(self, keys: Iterable[Any], version: int | None = None) -> dict[Any, Any]:
        """Return the values of those keys that are there."""
        names = {self._name(key, version): key for key in keys}
        entries = self._shelf.entries_of(list(names))
        found = {key: self._shelf.data_of(one) for key, one in zip(names.values(), entries, strict=True)}
        return {key: self._value(data, None) for key, data in found.items() if data is not None}

    def set_many(
        self, data: dict[Any, Any], timeout: float | None = DEFAULT_TIMEOUT, version: int | None = None
    ) -> list[Any]:
        """Store values, many at a time. Return the keys that could not be stored, which are none."""
        ttl = self._ttl(timeout)
        if not ttl:  # each takes the place of what has no deadline, or removes it
            return super().set_many(data, timeout, version)
        self._shelf.put_all(
            {self._name(key, version): self._stored(value) for key, value in data.items()}, ttl
        )
        return []

    def delete_many(self, keys: Iterable[Any], version: int | None = None) -> None:
        """Remove keys."""
        self._shelf.remove([self._name(key, version) for key in keys])

    def clear(self) -> None:
        """Remove everything that caches of this namespace have stored, whatever its version and prefix."""
        self._shelf.clear()

    def _name(self, key: Any, version: int | None) -> str:
        return _NAMES.key(self.make_and_validate_key(key, version=version))

    def _ttl(self, timeout: float | None) -> int | None:
        """Return a timeout in whole seconds; 0 if it has passed already, None if there is none."""
        if timeout == DEFAULT_TIMEOUT:
            timeout = self.default_timeout
        if timeout is None:
            return None
        return whole_seconds(timeout) if timeout > 0 else 0

    def _put(self, name: str, value: Any, ttl: int | None, *, expected_version: int | None = None) -> None:
        stored = self._stored(value)
        if isinstance(stored, int):
            self._shelf.put_number(name, stored, ttl, expected_version=expected_version)
        else:
            self._shelf.put(name, stored, ttl, expected_version=expected_version)

    def _stored(self, value: Any) -> bytes | int:
        """Return what to store: a number as it is, anything else as bytes."""
        # Only an int itself: a member of an enum would come back as a number.
        if type(value) is int and -_COUNTED_BELOW < value < _COUNTED_BELOW:
            return value
        return self._values.dumped(value)

    def _added(self, key: Any, name: str, delta: int) -> Any:
        """Add to a value that is no plain number, such as a Decimal, by compare and set."""
        while True:
            entry = self._shelf.kv.get(name)
            data = self._shelf.data_of(entry)
            if entry is None or data is None:
                raise ValueError(f"Key {key!r} not found")
            value = self._value(data, None) + delta
            try:
                self._shelf.swap(entry, self._values.dumped(value))
            except VersionConflict:
                continue
            return value

    def _value(self, data: bytes | int | None, default: Any) -> Any:
        """Return the value in what was stored."""
        if data is None:
            return default
        return data if isinstance(data, int) else self._values.loaded(data)
