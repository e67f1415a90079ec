"""The marks (`sql.MARK`) of namespaces after this process's commits. They reveal other writers.

Law: marks only predict whether the next group is the sole writer; correctness never depends on them. If the
prediction is wrong, the statement that saves detects it.
"""

from __future__ import annotations

from typing import Final

from holdfast.bounded import Bounded

MOST: Final = 16_384
"""The maximum number of namespaces that are tracked."""


class Marks:
    """The mark of each namespace's row after the last commit, and whether other processes write there too."""

    def __init__(self) -> None:
        self._left: Bounded[str, int] = Bounded(MOST)
        self._shared: Bounded[str, None] = Bounded(MOST)

    def known(self, namespace: str) -> bool:
        """Return whether the namespace is known to have a row."""
        return namespace in self._left

    def alone(self, namespace: str) -> bool:
        """Return whether no other writer has been detected in the namespace."""
        return namespace in self._left and namespace not in self._shared

    def found(self, namespace: str, mark: int) -> None:
        """Detect from a loaded mark whether another process has written since our last commit."""
        if self._left.get(namespace) == mark:
            self._shared.pop(namespace, None)
        else:
            self._shared.keep(namespace, None)

    def left(self, namespace: str, mark: int) -> None:
        """Record the mark that a commit has left."""
        self._left.keep(namespace, mark)

    def forget(self, namespace: str) -> None:
        """Forget a namespace whose row is gone because the content of the database was replaced."""
        self._left.pop(namespace, None)
