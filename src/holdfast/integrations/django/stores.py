"""The stores that Django's settings name, each opened once in a process, and bytes of any size in them.

Django makes cache and session objects for every thread and request; none of them opens or closes a store. A
store opens at its first use and closes with the process. A process that was forked opens its own.
"""

from __future__ import annotations

import binascii
import os
import re
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any, Final

from holdfast import seams, sync
from holdfast.errors import (
    KeyNotFound,
    Refused,
    Transient,
    ValidationError,
    ValueTooLarge,
    VersionConflict,
)
from holdfast.integrations.entries import cut_by_size, unless_error
from holdfast.model import KEEP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.model import Entry
    from holdfast.sync import Store
    from holdfast.sync.blobs import Blobs
    from holdfast.sync.kv import KV

_one_at_a_time: Final = seams.Lock()
_open: Final[dict[tuple[int, str], Store]] = {}


_IN_ENTRY: Final = 48_000
"""Bytes that fit into an entry, which holds them as base64."""
_BLOB_LONGER: Final = 60
"""Seconds by which a blob outlives the entry that names it."""
_AT_ONCE: Final = 500
_NOT_WRITTEN: Final = (Refused, VersionConflict, Transient)
"""After any other error, the entry may have been written and may name its blob."""
_BLOB: Final = "blob"
_BLOB_NAME: Final = re.compile("[a-z]+/[0-9a-f]{32}")


def opened(url: str) -> Store:
    """Return the store of a URL in this process, after opening it if it is not open yet."""
    name = seams.pid(), url
    store = _open.get(name)
    if store is not None:
        return store
    with _one_at_a_time:
        if name not in _open:
            _open[name] = sync.open(url).__enter__()
        return _open[name]


def close(url: str) -> None:
    """Close the store of a URL, if it is open in this process. The next use opens it again."""
    with _one_at_a_time:
        store = _open.pop((seams.pid(), url), None)
    if store is not None:
        store.close()


os.register_at_fork(before=_one_at_a_time.acquire, after_in_child=_one_at_a_time.release)
os.register_at_fork(after_in_parent=_one_at_a_time.release)


