"""Conditions of writes, judged in slices where that takes long.

Law: a condition is judged once for the row that it is about, and what is found and counted is the same in
slices as in one piece. A command that has changed nothing yet is paused by being taken back, and later
applied once more: what was judged by then is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.decide.account import Account
from holdfast.decide.draft import Paused
from holdfast.errors import TooExpensive
from holdfast.tables.conditions import comparisons_in, holds, judged
from holdfast.work import SLICE, TEST

if TYPE_CHECKING:
    from collections.abc import Generator

    from holdfast.decide.draft import Draft
    from holdfast.rows import Row
    from holdfast.tables.conditions import Condition


class Verdict:
    """A condition that is being judged, and what came of it; it keeps alive what it is known by."""

    def __init__(self, draft: Draft, condition: Condition, row: Row) -> None:
        assert draft.command is not None
        self.about = condition, row
        self.account = Account(draft.command)
        self.account.follow(draft.account)
        self.answer: bool | TooExpensive | None = None
        self._slices = self._judge(draft, condition, row)

    def _judge(self, draft: Draft, condition: Condition, row: Row) -> Generator[None, None, bool]:
        self.account.read(row)
        item: dict[str, Any] = draft.items.attributes(row)
        if self.account.pausing():
            yield
        return (yield from judged(condition, item, self.account))

    def go_on(self) -> bool:
        """Judge for one more slice if there is no answer yet; whether there is one now."""
        if self.answer is None:
            try:
                next(self._slices)
            except StopIteration as end:
                self.answer = end.value
            except TooExpensive as refusal:
                self.answer = refusal
        return self.answer is not None


def meets(draft: Draft, row: Row | None, condition: Condition) -> bool:
    """Whether what is there meets a condition.

    Raises:
        TooExpensive: To find out would take more work than the command may.
        Paused: A slice of work is over before that is known.
    """
    if row is None:
        return holds(condition, None, work=draft.account)
    if comparisons_in(condition) * (16 * TEST + row.size) <= SLICE:
        draft.account.read(row)
        return holds(condition, draft.items.attributes(row), work=draft.account)
    name = id(condition), id(row)
    verdict = draft.verdicts.get(name)
    if verdict is None:
        verdict = draft.verdicts[name] = Verdict(draft, condition, row)
    while not verdict.go_on():
        if draft.unchanged:
            raise Paused
    draft.account.follow(verdict.account)
    if isinstance(verdict.answer, TooExpensive):
        raise verdict.answer
    return verdict.answer is True
