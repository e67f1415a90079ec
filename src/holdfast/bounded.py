"""A dictionary that holds so many and no more, for what can be made again at any time.

Law: whatever is kept under a name that a caller chooses is kept here, or goes when it is no longer needed.
Losing an entry may cost time and nothing else; what must not be lost, such as a rate, is not kept here.
"""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Bounded(dict[K, V]):
    """Look-ups are those of a dictionary; only `keep` adds.

    Args:
        most: How many it holds.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def keep(self, key: K, value: V) -> V:
        """Hold a value, which is returned. When it is one too many, all others go first.

        To forget the oldest one by one would take microseconds each time; to begin again costs the few that
        are in use once every so many names.
        """
        if len(self) >= self._most and key not in self:
            self.clear()
        self[key] = value
        return value
