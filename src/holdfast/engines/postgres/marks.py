"""The marks that this process's commits have left on namespaces, and what they tell of others.

Law: a guess about the next group, never a ground for what it does. Whoever is wrongly taken to be alone is
told so by the statement that saves.
"""

from __future__ import annotations

from typing import Final

from holdfast.bounded import Bounded

MOST: Final = 16_384
"""How many namespaces are known."""


class Marks:
    """By namespace the mark of its row after the last commit, and whether others write there too."""

    def __init__(self) -> None:
        self._left: Bounded[str, int] = Bounded(MOST)
        self._shared: Bounded[str, None] = Bounded(MOST)

    def known(self, namespace: str) -> bool:
        """Whether there is a row of that namespace for sure."""
        return namespace in self._left

    def alone(self, namespace: str) -> bool:
        """Whether nobody else has been seen to write there."""
        return namespace in self._left and namespace not in self._shared

    def found(self, namespace: str, mark: int) -> None:
        """Learn from a mark whether somebody else has written since."""
        if self._left.get(namespace) == mark:
            self._shared.pop(namespace, None)
        else:
            self._shared.keep(namespace, None)

    def left(self, namespace: str, mark: int) -> None:
        """Remember what a commit has left."""
        self._left.keep(namespace, mark)

    def forget(self, namespace: str) -> None:
        """The row is gone: somebody has put another content into the database."""
        self._left.pop(namespace, None)
