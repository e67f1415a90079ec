"""Evaluation of conditions and updates of items, in slices if they take long.

Law: a condition is evaluated once per row, and an update is computed once. Results and counts are the same in
slices as in one piece. A command that has changed nothing yet is paused by undoing it, and applied again
later: the results found by then are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.decide.account import Account
from holdfast.decide.draft import Paused
from holdfast.errors import TooExpensive
from holdfast.tables.evaluation import comparisons_in, holds, judged
from holdfast.tables.updates import actions_in, updated, updating
from holdfast.work import SLICE, TEST

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from holdfast.decide.draft import Draft
    from holdfast.rows import Row
    from holdfast.tables.commands import UpdateItem
    from holdfast.tables.conditions import Condition
    from holdfast.tables.updates import Update


class Sliced:
    """Work on a row in progress, and its result. It keeps alive the objects whose ids identify it."""

    def __init__(
        self,
        draft: Draft,
        about: tuple[object, Row],
        work: Callable[[dict[str, Any], Account], Generator[None, None, Any]],
    ) -> None:
        assert draft.command is not None
        self.about = about
        self.account: Account = Account(draft.command)
        self.account.follow(draft.account)
        self.answer: Any = None
        self._slices = self._begin(draft, about[1], work)

    def _begin(
        self,
        draft: Draft,
        row: Row,
        work: Callable[[dict[str, Any], Account], Generator[None, None, Any]],
    ) -> Generator[None, None, Any]:
        self.account.read(row)
        item: dict[str, Any] = draft.items.attributes(row)
        if self.account.pausing():
            yield
        return (yield from work(item, self.account))

    def go_on(self) -> bool:
        """Do one more slice of work if there is no answer yet. Returns whether there is one now."""
        if self.answer is None:
            try:
                next(self._slices)
            except StopIteration as end:
                self.answer = end.value
            except TooExpensive as refusal:
                self.answer = refusal
        return self.answer is not None


def meets(draft: Draft, row: Row | None, condition: Condition) -> bool:
    """Return whether a row meets a condition.

    Raises:
        TooExpensive: This takes more work than the command may do.
        Paused: The slice of work ended before the answer was known.
    """
    if row is None:
        return holds(condition, None, work=draft.account)
    if comparisons_in(condition) * (16 * TEST + row.size) <= SLICE:
        draft.account.read(row)
        return holds(condition, draft.items.attributes(row), work=draft.account)
    return _in_slices(draft, condition, row, lambda item, account: judged(condition, item, account)) is True


def changed(draft: Draft, command: UpdateItem, row: Row, update: Update) -> dict[str, Any]:
    """Return the item of a row after an update.

    Raises:
        ValidationError: See `updated`.
        TooExpensive: This takes more work than the command may do.
        Paused: The slice of work ended before the item was computed.
    """
    if actions_in(update) * (16 * TEST + row.size) <= SLICE:
        draft.account.read(row)
        return updated(draft.items.attributes(row), update, work=draft.account)
    after: dict[str, Any] = _in_slices(
        draft, command, row, lambda item, account: updating(item, update, account)
    )
    return after


def _in_slices(
    draft: Draft,
    what: object,
    row: Row,
    work: Callable[[dict[str, Any], Account], Generator[None, None, Any]],
) -> Any:
    name = id(what), id(row)
    sliced = draft.slices.get(name)
    if sliced is None:
        sliced = draft.slices[name] = Sliced(draft, (what, row), work)
    while not sliced.go_on():
        if draft.unchanged:
            raise Paused
    draft.account.follow(sliced.account)
    if isinstance(sliced.answer, TooExpensive):
        raise sliced.answer
    return sliced.answer