class ByteValues:
    """Bytes under keys in a part of a namespace: small ones in an entry, large ones in a blob that it names.

    A reader gets bytes that one writer has put, or nothing. A blob whose entry is replaced is deleted, or it
    expires by itself. Only a blob without a deadline stays if bytes with one replace it; `clear` removes it.

    Args:
        url: The URL of the store.
        plugin: The namespace.
        root: The beginning of the keys and of the names of blobs.
    """

    def __init__(self, url: str, plugin: str, root: str) -> None:
        self._url = url
        self._plugin = plugin
        self._root = root

    @property
    def kv(self) -> KV:
        """The keys of the namespace."""
        return opened(self._url).kv(self._plugin)

    @property
    def _blobs(self) -> Blobs:
        return opened(self._url).blobs(self._plugin)

    def put(self, key: str, data: bytes, ttl: int | None, *, expected_version: int | None = None) -> None:
        """Put bytes.

        Raises:
            VersionConflict: The key does not have the expected version.
        """
        # What has a deadline and is replaced goes by itself; nothing is read for its sake.
        if _is_small(data) and ttl is not None:
            self.kv.set(key, _small(data), ttl=ttl, expected_version=expected_version)
            return
        before, value = self.kv.get(key), self._stored(data, ttl)
        try:
            self.kv.set(key, value, ttl=ttl, expected_version=expected_version)
        except _NOT_WRITTEN:
            self._drop([value])
            raise
        self._drop([] if before is None else [before.value])

    def put_all(self, values: Mapping[str, bytes | int], ttl: int) -> None:
        """Put many values that have a deadline, the small ones many at a time."""
        small = {key: _small(value) for key, value in values.items() if _is_small(value)}
        items = [{"key": key, "value": value, "ttl": ttl} for key, value in small.items()]
        for start, stop in cut_by_size([len(str(value)) for value in small.values()]):
            for result in self.kv.set_many(items[start:stop]):
                unless_error(result)
        for key, value in values.items():
            if isinstance(value, bytes) and key not in small:
                self.put(key, value, ttl)

    def put_number(
        self, key: str, number: int, ttl: int | None, *, expected_version: int | None = None
    ) -> None:
        """Put a number that can be counted up and down in one step."""
        before = self.kv.get(key) if ttl is None else None
        self.kv.set(key, number, ttl=ttl, expected_version=expected_version)
        self._drop([] if before is None else [before.value])

    def swap(self, entry: Entry, data: bytes) -> None:
        """Put bytes in place of an entry that has been read. Its deadline stays as it is.

        Raises:
            VersionConflict: The entry has changed.
        """
        value = self._stored(data, None)
        try:
            self.kv.set(entry.key, value, ttl=KEEP, expected_version=entry.version)
        except _NOT_WRITTEN:
            self._drop([value])
            raise
        self._drop([entry.value])

    def data_of(self, entry: Entry | None) -> bytes | int | None:
        """Return what is under an entry: bytes, or a number; None if it is gone.

        Raises:
            ValidationError: The entry holds what was not put there by this class.
        """
        while entry is not None:
            value: Any = entry.value
            if isinstance(value, int):
                return value
            if isinstance(value, str):
                return _decoded(entry.key, value)
            names = _blob_of(value)
            if not names:
                raise _foreign(entry.key)
            reader = self._blobs.get(names[0])
            if reader is not None:
                return reader.read()
            seen, entry = entry.version, self.kv.get(entry.key)
            if entry is not None and entry.version == seen:
                return None
        return None

    def entries_of(self, keys: Sequence[str]) -> list[Entry | None]:
        """Return the entries of many keys."""
        entries: list[Entry | None] = []
        for start in range(0, len(keys), _AT_ONCE):
            part = keys[start : start + _AT_ONCE]
            try:
                entries += map(unless_error, self.kv.get_many(part))
            except ValueTooLarge:
                entries += map(self.kv.get, part)
        return entries

    def touch(self, key: str, ttl: int | None) -> bool:
        """Give a key another deadline, or none; False if there is no such key."""
        try:
            entry = self.kv.remove_ttl(key) if ttl is None else self.kv.set_ttl(key, ttl)
            for name in _blob_of(entry.value):
                if ttl is None:
                    self._blobs.remove_ttl(name)
                else:
                    self._blobs.set_ttl(name, ttl + _BLOB_LONGER)
        except KeyNotFound:
            return False
        return True

    def remove(self, keys: Sequence[str]) -> int:
        """Remove keys, and return how many of them there were."""
        count = 0
        for start in range(0, len(keys), _AT_ONCE):
            part = keys[start : start + _AT_ONCE]
            before = self.entries_of(part)
            count += sum(map(unless_error, self.kv.delete_many(part)))
            self._drop(entry.value for entry in before if entry is not None)
        return count

    def clear(self) -> None:
        """Remove everything of this part of the namespace."""
        cursor: str | None = ""
        while cursor is not None:
            cursor = self.kv.delete_prefix(f"{self._root}/", cursor=cursor or None).cursor
        page = self._blobs.list(f"{self._root}/")
        while page.blobs:
            for blob in page.blobs:
                self._blobs.delete(blob.name)
            page = self._blobs.list(f"{self._root}/")

    def _stored(self, data: bytes, ttl: int | None) -> Any:
        """Return what the entry of some bytes holds, after storing a blob if they need one."""
        if _is_small(data):
            return _small(data)
        name = f"{self._root}/{seams.token(16)}"
        self._blobs.put(name, data, ttl=None if ttl is None else ttl + _BLOB_LONGER)
        return {_BLOB: name}

    def _drop(self, values: Iterable[Any]) -> None:
        """Delete the blobs of entries that are gone."""
        for value in values:
            for name in _blob_of(value):
                self._blobs.delete(name)


def _blob_of(value: Any) -> list[str]:
    """Return the name of the blob that an entry names, if it names one. Another program may put anything."""
    name = value.get(_BLOB) if isinstance(value, dict) else None
    return [name] if isinstance(name, str) and _BLOB_NAME.fullmatch(name) else []


def _is_small(value: bytes | int) -> bool:
    return isinstance(value, int) or len(value) <= _IN_ENTRY


def _small(value: bytes | int) -> Any:
    """Return what the entry of a small value holds."""
    return value if isinstance(value, int) else b64encode(value).decode()


def _decoded(key: str, text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):  # the latter for text beyond ASCII
        raise _foreign(key) from None


def _foreign(key: str) -> ValidationError:
    return ValidationError(f"the entry {key!r} was not stored by this backend", field="value")
