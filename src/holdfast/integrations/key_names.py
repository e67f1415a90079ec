"""Keys for the names that other projects use, which may be longer or stranger than a key may be.

Two names never share a key, and a listing gives back the names exactly as they were. A name that fits stays
readable. A part that is too long becomes a digest, and then the entry itself records the name: there is no
second entry that could be missing, or that would stay behind when the first expires.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from holdfast import rules
from holdfast.errors import ValidationError

_SHORTENED: Final = "#"
"""Begins a part that is a digest. In a part that is not, a `#` at the beginning is escaped."""
_DIGEST_BYTES: Final = 16
_ESCAPED: Final = re.compile("[%/\x00\ud800-\udfff]|^#")
_NAME: Final = "name"
_VALUE: Final = "value"


class KeyNames:
    """The names of one kind of entry: `root`, then a fixed number of parts.

    Args:
        root: The beginning of all keys of this kind, such as `session`.
        parts: Number of parts in a name, at most six.
    """

    def __init__(self, root: str, parts: int) -> None:
        self._root = root
        self._parts = parts
        self._room = (rules.MAX_KEY_CHARACTERS - len(root) - parts) // parts
        assert self._room > 2 * _DIGEST_BYTES, "a digest would not fit"

    def key(self, *parts: str) -> str:
        """Return the key of a name."""
        assert len(parts) == self._parts
        return "/".join((self._root, *map(self._part, parts)))

    def prefix(self, *parts: str) -> str:
        """Return the beginning of the keys of all names that begin with these parts."""
        return "/".join((self._root, *map(self._part, parts), ""))

    def beginnings(self, text: str) -> list[str]:
        """Return the beginnings of the keys of all names whose first part begins with a text.

        Keys of other names may begin so too.
        """
        escaped = _escaped(text)
        readable = [f"{self._root}/{escaped}"] if len(escaped) <= self._room else []
        return readable if not text else [*readable, f"{self._root}/{_SHORTENED}"]

    def parts(self, key: str) -> tuple[str, ...] | None:
        """Return the name of a key, or None if only its entry says it.

        Raises:
            ValidationError: No name has this key, so another program has chosen it.
        """
        readable = key.removeprefix(self._root + "/")
        if readable.startswith(_SHORTENED) or f"/{_SHORTENED}" in readable:
            return None
        return self._named(key, readable)

    def parts_of(self, key: str, stored: Any) -> tuple[str, ...]:
        """Return the name of an entry.

        Raises:
            ValidationError: It has none, so another program has written it.
        """
        return self.parts(key) or self._named(key, self._content(key, stored)[_NAME])

    def wrapped(self, value: Any, *parts: str) -> Any:
        """Return what to store: the value, together with the name if the key does not show it."""
        if all(len(_escaped(part)) <= self._room for part in parts):
            return value
        return {_NAME: "/".join(map(_escaped, parts)), _VALUE: value}

    def unwrapped(self, key: str, stored: Any) -> Any:
        """Return the value in what was stored under a key.

        Raises:
            ValidationError: The key is that of a long name, and no name is stored with the value.
        """
        return self._content(key, stored)[_VALUE] if f"/{_SHORTENED}" in key else stored

    def _content(self, key: str, stored: Any) -> dict[str, Any]:
        if not (isinstance(stored, dict) and isinstance(stored.get(_NAME), str) and _VALUE in stored):
            raise ValidationError(f"the entry {key!r} has no name and value in it", field="value")
        return stored

    def _named(self, key: str, readable: str) -> tuple[str, ...]:
        """Return the name that a key stands for, from the form that shows it."""
        try:
            parts = tuple(map(_unescaped, readable.split("/")))
        except UnicodeDecodeError:
            parts = ()
        if len(parts) != self._parts or self.key(*parts) != key:
            raise ValidationError(f"the key {key!r} stands for no name of an integration", field="key")
        return parts

    def _part(self, part: str) -> str:
        escaped = _escaped(part)
        if len(escaped) <= self._room:
            return escaped
        return _SHORTENED + blake2b(escaped.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def _escaped(part: str) -> str:
    """Write a part without `/` and without characters that no key may have."""
    return _ESCAPED.sub(_percent, part)


def _percent(character: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in character.group().encode("utf-8", "surrogatepass"))


def _unescaped(part: str) -> str:
    return unquote_to_bytes(part).decode("utf-8", "surrogatepass")
