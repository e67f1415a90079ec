"""A dictionary of bounded size, for values that can be recomputed at any time.

Anything kept under a name that a caller chooses is kept here, or is removed when no longer needed. Losing an
entry may cost time and nothing else. State that must not be lost, such as a rate, is kept elsewhere.
"""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Bounded(dict[K, V]):
    """A dictionary with a maximum size. Look up as usual, but add entries with `keep` only.

    Args:
        most: Maximum number of entries.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def keep(self, key: K, value: V) -> V:
        """Store a value and return it. If the dictionary is full, clear it first.

        Evicting the oldest entry would take microseconds on every call. Clearing only costs recomputing the
        few entries that are in use.
        """
        if len(self) >= self._most and key not in self:
            self.clear()
        self[key] = value
        return value
