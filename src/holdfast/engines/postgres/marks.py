"""The marks (`sql.MARK`) of namespaces after this process's commits. They reveal other writers.

A commit that several namespaces share also leaves their states here, so that the next one need not load them.

Law: marks only predict whether the next group is the sole writer; correctness never depends on them. If the
prediction is wrong, the statement that saves detects it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.bounded import Bounded

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.rows import Namespace

MOST: Final = 16_384
"""The maximum number of namespaces that are tracked."""


class LeftState(NamedTuple):
    """A namespace as a commit has left it, its mark then, and the start of the server that kept it."""

    mark: int
    namespace: Namespace
    started: int


class Marks:
    """The mark of each namespace's row after the last commit, and whether other processes write there too."""

    def __init__(self) -> None:
        self._left: Bounded[str, int] = Bounded(MOST)
        self._states: Bounded[str, LeftState] = Bounded(MOST)
        self._shared: Bounded[str, None] = Bounded(MOST)
        self._apart: Bounded[str, None] = Bounded(MOST)

    def known(self, namespace: str) -> bool:
        """Return whether the namespace is known to have a row."""
        return namespace in self._left

    def alone(self, namespace: str) -> bool:
        """Return whether no other writer has been detected in the namespace."""
        return namespace in self._left and namespace not in self._shared

    def together(self, namespace: str) -> bool:
        """Return whether a group of the namespace may share a transaction with those of others."""
        return namespace in self._left and namespace not in self._shared and namespace not in self._apart

    def keep_apart(self, namespaces: Iterable[str]) -> None:
        """Record that groups of these namespaces load more than those that share a transaction."""
        for namespace in namespaces:
            self._apart.keep(namespace, None)

    def found(self, namespace: str, mark: int) -> None:
        """Detect from a loaded mark whether another process has written since our last commit."""
        left = self._left.get(namespace)
        if left == mark:
            self._shared.pop(namespace, None)
        elif left is not None:
            self._shared.keep(namespace, None)

    def left(self, namespace: str, mark: int) -> None:
        """Record the mark that a commit has left."""
        self._left.keep(namespace, mark)

    def left_as(self, state: LeftState) -> None:
        """Record the state that a commit has left."""
        self._left.keep(state.namespace.name, state.mark)
        self._states.keep(state.namespace.name, state)

    def states(self, namespaces: Iterable[str]) -> dict[str, LeftState]:
        """Return the namespaces as our last commits have left them, where that is known."""
        known: dict[str, LeftState] = {}
        for namespace in namespaces:
            state = self._states.get(namespace)
            if state is not None and state.mark == self._left.get(namespace):
                known[namespace] = state
        return known

    def forget(self, namespace: str) -> None:
        """Forget a namespace whose row is gone because the content of the database was replaced."""
        self._left.pop(namespace, None)
