"""Commands with many parts, applied in several slices.

Law: a slice ends between two parts, and what was done stays. The results are the same as in one piece: what a
command checks before its first write is not checked again in a later slice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from holdfast.decide.draft import Suspended

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.decide.draft import Draft

T = TypeVar("T")

MOST: Final = 100
"""The number of parts in a slice. A hundred small writes take about a millisecond."""


def each(draft: Draft, phase: int, todo: Sequence[T], apply: Callable[[Draft, T], Any]) -> list[Any]:
    """Apply a function to each part of the current command.

    Args:
        draft: The draft.
        phase: A number that tells this call from others about the same command.
        todo: The parts.
        apply: The function.

    Returns:
        The results, by position.

    Raises:
        Suspended: The slice is over. The next call goes on behind the last part.
    """
    if len(todo) <= MOST:
        return [apply(draft, part) for part in todo]
    done: list[Any] = draft.slices.setdefault((id(draft.command), phase), [])
    done.extend(apply(draft, part) for part in todo[len(done) : len(done) + MOST])
    if len(done) < len(todo):
        raise Suspended
    return done


def begun(draft: Draft, phase: int) -> bool:
    """Return whether an earlier slice has applied parts of the current command in a phase."""
    return (id(draft.command), phase) in draft.slices
